"""Splitting waits among the members that were waited for (METHODS e.3), in O(n log n) for all instances at once.

In one instance let u be the time left to the last arrival. A wait that covers (u0, u1] is owed, at each u, in equal
parts by the members with ahead < u. With P(u) = integral of 1 / (number of such members), the member at x owes
P(u1) - P(max(u0, x)) of it; sums over many waits need only the sorted ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.types import Bools, Floats, Ints


@dataclass(frozen=True)
class Axis:
    """Some instances on one line: members sorted by (instance, time left at arrival)."""

    row: Ints
    """collectives row of each member"""
    instance: Ints
    place: Ints
    """base of the instance + time left"""
    base: Ints
    """per instance"""
    head: Ints
    """per instance: its first member here; one more element at the end"""
    integral: Floats
    """P at ``place``, from the start of the instance"""


@dataclass(frozen=True)
class Waiting:
    """Waits of some collectives rows as stretches (u0, u1] of time left to the last arrival, ns."""

    row: Ints
    instance: Ints
    """number on the line of members"""
    u0: Ints
    u1: Ints

    def take(self, keep: Bools) -> Waiting:
        """Some of them; itself if all."""
        if keep.all():
            return self
        return Waiting(self.row[keep], self.instance[keep], self.u0[keep], self.u1[keep])


def axis(row: Ints, number: Ints, ahead: Ints, instances: int) -> Axis:
    """The line of members: their collectives rows, instances (ascending) and times left at arrival (ns)."""
    head = np.searchsorted(number, np.arange(instances + 1))
    height = np.zeros(instances, np.int64)
    some = np.flatnonzero(np.diff(head))
    if len(some):
        height[some] = np.maximum.reduceat(ahead, head[some]) + 1
    base = np.cumsum(height) - height
    place = base[number] + ahead
    order = np.argsort(place, kind="stable")
    place, row = place[order], row[order]
    late = np.arange(1, len(row) + 1) - head[number]
    step = np.zeros(len(row))
    np.divide(np.diff(place), late[:-1], out=step[1:])
    step[head[some]] = 0.0
    np.cumsum(step, out=step)
    first = step[head[:-1].clip(max=max(len(row) - 1, 0))] if len(row) else step
    return Axis(row, number, place, base, head, step - first[number])


def split(line: Axis, waiting: Waiting, weight: Floats | None = None) -> Floats:
    """What each member of ``line`` owes of the waits (weighted per ns), in ns."""
    size = len(line.row)
    sums, counts = np.zeros(size), np.zeros(size)
    for left, sign in ((waiting.u1, 1.0), (waiting.u0, -1.0)):
        cut = np.flatnonzero(left > 0)
        if len(cut):
            near, value = _integral_at(line, waiting.instance[cut], left[cut])
            each = np.full(len(cut), sign) if weight is None else sign * weight[cut]
            sums += np.bincount(near, value * each, size)
            counts += np.bincount(near, each, size)
    owed = _from_here(line, sums) - line.integral * _from_here(line, counts)
    return np.maximum(owed, 0.0, out=owed)


def _integral_at(line: Axis, instance: Ints, left: Ints) -> tuple[Ints, Floats]:
    """(the last member that stands at or below each time left, P there)."""
    at = line.base[instance] + left
    near = np.searchsorted(line.place, at, side="right") - 1
    sharers = near - line.head[instance] + 1
    value = line.integral[near] + (at - line.place[near]) / sharers
    return near, value


def _from_here(line: Axis, amount: Floats) -> Floats:
    """Sum of ``amount`` from each member to the end of its instance."""
    total = np.empty(len(amount) + 1)
    total[0] = 0.0
    np.cumsum(amount, out=total[1:])
    out: Floats = total[line.head[1:]][line.instance]
    out -= total[:-1]
    return out


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
