"""The blame ledger (METHODS e.3): what every member cost the others, exact to the nanosecond."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceview.analysis.groups import KIND, ONE_TO_N, Columns, columns
from traceview.analysis.instances import Block, Instances, ranges
from traceview.analysis.shares import Waiting, split, whole
from traceview.analysis.types import NXN, Bools, Floats, Ints, Matches, Phases, Rows, WaitPieces
from traceview.analysis.waits import Waits

_KINDS = len(KIND) + 1  # kind codes, and unknown


@dataclass(frozen=True)
class ByClass:
    """The ledger by class of the instances waited in: one element per (group, kind) with a wait, ns."""

    group: Ints
    """index into ``Columns.groups``, -1 = no group facts"""
    kind: Ints
    """kind code, -1 = unknown"""
    direct: Ints
    """sums to the direct blame of all ranks"""
    inclusive: Ints
    waited: Ints
    """with the waits that nobody is blamed for; sums to ``Ledger.total``"""
    at_least: Ints
    """the waits of partly observed instances; sums to ``Ledger.at_least``"""

    @classmethod
    def of(cls, found: Instances, *by_instance: Ints) -> ByClass:
        """From direct, inclusive, waited and at-least ns of every instance."""
        family = (found.group + 1) * _KINDS + found.kind + 1
        sums = [_by_rank(family, ns, (int(found.group.max(initial=-1)) + 2) * _KINDS) for ns in by_instance]
        some = np.flatnonzero(sum(sums))
        return cls(some // _KINDS - 1, some % _KINDS - 1, *(ns[some] for ns in sums))


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
    classes: ByClass


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
    clean = ~matches.ambiguous & (found.violations == 0)
    sure, low = matches.full & clean, ~matches.full & clean
    exposed = _Exposed.of(ranks, len(c), len(found), partial=bool(low.any()))
    waits = Stretches.of(matches, pieces.row, pieces.start, pieces.end)
    for some, owed, _ in waits.blocks(c, found):
        exposed.add(c, found, some, owed.take(phases.sub[owed.row] == NXN), (sure, low))
    culprit, owed_ns = _round(c, found, exposed.share, step_of_row, exposed.blamed)
    ok = sure & (phases.sub[found.last] == NXN)
    if used is not None:
        ok &= used[found.last]
    tail = c.rank[found.last]
    inclusive, hidden = _inclusive(c, found, phases, sure, used)
    return Ledger(
        direct=_by_rank(culprit, owed_ns, ranks),
        inclusive=inclusive,
        last=exposed.last,
        marginal=_by_rank(tail[ok], found.marginal[ok], ranks),
        waited=exposed.waited,
        at_least=_whole_by_rank(c, exposed.low_share, exposed.at_least, ranks),
        last_count=np.bincount(tail[ok & (found.waited > 0)], minlength=ranks).astype(np.int64),
        instances=_taken_part(c, found, ok, ranks),
        total=int(exposed.waited.sum()),
        unblamed=int(exposed.waited.sum() - owed_ns.sum()),
        row_ns=exposed.share,
        row_at_least=exposed.low_share,
        classes=ByClass.of(found, exposed.blamed, hidden, exposed.lost, np.where(low, exposed.lost, 0)),
    )


@dataclass
class _Exposed:
    """Sums over the exposed straggler waits, ns."""

    share: Floats
    """per collectives row: what it owes of waits in fully observed instances"""
    low_share: Floats
    """the same of partly observed ones"""
    blamed: Ints
    """per instance: its waits, if it is fully observed"""
    lost: Ints
    """per instance: its waits"""
    waited: Ints
    """by rank that waits"""
    last: Ints
    """by rank: everything to the last member"""
    at_least: int = 0

    @classmethod
    def of(cls, ranks: int, rows: int, instances: int, *, partial: bool) -> _Exposed:
        none = np.zeros(rows) if partial else np.broadcast_to(0.0, rows)
        blamed, lost, waited, last = (np.zeros(n, np.int64) for n in (instances, instances, ranks, ranks))
        return cls(np.zeros(rows), none, blamed, lost, waited, last)

    def add(self, c: Columns, found: Instances, some: Block, owed: Waiting, sure_low: tuple[Bools, Bools]) -> None:
        """Take in the waits of a block of instances."""
        ranks = len(self.waited)
        self.waited += _by_rank(c.rank[owed.row], owed.u1 - owed.u0, ranks)
        self.lost[some.instances] = np.bincount(owed.instance, owed.u1 - owed.u0, len(some.instances))
        sure, low = (owed.take(keep[some.instances][owed.instance]) for keep in sure_low)
        ns = sure.u1 - sure.u0
        self.blamed[some.instances] = np.bincount(sure.instance, ns, len(some.instances))
        self.last += _by_rank(c.rank[_last(found, some, sure)], ns, ranks)
        np.add.at(self.share, *charges(found, some, sure))
        if len(low.row):
            np.add.at(self.low_share, *charges(found, some, low))
            self.at_least += int((low.u1 - low.u0).sum())


@dataclass(frozen=True)
class Stretches:
    """Waits of collectives rows, [start, end) on the rank's local axis, and their order by instance."""

    row: Rows
    start: Ints
    end: Ints
    order: Rows
    count: Ints
    """per instance: how many waits"""

    @classmethod
    def of(cls, m: Matches, row: Rows, start: Ints, end: Ints) -> Stretches:
        number = m.instance[row].astype(np.int32)
        order = np.argsort(number, kind="stable").astype(np.int32)
        return cls(row, start, end, order, np.bincount(number, minlength=len(m.size)))

    def blocks(self, c: Columns, found: Instances) -> Iterator[tuple[Block, Waiting, Ints]]:
        """(some instances, their waits, index of each wait), for all instances that somebody waits in."""
        touched = np.flatnonzero(self.count)
        waits = np.append(0, np.cumsum(self.count[touched]))
        members = np.append(0, np.cumsum(np.diff(found.first)[touched]))
        for a, b in ranges(np.maximum(waits, members)):
            at = self.order[waits[a] : waits[b]].astype(np.int64)
            row, local = self.row[at].astype(np.int64), np.repeat(np.arange(b - a), self.count[touched[a:b]])
            yield found.block(touched[a:b]), _waiting(c, found, row, local, (self.start[at], self.end[at])), at


def _waiting(c: Columns, found: Instances, row: Ints, local: Ints, stretch: tuple[Ints, Ints]) -> Waiting:
    """Stretches of waiting as time left; drift of the rank's axis may end one some ns beyond the last arrival."""
    u1 = found.ahead[row] - (stretch[0] - c.start[row])
    return Waiting(row, local, u1 - (stretch[1] - stretch[0]), u1)


def charges(found: Instances, some: Block, owed: Waiting, weight: Floats | None = None) -> tuple[Ints, Floats]:
    """(collectives rows, ns) of what members owe of the waits of their instances; a row may come several times.

    A root owes the waits of its receivers; everywhere else the later members share, and the last owes what is beyond.
    """
    at = some.instances[owed.instance]
    root = found.root[at]
    rooted = ONE_TO_N[found.kind[at]] & (root >= 0) & (root != owed.row)
    length = (owed.u1 - owed.u0)[rooted] * (1.0 if weight is None else weight[rooted])
    rest = owed.take(~rooted)
    if not len(rest.row):
        return root[rooted], length
    line = some.line(found.ahead)
    weight = None if weight is None else weight[~rooted]
    beyond = np.minimum(rest.u1, 0) - np.minimum(rest.u0, 0)
    late = np.flatnonzero(beyond)
    beyond = beyond[late] * (1.0 if weight is None else weight[late])
    rows = np.concatenate((root[rooted], line.row, found.last[some.instances[rest.instance[late]]]))
    return rows, np.concatenate((length, split(line, rest, weight), beyond))


def _last(found: Instances, some: Block, owed: Waiting) -> Ints:
    """Row of the last member of the instance of each wait (the root for its receivers)."""
    at = some.instances[owed.instance]
    root = found.root[at]
    rooted = ONE_TO_N[found.kind[at]] & (root >= 0) & (root != owed.row)
    return np.where(rooted, root, found.last[at])


def _inclusive(c: Columns, found: Instances, phases: Phases, sure: Bools, used: Bools | None) -> tuple[Ints, Ints]:
    """(by rank: what it owes of all straggler waits of used rows in sure instances, hidden or not; by instance)."""
    ranks = int(c.rank.max(initial=-1)) + 1
    share, waits = np.zeros(ranks), np.zeros(len(found), np.int64)
    for some in found.blocks():
        row = some.rows
        fit = (phases.wait_end[row] > c.start[row]) & (phases.sub[row] == NXN) & sure[some.number]
        fit &= True if used is None else used[row]
        row = row[fit]
        owed = _waiting(c, found, row, some.local[fit], (c.start[row], phases.wait_end[row]))
        waits[some.instances] = np.bincount(owed.instance, owed.u1 - owed.u0, len(some.instances))
        rows, ns = charges(found, some, owed)
        share += np.bincount(c.rank[rows], ns, ranks)
    total = np.array([waits.sum()])
    return whole(share, np.zeros(ranks, np.int64), total) if ranks else np.zeros(0, np.int64), waits


def _taken_part(c: Columns, found: Instances, ok: Bools, ranks: int) -> Ints:
    """By rank: in how many of the instances ``ok`` it is a member."""
    out = np.zeros(ranks, np.int64)
    for some in found.blocks():
        out += np.bincount(c.rank[some.rows[some.member & ok[some.number]]], minlength=ranks)
    return out


def _round(c: Columns, found: Instances, share: Floats, step_of_row: Ints, blamed: Ints) -> tuple[Ints, Ints]:
    """(rank, whole ns) with blame per class, step and rank; each (class, step) sums to its exposed waits exactly."""
    step = step_of_row[found.rows[found.first[:-1]]].astype(np.int64)
    low = int(step.min(initial=0))
    span = int(step.max(initial=0)) - low + 1
    family = (found.group + 1) * len(KIND) + found.kind
    pair, cell = np.unique(family * span + (step - low), return_inverse=True)
    total = np.bincount(cell, blamed, len(pair)).astype(np.int64)
    ranks = int(c.rank.max(initial=-1)) + 1
    parts = []
    for some in found.blocks():
        owes = share[some.rows]
        key = cell[some.number] * ranks + c.rank[some.rows]
        parts.append(sums(key[owes > 0], owes[owes > 0], len(pair) * ranks))
    keys = np.concatenate([np.zeros(0, np.int64), *(key for key, _ in parts)])
    there, amount = sums(keys, np.concatenate([np.zeros(0), *(ns for _, ns in parts)]), len(pair) * ranks)
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


def _whole_by_rank(c: Columns, share: Floats, total: int, ranks: int) -> Ints:
    """What every rank owes, in whole ns that sum to ``total``."""
    if not total:
        return np.zeros(ranks, np.int64)
    amount: Floats = np.bincount(c.rank, share, ranks).astype(np.float64)
    return whole(amount, np.zeros(ranks, np.int64), np.array([total]))
