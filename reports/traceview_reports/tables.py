"""What every report shows, declared once: columns, units, order, totals. Terminal, Markdown and HTML only lay it out.

Nothing is computed here but sums, means over ranks and shares, each said in the definition of its column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from traceview import units
from traceview.result import Result, group_ns
from traceview.schema import GROUPS
from traceview_reports.names import clean

# Group -> the suffix of its colour variable and its short column head.
GROUP_KEYS = {
    "compute": ("compute", "compute"),
    "exposed communication": ("comm", "comm"),
    "straggler wait": ("straggler", "wait"),
    "pipeline wait": ("pipeline", "pipe"),
    "PCIe staging": ("staging", "PCIe"),
    "other GPU": ("other", "other"),
    "idle": ("idle", "idle"),
    "uncovered": ("uncovered", "uncov"),
}


WORDS = ("text", "name", "prose", "lines")
"""Kinds of columns that hold words: short, a name from the traces, a sentence, several of them."""


@dataclass(frozen=True)
class Column:
    """One column: ``kind`` chooses the format, ``define`` the definition.

    ``need``: 0 = in every report, 1 = where there is room, 2 = only in wide and verbose ones.
    """

    label: str
    kind: str
    get: Callable[[Any], Any]
    define: str
    need: int = 0

    @property
    def numeric(self) -> bool:
        """Right-aligned and sorted as a number."""
        return self.kind not in WORDS

    def text(self, row: Any) -> str:
        """The cell as people read it."""
        return cell(self.kind, self.get(row))


@dataclass(frozen=True)
class View:
    """A table of the report. ``empty`` says why there are no rows and how to record them."""

    id: str
    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Any]
    empty: str
    note: str = ""
    total: Sequence[str] = field(default_factory=tuple)
    """Cells of a sum row, one per column; empty = no sum row."""


@dataclass(frozen=True)
class Part:
    """A segment of the 100 % bar. ``tenths`` of all parts add up to 1000 exactly."""

    group: str
    key: str
    ns: int
    share: float
    tenths: int

    @property
    def percent(self) -> str:
        """'62.1'"""
        return f"{self.tenths // 10}.{self.tenths % 10}"


def parts(result: Result) -> list[Part]:
    """The bar: groups in their fixed order, rounded to 0.1 % so that they add up to 100.0 (largest remainders)."""
    by_group = group_ns(result.budget.leaves_ns, result.budget.sub_ns)
    total = sum(by_group.values())
    if not total:
        return []
    floors = {g: 1000 * ns // total for g, ns in by_group.items()}
    left = 1000 - sum(floors.values())
    order = sorted(by_group, key=lambda g: -(1000 * by_group[g] % total))
    up = set(order[:left])
    return [
        Part(g, GROUP_KEYS[g][0], ns, ns / total, floors[g] + (g in up))
        for g, ns in ((g, by_group[g]) for g in GROUPS)
    ]


def cell(kind: str, value: Any) -> str:
    """One value as text; None is '-'."""
    if value is None:
        return "-"
    if kind in _FORMATS:
        return _FORMATS[kind](value)
    return clean(value)


def _rate(gb_per_s: float) -> str:
    return f"{gb_per_s:,.0f}" if gb_per_s >= 100 else f"{gb_per_s:.3g}"


_FORMATS: dict[str, Callable[[Any], str]] = {
    "time": units.time,
    "gpu": units.gpu_seconds,
    "delta": units.change,
    "size": units.size,
    "share": lambda v: f"{v * 100:.1f}",
    "rate": _rate,
    "int": lambda v: f"{v:,}",
    "id": str,
    "flag": lambda v: "yes" if v else "",
    "number3": lambda v: f"{v:,.3g}",
    "number": lambda v: f"{v:,.6g}",
    "prose": lambda v: clean(v, 600),
    "lines": lambda v: " · ".join(clean(x) for x in v),
}


def metric(value: float | None, unit: str) -> str:
    """A metric in the unit of a person: ns as time, fractions in %, GB/s, the rest with its unit."""
    if value is None:
        return "unavailable"
    if unit == "ns":
        return units.time(value)
    if unit in ("fraction", "share", "ratio", "1", ""):
        return units.share(value)
    if unit == "bytes":
        return units.size(value)
    if unit == "FLOP/s":
        return units.flops(value)
    return f"{_rate(value)} {clean(unit, 20)}"


def group_columns(rows: Sequence[Any]) -> tuple[Column, ...]:
    """A column for each group that occurs in ``rows``: its share of the row's leaves."""
    seen: dict[str, int] = dict.fromkeys(GROUPS, 0)
    for row in rows:
        for group, ns in group_ns(row.leaves_ns, row.sub_ns).items():
            seen[group] += ns
    return tuple(Column(GROUP_KEYS[g][1], "share", _share_of(g), f"group.{g}") for g, ns in seen.items() if ns)


def _share_of(group: str) -> Callable[[Any], float | None]:
    def get(row: Any) -> float | None:
        by_group = group_ns(row.leaves_ns, row.sub_ns)
        total = sum(by_group.values())
        return by_group[group] / total if total else None

    return get


def group_parts(row: Any) -> list[tuple[str, int]]:
    """(colour key, ns) of each group that occurs in a row, in the fixed order."""
    return [(GROUP_KEYS[g][0], ns) for g, ns in group_ns(row.leaves_ns, row.sub_ns).items() if ns]
