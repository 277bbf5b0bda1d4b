"""Candidate step marks, one function per kind of source, METHODS b.2. Each returns marks in (rank, time) order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from traceview.analysis.ops import NONE, ints, names
from traceview.analysis.types import Ints, Marks
from traceview.config import Config
from traceview.errors import TraceviewError
from traceview.schema import HOST_KINDS, MARK_SOURCES, codes
from traceview.schema.arrays import from_numpy

Cover = Mapping[int, tuple[int, int]]
Columns = tuple[Ints, Ints, Ints, Ints, Ints]
"""rank, step, start, end, thread"""


def make(source: str, rows: list[Columns], notes: list[str] | None = None) -> Marks:
    """Marks of concatenated rows."""
    rank, step, start, end, thread = (np.concatenate(c).astype(np.int64) for c in zip(*rows, strict=True))
    return Marks(source, rank, step, start, end, thread, notes=notes or [])


def stops(step: Ints, start: Ints, end: Ints) -> Ints:
    """Where each host step of one rank stops: at the next mark if that is the next step, else at its own end.

    Marks are ascending; METHODS b.1. Work launched before the stop belongs to the step.
    """
    following = np.append(start[1:], np.iinfo(np.int64).max)
    adjacent = np.append(step[1:] == step[:-1] + 1, np.bool_(False))
    return np.where(adjacent, following, np.minimum(end, following))


# --- marks that the parser found by name


def from_table(table: Any, source: str, cover: Cover, config: Config) -> Marks | None:
    """Marks of one source of the ``step_marks`` table, or None if it does not pass."""
    series = _by_series(table, source)
    if source == "range":
        series = {name: rows for name, rows in series.items() if _counts(rows, cover, config)}
        name = _choose_range(series, _by_series(table, "optimizer"), config)
    else:
        name = min(series, key=lambda s: len(series[s][0]), default=None)
    if name is None:
        return None
    if source == "optimizer":
        return _between_ends(series[name], cover, name)
    return make(source, [series[name]], [f"steps are the ranges {name!r}"] if source == "range" else [])


def _by_series(table: Any, source: str) -> dict[str, Columns]:
    """Series of one source -> its marks by (rank, start); of equal numbers on one rank the longest stays."""
    of_source = codes(table["source"], MARK_SOURCES) == MARK_SOURCES.index(source)
    series, texts = names(table, "series")
    out = {}
    for code in sorted(np.unique(series[of_source]).tolist(), key=texts.__getitem__):
        name, part = texts[code], table.take(from_numpy(np.flatnonzero(of_source & (series == code))))
        rank, step, start, end, thread = (ints(part, c) for c in ("rank", "step", "start", "end", "thread"))
        order = np.lexsort((start - end, step, rank))
        same = (np.diff(rank[order]) == 0) & (np.diff(step[order]) == 0)
        order = order[np.append(np.bool_(True), ~same)]
        order = order[np.lexsort((start[order], rank[order]))]
        out[name] = (rank[order], step[order], start[order], end[order], thread[order])
    return out


def _counts(rows: Columns, cover: Cover, config: Config) -> bool:
    """On most ranks that have it, the series counts upwards and covers enough of the record."""
    rank, step, start, end, _ = rows
    good = 0
    present = np.unique(rank).tolist()
    for r in present:
        mine = rank == r
        begin, stop = cover[r]
        span = end[mine].max() - start[mine].min()
        rises = mine.sum() >= 2 and bool((np.diff(step[mine]) > 0).all())
        good += rises and span >= config.step_min_cover * (stop - begin)
    return 2 * good > len(present)


def _choose_range(series: dict[str, Columns], optimizers: dict[str, Columns], config: Config) -> str | None:
    """The rarest series with enough marks, else the one with most; none if it counts parts of optimizer steps."""

    def per_rank(name: str, of: dict[str, Columns]) -> float:
        return len(of[name][0]) / len(np.unique(of[name][0]))

    enough = [s for s in series if per_rank(s, series) >= config.step_min_used]
    name = (
        min(enough, key=lambda s: per_rank(s, series))
        if enough
        else max(series, key=lambda s: per_rank(s, series), default=None)
    )
    rarest = min((per_rank(s, optimizers) for s in optimizers), default=None)
    if name is not None and rarest is not None and per_rank(name, series) > rarest + 1:
        return None  # several ranges per optimizer step: gradient accumulation
    return name


def _between_ends(rows: Columns, cover: Cover, name: str) -> Marks:
    """Steps end where the optimizer ends; what follows the last one is no whole step."""
    rank, _, _, end, thread = rows
    out, tails = [], {}
    for r in np.unique(rank).tolist():
        mine = rank == r
        first, last = cover[r]
        bounds = np.concatenate(([min(first, end[mine][0])], end[mine], [max(last, end[mine][-1])]))
        n = len(bounds) - 1
        threads = np.append(thread[mine], thread[mine][-1])
        out.append((np.full(n, r), np.arange(n), bounds[:-1], bounds[1:], threads))
        tails[r] = f"incomplete: after the last optimizer step of rank {r}"
    return replace(make("optimizer", out, [f"steps end with {name!r}"]), tails=tails)


# --- ranges that the user names


def from_ranges(pattern: str, tables: Mapping[int, Any]) -> Marks | None:
    """Host ranges whose name matches, outermost ones of a thread; TraceviewError for a bad pattern."""
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise TraceviewError(f"step pattern {pattern!r} is no regular expression: {error}") from error
    rows = [_matching(wanted, rank, table) for rank, table in tables.items()]
    rows = [r for r in rows if len(r[0])]
    return make("range", rows, [f"steps are the ranges that match {pattern!r}"]) if rows else None


def _matching(wanted: re.Pattern[str], rank: int, table: Any) -> Columns:
    index, texts = names(table, "name")
    found = [wanted.search(text) for text in texts]
    at = np.flatnonzero(np.isin(index, [i for i, m in enumerate(found) if m]))
    start, end, thread = (ints(table, c)[at] for c in ("start", "end", "thread"))
    order = np.lexsort((-end, start))
    reach = np.maximum.accumulate(end[order])
    order = order[np.flatnonzero(start[order] >= np.append(start[order][:1], reach)[:-1])]
    numbers = [_number(found[i]) for i in index[at[order]].tolist()]
    counted = None not in numbers and len(set(numbers)) == len(numbers)
    step = np.array(numbers if counted else range(len(order)), np.int64)
    return np.full(len(order), rank), step, start[order], end[order], thread[order]


def _number(match: re.Match[str] | None) -> int | None:
    text = match.group(1) if match and match.re.groups else None
    return int(text) if text and text.isdigit() else None


def main_thread(gpu_ops: Any, host_ranges: Any) -> int:
    """The thread that launches most; without launches the one that is busy longest; ``NONE`` if nothing is known."""
    thread = ints(gpu_ops, "launch_thread")
    weight = (thread != NONE).astype(np.int64)
    if not weight.any():
        busy = np.isin(
            codes(host_ranges["kind"], HOST_KINDS), [HOST_KINDS.index(k) for k in ("op", "runtime", "sync")]
        )
        thread = ints(host_ranges, "thread")
        weight = np.where(busy, ints(host_ranges, "end") - ints(host_ranges, "start"), 0)
    if not weight.any():
        return NONE
    found, inverse = np.unique(thread, return_inverse=True)
    return int(found[np.argmax(np.bincount(inverse, weights=weight))])
