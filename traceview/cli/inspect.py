"""``traceview inspect``: what is in these files, what is missing for a full verdict, how to record it."""

from __future__ import annotations

from typing import Any

import click

from traceview.cli import names, options, output
from traceview.cli.progress import progress_of


@click.command(short_help="What is in these files, and what a full verdict lacks.")
@click.option("--json", "json_", metavar="FILE", help="Write the same as JSON; '-' prints only JSON on stdout.")
@click.option("--force", is_flag=True, help="Overwrite outputs that exist.")
@options.reading
def inspect(paths: tuple[str, ...], **given: Any) -> int:
    """Look at traces and logs without analysing them.

    Exit status: 0 readable, 2 nothing usable.
    """
    redactor = names.ask(given)
    output.refuse_existing([given["json_"], given["redact_map"]], given["force"])
    from traceview import pipeline
    from traceview.analysis import inventory

    with progress_of(quiet=given["quiet"] or given["json_"] == "-") as progress:
        run = pipeline.open(
            *paths,
            options=options.read_options(**given),
            cache=not given["no_cache"],
            workers=given["workers"],
            progress=progress,
        )
    output.refuse_inputs([given["json_"], given["redact_map"]], run)
    found = inventory.take(run)
    if redactor:
        redactor.know_run(run)
        found = redactor.value(found)
    if given["json_"]:
        output.write(given["json_"], found.to_json())
    if given["json_"] != "-" and not given["quiet"]:
        output.say(found.text())
    return 0
