"""Transitive blame (METHODS e.5): the part of a lateness that was itself waiting goes to those it waited for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceview.analysis.blame import Ledger, Stretches, charges
from traceview.analysis.groups import Columns
from traceview.analysis.lateness import WAIT, Arrivals, arrivals, fixed_reference, terms
from traceview.analysis.leaftime import SegmentSource
from traceview.analysis.shares import whole
from traceview.analysis.types import P2P, Floats, Ints, Matches, Tokens, WaitPieces, Windows
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


def origin(facts: Facts, ledger: Ledger) -> Ints:
    """Origin blame by rank; sums to the direct blame. Each hop moves strictly back in time, so it ends."""
    return _follow(facts, ledger.row_ns, ledger.direct)


def origin_at_least(facts: Facts, ledger: Ledger) -> Ints:
    """The same of what partly observed instances are owed at least; sums to ``ledger.at_least``."""
    return _follow(facts, ledger.row_at_least, ledger.at_least)


def _follow(facts: Facts, row_ns: Floats, by_rank_ns: Ints) -> Ints:
    """Amounts per collectives row, handed on to where the lateness began; by rank."""
    c, total, ranks = facts.c, int(by_rank_ns.sum()), len(by_rank_ns)
    if not total:
        return np.zeros(ranks, np.int64)
    passing = _passing(facts, *late_rows(facts, row_ns))
    waits = _Waits.of(facts)
    amount, settled = row_ns, np.zeros(ranks)
    passer = c.rank[passing.row]
    for hop in range(HOPS):
        moved = amount[passing.row] * passing.share
        settled += np.bincount(c.rank, amount, ranks)
        if hop == HOPS - 1 or moved.sum() < 1.0 + TINY * total:
            break
        amount = _hand_on(facts, waits, passing, moved)
        # waits that nobody can be named for stay with the late rank
        lost = max(moved.sum() - amount.sum(), 0.0)
        settled -= np.bincount(passer, moved * (1 - lost / moved.sum()), ranks)
    return whole(np.maximum(settled, 0.0), np.zeros(ranks, np.int64), np.array([total]))


def late_rows(facts: Facts, owed: Floats) -> tuple[Ints, Ints]:
    """(rows that owe most of the blame, row of the median member of each)."""
    found, instance = facts.waited.instances, facts.matches.instance
    rows = np.flatnonzero(owed > 0)
    rows = rows[rows != found.median[instance[rows]]]
    if len(rows) > MOST_ROWS:
        amount = owed[rows]
        rows = rows[amount >= np.partition(amount, len(amount) - MOST_ROWS)[len(amount) - MOST_ROWS]]
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
    reference = np.where(reference >= 0, reference, medians)
    fit = found.ahead[reference] > found.ahead[rows]
    pair = (rows[fit], reference[fit])
    return arrivals(facts.c, facts.matches, found, pair, (facts.windows, facts.step_of_row, facts.segments))


@dataclass(frozen=True)
class _Waits:
    """Exposed waits in order of (rank, start)."""

    stretches: Stretches
    head: Ints
    """by rank: its first wait"""
    until: Ints
    """length of all waits before each, ns; one more element at the end"""

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
        until = np.zeros(len(row) + 1, np.int64)
        np.cumsum(end - start, out=until[1:])
        return cls(Stretches.of(m, row, start, end), head, until)


def _hand_on(facts: Facts, waits: _Waits, passing: _Passing, moved: Floats) -> Floats:
    """Amounts per row after one hop: each passing row spreads its share over its own waits in P, by their length."""
    c, found, own = facts.c, facts.waited.instances, waits.stretches
    out = np.zeros(len(c))
    low, high = _ranges(c, waits, passing)
    length = waits.until[high] - waits.until[low]
    rate = np.where(length > 0, moved / np.maximum(length, 1), 0.0)
    each = np.zeros(len(own.row) + 1)
    np.add.at(each, low, rate)
    np.subtract.at(each, high, rate)
    np.cumsum(each, out=each)
    for some, owed, at in own.blocks(c, found):
        keep = each[at] > RATE
        weight, owed, at = each[at][keep], owed.take(keep), at[keep]
        point = facts.waited.phases.sub[owed.row] == P2P
        if point.any():
            row, peer = owed.row[point], late_peer(facts, owed.row[point])
            np.add.at(out, np.where(peer >= 0, peer, row), weight[point] * (own.end - own.start)[at[point]])
        np.add.at(out, *charges(found, some, owed.take(~point), weight[~point]))
    return out


def _ranges(c: Columns, waits: _Waits, passing: _Passing) -> tuple[Ints, Ints]:
    """Range of the waits inside P of every passing row."""
    low, high = np.zeros(len(passing.row), np.int64), np.zeros(len(passing.row), np.int64)
    rank = c.rank[passing.row]
    for r in np.unique(rank).tolist():
        mine = np.flatnonzero(rank == r)
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
