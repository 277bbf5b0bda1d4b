"""The terminal report: the verdict first, then the 100 % bar and the tables, compact and aligned."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from io import StringIO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from traceview.result import Finding, Result
from traceview_reports import verdict, views, views_places, views_quality, views_versus
from traceview_reports.names import clean
from traceview_reports.tables import WORDS, Part, View, parts

# The colour of a group in a terminal of 256 colours; near those of the page.
_COLOURS = {
    "compute": "color(32)",
    "comm": "color(166)",
    "straggler": "color(214)",
    "pipeline": "color(140)",
    "staging": "color(29)",
    "other": "color(117)",
    "idle": "color(245)",
    "uncovered": "color(240)",
}
_STATUS = {"slow": "bold red", "healthy": "bold green", "cannot_tell": "bold yellow"}
_SHORT, _LONG = 8, 40  # rows of a table, normally and with verbose


def render(result: Result, *, width: int | None = None, color: bool = False, verbose: bool = False) -> str:
    """The report as lines of at most ``width`` columns, with ANSI colours if ``color``; ``verbose`` shows more.

    Without ``width`` that of the terminal is taken (100 where there is none), up to 160.
    """
    page = Page(width, color)
    head(page.out, verdict.lines(result), _STATUS.get(result.verdict.status, "bold"))
    _bar(page.out, result)
    _findings(page.out, result, verbose)
    if verbose and result.against:
        table(page.out, views_versus.against(result), verbose)
    for build in _TABLES if verbose else _SHORT_TABLES:
        table(page.out, build(result), verbose)
    _quality(page.out, result, verbose)
    return page.text()


class Page:
    """A console that writes into a text."""

    def __init__(self, width: int | None, color: bool) -> None:
        self._file = StringIO()
        self.out = Console(
            file=self._file,
            width=max(width or min(shutil.get_terminal_size((100, 24)).columns, 160), 40),
            force_terminal=color,
            color_system="256" if color else None,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def text(self) -> str:
        """What was written, without blanks at the ends of lines."""
        lines = self._file.getvalue().split("\n")
        return "\n".join(re.sub(r" +((?:\x1b\[[0-9;]*m)*)$", r"\1", line) for line in lines)


_TABLES: tuple[Callable[[Result], View], ...] = (
    views.stragglers,
    partial(views_places.leading, most=5),
    views.experts,
    views.steps,
    views.ranks,
    views.collectives,
    views.copies,
    views.idle,
    views.kernels,
    views.blame,
    views.path,
    views.memory,
    views_quality.arrivals,
    views_quality.hosts,
    views_quality.matching,
    views.metrics,
)
_SHORT_TABLES: tuple[Callable[[Result], View], ...] = (
    views.stragglers,
    views_places.leading,
    partial(views.experts, short=True),
    views.steps,
    views.ranks,
    views.collectives,
    views.copies,
)


def head(out: Console, lines: Sequence[verdict.Line], style: str) -> None:
    """Labelled lines; the first one is the verdict."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for i, line in enumerate(lines):
        grid.add_row(Text(line.label, style if i == 0 else "bold"), Text(line.text, "bold" if i == 0 else ""))
    out.print(grid)


def _bar(out: Console, result: Result) -> None:
    shown = parts(result)
    if not shown:
        return
    _title(out, "Where the time goes", verdict.hundred_percent(result))
    room = min(max(out.width - 34, 8), 60)
    for part in shown:
        if part.ns:
            out.print(_bar_row(part, room))
    absent = ", ".join(p.group for p in shown if not p.ns)
    if absent:
        out.print(Text(f"  none of: {absent}", "dim"))


def _bar_row(part: Part, room: int) -> Text:
    row = Text(f"  {part.group:<22}{part.percent:>5} %  ")
    row.append("█" * max(round(room * part.share), 1) if part.share * room >= 0.5 else "▏", _COLOURS[part.key])
    return row


def _title(out: Console, title: str, note: str = "") -> None:
    out.print()
    out.print(Text.assemble((title, "bold"), (f"  {note}" if note else "", "dim")))


def _findings(out: Console, result: Result, verbose: bool) -> None:
    ordered = verdict.ordered(result)
    if not ordered:
        return
    _title(out, "What to fix first", "savings do not add up")
    for n, finding in enumerate(ordered[: _LONG if verbose else 3], 1):
        _finding(out, n, result, finding, verbose)
    if not verbose and len(ordered) > 3:
        out.print(Text(f"  and {len(ordered) - 3} more (-v)", "dim"))


def _finding(out: Console, number: int, result: Result, finding: Finding, verbose: bool) -> None:
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(no_wrap=True)
    row.add_column(no_wrap=True)
    row.add_column()
    claim = Text.assemble((verdict.title(finding), "bold"), f" ({clean(finding.confidence)})")
    row.add_row(f"{number}.", Text(verdict.saving(result, finding, short=True), _COLOURS["comm"]), claim)
    out.print(Padding(row, (0, 0, 0, 2)))
    for line in finding.evidence if verbose else finding.evidence[:1]:
        out.print(Padding(Text(clean(line, 600), "dim"), (0, 0, 0, 5)))
    if finding.advice:
        out.print(Padding(Text(f"→ {clean(finding.advice, 400)}"), (0, 0, 0, 5)))


def table(out: Console, view: View, verbose: bool) -> None:
    """A table with its title; without ``verbose`` its first rows, and only the columns that there is room for."""
    if not view.rows:
        if verbose:
            _title(out, view.title)
            out.print(Padding(Text(view.empty, "dim"), (0, 0, 0, 2)))
        return
    limit = _LONG if verbose else _SHORT
    if len(view.rows) <= limit + 2:  # "and 1 more" takes a line too
        limit = len(view.rows)
    _title(out, view.title, view.note)
    for i, line in enumerate(_grid(view, limit, out.width - 2, 2 if verbose else 1)):
        out.print(Text(f"  {line}", "dim" if i == 0 else ""), no_wrap=True, overflow="crop")
    more = len(view.rows) - limit
    if more > 0:
        out.print(Text(f"  and {more:,} more" + ("" if verbose else " (-v)"), "dim"))


def _grid(view: View, limit: int, width: int, need: int) -> list[str]:
    """Header and rows as aligned lines. Numbers are never cut: columns give way, those without any value first, then
    long names.
    """
    cells = [[c.text(row) for row in view.rows[:limit]] for c in view.columns]
    if view.total:
        cells = [[*column, view.total[i]] for i, column in enumerate(cells)]
    keep = [i for i, c in enumerate(view.columns) if c.need <= need and any(cells[i])]
    size = {i: max(len(t) for t in [view.columns[i].label, *cells[i]]) for i in keep}
    names = [i for i in keep if view.columns[i].kind in WORDS]
    least = {i: min(size[i], 12) if view.columns[i].kind != "text" and i in names else size[i] for i in keep}
    while len(keep) > 2 and sum(least[i] + 2 for i in keep) - 2 > width:
        keep.remove(max(keep, key=lambda i: (set(cells[i]) <= {"-", ""}, view.columns[i].need, i)))
    spare = width - sum(least[i] + 2 for i in keep) + 2
    for i in (i for i in keep if i in names):
        more = min(size[i] - least[i], max(spare, 0))
        least[i], spare = least[i] + more, spare - more
    rows = [[view.columns[i].label for i in keep], *zip(*(cells[i] for i in keep), strict=True)]
    return [
        "  ".join(_fit(text, least[i], view.columns[i].numeric) for i, text in zip(keep, row, strict=True))
        for row in rows
    ]


def _fit(text: str, width: int, right: bool) -> str:
    cut = clean(text, width)
    return cut.rjust(width) if right else cut.ljust(width)


def _quality(out: Console, result: Result, verbose: bool) -> None:
    notes = views_quality.notes(result)
    if not notes:
        return
    _title(out, "Data quality")
    limit = len(notes) if verbose else 12
    for note in notes[:limit]:
        out.print(Padding(Text(f"· {note}"), (0, 0, 0, 2)))
    if len(notes) > limit:
        out.print(Text(f"  and {len(notes) - limit} more (-v)", "dim"))
