"""The blame ledger by host, stage, replica, rail and class of collectives."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter as at

from traceview.result import BlamePlaceRow, Result
from traceview_reports.tables import Column, View

_NOBODY = "No exposed waiting in fully observed collectives, so no place is to blame."


def leading(result: Result, most: int = 1) -> View:
    """The ``most`` blamed places of every kind of which there are several; none where no finding is about waiting."""
    kinds = Counter(r.by for r in result.blame_by)
    matters = any(f.section == "stragglers" for f in result.findings)
    rows = [
        r
        for by in kinds
        if matters and kinds[by] > 1
        for r in [r for r in result.blame_by if r.by == by and _owed(r)][:most]
    ]
    note = "direct blame of each kind of place adds up to that of the ledger"
    columns = (Column("by", "text", _kind, "by"), *_columns(result, rows))
    return View("places", "Blame by place", columns, rows, _NOBODY, note)


def by_kind(result: Result) -> list[View]:
    """A table for every kind of place that is told, and why there is none for the others."""
    kinds = dict.fromkeys([*(r.by for r in result.blame_by), *result.blame_by_untold])
    return [_of(result, by) for by in kinds]


def _of(result: Result, by: str) -> View:
    rows = [r for r in result.blame_by if r.by == by]
    told = next((r.basis for r in rows if r.basis), "")
    note = told if told.startswith("assumed") else f"from {told}" if told else ""
    why = result.blame_by_untold.get(by, "")
    empty = f"Not told: {why}." if why else _NOBODY
    return View(f"places-{by}", f"Blame by {by}", _columns(result, rows), rows, empty, note)


def _columns(result: Result, rows: list[BlamePlaceRow]) -> tuple[Column, ...]:
    """Columns that have a value in some row."""
    total = Counter[str]()
    for row in result.blame_by:
        total[row.by] += _owed(row)
    columns = (
        Column("name", "name", at("name"), "blame_by.name"),
        Column("ranks", "name", at("ranks"), "blame_by.ranks", 1),
        Column("started GPU-s", "gpu", at("origin_blame_ns"), "origin_blame"),
        Column("direct GPU-s", "gpu", at("blame_ns"), "blame"),
        Column("of all %", "share", lambda r: _owed(r) / total[r.by] if total[r.by] else None, "blame_by.share"),
        Column("inclusive GPU-s", "gpu", at("inclusive_ns"), "blame_inclusive", 2),
        Column("at least GPU-s", "gpu", lambda r: r.at_least_ns or None, "blame_by.at_least", 1),
        Column("itself waited GPU-s", "gpu", at("waited_ns"), "blame_by.waited", 2),
        Column("quality", "text", lambda r: r.quality.replace("_", " "), "quality", 2),
    )
    return tuple(c for c in columns if not rows or any(c.get(r) is not None for r in rows))


def _owed(row: BlamePlaceRow) -> int:
    """What the rows are ordered by: the blame that started there (direct of a class), and what is owed at least."""
    return (row.blame_ns if row.origin_blame_ns is None else row.origin_blame_ns) + row.at_least_ns


def _kind(row: BlamePlaceRow) -> str:
    return f"{row.by} (assumed)" if row.basis.startswith("assumed") else row.by
