"""Transitive blame (METHODS e.5): the part of a lateness that was itself waiting goes to those it waited for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from traceview.analysis.blame import Ledger, Stretches, charges
from traceview.analysis.groups import Columns
from traceview.analysis.instances import BLOCK, by_value
from traceview.analysis.lateness import WAIT, Arrivals, Starts, arrivals, fixed_reference, terms
from traceview.analysis.leaftime import SegmentSource
from traceview.analysis.p2p import components
from traceview.analysis.shares import whole
from traceview.analysis.types import P2P, Bools, Floats, Ints, Matches, Tokens, WaitPieces, Windows
from traceview.analysis.waits import Waits

HOPS = 64  # a chain of waits longer than this keeps its rest where it is
COVER = 0.95  # share of the blame whose chains are followed; the small rest stays direct
MOST_ROWS = 100_000
RATE = 1e-12  # less of a wait is not handed on: what is left of a difference of sums
TINY = 1e-5  # share of the blame that is not worth another hop


TableSource = Callable[[int], Any]
"""rank -> its declared table, None = not there"""


def no_table(rank: int) -> None:
    """A source that has nothing."""
    return None


@dataclass(frozen=True)
class Facts:
    """What the cross-rank rules read; made once per run."""

    c: Columns
    matches: Matches
    waited: Waits
    pieces: WaitPieces
    windows: Windows
    step_of_row: Ints
    segments: SegmentSource
    gpu_ops: TableSource = no_table
    host_ranges: TableSource = no_table
    tokens: Tokens | None = None

    @cached_property
    def starts(self) -> Starts:
        """Begins of the windows."""
        return Starts.of(self.windows)

    @cached_property
    def meetings(self) -> Bools:
        """See ``meeting_of_stages``."""
        return meeting_of_stages(self)


@dataclass(frozen=True)
class Origin:
    """Blame where the lateness began, ns."""

    by_rank: Ints
    by_schedule: Ints
    """part of it that sends handed on from a meeting of stages: the schedule of their pipeline, no fault (e.6)"""
    by_step: Floats
    """[rank, step - first step]"""
    first_step: int

    def __add__(self, other: Origin) -> Origin:
        schedule, by_step = self.by_schedule + other.by_schedule, self.by_step + other.by_step
        return Origin(self.by_rank + other.by_rank, schedule, by_step, self.first_step)


def origin(facts: Facts, ledger: Ledger) -> Origin:
    """Origin blame; sums to the direct blame. Each hop moves strictly back in time, so it ends."""
    return _follow(facts, ledger.row_ns, ledger.direct)


def origin_at_least(facts: Facts, ledger: Ledger) -> Origin:
    """The same of what partly observed instances are owed at least; sums to ``ledger.at_least``."""
    return _follow(facts, ledger.row_at_least, ledger.at_least)


def _follow(facts: Facts, row_ns: Floats, by_rank_ns: Ints) -> Origin:
    """Amounts per collectives row, handed on to where the lateness began; by rank."""
    total, ranks = int(by_rank_ns.sum()), len(by_rank_ns)
    cells = _Cells.of(facts, ranks)
    if not total:
        return Origin(np.zeros(ranks, np.int64), np.zeros(ranks, np.int64), cells.grid(), cells.first)
    passing = _passing(facts, *late_rows(facts, row_ns))
    waits = _Waits.of(facts)
    scheduled = facts.meetings[facts.c.group[passing.row]]
    amount, settled, told = row_ns, cells.sums(row_ns), np.zeros(ranks)
    for _ in range(HOPS):
        moved = amount[passing.row] * passing.share
        if moved.sum() < 1.0 + TINY * total:
            break
        del amount  # not beside the next one
        amount, by_message = _hand_on(facts, waits, passing, moved, scheduled)
        told += by_message
        # waits that nobody can be named for stay with the late rank
        lost = max(moved.sum() - amount.sum(), 0.0)
        settled += cells.sums(amount) - cells.grid(passing.row, moved * (1 - lost / moved.sum()))
    settled = np.maximum(settled, 0.0)
    by_rank = whole(settled.sum(axis=1), np.zeros(ranks, np.int64), np.array([total]))
    return Origin(by_rank, np.minimum(np.rint(told).astype(np.int64), by_rank), settled, cells.first)


@dataclass(frozen=True)
class _Cells:
    """Rank and step of collectives rows."""

    rank: Ints
    step: Ints
    first: int
    shape: tuple[int, int]

    @classmethod
    def of(cls, facts: Facts, ranks: int) -> _Cells:
        step = facts.step_of_row
        first = int(step.min(initial=0))
        return cls(facts.c.rank, step, first, (ranks, int(step.max(initial=0)) - first + 1))

    def sums(self, amount: Floats) -> Floats:
        """Amounts of all rows by rank and step."""
        out = self.grid()
        for low in range(0, len(amount), BLOCK):
            rows = low + np.flatnonzero(amount[low : low + BLOCK])
            out += self.grid(rows, amount[rows])
        return out

    def grid(self, rows: Ints | None = None, amount: Floats | None = None) -> Floats:
        """Amounts of some rows by rank and step."""
        if rows is None:
            return np.zeros(self.shape)
        cell = self.rank[rows] * self.shape[1] + (self.step[rows] - self.first)
        out: Floats = np.bincount(cell, amount, self.shape[0] * self.shape[1]).astype(np.float64, copy=False)
        return out.reshape(self.shape)


def meeting_of_stages(facts: Facts) -> Bools:
    """Per group, and False at the end: two members are in one pipeline, so they meet at different places of it."""
    c, partners = facts.c, facts.waited.instances.partners
    peer = np.maximum(partners.sender, partners.receiver)
    rows = np.flatnonzero(peer >= 0)
    pipeline = components(int(c.rank.max(initial=-1)) + 1, c.rank[rows], c.rank[peer[rows]])
    out = np.zeros(len(c.groups) + 1, np.bool_)
    for i, g in enumerate(c.groups):
        members = [pipeline[r] for r in g.members if r < len(pipeline)]
        out[i] = len(set(members)) < len(members)
    out[-1] = len(rows) > 0  # rows without a group: of the whole world
    return out


def late_rows(facts: Facts, owed: Floats) -> tuple[Ints, Ints]:
    """(rows that owe most of the blame, row of the median member of each)."""
    found, instance = facts.waited.instances, facts.matches.instance
    least = np.partition(owed, -MOST_ROWS)[-MOST_ROWS] if np.count_nonzero(owed > 0) > MOST_ROWS else 0.0
    rows = np.flatnonzero((owed > 0) & (owed >= least))
    rows = rows[rows != found.median[instance[rows]]]
    rows = rows[np.argsort(-owed[rows], kind="stable")]
    total = np.cumsum(owed[rows])
    keep = rows[: int(np.searchsorted(total, COVER * total[-1])) + 1] if len(rows) else rows
    return keep, found.median[instance[keep]]


@dataclass(frozen=True)
class _Passing:
    """Late rows that waited themselves: share of their blame to pass, and the window in which they waited."""

    row: Ints
    share: Floats
    start: Ints


def _passing(facts: Facts, rows: Ints, medians: Ints) -> _Passing:
    late = lateness_of(facts, rows, medians)
    found = terms(facts.c, late, facts.segments)
    positive = np.maximum(found.leaves, 0).sum(axis=1) + np.maximum(found.carry, 0)
    wait = np.maximum(found.leaves[:, WAIT], 0)
    fit = found.known & (wait > 0)
    share = wait[fit] / positive[fit]
    return _Passing(late.row[fit], share, late.start[fit])


def lateness_of(facts: Facts, rows: Ints, medians: Ints) -> Arrivals:
    """Late rows against one reference rank per (rank, group), as far as it is in their instance and was earlier."""
    found = facts.waited.instances
    reference = fixed_reference(facts.c, rows, medians, found, facts.matches)
    fit = found.ahead[reference] > found.ahead[rows]
    pair = (rows[fit], reference[fit])
    return arrivals(facts.c, facts.matches, found, pair, (facts.starts, facts.step_of_row, facts.segments))


@dataclass(frozen=True)
class _Waits:
    """Exposed waits in order of (rank, start)."""

    stretches: Stretches
    head: Ints
    """by rank: its first wait"""

    @classmethod
    def of(cls, facts: Facts) -> _Waits:
        m, c, p = facts.matches, facts.c, facts.pieces
        row, start, end = p.row, p.start, p.end
        # of a partly observed instance the wait up to the last arrival seen is owed by members seen
        sure = np.append(~m.ambiguous & (facts.waited.instances.violations == 0), False)[m.instance[row]]
        if not sure.all():
            row, start, end = row[sure], start[sure], end[sure]
        rank = c.rank[row]
        if ((rank[1:] < rank[:-1]) | ((rank[1:] == rank[:-1]) & (start[1:] < start[:-1]))).any():
            order = np.lexsort((start, rank))
            row, start, end, rank = row[order], start[order], end[order], rank[order]
        head = np.searchsorted(rank, np.arange(int(c.rank.max(initial=-1)) + 2))
        del rank, sure  # not beside what orders the waits
        return cls(Stretches.of(m, row, start, end), head)

    def length(self, low: Ints, high: Ints) -> Ints:
        """Length of the waits in ranges of them, ns."""
        until = np.zeros(len(self.stretches.row) + 1, np.int64)
        np.subtract(self.stretches.end, self.stretches.start, out=until[1:])
        np.cumsum(until, out=until)
        out: Ints = until[high] - until[low]
        return out


def _hand_on(
    facts: Facts, waits: _Waits, passing: _Passing, moved: Floats, scheduled: Bools
) -> tuple[Floats, Floats]:
    """(amounts per row after one hop, part by rank that messages handed on from ``scheduled`` passing rows).

    Each passing row spreads its share over its own waits in P, by their length.
    """
    c, found, own = facts.c, facts.waited.instances, waits.stretches
    out, by_message = np.zeros(len(c)), np.zeros(int(c.rank.max()) + 1)
    low, high = _ranges(c, waits, passing)
    length = waits.length(low, high)
    rate = np.where(length > 0, moved / np.maximum(length, 1), 0.0)
    each = _over(low, high, rate, len(own.row))
    by_schedule = _over(low, high, rate * scheduled, len(own.row)) if scheduled.any() else each
    for some, owed, at in own.blocks(c, found):
        keep = each[at] > RATE
        weight, owed, at = each[at][keep], owed.take(keep), at[keep]
        point = facts.waited.phases.sub[owed.row] == P2P
        if point.any():
            row, peer = owed.row[point], late_peer(facts, owed.row[point])
            to, ns = np.where(peer >= 0, peer, row), (own.end - own.start)[at[point]]
            np.add.at(out, to, weight[point] * ns)
            if scheduled.any():
                by_message += np.bincount(c.rank[to], by_schedule[at[point]] * ns, len(by_message))
        np.add.at(out, *charges(found, some, owed.take(~point), weight[~point]))
    return out, by_message


def _over(low: Ints, high: Ints, rate: Floats, count: int) -> Floats:
    """Per wait: the sum of the rates whose range [low, high) holds it."""
    each = np.zeros(count + 1)
    np.add.at(each, low, rate)
    np.subtract.at(each, high, rate)
    return np.cumsum(each, out=each)


def _ranges(c: Columns, waits: _Waits, passing: _Passing) -> tuple[Ints, Ints]:
    """Range of the waits inside P of every passing row."""
    low, high = np.zeros(len(passing.row), np.int64), np.zeros(len(passing.row), np.int64)
    for r, mine in by_value(c.rank[passing.row]):
        a, b = waits.head[r], waits.head[r + 1]
        low[mine] = a + np.searchsorted(waits.stretches.start[a:b], passing.start[mine], side="left")
        high[mine] = a + np.searchsorted(waits.stretches.end[a:b], c.start[passing.row[mine]], side="right")
    return low, np.maximum(low, high)


def late_peer(facts: Facts, rows: Ints) -> Ints:
    """The direct peer that a point-to-point row waited for: the later one of its sender and receiver."""
    partners, ahead = facts.waited.instances.partners, facts.waited.instances.ahead
    sender, receiver = partners.sender[rows], partners.receiver[rows]
    pick = np.where((receiver < 0) | ((sender >= 0) & (ahead[sender] <= ahead[receiver])), sender, receiver)
    return pick
