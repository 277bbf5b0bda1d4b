"""Transitive blame (METHODS e.5): the part of a lateness that was itself waiting goes to those it waited for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceview.analysis.blame import Ledger, owed_by
from traceview.analysis.groups import Columns
from traceview.analysis.lateness import WAIT, Arrivals, arrivals, fixed_reference, references, terms
from traceview.analysis.leaftime import SegmentSource
from traceview.analysis.shares import Waiting, whole
from traceview.analysis.types import P2P, Floats, Ints, Matches, WaitPieces, Windows
from traceview.analysis.waits import Waits

HOPS = 64  # a chain of waits longer than this keeps its rest where it is
COVER = 0.95  # share of the blame whose chains are followed; the small rest stays direct
MOST_ROWS = 100_000
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


def origin(facts: Facts, ledger: Ledger) -> Ints:
    """Origin blame by rank; sums to the direct blame. Each hop moves strictly back in time, so it ends."""
    return _follow(facts, ledger.row_ns, ledger.direct)


def origin_at_least(facts: Facts, ledger: Ledger) -> Ints:
    """The same of what partly observed instances are owed at least; sums to ``ledger.at_least``."""
    return _follow(facts, ledger.row_at_least, ledger.at_least)


def _follow(facts: Facts, row_ns: Floats, by_rank_ns: Ints) -> Ints:
    """Amounts per collectives row, handed on to where the lateness began; by rank."""
    c, total = facts.c, int(by_rank_ns.sum())
    if not total:
        return np.zeros(len(by_rank_ns), np.int64)
    rows, medians = late_rows(facts, row_ns)
    passing = _passing(facts, rows, medians)
    pieces = _by_time(facts)
    amount = row_ns.copy()
    settled = np.zeros(len(c))
    for _ in range(HOPS):
        moved = np.zeros(len(c))
        if len(passing.row):
            moved[passing.row] = amount[passing.row] * passing.share
        settled += amount - moved
        if moved.sum() < 1.0 + TINY * total:
            settled += moved
            amount = np.zeros(len(c))
            break
        amount = _hand_on(facts, pieces, passing, moved)
        # waits that nobody can be named for stay with the late rank
        settled += _returned(moved, amount)
    settled += amount
    by_rank: Floats = np.bincount(c.rank, settled, len(by_rank_ns)).astype(np.float64)
    return whole(by_rank, np.zeros(len(by_rank), np.int64), np.array([total]))


def late_rows(facts: Facts, owed: Floats) -> tuple[Ints, Ints]:
    """(rows that owe most of the blame, row of the median member of each)."""
    line = facts.waited.instances.line
    rows, medians = line.row, references(line)
    take = np.flatnonzero((owed[rows] > 0) & (rows != medians))
    if len(take) > MOST_ROWS:
        amount = owed[rows[take]]
        take = take[amount >= np.partition(amount, len(amount) - MOST_ROWS)[len(amount) - MOST_ROWS]]
    order = take[np.argsort(-owed[rows[take]], kind="stable")]
    total = np.cumsum(owed[rows[order]])
    keep = order[: int(np.searchsorted(total, COVER * total[-1])) + 1] if len(order) else order
    return rows[keep], medians[keep]


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
class _Pieces:
    """Exposed waits in order of (rank, start): their rank, bounds and row; ``head`` by rank."""

    rank: Ints
    start: Ints
    end: Ints
    row: Ints
    head: Ints


def _by_time(facts: Facts) -> _Pieces:
    p, m = facts.pieces, facts.matches
    # of a partly observed instance the wait up to the last arrival seen is owed by members seen
    sure = np.append(~m.ambiguous & (facts.waited.instances.violations == 0), False)
    take = np.flatnonzero(sure[m.instance[p.row]])
    rank, start = p.rank[take], p.start[take]
    if ((np.diff(rank) < 0) | ((np.diff(rank) == 0) & (np.diff(start) < 0))).any():
        take = take[np.lexsort((start, rank))]
    every = slice(None) if len(take) == len(p.rank) and (np.diff(take) > 0).all() else take
    rank = p.rank[every]
    top = int(rank.max(initial=-1)) + 2
    return _Pieces(rank, p.start[every], p.end[every], p.row[every], np.searchsorted(rank, np.arange(top + 1)))


def _hand_on(facts: Facts, pieces: _Pieces, passing: _Passing, moved: Floats) -> Floats:
    """Amounts per row after one hop: each passing row spreads its share over its own waits in P, by their length."""
    c = facts.c
    out = np.zeros(len(c))
    low, high = _ranges(c, pieces, passing)
    total = np.append(0, np.cumsum(pieces.end - pieces.start))
    length = total[high] - total[low]
    rate = np.where(length > 0, moved[passing.row] / np.maximum(length, 1), 0.0)
    change = np.bincount(low, rate, len(pieces.row) + 1) - np.bincount(high, rate, len(pieces.row) + 1)
    weight = np.cumsum(change)[:-1]
    take = np.flatnonzero(weight > 1e-12)
    row, each = pieces.row[take], weight[take]
    point = facts.waited.phases.sub[row] == P2P
    if point.any():
        peer = late_peer(facts, row[point])
        ns = each[point] * (pieces.end - pieces.start)[take][point]
        out += np.bincount(np.where(peer >= 0, peer, row[point]), ns, len(c))
    take, row, each = take[~point], row[~point], each[~point]
    ahead = facts.waited.instances.ahead[row]
    u1 = np.maximum(ahead - (pieces.start[take] - c.start[row]), 0)
    u0 = np.maximum(u1 - (pieces.end - pieces.start)[take], 0)
    owed = Waiting(row, facts.matches.instance[row], u0, u1)
    return out + owed_by(facts.waited.instances, owed, len(c), each)


def _ranges(c: Columns, pieces: _Pieces, passing: _Passing) -> tuple[Ints, Ints]:
    """Range of ``pieces`` inside P of every passing row."""
    low, high = np.zeros(len(passing.row), np.int64), np.zeros(len(passing.row), np.int64)
    rank = c.rank[passing.row]
    for r in np.unique(rank).tolist():
        if r + 1 >= len(pieces.head):
            continue
        mine = np.flatnonzero(rank == r)
        a, b = pieces.head[r], pieces.head[r + 1]
        low[mine] = a + np.searchsorted(pieces.start[a:b], passing.start[mine], side="left")
        high[mine] = a + np.searchsorted(pieces.end[a:b], c.start[passing.row[mine]], side="right")
    return low, np.maximum(low, high)


def late_peer(facts: Facts, rows: Ints) -> Ints:
    """The direct peer that a point-to-point row waited for: the later one of its sender and receiver."""
    partners, ahead = facts.waited.instances.partners, facts.waited.instances.ahead
    sender, receiver = partners.sender[rows], partners.receiver[rows]
    pick = np.where((receiver < 0) | ((sender >= 0) & (ahead[sender] <= ahead[receiver])), sender, receiver)
    return pick


def _returned(moved: Floats, arrived: Floats) -> Floats:
    """What was passed on but reached nobody (no wait in P): back to where it came from, in proportion."""
    lost = moved.sum() - arrived.sum()
    return moved * (lost / moved.sum()) if lost > 0 and moved.sum() > 0 else np.zeros(len(moved))
