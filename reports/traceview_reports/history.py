"""The trend of a job over its runs, in the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from traceview import units
from traceview.history import Changed, Entry, Trend
from traceview_reports import markdown, terminal
from traceview_reports.names import clean
from traceview_reports.tables import Column, View
from traceview_reports.verdict import Line

_BARS = "▁▂▃▄▅▆▇█"
_DOTS = 60  # runs in the line of bars


def render(trends: Sequence[Trend], *, width: int | None = None, color: bool = False, verbose: bool = False) -> str:
    """Per job: its latest state, the changes, who straggled repeatedly, the latest runs."""
    page = terminal.Page(width, color)
    for n, trend in enumerate(trends):
        if n:
            page.out.print()
        terminal.head(page.out, lines(trend), "bold")
        terminal.table(page.out, runs(trend), verbose)
    return page.text()


def to_markdown(trends: Sequence[Trend]) -> str:
    """GitHub-flavoured Markdown."""
    blocks = []
    for trend in trends:
        first, *rest = lines(trend)
        told = [f"## {markdown.escape(first.text, 600)}", ""]
        told += [f"- **{line.label}** {markdown.escape(line.text, 600)}" for line in rest]
        blocks += ["\n".join(told), markdown.table(runs(trend))]
    return "\n\n".join(b for b in blocks if b) + "\n"


def lines(trend: Trend) -> list[Line]:
    """The job, its course, its changes (the latest first), repeated culprits, what limits the view."""
    last = trend.runs[-1]
    where = " · ".join(x for x in (f"{trend.world_size} ranks" if trend.world_size else "", trend.gpu) if x)
    count = f"{len(trend.runs)} run{'s' * (len(trend.runs) > 1)}"
    texts = [
        ("JOB", f"{trend.job}: {units.time(last.step_ns)} a step in the latest of {count} · {where}"),
        ("TREND", _bars(trend.runs)),
        *(("CHANGE", _change(c)) for c in reversed(trend.changes)),
        ("AGAIN", ", ".join(f"{who} held the others up in {n} runs" for who, n in list(trend.culprits.items())[:5])),
        ("NOTE", "; ".join(trend.notes)),
    ]
    return [Line(label, clean(text, 600)) for label, text in texts if text]


def _bars(runs: Sequence[Entry]) -> str:
    """The step times of the latest runs as bars from the least to the largest."""
    times = [r.step_ns for r in runs[-_DOTS:]]
    low, high = min(times), max(times)
    if len(times) < 2:
        return ""
    bars = "".join(_BARS[(t - low) * (len(_BARS) - 1) // max(high - low, 1)] for t in times)
    return f"{bars}  {units.time(low)} to {units.time(high)}"


def _change(c: Changed) -> str:
    parts = ", ".join(f"{group} {units.change(ns)}" for group, ns in list(c.parts_ns.items())[:3])
    label = f" ({c.label})" if c.label else ""
    times = f"{units.time(c.before_ns)} → {units.time(c.after_ns)}, {units.change_share(c.change)}"
    return f"from run {c.index + 1}, {c.run}{label}: {times}" + (f"; {parts}" if parts else "")


def runs(trend: Trend) -> View:
    """The runs, the latest first."""
    first = {c.index for c in trend.changes}
    rows = list(enumerate(trend.runs))[::-1]
    columns = (
        Column("run", "id", lambda r: r[0] + 1, "history.run"),
        Column("started", "text", lambda r: _utc(r[1].started_ns), "history.started"),
        Column("name", "name", lambda r: r[1].name, "history.name"),
        Column("label", "name", lambda r: r[1].label, "history.label"),
        Column("step time", "time", lambda r: r[1].step_ns, "versus.step"),
        Column("steps", "int", lambda r: r[1].steps, "history.steps", 1),
        Column("changed", "flag", lambda r: r[0] in first, "history.changed"),
        Column("verdict", "prose", lambda r: r[1].headline, "history.verdict", 1),
    )
    return View("runs", "Runs", columns, rows, "No run was kept.", "the latest first; times are UTC")


def _utc(ns: int | None) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M") if ns and ns > 10**17 else "-"
