"""The blame ledger (METHODS e.3): what every member cost the others, exact to the nanosecond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from traceview.analysis.groups import KIND, ONE_TO_N, Columns, columns
from traceview.analysis.shares import Waiting, split, whole
from traceview.analysis.types import NXN, Bools, Floats, Ints, Matches, WaitPieces
from traceview.analysis.waits import Instances, Waits


@dataclass(frozen=True)
class Ledger:
    """Blame in ns. Arrays named ``by_rank`` style are indexed by rank (0 .. highest rank seen).

    ``direct.sum() + unblamed == total`` = the straggler wait of the budget (I5). ``unblamed``: waits of instances
    that are partly observed (at least, see ``at_least``) or whose clocks or match are in doubt.
    """

    direct: Ints
    inclusive: Ints
    last: Ints
    marginal: Ints
    waited: Ints
    at_least: Ints
    """of partly observed instances: what the members seen made each other wait, before any that is missing"""
    last_count: Ints
    """instances (full, n x n) in which the rank arrived last"""
    instances: Ints
    """instances (full, n x n) of the rank"""
    total: int
    unblamed: int
    row_ns: Floats
    """per collectives row: direct blame of this arrival, before rounding"""
    row_at_least: Floats
    """the same of ``at_least``"""


def blame(
    pieces: WaitPieces,
    collectives: Any | Columns,
    matches: Matches,
    waited: Waits,
    step_of_row: Ints,
    used: Bools | None = None,
) -> Ledger:
    """The ledger of the exposed waits ``pieces``.

    ``step_of_row``: step per collectives row. ``used``: rows of used steps, for the inclusive, last and marginal
    figures (None = all).
    """
    c = collectives if isinstance(collectives, Columns) else columns(collectives)
    found, phases = waited.instances, waited.phases
    ranks = int(c.rank.max(initial=-1)) + 1
    exposed = _owed(c, matches, found, pieces.row, pieces.start, pieces.end)
    exposed = exposed.take(phases.sub[exposed.row] == NXN)
    waiter = _by_rank(c.rank[exposed.row], exposed.u1 - exposed.u0, ranks)
    clean = ~matches.ambiguous & (found.violations == 0)
    sure = matches.full & clean
    low = exposed.take((~matches.full & clean)[exposed.instance])
    exposed = exposed.take(sure[exposed.instance])
    share = owed_by(found, exposed, len(c))
    low_share = owed_by(found, low, len(c)) if len(low.row) else np.broadcast_to(0.0, len(c))
    culprit, owed_ns = _round(c, found, share, step_of_row, exposed)
    last = _last(c, found, exposed, ranks)
    del exposed  # tens of bytes per row: not beside those of the inclusive figures
    ok = sure & (phases.sub[found.last] == NXN)
    if used is not None:
        ok &= used[found.last]
    tail = c.rank[found.last]
    member = found.member & ok[found.number]
    return Ledger(
        direct=_by_rank(culprit, owed_ns, ranks),
        inclusive=_inclusive(c, found, _every(c, matches, waited, sure, used), ranks),
        last=last,
        marginal=_by_rank(tail[ok], found.marginal[ok], ranks),
        waited=waiter,
        at_least=_rounded(c, low_share, low, ranks),
        last_count=np.bincount(tail[ok & (found.waited > 0)], minlength=ranks).astype(np.int64),
        instances=np.bincount(c.rank[found.rows[member]], minlength=ranks).astype(np.int64),
        total=int(waiter.sum()),
        unblamed=int(waiter.sum() - owed_ns.sum()),
        row_ns=share,
        row_at_least=low_share,
    )


def _inclusive(c: Columns, found: Instances, every: Waiting, ranks: int) -> Ints:
    return _rounded(c, owed_by(found, every, len(c)), every, ranks)


def _every(c: Columns, m: Matches, waited: Waits, sure: Bools, used: Bools | None) -> Waiting:
    """All straggler waits of used rows in sure instances, hidden or not."""
    phases = waited.phases
    fit = (phases.wait_end > c.start) & (phases.sub == NXN) & np.append(sure, False)[m.instance]
    rows = np.flatnonzero(fit if used is None else fit & used)
    return _owed(c, m, waited.instances, rows, c.start[rows], phases.wait_end[rows])


def _owed(c: Columns, m: Matches, found: Instances, row: Ints, start: Ints, end: Ints) -> Waiting:
    """Pieces of waiting as time left, within what the row still had to wait."""
    ahead = found.ahead[row]
    u1 = ahead - (start - c.start[row])
    return Waiting(row, m.instance[row], np.maximum(u1 - (end - start), 0), np.maximum(u1, 0))


def owed_by(found: Instances, owed: Waiting, rows: int, weight: Floats | None = None) -> Floats:
    """What each of ``rows`` collectives rows owes of the waits, in ns; a root owes the waits of its receivers."""
    out = np.zeros(rows)
    root = found.root[owed.instance]
    rooted = ONE_TO_N[found.kind[owed.instance]] & (root >= 0) & (root != owed.row)
    if rooted.any():
        length = (owed.u1 - owed.u0)[rooted] * (1.0 if weight is None else weight[rooted])
        out += np.bincount(root[rooted], length, rows)
        weight = None if weight is None else weight[~rooted]
        owed = owed.take(~rooted)
    out[found.line.row] += split(found.line, owed, weight)
    return out


def _round(c: Columns, found: Instances, share: Floats, step_of_row: Ints, exposed: Waiting) -> tuple[Ints, Ints]:
    """(rank, whole ns) with blame per class, step and rank; each (class, step) sums to its exposed waits exactly."""
    lead = found.rows[found.first[:-1]]
    step = step_of_row[lead]
    low = int(step.min(initial=0))
    span = int(step.max(initial=0)) - low + 1
    family = (found.group + 1) * len(KIND) + found.kind
    pair, cell = np.unique(family * span + (step - low), return_inverse=True)
    total = np.bincount(cell[exposed.instance], exposed.u1 - exposed.u0, len(pair)).astype(np.int64)
    ranks = int(c.rank.max(initial=-1)) + 1
    some = np.flatnonzero(share[found.rows] > 0)
    rows = found.rows[some]
    there, amount = sums(cell[found.number[some]] * ranks + c.rank[rows], share[rows], len(pair) * ranks)
    at = there // max(ranks, 1)
    return there % max(ranks, 1), whole(amount, at, total)


def sums(key: Ints, amount: Floats, size: int) -> tuple[Ints, Floats]:
    """(keys that have an amount, ascending; sum of each). ``size``: above the highest key."""
    if size <= 4 * len(key) + 1_000_000:
        total = np.bincount(key, amount, size).astype(np.float64, copy=False)
        there = np.flatnonzero(total > 0)
        return there, total[there]
    there, inverse = np.unique(key, return_inverse=True)
    return there, np.bincount(inverse, amount, len(there)).astype(np.float64, copy=False)


def _by_rank(rank: Ints, ns: Ints, ranks: int) -> Ints:
    # float sums of integers are exact below 2**53 ns, 104 days
    out: Ints = np.bincount(rank, ns, ranks).astype(np.int64)
    return out


def _rounded(c: Columns, share: Floats, owed: Waiting, ranks: int) -> Ints:
    """What every rank owes of the waits, in whole ns that sum to them."""
    if not len(owed.row):
        return np.zeros(ranks, np.int64)
    amount: Floats = np.bincount(c.rank, share, ranks).astype(np.float64)
    return whole(amount, np.zeros(ranks, np.int64), np.array([int((owed.u1 - owed.u0).sum())]))


def _last(c: Columns, found: Instances, owed: Waiting, ranks: int) -> Ints:
    """Everything to the last member of the instance (the root for its receivers)."""
    root = found.root[owed.instance]
    rooted = ONE_TO_N[found.kind[owed.instance]] & (root >= 0) & (root != owed.row)
    culprit = np.where(rooted, root, found.last[owed.instance])
    return _by_rank(c.rank[culprit], owed.u1 - owed.u0, ranks)
