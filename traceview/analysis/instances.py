"""The matched instances of collectives as columns, and walks over them in blocks.

Everything that looks at the members of instances does so block by block: what it needs beside the columns then has
the size of a block, whatever the size of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from traceview.analysis import p2p
from traceview.analysis.shares import Axis, axis
from traceview.analysis.types import Bools, Codes, Ints, Rows

BLOCK = 1 << 18  # rows looked at together


@dataclass(frozen=True)
class Block:
    """Some instances, ascending, and their rows: instance by instance, then by rank and start."""

    instances: Ints
    rows: Ints
    """collectives rows"""
    local: Ints
    """per row: index into ``instances``"""
    head: Ints
    """per instance: its first row here; one more element at the end"""
    member: Bools
    """per row: the first record of its rank (its begin is the arrival of the member)"""

    @property
    def number(self) -> Ints:
        """Instance number per row."""
        return self.instances[self.local]

    def line(self, ahead: Ints) -> Axis:
        """Members by (instance, time left at arrival): the last to arrive first. ``ahead``: per collectives row."""
        every = bool(self.member.all())
        row = self.rows if every else self.rows[self.member]
        return axis(row, self.local if every else self.local[self.member], ahead[row], len(self.instances))


@dataclass(frozen=True)
class Instances:
    """Matched instances; times on the common axis, ns; one element per instance unless said.

    ``rows`` lists the collectives rows instance by instance, then by rank and start; instance i has
    ``rows[first[i]:first[i + 1]]``.
    """

    rows: Rows
    first: Ints
    member: Bools
    """per element of ``rows``: the first record of its rank (its begin is the arrival of the member)"""
    kind: Codes
    group: Ints
    arrived: Ints
    """L: the last arrival of the members seen"""
    earliest: Ints
    ended: Ints
    """the last end"""
    last: Ints
    """collectives row of the last member to arrive (the lowest rank among equals)"""
    transfer: Ints
    """T = last end - last arrival; -1 unless fully observed"""
    transfer_min: Ints
    """T' = shortest duration of a member (the clock-free transfer time)"""
    waited: Ints
    """sum over members of L - arrival (n x n kinds, unclipped)"""
    marginal: Ints
    """(n - 1) x (last arrival - last but one)"""
    violations: Ints
    clock_free: Bools
    """the clocks are too weak: waits are duration - shortest duration (METHODS d.4)"""
    dark: Bools
    """the clocks are too weak and nothing else tells: unresolved"""
    ahead: Ints
    """per collectives row: L - own begin (negative only for a later record of a member); 0 if unmatched"""
    partners: p2p.Partners
    root: Ints
    """collectives row of the root of a rooted kind, -1 = none or not seen"""

    def __len__(self) -> int:
        return len(self.kind)

    def block(self, instances: Ints) -> Block:
        """The rows of some instances (ascending numbers)."""
        return block(self.rows, self.first, self.member, instances)

    def blocks(self) -> Iterator[Block]:
        """All instances, a block at a time."""
        for low, high in ranges(self.first):
            yield self.block(np.arange(low, high))

    @cached_property
    def median(self) -> Ints:
        """Row of the member with the lower median arrival (of the two in the middle the later one)."""
        out = np.empty(len(self), np.int64)
        for some in self.blocks():
            line = some.line(self.ahead)
            out[some.instances] = line.row[(line.head[:-1] + line.head[1:]) // 2]
        return out


def block(rows: Rows, first: Ints, member: Bools, instances: Ints) -> Block:
    """The rows of some instances (ascending) out of the columns of ``Instances``."""
    low, size = first[instances], first[instances + 1] - first[instances]
    head = np.append(0, np.cumsum(size))
    local = np.repeat(np.arange(len(instances)), size)
    at = (low - head[:-1])[local] + np.arange(head[-1])
    return Block(instances, rows[at].astype(np.int64), local, head, member[at])


def by_value(values: Ints) -> Iterator[tuple[int, Ints]]:
    """(each value, where it stands), ascending."""
    order = np.argsort(values, kind="stable")
    cuts = np.flatnonzero(np.diff(values[order])) + 1
    for own in np.split(order, cuts) if len(order) else []:
        yield int(values[own[0]]), own


def begins(*columns: Ints) -> Bools:
    """Where a run of equal rows begins: the first row, and each that differs from the one before in any column."""
    out = np.zeros(len(columns[0]), np.bool_)
    out[:1] = True
    for column in columns:
        out[1:] |= column[1:] != column[:-1]
    return out


def ranges(first: Ints, size: int = BLOCK) -> list[tuple[int, int]]:
    """Ranges of instances that have about ``size`` rows; an instance is never cut."""
    out, low, count = [], 0, len(first) - 1
    while low < count:
        high = max(int(np.searchsorted(first, first[low] + size, side="right")) - 1, low + 1)
        out.append((low, high))
        low = high
    return out
