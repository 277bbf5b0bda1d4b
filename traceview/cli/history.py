"""``traceview history``: keep runs, and see when the step time changed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from traceview.cli import names, options, output, versus
from traceview.errors import TraceviewError
from traceview.units import one_line


def _job(context: Any, param: Any, value: str | None) -> str | None:
    if value is not None and not 0 < len(value.strip()) <= 200:
        raise click.BadParameter("a job has a name of 1 to 200 characters", context, param)
    return value and one_line(value)


OUTPUTS = ("html", "json_", "markdown")


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
@click.option(
    "--job",
    metavar="NAME",
    callback=_job,
    help="The job that the runs are of [default: default]; without PATH: only it.",
)
@click.option("--label", default="", metavar="TEXT", help="A word to keep with the runs: a commit, a driver version.")
@click.option("-o", "--output", "html", metavar="FILE", help="Write the trends as a page (HTML).")
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
    redactor = names.ask(given)
    outputs = [given[name] for name in (*OUTPUTS, "redact_map")]
    output.refuse_existing(outputs, given["force"])
    from traceview.history import Store, trends

    results = versus.read(paths, given) if paths else []
    sources = [s.path for r in results for s in r.run.sources]
    output.refuse_sources(outputs, [*paths, given["db"], *sources])
    output.refuse_sources([given["db"]], [*paths, *sources])
    if redactor:
        results = [redactor.result(r) for r in results]
    job, label = (redactor.value(given[name]) if redactor else given[name] for name in ("job", "label"))
    store = Store(given["db"], create=bool(paths))
    try:
        added = [store.add(r, job or "default", label) for r in results]
        entries = store.entries(None if redactor else job)
    finally:
        store.close()
    if redactor:
        entries = [e for e in (_redacted(e, redactor) for e in entries) if job in (None, e.job)]
    if not entries:
        named = f" of job {given['job']}" if given["job"] else ""
        raise TraceviewError(f"{store.where}: no run{named}; `traceview history TRACES` adds one")
    _write(trends(entries), added, given)
    return 0


def _redacted(entry: Any, redactor: Any) -> Any:
    """What is kept of a run as others may see it; runs that were added with --redact stay as they are."""
    if entry.redacted:
        return entry
    redactor.know("run", entry.name)
    for culprit in entry.culprits:
        if not culprit.startswith("rank "):
            redactor.know("host", culprit)
    return redactor.value(entry)


def _write(found: Any, added: Sequence[str], given: dict[str, Any]) -> None:
    import msgspec

    from traceview_reports import history as report

    def text() -> str:
        counts = ", ".join(f"{n} {what}" for what, n in ({"added": 0} | Counter(added)).items())
        shown = report.render(found, color=sys.stdout.isatty(), verbose=given["verbose"])
        return f"{counts}\n\n{shown}" if added else shown

    names.write(
        given,
        text,
        {
            "html": lambda path: output.write(path, _page(found)),
            "json_": lambda path: output.write(
                path, msgspec.json.encode({"schema": "traceview.history/1", "trends": found})
            ),
            "markdown": lambda path: output.write(path, report.to_markdown(found).encode()),
        },
    )


def _page(found: Any) -> bytes:
    from traceview_reports.html import trend as page

    return page.render(found).encode()
