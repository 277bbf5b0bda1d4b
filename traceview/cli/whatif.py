"""``traceview what-if``: what the step would take if parts of it were faster."""

from __future__ import annotations

import math
import sys
from typing import Any

import click

from traceview.cli import names, options, output
from traceview.cli.progress import progress_of


def _network(context: Any, param: Any, values: tuple[str, ...]) -> tuple[tuple[str, float], ...]:
    """'inter=2' as (name, factor)."""
    found = []
    for text in values:
        name, _, factor = text.rpartition("=")
        try:
            times = float(factor)
        except ValueError:
            times = math.nan
        if not name or not 0 < times < math.inf:
            raise click.BadParameter(f"{text!r}: write a tier or group and a factor, as in inter=2", context, param)
        found.append((name, times))
    return tuple(found)


@click.command("what-if", short_help="What would the step take with a faster network, no straggler, no staging, ...?")
@click.option(
    "--replace", multiple=True, metavar="RANKS|HOST", help="These ranks (3 or 0-3,7) become typical. Repeatable."
)
@click.option("--balance", is_flag=True, help="The same work, evenly spread.")
@click.option(
    "--network",
    multiple=True,
    callback=_network,
    metavar="TIER|GROUP=FACTOR",
    help="Communication of this tier (inter, intra, all, or one of the report) or group is FACTOR times as fast; its "
    "latency stays. Repeatable.",
)
@click.option("--no-staging", is_flag=True, help="No copies over PCIe; no communication through host memory.")
@click.option("--no-data-wait", is_flag=True, help="The input is always ready.")
@click.option("--no-launch-gaps", is_flag=True, help="CUDA graphs: no launch latency, no host work between launches.")
@click.option("--overlap", is_flag=True, help="Communication hides behind compute as far as it can.")
@click.option("--even-tokens", is_flag=True, help="Every expert gets the same number of tokens.")
@click.option("--free-communication", is_flag=True, help="All communication is free: the most a network can save.")
@click.option("--json", "json_", metavar="FILE", help="Write it as JSON; '-' prints only JSON on stdout.")
@click.option("--markdown", metavar="FILE", help="Write it as Markdown; '-' prints it.")
@click.option("--step-range", metavar="REGEX", help="Host ranges that match are the steps.")
@click.option("--topology", type=click.Path(exists=True, dir_okay=False), help="CSV: host,domain,rack,pod,site,rail.")
@click.option("--peaks", type=click.Path(exists=True, dir_okay=False), help="JSON: peak bandwidths of your machines.")
@click.option("--force", is_flag=True, help="Overwrite outputs that exist.")
@options.reading
def what_if(paths: tuple[str, ...], **given: Any) -> int:
    """Predict the step time of one run under changes that hold together; without any, of each that applies, alone.

    Exit status: 0 answered, also where an answer is "cannot tell", 2 nothing usable.
    """
    redactor = names.ask(given)
    files = [given["json_"], given["markdown"], given["redact_map"]]
    output.refuse_existing(files, given["force"])
    from traceview import pipeline

    how = pipeline.StudyOptions(**{name: given[name] for name in ("step_range", "topology", "peaks")})
    with progress_of(quiet=given["quiet"] or "-" in files) as progress:
        run = pipeline.open(
            paths,
            options=options.read_options(**given),
            cache=not given["no_cache"],
            workers=given["workers"],
            progress=progress,
        )
        output.refuse_inputs(files, run)
        if redactor:
            redactor.know_run(run)
        found = pipeline.ask(run, _question(given), how)
    _write(redactor.value(found) if redactor else found, given)
    return 0


def _question(given: dict[str, Any]) -> Any:
    from traceview import pipeline
    from traceview.analysis.whatif.asked import Asked

    return pipeline.Question(
        replace=given["replace"],
        changes=Asked(
            balance=given["balance"],
            network=given["network"],
            staging=not given["no_staging"],
            data_wait=not given["no_data_wait"],
            launch_gaps=not given["no_launch_gaps"],
            overlap=given["overlap"],
            even_tokens=given["even_tokens"],
            communication=not given["free_communication"],
        ),
    )


def _write(found: Any, given: dict[str, Any]) -> None:
    from traceview_reports import whatif

    names.write(
        given,
        lambda: whatif.render(found, color=sys.stdout.isatty()),
        {
            "json_": lambda path: output.write(path, found.to_json()),
            "markdown": lambda path: output.write(path, whatif.to_markdown(found).encode()),
        },
    )
