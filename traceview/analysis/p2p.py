"""Point-to-point operations: who is the direct peer of a row (METHODS c, send/recv)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from traceview.analysis.groups import KIND, NONE, POINT, Columns
from traceview.analysis.types import Bools, Ints, Rows


@dataclass(frozen=True)
class Partners:
    """Per row of the collectives table: the row that sends to it and the row that receives from it (-1 = none)."""

    sender: Rows
    receiver: Rows
    missing: Bools
    """a peer that the row tells was not seen"""


def ends(c: Columns) -> tuple[Bools, Ints, Ints]:
    """(row is point-to-point, rank it receives from, rank it sends to); -1 = does not, or peer unknown.

    In a group of two the peer of a row that does not tell it is the other member.
    """
    point: Bools = c.p2p | POINT[c.kind]
    if not point.any():
        none = np.broadcast_to(np.int64(NONE), len(c))
        return point, none, none
    other = _other_of_two(c)
    plain = c.kind == KIND["sendrecv"]
    untold = plain & (c.src < 0) & (c.dst < 0)
    receives = point & ((c.kind == KIND["recv"]) | plain)
    sends = point & ((c.kind == KIND["send"]) | plain)
    source = np.where(receives & (c.src >= 0) & (c.src != c.rank), c.src, NONE)
    target = np.where(sends & (c.dst >= 0) & (c.dst != c.rank), c.dst, NONE)
    lone = (c.kind == KIND["recv"]) & (source < 0) | untold
    source = np.where(receives & lone, other, source)
    lone = (c.kind == KIND["send"]) & (target < 0) | untold
    target = np.where(sends & lone, other, target)
    return point, source, target


def _other_of_two(c: Columns) -> Ints:
    pair = np.full((len(c.groups) + 1, 2), NONE, np.int64)
    for i, g in enumerate(c.groups):
        if g.size == 2 and len(g.members) == 2:
            pair[i] = g.members
    first, second = pair[c.group, 0], pair[c.group, 1]
    return np.where(c.rank == first, second, np.where(c.rank == second, first, NONE))


def partners(c: Columns, instance: Ints) -> Partners:
    """Direct peers of every matched point-to-point row: the row of the peer rank in the same instance."""
    point, source, target = ends(c)
    rows = np.flatnonzero(point & (instance >= 0))
    none = np.broadcast_to(np.int32(NONE), len(c))
    if not len(rows):
        return Partners(none, none, np.broadcast_to(np.False_, len(c)))
    span = int(max(c.rank[rows].max(), source[rows].max(), target[rows].max())) + 1
    key = instance[rows] * span + c.rank[rows]
    order = np.argsort(key, kind="stable")
    key, missing = key[order], np.zeros(len(c), np.bool_)
    found = []
    for peer in (source[rows], target[rows]):
        want = instance[rows] * span + peer
        at = np.minimum(np.searchsorted(key, want), len(rows) - 1)
        hit = (peer >= 0) & (key[at] == want)
        out = none.copy()
        out[rows[hit]] = rows[order[at[hit]]]
        missing[rows] |= (peer >= 0) & ~hit
        found.append(out)
    return Partners(found[0], found[1], missing)


def components(count: int, first: Ints, second: Ints) -> Ints:
    """Connected components of ``count`` nodes joined by pairs: the least node of each component, per node."""
    label = np.arange(count)
    while len(first):
        low = np.minimum(label[first], label[second])
        new = label.copy()
        np.minimum.at(new, label[first], low)
        np.minimum.at(new, label[second], low)
        new = new[new]
        if np.array_equal(new, label):
            break
        label = new
    return label


def connected(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, ...]]:
    """The numbers in ``pairs``, those that pairs link together: each set ascending, sets by their least number."""
    numbers, place = np.unique(np.array(list(pairs), np.int64), return_inverse=True)
    first, second = place.reshape(-1, 2).T
    out: dict[int, list[int]] = {}
    for number, label in zip(numbers.tolist(), components(len(numbers), first, second).tolist(), strict=True):
        out.setdefault(label, []).append(number)
    return [tuple(own) for own in out.values()]
