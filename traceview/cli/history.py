"""``traceview history``: keep runs, and see when the step time changed."""

from __future__ import annotations

import sys
from typing import Any

import click

from traceview.cli import options, output, versus
from traceview.errors import TraceviewError


@click.command(short_help="Keep runs, and see when their step time changed and who straggled again.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--db",
    default="traceview-history.sqlite",
    show_default=True,
    envvar="TRACEVIEW_HISTORY",
    metavar="FILE|URL",
    help="Where runs are kept; a database URL works too. Also $TRACEVIEW_HISTORY.",
)
@click.option("--job", metavar="NAME", help="The job that the runs are of [default: default]; without PATH: only it.")
@click.option("--label", default="", metavar="TEXT", help="A word to keep with the runs: a commit, a driver version.")
@click.option("--json", "json_", metavar="FILE", help="Write the trends as JSON; '-' prints only JSON on stdout.")
@click.option("--markdown", metavar="FILE", help="Write the trends as Markdown; '-' prints them.")
@click.option("--step-range", metavar="REGEX", help="Host ranges that match are the steps.")
@click.option("--force", is_flag=True, help="Overwrite outputs that exist.")
@click.option("-v", "--verbose", is_flag=True, help="More runs in the terminal.")
@options.files
def history(paths: tuple[str, ...], **given: Any) -> int:
    """Add runs to the history (PATHs as in compare), then show the trend of each job.

    Jobs are told apart by name, world size and GPU. From 10 runs on changes of the step time are looked for.

    Exit status: 0 shown, 2 nothing usable.
    """
    output.refuse_existing([given["json_"], given["markdown"]], given["force"])
    from traceview.history import Store, trends

    results = versus.read(paths, given) if paths else []
    sources = [s.path for r in results for s in r.run.sources]
    output.refuse_sources([given["json_"], given["markdown"]], [*paths, given["db"], *sources])
    output.refuse_sources([given["db"]], [*paths, *sources])
    store = Store(given["db"], create=bool(paths))
    try:
        added = [store.add(r, given["job"] or "default", given["label"]) for r in results]
        entries = store.entries(given["job"])
    finally:
        store.close()
    if not entries:
        named = f" of job {given['job']}" if given["job"] else ""
        raise TraceviewError(f"{store.where}: no run{named}; `traceview history TRACES` adds one")
    _write(trends(entries), added, given)
    return 0


def _write(found: Any, added: list[bool], given: dict[str, Any]) -> None:
    import msgspec

    from traceview_reports import history as report

    silent = given["quiet"] or "-" in (given["json_"], given["markdown"])
    if not silent:
        if added:
            known = f", {added.count(False)} known already" if False in added else ""
            click.echo(f"{added.count(True)} added{known}\n")
        sys.stdout.write(report.render(found, color=sys.stdout.isatty(), verbose=given["verbose"]))
    if given["json_"]:
        output.write(given["json_"], msgspec.json.encode({"schema": "traceview.history/1", "trends": found}))
    if given["markdown"]:
        output.write(given["markdown"], report.to_markdown(found).encode())
    for name in ("json_", "markdown"):
        if given[name] and given[name] != "-" and not silent:
            click.echo(f"wrote {given[name]}")
