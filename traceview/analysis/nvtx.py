"""GPU time by host range: what was launched inside which NVTX range or operator (near-linear stack sweep).

A launch belongs to every range of its thread that contains its start; its innermost range owns it. Ranges of a thread
normally nest; one that overlaps another without nesting still gets its launches, but owns none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from traceview.analysis.types import Bools, Ints


@dataclass(frozen=True)
class Ranges:
    """Host ranges, one element each; ``name`` is a code below ``names``."""

    thread: Ints
    start: Ints
    end: Ints
    name: Ints
    names: int


@dataclass(frozen=True)
class LaunchedOps:
    """GPU operations with the thread and start of their launch call."""

    thread: Ints
    launch: Ints
    start: Ints
    end: Ints


@dataclass(frozen=True)
class GpuTime:
    """Per name: ranges, operations launched inside, their summed GPU time, the part of it that no inner range owns.

    ``gpu_ns`` counts an operation once per name even where ranges of that name nest. ``first``/``last``: begin of the
    first and end of the last operation (projection on the GPU), 0 where there is none. Times are ns.
    """

    ranges: Ints
    ops: Ints
    gpu_ns: Ints
    self_ns: Ints
    first: Ints
    last: Ints
    owner: Ints
    """per operation: the innermost range around its launch, -1 = none"""


def project(ranges: Ranges, ops: LaunchedOps) -> GpuTime:
    """GPU time per range name. O(n log n) in ranges and operations, a thread at a time (memory: the largest one)."""
    fields = {name: np.zeros(ranges.names, np.int64) for name in GpuTime.__dataclass_fields__}
    out = GpuTime(**fields | {"owner": np.full(len(ops.launch), -1, np.int64)})
    out.first[:] = np.iinfo(np.int64).max
    out.last[:] = np.iinfo(np.int64).min
    np.add.at(out.ranges, ranges.name, 1)
    for thread in np.unique(ranges.thread).tolist():
        mine = np.flatnonzero(ranges.thread == thread)
        launched = np.flatnonzero(ops.thread == thread)
        if len(launched):
            launched = launched[np.argsort(ops.launch[launched], kind="stable")]
            _thread(ranges, mine, ops, launched, out)
    none = out.ops == 0
    out.first[none] = out.last[none] = 0
    return out


def _thread(ranges: Ranges, mine: Ints, ops: LaunchedOps, launched: Ints, out: GpuTime) -> None:
    """Add one thread's ranges; ``launched`` is in order of launch, so a range holds a slice of it."""
    launch = ops.launch[launched]
    lo = np.searchsorted(launch, ranges.start[mine], "left")
    hi = np.searchsorted(launch, ranges.end[mine], "left")
    some = np.flatnonzero(hi > lo)  # the others can neither hold nor own anything
    mine, lo, hi = mine[some], lo[some], hi[some]
    if not len(mine):
        return
    order = np.lexsort((-ranges.end[mine], ranges.start[mine]))
    mine, lo, hi = mine[order], lo[order], hi[order]
    name = ranges.name[mine]
    spent = np.concatenate(([0], np.cumsum(ops.end[launched] - ops.start[launched])))
    time = spent[hi] - spent[lo]

    owner, parent = _owners(ranges.start[mine], ranges.end[mine], launch)
    owned = owner >= 0
    out.owner[launched[owned]] = mine[owner[owned]]
    own_time = np.bincount(owner[owned], np.diff(spent)[owned], len(mine)).astype(np.int64)
    np.add.at(out.self_ns, name, own_time)

    outer = _outermost_of_name(name, parent)
    np.add.at(out.gpu_ns, name[outer], time[outer])
    np.add.at(out.ops, name[outer], (hi - lo)[outer])
    bounds = np.stack((lo, hi), 1).ravel()
    padded = np.append(launched, launched[-1])  # reduceat wants every index below the length
    np.minimum.at(out.first, name, np.minimum.reduceat(ops.start[padded], bounds)[::2])
    np.maximum.at(out.last, name, np.maximum.reduceat(ops.end[padded], bounds)[::2])


def _owners(start: Ints, end: Ints, launch: Ints) -> tuple[Ints, Ints]:
    """(innermost range per launch, enclosing range per range), -1 = none; ranges are sorted by (start, -end).

    The stack of open ranges is swept without a loop: at equal depth, the range opened last is the one on the stack.
    """
    n = len(start)
    opened = _nesting(start, end)
    time = np.concatenate((start[opened], end[opened]))
    closes = np.zeros(len(time), np.bool_)
    closes[len(opened) :] = True
    inner = np.concatenate((opened, n - opened)).astype(np.int32)
    order = np.lexsort((inner, ~closes, time))  # at one instant: close before opening, outer ranges open first
    del inner
    opens = np.flatnonzero(order < len(opened))
    of = np.full(len(order), -1, np.int32)
    of[opens] = opened[order[opens]]
    depth = np.cumsum(np.where(of >= 0, 1, -1).astype(np.int8), dtype=np.int64)

    ranked = opens[np.argsort(depth[opens], kind="stable")]  # by depth, then by time
    keys = depth[ranked] * (len(order) + 1) + ranked
    parent = np.full(n, -1, np.int64)
    parent[of[opens]] = _on_stack(keys, ranked, of, depth[opens] - 1, opens, len(order) + 1)

    at = np.searchsorted(time[order], launch, "right") - 1
    owner = np.full(len(launch), -1, np.int64)
    inside = np.flatnonzero(at >= 0)
    owner[inside] = _on_stack(keys, ranked, of, depth[at[inside]], at[inside], len(order) + 1)
    return owner, parent


def _on_stack(keys: Ints, ranked: Ints, of: Any, depth: Ints, at: Ints, width: int) -> Ints:
    """The range at this depth of the stack after event ``at``: the last one opened there; -1 for depth 0."""
    found = np.searchsorted(keys, depth * np.int64(width) + at, "right") - 1
    return np.where((depth > 0) & (found >= 0), of[ranked[np.maximum(found, 0)]], -1)


def _nesting(start: Ints, end: Ints) -> Ints:
    """Indices of ranges (sorted by start, -end) that nest; of two that cross, the one opened first is left out.

    At the end of a range that nests, as many ranges are open as at its start. The earliest range of any crossing has
    more, so leaving out those with more until there are none ends with ranges that nest.
    """
    kept = np.arange(len(start))
    while True:
        begin, stop, own = start[kept], end[kept], np.arange(len(kept))
        closing = np.lexsort((-own, stop))  # of those that end together the inner ones close first
        closed = np.empty(len(kept), np.int64)
        closed[closing] = own
        open_at_start = own - np.searchsorted(stop[closing], begin, "right")
        open_at_end = np.searchsorted(begin, stop, "left") - closed
        crossed = open_at_end > open_at_start + 1
        if not crossed.any():
            return kept
        kept = kept[~crossed]


def _outermost_of_name(name: Ints, parent: Ints) -> Bools:
    """Ranges without an enclosing range of their own name, found level by level."""
    outer = np.ones(len(name), np.bool_)
    above = parent.copy()
    open_ = np.flatnonzero(above >= 0)
    while len(open_):
        same = name[above[open_]] == name[open_]
        outer[open_[same]] = False
        open_ = open_[~same]
        above[open_] = parent[above[open_]]
        open_ = open_[above[open_] >= 0]
    return outer
