"""The tables of a comparison: parts of the step, kernels, collectives, the runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter as at
from operator import itemgetter
from typing import Any

from traceview import units
from traceview.result import Result
from traceview.result.versus import Change, Comparison, Decision, WorkChange
from traceview_reports.names import clean
from traceview_reports.tables import Column, View


def against(result: Result) -> View:
    """What changed from the baseline of ``analyze --baseline``; no rows where they are not compared."""
    beside = result.against
    changed = beside.comparison if beside else None
    refused = clean(beside.refused, 600) if beside else "No baseline was given."
    return replace(_parts("against", "Against the baseline", changed.groups if changed else [], _NOTE), empty=refused)


_NOTE = "per rank and step; the changes sum to the change of the mean step"


def views(c: Comparison) -> tuple[View, ...]:
    """Parts of the step, kernels, collectives, leaves."""
    return (parts(c), *work(c), leaves(c))


def parts(c: Comparison) -> View:
    """The step by group."""
    return _parts("groups", "What changed", c.groups, _NOTE)


def leaves(c: Comparison) -> View:
    """The step by leaf."""
    return _parts("leaves", "What changed, leaf by leaf", c.leaves, _NOTE)


def work(c: Comparison) -> tuple[View, View]:
    """Kernels and collectives."""
    return (
        _work("kernels", "Kernels", c.kernels, "GPU time per rank and step, hidden or not; the largest changes"),
        _work("collectives", "Collectives", c.collectives, "transfer time per rank and step, waits left out"),
    )


def findings(c: Comparison) -> View:
    """Findings that one side has and the other has not."""
    rows = [(word, title) for word, titles in (("new", c.found), ("gone", c.gone)) for title in titles]
    columns = (
        Column("only", "text", itemgetter(0), "versus.only"),
        Column("finding", "prose", itemgetter(1), "versus.finding"),
    )
    return View("findings-table", "New and gone", columns, rows, "Both sides have the same findings.", "")


def different(facts: Sequence[str]) -> View:
    """What makes the sides hard to compare."""
    columns = (Column("differs or limits", "prose", str, "versus.differs"),)
    return View("different", "What differs", columns, facts, "Nothing: the sides were recorded alike.", "")


def _parts(name: str, title: str, rows: list[Change], note: str) -> View:
    columns = (
        Column("part", "name", at("name"), "versus.part"),
        Column("baseline", "time", at("baseline_ns"), "versus.baseline"),
        Column("candidate", "time", at("candidate_ns"), "versus.candidate"),
        Column("change", "delta", at("delta_ns"), "versus.change"),
    )
    shown = [r for r in rows if r.baseline_ns or r.candidate_ns]
    sums = [sum(getattr(r, key) for r in shown) for key in ("baseline_ns", "candidate_ns", "delta_ns")]
    total = ("sum", units.time(sums[0]), units.time(sums[1]), units.change(sums[2]))
    return View(name, title, columns, shown, "Nothing was measured.", note, total)


def _work(name: str, title: str, rows: list[WorkChange], note: str) -> View:
    columns = (
        Column("name", "name", at("name"), "versus.name"),
        Column("change", "delta", at("delta_ns"), "versus.change"),
        Column("longer", "delta", at("longer_ns"), "versus.longer"),
        Column("more", "delta", at("more_ns"), "versus.more"),
        Column("each before", "time", at("baseline_each_ns"), "versus.each", 1),
        Column("each now", "time", at("candidate_each_ns"), "versus.each", 1),
        Column("n before", "number", _count("baseline_count"), "versus.count", 1),
        Column("n now", "number", _count("candidate_count"), "versus.count", 1),
    )
    return View(name, title, columns, rows, "No change.", note)


def _count(key: str) -> Any:
    return lambda row: round(getattr(row, key), 2)


def runs(d: Decision) -> View:
    """The runs of both sides."""
    rows = [
        (word, name, steps, ns)
        for word, side in (("baseline", d.baseline), ("candidate", d.candidate))
        for name, steps, ns in zip(side.names, side.steps, side.median_ns, strict=True)
    ]
    columns = (
        Column("side", "text", itemgetter(0), "versus.side"),
        Column("run", "name", itemgetter(1), "history.name"),
        Column("used steps", "int", itemgetter(2), "history.steps"),
        Column("step time", "time", itemgetter(3), "versus.step"),
    )
    return View("compared", "Runs", columns, rows, "No run was given.", "step time: median of the used steps")


def step_times(d: Decision) -> View:
    """Every used step of every run, in order."""
    rows = [
        (word, name, n, ns)
        for word, side in (("baseline", d.baseline), ("candidate", d.candidate))
        for name, times in zip(side.names, side.step_ns, strict=False)
        for n, ns in enumerate(times, 1)
    ]
    columns = (
        Column("side", "text", itemgetter(0), "versus.side"),
        Column("run", "name", itemgetter(1), "history.name"),
        Column("step", "int", itemgetter(2), "versus.order"),
        Column("step time", "time", itemgetter(3), "versus.step"),
    )
    return View("times-table", "Step times", columns, rows, "They are not in this document.", "")
