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
        blocks += [f"## {markdown.escape(first.text, 600)}", markdown.bullets(rest), markdown.table(runs(trend))]
    return "\n\n".join(b for b in blocks if b) + "\n"


def lines(trend: Trend) -> list[Line]:
    """The job, its course, its changes (the latest first), repeated culprits, what limits the view."""
    last = trend.runs[-1]
    texts = [
        ("JOB", f"{trend.job}: {units.time(last.step_ns)} a step in the latest of {count(trend)}"),
        ("TREND", _bars(trend.runs)),
        *(("CHANGE", _change(c)) for c in reversed(trend.changes)),
        ("AGAIN", ", ".join(f"{who} held the others up in {n} runs" for who, n in list(trend.culprits.items())[:5])),
        ("NOTE", "; ".join(trend.notes)),
    ]
    return [Line(label, clean(text, 600)) for label, text in texts if text]


def count(trend: Trend) -> str:
    """How many runs on what."""
    where = (f"{trend.world_size} ranks" if trend.world_size else "", trend.gpu)
    return " · ".join([f"{len(trend.runs)} run{'s' * (len(trend.runs) > 1)}", *filter(None, where)])


def _bars(runs: Sequence[Entry]) -> str:
    """The step times of the latest runs as bars from the least to the largest."""
    times = [r.step_ns for r in runs[-_DOTS:]]
    low, high = min(times), max(times)
    if len(times) < 2:
        return ""
    bars = "".join(_BARS[(t - low) * (len(_BARS) - 1) // max(high - low, 1)] for t in times)
    return f"{bars}  {units.time(low)} to {units.time(high)}"


def _change(c: Changed) -> str:
    parts = _grown(c, 3)
    label = f" ({c.label})" if c.label else ""
    times = f"{units.time(c.before_ns)} → {units.time(c.after_ns)}, {units.change_share(c.change)}"
    return f"from run {c.index + 1}, {c.run}{label}: {times}" + (f"; {parts}" if parts else "")


def _grown(c: Changed, most: int = 8) -> str:
    return ", ".join(f"{group} {units.change(ns)}" for group, ns in list(c.parts_ns.items())[:most])


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


def jobs(trends: Sequence[Trend]) -> View:
    """The jobs, in the given order."""
    columns = (
        Column("job", "name", lambda t: t.job, "history.job"),
        Column("ranks", "int", lambda t: t.world_size, "history.ranks"),
        Column("GPU", "name", lambda t: t.gpu, "device_name"),
        Column("runs", "int", lambda t: len(t.runs), "history.runs"),
        Column("latest", "text", lambda t: _utc(t.runs[-1].started_ns), "history.started"),
        Column("step time", "time", lambda t: t.runs[-1].step_ns, "versus.step"),
        Column("changes", "int", lambda t: len(t.changes), "history.changes"),
        Column("last change", "text", _last_change, "history.change"),
        Column("from run", "name", lambda t: t.changes[-1].run if t.changes else "", "history.name"),
    )
    return View("jobs", "Jobs", columns, trends, "No job was kept.", "the one with the latest run first")


def _last_change(trend: Trend) -> str:
    return units.change_share(trend.changes[-1].change) if trend.changes else ""


def changes(trend: Trend) -> View:
    """The change points, the latest first; numbers are those of the figures."""
    columns = (
        Column("number", "id", lambda r: r[0], "history.number"),
        Column("from run", "id", lambda r: r[1].index + 1, "history.run"),
        Column("name", "name", lambda r: r[1].run, "history.name"),
        Column("label", "name", lambda r: r[1].label, "history.label"),
        Column("before", "time", lambda r: r[1].before_ns, "history.before"),
        Column("after", "time", lambda r: r[1].after_ns, "history.before"),
        Column("change", "text", lambda r: units.change_share(r[1].change), "history.change"),
        Column("what changed", "prose", lambda r: _grown(r[1]), "history.what"),
        Column("p", "text", lambda r: f"{r[1].p_value:.1g}", "history.p", 1),
    )
    rows = list(enumerate(trend.changes, 1))[::-1]
    return View("changes", "Changes", columns, rows, "No change was found.", "the latest first")


def again(trend: Trend) -> View:
    """Who held the others up in several runs."""
    last = {who: n for n, run in enumerate(trend.runs, 1) for who in run.culprits}
    columns = (
        Column("host or rank", "name", lambda r: r[0], "history.who"),
        Column("runs", "int", lambda r: r[1], "history.runs"),
        Column("of runs %", "share", lambda r: r[1] / len(trend.runs), "share"),
        Column("last in run", "id", lambda r: last[r[0]], "history.run"),
    )
    rows = list(trend.culprits.items())
    return View("again", "Held the others up again", columns, rows, "Nobody did in several runs.", "")


def _utc(ns: int | None) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M") if ns and ns > 10**17 else "-"
