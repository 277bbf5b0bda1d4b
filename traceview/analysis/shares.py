"""Splitting waits among the members that were waited for (METHODS e.3), in O(n log n) for all instances at once.

In one instance let u be the time left to the last arrival. A wait that covers (u0, u1] is owed, at each u, in equal
parts by the members with ahead < u. With P(u) = integral of 1 / (number of such members), the member at x owes
P(u1) - P(max(u0, x)) of it; sums over many waits need only the sorted ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.types import Floats, Ints
from traceview.analysis.waits import Instances


@dataclass(frozen=True)
class Axis:
    """All instances on one line: members sorted by (instance, time left at arrival)."""

    row: Ints
    """collectives row of each member"""
    instance: Ints
    place: Ints
    """base of the instance + time left"""
    base: Ints
    """per instance; one more element at the end"""
    late: Ints
    """members not later than this one stand, this one included: who shares the time just above ``place``"""
    integral: Floats
    """P at ``place``, from the start of the instance"""


def axis(found: Instances) -> Axis:
    """The line of all instances of ``found``."""
    at = np.flatnonzero(found.member)
    number = found.of_rows()[at]
    row = found.rows[at]
    ahead = found.ahead[row]
    height = np.zeros(len(found) + 1, np.int64)
    np.maximum.at(height[:-1], number, ahead + 1)
    base = np.cumsum(height) - height
    place = base[number] + ahead
    order = np.argsort(place, kind="stable")
    place, number, row = place[order], number[order], row[order]
    head = np.searchsorted(number, np.arange(len(found)))
    late = np.arange(len(row)) - head[number] + 1
    step = np.zeros(len(row))
    same = number[1:] == number[:-1]
    step[1:][same] = (np.diff(place) / late[:-1])[same]
    total = np.cumsum(step)
    return Axis(row, number, place, base, late, total - total[head][number])


def split(line: Axis, instance: Ints, u0: Ints, u1: Ints, weight: Floats | None = None) -> Floats:
    """What each member of ``line`` owes of the waits (u0, u1] of ``instance`` (weighted per ns), in ns."""
    owed = np.zeros(len(line.row))
    if not len(instance):
        return owed
    for ends, sign in ((u1, 1.0), (u0, -1.0)):
        at = line.base[instance] + ends
        order = np.argsort(at, kind="stable") if (np.diff(at) < 0).any() else np.arange(len(at))
        at = at[order]
        near = np.searchsorted(line.place, at, side="right") - 1
        value = line.integral[near] + (at - line.place[near]) / line.late[near]
        w = np.ones(len(at)) if weight is None else weight[order]
        sums = np.append(0.0, np.cumsum(w * value))
        counts = np.append(0.0, np.cumsum(w))
        low = np.searchsorted(at, line.place, side="right")
        high = np.searchsorted(at, line.base[1:])[line.instance]
        owed += sign * (sums[high] - sums[low] - line.integral * (counts[high] - counts[low]))
    return np.maximum(owed, 0.0)


def whole(amount: Floats, cell: Ints, total: Ints) -> Ints:
    """Round amounts to integers so that those of one cell sum to ``total[cell]`` exactly (largest remainder)."""
    floor = np.floor(amount).astype(np.int64)
    short = total - np.bincount(cell, floor, len(total)).astype(np.int64)
    order = np.lexsort((floor - amount, cell))
    head = np.searchsorted(cell[order], np.arange(len(total)))
    size = np.maximum(np.bincount(cell, minlength=len(total)), 1)
    place = np.arange(len(order)) - head[cell[order]]
    # a float error can leave a cell short by more than its members, or too long: spread what is left evenly
    each, rest = np.divmod(short, size)
    out = np.empty(len(amount), np.int64)
    out[order] = floor[order] + each[cell[order]] + (place < rest[cell[order]])
    return out
