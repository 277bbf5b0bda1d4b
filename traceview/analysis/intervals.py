"""Kernels on half-open intervals of integer nanoseconds; everything is vectorised and exact.

``Spans`` are the normal form: sorted, disjoint, not touching, of positive length. Zero-length intervals have no
measure and vanish (METHODS 0). The sweep needs each layer as spans, so that a boundary is one toggle of one bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from traceview.analysis.types import Ints


@dataclass(frozen=True)
class Spans:
    """Sorted, disjoint, not touching intervals of positive length, in ns."""

    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    @property
    def measure(self) -> int:
        """Total length."""
        return int((self.end - self.start).sum())

    def clip(self, start: int, end: int) -> Spans:
        """The part inside [start, end)."""
        return union(np.maximum(self.start, start), np.minimum(self.end, end))

    def before(self, time: Ints) -> Ints:
        """Per time: total length that lies before it."""
        total = np.concatenate(([0], np.cumsum(self.end - self.start)))
        i = np.searchsorted(self.start, time, "right")
        over = np.maximum(self.end[i - 1] - time, 0) if len(self) else np.zeros_like(time)
        out: Ints = total[i] - np.where(i > 0, over, 0)
        return out

    def within(self, start: Ints, end: Ints) -> Ints:
        """Per interval [start, end): total length inside it."""
        return self.before(end) - self.before(start)

    def covers(self, time: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Per time: whether it lies inside."""
        i = np.searchsorted(self.start, time, "right") - 1
        if not len(self):
            return np.zeros(len(time), np.bool_)
        return (i >= 0) & (time < self.end[np.maximum(i, 0)])


def _ints(*values: int) -> Ints:
    return np.array(values, np.int64)


NOTHING = Spans(_ints(), _ints())


def union(start: Ints, end: Ints) -> Spans:
    """Union of any intervals; touching ones are joined. Fastest when ``start`` is sorted."""
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if not len(start):
        return NOTHING
    if np.any(start[1:] < start[:-1]):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(start[1:] > reach[:-1]) + 1
    return Spans(
        np.concatenate((start[:1], start[first])),
        np.concatenate((reach[first - 1], reach[-1:])),
    )


def join(parts: Sequence[Spans]) -> Spans:
    """Union of several spans."""
    found = [p for p in parts if len(p)]
    if len(found) < 2:
        return found[0] if found else NOTHING
    return union(np.concatenate([p.start for p in found]), np.concatenate([p.end for p in found]))


def complement(spans: Spans, start: int, end: int) -> Spans:
    """The maximal intervals of [start, end) outside the spans."""
    inner = spans.clip(start, end)
    return union(np.concatenate((_ints(start), inner.end)), np.concatenate((inner.start, _ints(end))))


def crossings(start: Ints, end: Ints, spans: Spans) -> tuple[Ints, Ints, Ints, Ints]:
    """Every non-empty intersection of an interval with a span: (interval number, span number, start, end).

    The intervals may overlap and be in any order; rows are ordered by interval, then span.
    """
    low = np.searchsorted(spans.end, start, "right")
    count = np.maximum(np.searchsorted(spans.start, end, "left") - low, 0)
    count[end <= start] = 0
    who, which = expand(low, count)
    return who, which, np.maximum(start[who], spans.start[which]), np.minimum(end[who], spans.end[which])


def expand(low: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Rows (i, low[i]), (i, low[i] + 1), ... ``count[i]`` of them for every i."""
    who = np.repeat(np.arange(len(low)), count)
    inner = np.arange(len(who)) - np.repeat(np.cumsum(count) - count, count)
    return who, low[who] + inner


def intersect(a: Spans, b: Spans) -> Spans:
    """What both cover."""
    _, _, start, end = crossings(a.start, a.end, b)
    return union(start, end)


def subtract(a: Spans, b: Spans) -> Spans:
    """What ``a`` covers and ``b`` does not."""
    if not len(a) or not len(b):
        return a
    return intersect(a, complement(b, int(a.start[0]), int(a.end[-1])))


def owners(start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Give every covered instant to ONE of the intervals active there: the one with the latest end, ties to the lower
    number. Returns (start, end, number), sorted and disjoint.

    The latest end among all that have started is also the latest among the active ones, so a running maximum over
    the starts is enough.
    """
    number = np.flatnonzero(end > start)
    order = number[np.lexsort((-end[number], start[number]))]
    s, e = start[order], end[order]
    wins = np.ones(len(s), np.bool_)
    wins[1:] = e[1:] > np.maximum.accumulate(e)[:-1]
    s, e, order = s[wins], e[wins], order[wins]
    until = np.minimum(e, np.append(s[1:], np.iinfo(np.int64).max))
    return s, until, order


_LAYER_BITS = 6
_CUT = (1 << _LAYER_BITS) - 1
LONGEST = 1 << (63 - _LAYER_BITS)
"""A sweep may span less than this many ns (4.5 years): layer and time share one sort key."""


def sweep(layers: Sequence[Spans], cuts: Ints) -> tuple[Ints, Ints]:
    """Cut time at every boundary of every layer and at ``cuts``: (n + 1 bounds, n masks).

    Bit k of a mask says that layer k covers the segment; at most 62 layers, none empty. Spans never touch, so every
    boundary toggles its bit. ValueError if the times span LONGEST ns or more.
    """
    edges = [side for s in layers for side in (s.start, s.end)]
    base = min(int(e.min()) for e in (*edges, cuts))
    if max(int(e.max()) for e in (*edges, cuts)) - base >= LONGEST or len(layers) >= _CUT:
        raise ValueError("too long or too many layers for one sweep")
    codes = [k for k in range(len(layers)) for _ in range(2)]
    keys = np.concatenate(
        [(e - base) << _LAYER_BITS | k for k, e in zip((*codes, _CUT), (*edges, cuts), strict=True)]
    )
    keys.sort(kind="stable")  # merges the sorted runs
    masks = np.bitwise_xor.accumulate(_TOGGLE[keys & _CUT])
    times = (keys >> _LAYER_BITS) + base
    last = np.append(times[1:] != times[:-1], np.bool_(True))
    return times[last], masks[last][:-1]


_TOGGLE: Ints = np.append(np.int64(1) << np.arange(_CUT, dtype=np.int64), np.int64(0))
"""What a boundary of layer k does to the mask; a cut does nothing."""
