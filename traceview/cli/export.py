"""``traceview export``: a window of the run, aligned and annotated, that opens in Perfetto."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from traceview import units
from traceview.cli import names, options, output
from traceview.cli.progress import progress_of
from traceview.errors import TraceviewError


@click.command(short_help="An aligned, annotated window for ui.perfetto.dev.")
@click.option("-o", "--output", "out", required=True, metavar="FILE", help="Chrome JSON; gzip if it ends in .gz.")
@click.option("--ranks", metavar="0-3,7", help="Only these ranks [default: all].")
@click.option("--step", type=int, help="The window of this step [default: the slowest used step].")
@click.option("--force", is_flag=True, help="Overwrite an output that exists.")
@options.reading
def export(paths: tuple[str, ...], **given: Any) -> int:
    """Write one step of the run as a trace that Perfetto opens: aligned clocks, waiting apart from transfer.

    Exit status: 0 written, 2 nothing usable.
    """
    redactor = names.ask(given)
    output.refuse_existing([given["out"], given["redact_map"]], given["force"])
    from traceview import pipeline

    with progress_of(quiet=given["quiet"]) as progress:
        study = pipeline.study(
            paths,
            options.read_options(**given),
            cache=not given["no_cache"],
            workers=given["workers"],
            progress=progress,
        )
    output.refuse_inputs([given["out"], given["redact_map"]], study.run)
    if redactor:
        study = pipeline.redacted(study, redactor)
    step = _step(study.result, given["step"])
    ranks = _ranks(study.run, given["ranks"])
    pipeline.export_window(study, Path(given["out"]), ranks, step)
    if not given["quiet"]:
        names.wrote(given["out"], f": step {step} of {units.named_ranks(ranks)}")
    return 0


def _step(result: Any, step: int | None) -> int:
    if not result.step_rows:
        raise TraceviewError("no step to export: the run has no step windows")
    steps = {row.step: row for row in result.step_rows}
    if step is None:
        return int(max(result.step_rows, key=lambda row: row.wall_ns).step)
    if step not in steps:
        raise TraceviewError(f"--step {step}: the run has the steps {units.ranks(list(steps))}")
    return step


def _ranks(run: Any, text: str | None) -> list[int]:
    from traceview.run import parse_members

    try:
        chosen = [r for r in parse_members(text) if r in run.parts] if text else run.ranks
    except ValueError:
        chosen = []
    if not chosen:
        raise TraceviewError(f"--ranks {text}: the run has the ranks {units.ranks(run.ranks)}")
    return list(chosen)
