"""What a section is made of: tables, charts and ready pieces; the templates lay them out."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from markupsafe import Markup

from traceview_reports import definitions
from traceview_reports.names import clean
from traceview_reports.tables import WORDS, Column, View, group_parts

_PLAIN = frozenset((*WORDS, "int", "id", "flag", "share", "rate"))
_CSV_BYTES = 400_000
_NAME = 130  # characters of a name in a cell; the whole name is its title


@dataclass(frozen=True)
class Cell:
    """One cell, ready for the template. ``sort`` is the value to sort by where the text does not show it."""

    text: str
    css: str
    sort: str = ""
    style: str = ""
    link: str = ""
    title: str = ""
    """The whole text, where ``text`` is a cut of it."""
    parts: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True)
class Head:
    """A column head with its definition."""

    label: str
    key: str
    hint: str
    css: str


@dataclass(frozen=True)
class Grid:
    """A table, ready for the template: at most ``limit`` rows; the others are in ``csv``, as far as they fit."""

    view: View
    head: list[Head]
    rows: list[tuple[str, list[Cell]]]
    foot: list[Cell]
    csv: str
    csv_note: str
    filterable: bool


@dataclass(frozen=True)
class Chart:
    """A place for a chart: ``id`` of its data, what it shows in words (its text alternative)."""

    id: str
    caption: str
    label: str
    height: int = 262
    legend: Sequence[tuple[str, str]] = ()
    """(word, colour key) of what the colours mean, where the bar above does not say it."""


@dataclass(frozen=True)
class Section:
    """A section of the page. ``charts`` stand above ``grids``; ``extra`` is trusted markup of our templates."""

    id: str
    title: str
    intro: str = ""
    charts: Sequence[Chart] = ()
    grids: Sequence[Grid] = ()
    extra: Markup = field(default_factory=Markup)
    nav: str = ""
    fold: bool = False
    """Shown closed: reference matter."""


def grid(view: View, limit: int = 40, *, stack: bool = False) -> Grid:
    """A view laid out: every column, ``limit`` rows, all the rest as CSV; ``stack`` adds a 100 % bar to every row."""
    columns = [c for c in view.columns if c.need < 2 or any(_filled(c.get(r)) for r in view.rows[:limit])]
    head = [Head(c.label, definitions.key_of(c.define), definitions.of(c.define), _css(c)) for c in columns]
    rows = [(_attributes(r), [_cell(c, r) for c in columns]) for r in view.rows[:limit]]
    if stack:
        head.append(Head("mix", "rank_time", definitions.of("rank_time"), ""))
        for row, (_, cells) in zip(view.rows[:limit], rows, strict=True):
            cells.append(Cell("", "", parts=group_parts(row)))
    foot = [Cell(t, _css(c)) for c, t in zip(view.columns, view.total, strict=False) if c in columns]
    text, note = _csv(columns, view.rows) if len(view.rows) > limit else ("", "")
    return Grid(view, head, rows, foot, text, note, len(rows) > 12)


def _filled(value: Any) -> bool:
    return value is not None and value != "" and value != []


def _attributes(row: Any) -> str:
    """Selection keys of a row: which rank and step it is about (numbers only, so nothing to escape)."""
    found = ((k, getattr(row, k, None)) for k in ("rank", "step"))
    return "".join(f' data-{k}="{v:d}"' for k, v in found if isinstance(v, int))


def _css(column: Column) -> str:
    """Alignment, wrapping, and whether paper can do without the column."""
    kind = "n" if column.numeric else "name" if column.kind in WORDS and column.kind != "text" else ""
    return " ".join(filter(None, (kind, "opt" if column.need == 2 else "")))


def _cell(column: Column, row: Any) -> Cell:
    value, css = column.get(row), _css(column)
    if column.kind == "name":
        whole = clean(value, 600)
        short = clean(whole, _NAME)
        return Cell(short, css, title=whole if short != whole else "")
    if column.kind in WORDS:
        return Cell(column.text(row), css)
    if column.kind == "id" and column.label in ("rank", "step") and isinstance(value, int):
        return Cell(str(value), css, link=f"#{column.label}={value}")
    sort = "" if column.kind in _PLAIN or value is None else f"{value:.17g}"
    if column.kind == "share" and value is not None and not column.define.startswith("group."):
        return Cell(column.text(row), f"{css} share", style=f"--w:{min(max(value, 0), 1) * 100:.1f}%")
    return Cell(column.text(row), css, sort)


def _csv(columns: list[Column], rows: Sequence[Any]) -> tuple[str, str]:
    """All rows as CSV with raw values (ns, fractions), cut at a size that keeps the page small."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([f"{c.label} ns" if c.kind == "time" else c.label for c in columns])
    for n, row in enumerate(rows):
        if out.tell() > _CSV_BYTES:
            return (
                out.getvalue(),
                f"first {n:,} of {len(rows):,} rows as CSV (all are in the JSON output)",
            )
        writer.writerow([_raw(c, row) for c in columns])
    return out.getvalue(), f"all {len(rows):,} rows as CSV"


def _raw(column: Column, row: Any) -> Any:
    value = column.get(row)
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, int) or value is None else clean(column.text(row))
