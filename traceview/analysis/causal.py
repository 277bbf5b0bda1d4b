"""Guaranteed bounds on clock offsets (METHODS d.3): no member can end before the last one starts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.types import Bools, Ints

FAR = np.int64(1) << 61


@dataclass(frozen=True)
class Bounds:
    """Per unit: the interval of ``correction of the unit - correction of its gauge`` in ns; ``FAR`` = unbounded.

    ``empty``: no correction satisfies all constraints, which proves a wrong match or a bad clock.
    """

    low: Ints
    high: Ints
    empty: Bools


def bounds(instance: Ints, unit: Ints, begin: Ints, end: Ints, gauge: Bools) -> Bounds:
    """Bounds from ``begin_q + d_q <= end_r + d_r`` for all members q, r of an instance.

    One element per (instance, unit): latest begin and earliest end of the unit's members (begin = -FAR or
    end = FAR: no such side, as for send and receive). ``gauge``: per unit, the correction is 0.
    Shortest paths over the graph of units and instances, from and to the gauges; near-linear.
    """
    known = begin[begin > -FAR]
    origin = int(known.min()) if len(known) else 0  # keeps sums far from the limits of int64
    begin, end = np.where(begin > -FAR, begin - origin, begin), np.where(end < FAR, end - origin, end)
    high = np.where(gauge, 0, FAR)
    low = np.where(gauge, 0, -FAR)
    count = int(instance.max(initial=-1)) + 1
    crossed = np.zeros(len(gauge), np.bool_)
    for _ in range(len(gauge) + 1):
        new_high, new_low = high.copy(), low.copy()
        cap = np.full(count, FAR)
        np.minimum.at(cap, instance, _plus(end, high[unit]))
        np.minimum.at(new_high, unit, _plus(cap[instance], -begin))
        floor = np.full(count, -FAR)
        np.maximum.at(floor, instance, _plus(begin, low[unit]))
        np.maximum.at(new_low, unit, _plus(floor[instance], -end))
        # a contradiction stands still, so that it neither loops nor keeps other components from settling
        moved = ((new_high != high) | (new_low != low)) & ~crossed
        high, low = np.where(moved, new_high, high), np.where(moved, new_low, low)
        crossed |= low > high
        if not moved.any():
            break
    else:
        crossed |= moved  # bounds that never settle: a negative cycle
    return Bounds(low, high, crossed)


def _plus(first: Ints, second: Ints) -> Ints:
    """Sum in which a far value stays far."""
    far = (np.abs(first) >= FAR) | (np.abs(second) >= FAR)
    sign = np.where(np.abs(first) >= FAR, np.sign(first), np.sign(second))
    out: Ints = np.where(far, sign * FAR, first + second)
    return np.clip(out, -FAR, FAR)
