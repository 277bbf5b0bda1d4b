"""``traceview analyze``: traces in; a verdict, a report and tables out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from traceview.cli import arithmetic, names, options, output
from traceview.cli.progress import progress_of


@click.command(short_help="Where the time of a run went: verdict, HTML report, JSON, tables.")
@click.option("-o", "--output", "html", metavar="FILE", help="Write the HTML report.")
@click.option("--json", "json_", metavar="FILE", help="Write the result as JSON; '-' prints only JSON on stdout.")
@click.option("--markdown", metavar="FILE", help="Write the verdict as Markdown; '-' prints it.")
@click.option("--tables", metavar="DIR", help="Write every table as Parquet into this (new) folder.")
@click.option(
    "--baseline",
    metavar="PATH",
    help="Compare with this run: traces, or a result of --json. What slows all ranks alike shows only so.",
)
@click.option("--step-range", metavar="REGEX", help="Host ranges that match are the steps.")
@click.option("--topology", type=click.Path(exists=True, dir_okay=False), help="CSV: host,domain,rack,pod,site,rail.")
@click.option("--peaks", type=click.Path(exists=True, dir_okay=False), help="JSON: peaks of your machines.")
@arithmetic.options
@click.option(
    "--focus",
    multiple=True,
    metavar="rank=R,step=S",
    help="Embed the events of this rank and step in the report. Repeatable.",
)
@click.option("--no-charts", is_flag=True, help="Leave the analytic charts out of the report (smaller, faster).")
@click.option("--force", is_flag=True, help="Overwrite outputs that exist.")
@click.option("-v", "--verbose", is_flag=True, help="All tables in the terminal.")
@options.reading
def analyze(paths: tuple[str, ...], **given: Any) -> int:
    """Read the traces of one run (files, folders, globs) and say where every step's time went.

    Exit status: 0 analysed (whatever the verdict), 2 nothing usable.
    """
    redactor = names.ask(given)
    files = [given[name] for name in ("html", "json_", "markdown")]
    output.refuse_existing([*files, given["redact_map"]], given["force"])
    output.refuse_folder(given["tables"], given["force"])
    from traceview import pipeline
    from traceview_reports.html.timeline_data import parse_focus

    focus = tuple(parse_focus(f) for f in given["focus"])

    how = {name: given[name] for name in ("step_range", "topology", "peaks")} | {"work": arithmetic.work(given)}
    with progress_of(quiet=given["quiet"] or given["json_"] == "-") as progress:
        opening = {"cache": not given["no_cache"], "workers": given["workers"], "progress": progress}
        reading = options.read_options(**given)
        baseline: tuple[Any, ...] = ()
        if given["baseline"] is not None:
            same_steps = pipeline.StudyOptions(step_range=given["step_range"])
            baseline = tuple(pipeline.load([given["baseline"]], reading, same_steps, **opening))
        study = pipeline.study(paths, reading, pipeline.StudyOptions(**how, baseline=baseline), **opening)
    outputs = [*files, given["tables"], given["redact_map"]]
    output.refuse_inputs(outputs, study.run)
    output.refuse_sources(outputs, [given["baseline"] or "", *(s.path for r in baseline for s in r.run.sources)])
    if redactor:
        for result in baseline:
            redactor.know_result(result)
        study = pipeline.redacted(study, redactor)
    _write(study, given, focus)
    return 0


def _write(study: Any, given: dict[str, Any], focus: tuple[Any, ...]) -> None:
    from traceview import pipeline
    from traceview_reports import markdown, terminal

    result = study.result
    names.write(
        given,
        lambda: terminal.render(result, color=sys.stdout.isatty(), verbose=given["verbose"]),
        {
            "html": lambda path: output.write(path, _page(study, given, focus)),
            "json_": lambda path: output.write(path, result.to_json()),
            "markdown": lambda path: output.write(path, markdown.render(result).encode()),
            "tables": lambda path: pipeline.write_tables(study, Path(path), force=given["force"]),
        },
    )


def _page(study: Any, given: dict[str, Any], focus: tuple[Any, ...]) -> bytes:
    from traceview_reports import html
    from traceview_reports.html.timeline_data import Budget

    budget, charts = Budget(focus=focus), not given["no_charts"]
    return html.render(study.result, study.run, detail=study.detail, charts=charts, budget=budget).encode()
