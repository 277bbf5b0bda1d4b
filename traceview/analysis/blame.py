"""The blame ledger (METHODS e.3): what every member cost the others, exact to the nanosecond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from traceview.analysis.groups import KIND, ONE_TO_N, Columns, columns
from traceview.analysis.shares import Axis, axis, split, whole
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
    cell_class: Ints
    """classes x steps x ranks with blame: group * len(COLL_KINDS) + kind"""
    cell_step: Ints
    cell_rank: Ints
    cell_ns: Ints
    row_ns: Floats
    """per collectives row: direct blame of this arrival, before rounding"""

    def by(self, label: dict[int, str]) -> dict[str, int]:
        """The ledger by host, stage, ...: ``label`` by rank; ranks without one are left out."""
        out: dict[str, int] = {}
        for rank, name in label.items():
            if rank < len(self.direct):
                out[name] = out.get(name, 0) + int(self.direct[rank])
        return out


@dataclass(frozen=True)
class Owed:
    """Waits of some rows as stretches of time left to the last arrival."""

    row: Ints
    instance: Ints
    u0: Ints
    u1: Ints


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
    line = axis(found)
    exposed = _owed(c, matches, found, pieces.row, pieces.start, pieces.end)
    straggler = phases.sub[exposed.row] == NXN
    exposed = _take(exposed, straggler)
    sure = matches.full & ~matches.ambiguous & (found.violations == 0)
    length = exposed.u1 - exposed.u0
    blamed = sure[exposed.instance]
    share = owed_by(line, found, _take(exposed, blamed), len(c))
    cells = _round(c, found, share, step_of_row, exposed, blamed)
    low = _take(exposed, (~matches.full & ~matches.ambiguous & (found.violations == 0))[exposed.instance])
    rows = np.flatnonzero((phases.wait_end > c.start) & (phases.sub == NXN) & (matches.instance >= 0))
    rows = rows if used is None else rows[used[rows]]
    every = _owed(c, matches, found, rows, c.start[rows], phases.wait_end[rows])
    every = _take(every, sure[every.instance])
    ok = sure & (phases.sub[found.last] == NXN)
    if used is not None:
        ok &= used[found.last]
    tail = c.rank[found.last]
    member = found.member & ok[found.of_rows()]
    return Ledger(
        direct=_by_rank(cells[2], cells[3], ranks),
        inclusive=_rounded(c, owed_by(line, found, every, len(c)), ranks, int((every.u1 - every.u0).sum())),
        last=_last(c, found, _take(exposed, blamed), ranks),
        marginal=_by_rank(tail[ok], found.marginal[ok], ranks),
        waited=_by_rank(c.rank[exposed.row], length, ranks),
        at_least=_rounded(c, owed_by(line, found, low, len(c)), ranks, int((low.u1 - low.u0).sum())),
        last_count=np.bincount(tail[ok & (found.waited > 0)], minlength=ranks).astype(np.int64),
        instances=np.bincount(c.rank[found.rows[member]], minlength=ranks).astype(np.int64),
        total=int(length.sum()),
        unblamed=int(length[~blamed].sum()),
        cell_class=cells[0],
        cell_step=cells[1],
        cell_rank=cells[2],
        cell_ns=cells[3],
        row_ns=share,
    )


def _owed(c: Columns, m: Matches, found: Instances, row: Ints, start: Ints, end: Ints) -> Owed:
    """Pieces of waiting as time left, within what the row still had to wait."""
    ahead = found.ahead[row]
    u1 = ahead - (start - c.start[row])
    return Owed(row, m.instance[row], np.maximum(u1 - (end - start), 0), np.maximum(u1, 0))


def _take(owed: Owed, keep: Bools) -> Owed:
    return Owed(owed.row[keep], owed.instance[keep], owed.u0[keep], owed.u1[keep])


def owed_by(line: Axis, found: Instances, owed: Owed, rows: int, weight: Floats | None = None) -> Floats:
    """What each of ``rows`` collectives rows owes of the waits, in ns; a root owes the waits of its receivers."""
    out = np.zeros(rows)
    root = found.root[owed.instance]
    rooted = ONE_TO_N[found.kind[owed.instance]] & (root >= 0) & (root != owed.row)
    if rooted.any():
        length = (owed.u1 - owed.u0)[rooted] * (1.0 if weight is None else weight[rooted])
        out += np.bincount(root[rooted], length, rows)
        weight = None if weight is None else weight[~rooted]
        owed = _take(owed, ~rooted)
    out[line.row] += split(line, owed.instance, owed.u0, owed.u1, weight)
    return out


def _round(
    c: Columns, found: Instances, share: Floats, step_of_row: Ints, exposed: Owed, blamed: Bools
) -> tuple[Ints, Ints, Ints, Ints]:
    """(class, step, rank, ns) with blame; each (class, step) sums to its exposed waits exactly."""
    lead = found.rows[found.first[:-1]]
    family = (found.group * len(KIND) + found.kind).astype(np.int64)
    step = step_of_row[lead]
    pair, cell = np.unique(np.column_stack((family, step)), axis=0, return_inverse=True)
    if not len(pair):
        no = np.zeros(0, np.int64)
        return no, no, no, no
    inside = exposed.instance[blamed]
    total = np.bincount(cell[inside], (exposed.u1 - exposed.u0)[blamed], len(pair)).astype(np.int64)
    ranks = int(c.rank.max()) + 1
    some = share[found.rows] > 0
    rows = found.rows[some]
    there, inverse = np.unique(cell[found.of_rows()[some]] * ranks + c.rank[rows], return_inverse=True)
    amount: Floats = np.bincount(inverse, share[rows], len(there)).astype(np.float64)
    ns = whole(amount, there // ranks, total)
    return pair[there // ranks, 0], pair[there // ranks, 1], there % ranks, ns


def _by_rank(rank: Ints, ns: Ints, ranks: int) -> Ints:
    out = np.zeros(ranks, np.int64)
    np.add.at(out, rank, ns)
    return out


def _rounded(c: Columns, share: Floats, ranks: int, total: int) -> Ints:
    amount: Floats = np.bincount(c.rank, share, ranks).astype(np.float64)
    return whole(amount, np.zeros(ranks, np.int64), np.array([total]))


def _last(c: Columns, found: Instances, owed: Owed, ranks: int) -> Ints:
    """Everything to the last member of the instance (the root for its receivers)."""
    root = found.root[owed.instance]
    rooted = ONE_TO_N[found.kind[owed.instance]] & (root >= 0) & (root != owed.row)
    culprit = np.where(rooted, root, found.last[owed.instance])
    return _by_rank(c.rank[culprit], owed.u1 - owed.u0, ranks)
