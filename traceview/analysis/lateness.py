"""Why an arrival was late: the window since the last common sync, and its exact terms (METHODS e.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.groups import NONE, POINT, Columns
from traceview.analysis.instances import Instances, by_value, ranges
from traceview.analysis.leaftime import LeafTime, SegmentSource
from traceview.analysis.types import Bools, Ints, Matches, Rows, Windows
from traceview.schema import LEAVES

WAIT = LEAVES.index("comm_wait")
COMPUTE = [LEAVES.index("compute"), LEAVES.index("gpu_opaque")]


@dataclass(frozen=True)
class Arrivals:
    """Late arrivals (collectives rows) against a reference member of the same instance. Times on local axes, ns."""

    row: Ints
    reference: Ints
    """row of the reference member"""
    late: Ints
    """Lambda = arrival - arrival of the reference"""
    start: Ints
    """begin of P of the late rank: its end of the last instance that both waited out, else the begin of the step"""
    reference_start: Ints

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Terms:
    """``late[i] == carry[i] + leaves[i].sum()`` exactly (I6)."""

    leaves: Ints
    """[arrivals, len(LEAVES)]: leaf of the late rank in P minus that of the reference in its own P"""
    carry: Ints
    """what the two already differed by at the last common end"""
    known: Bools
    """both ranks have segments, and the two P begin together but for a part of the lateness"""


def fixed_reference(c: Columns, rows: Ints, medians: Ints, found: Instances, m: Matches) -> Ints:
    """One reference rank per (late rank, group): the median member of most lateness; its row in each instance.

    Any real member keeps the identity exact; a single one needs the segments of one rank only. Where it is not in
    the instance, or was late itself, the median member is the reference.
    """
    if not len(rows):
        return rows
    ranks = int(c.rank.max()) + 1
    pair = np.unique((c.group[rows] + 1) * ranks + c.rank[rows], return_inverse=True)[1]
    votes, inverse = np.unique(pair * ranks + c.rank[medians], return_inverse=True)
    lateness = found.ahead[medians] - found.ahead[rows]
    weight = np.bincount(inverse, np.maximum(lateness, 0), len(votes))
    order = np.lexsort((votes, -weight, votes // ranks))
    first = order[np.flatnonzero(np.diff(votes[order] // ranks, prepend=-1))]
    chosen = row_of(c, found, m.instance[rows], (votes[first] % ranks)[pair])
    fair = (chosen >= 0) & (2 * (found.ahead[chosen] - found.ahead[rows]) >= lateness)
    return np.where(fair, chosen, medians)


def row_of(c: Columns, found: Instances, instance: Ints, rank: Ints) -> Ints:
    """Row of ``rank`` in ``instance`` (its first record there), -1 if it is not a member."""
    if not len(found):
        return np.full(len(instance), NONE)
    low, high = found.first[instance], found.first[np.maximum(instance, NONE) + 1]  # instance -1 is masked below
    end = high
    while (low < high).any():
        middle = (low + high) // 2
        below = (low < high) & (c.rank[found.rows[np.minimum(middle, len(found.rows) - 1)]] < rank)
        low, high = np.where(below, middle + 1, low), np.where(below, high, np.minimum(middle, high))
    at = found.rows[np.minimum(low, len(found.rows) - 1)]
    return np.where((instance >= 0) & (low < end) & (c.rank[at] == rank), at, NONE)


@dataclass(frozen=True)
class Starts:
    """Begins of the device-step windows, ordered by (rank, step)."""

    rank: Ints
    key: Ints
    start: Ints
    low: int
    span: int

    @classmethod
    def of(cls, windows: Windows) -> Starts:
        order = np.lexsort((windows.step, windows.rank))
        rank, step = windows.rank[order], windows.step[order]
        low = int(step.min(initial=0))
        span = int(step.max(initial=0)) - low + 2
        return cls(rank, rank * span + step - low, windows.start[order], low, span)

    def before(self, c: Columns, rows: Ints, step: Ints) -> Ints:
        """Begin of the window of each row's rank and step, or of an earlier one; of the row where there is none."""
        if not len(self.rank):
            return c.start[rows]
        want = c.rank[rows] * self.span + np.clip(step - self.low, -1, self.span - 2)
        at = np.clip(np.searchsorted(self.key, want, side="right") - 1, 0, len(self.key) - 1)
        ok = (self.rank[at] == c.rank[rows]) & (self.start[at] <= c.start[rows])
        return np.where(ok, self.start[at], c.start[rows])


def arrivals(
    c: Columns, m: Matches, found: Instances, pair: tuple[Ints, Ints], base: tuple[Starts, Ints, SegmentSource]
) -> Arrivals:
    """Windows P of late rows against their reference rows (``pair``); ``base``: windows, step per row, segments.

    A common instance brings two ranks together only if neither computes beside it: after an overlapped one the late
    rank still has the work to do that its reference did while it waited, and that work would look like a cause. Nor
    does a message: its two ends are at different places of a pipeline's schedule.
    """
    rows, reference = pair
    starts, step_of_row, source = base
    sync = _waited_out(c, m, np.unique(c.rank[np.concatenate(pair)]), source)
    late = found.ahead[reference] - found.ahead[rows]
    start, other = (starts.before(c, x, step_of_row[x]) for x in pair)
    best = np.full(len(rows), np.iinfo(np.int64).min)
    for group in _shared_groups(c, rows, reference):
        own = _previous(c, sync, rows, group)
        twin = row_of(c, found, np.where(own >= 0, m.instance[own], NONE), c.rank[reference])
        fit = (own >= 0) & _among(sync, twin) & (c.end[twin] <= c.start[reference]) & (c.end[own] > best)
        best = np.where(fit, c.end[own], best)
        start, other = np.where(fit, c.end[own], start), np.where(fit, c.end[twin], other)
    return Arrivals(rows, reference, late, np.minimum(start, c.start[rows]), np.minimum(other, c.start[reference]))


def _shared_groups(c: Columns, rows: Ints, reference: Ints) -> list[Ints]:
    """Groups that both ranks of each pair are in: the k-th of every pair is in the k-th array (-2 = no more)."""
    ranks = int(c.rank.max(initial=0)) + 1
    pairs, inverse = np.unique(c.rank[rows] * ranks + c.rank[reference], return_inverse=True)
    none: set[int] = set()
    common = [
        sorted(c.groups_of.get(p // ranks, none) & c.groups_of.get(p % ranks, none)) or [NONE] for p in pairs.tolist()
    ]
    depth = max((len(x) for x in common), default=0)
    table = np.array([x + [-2] * (depth - len(x)) for x in common], np.int64).reshape(len(common), depth)
    return [table[inverse, k] for k in range(depth)]


def _waited_out(c: Columns, m: Matches, ranks: Ints, source: SegmentSource) -> Rows:
    """Matched collectives of ``ranks`` (ascending) beside which their rank computes nothing: rows, ascending."""
    out = [np.zeros(0, np.int32)]
    for r in ranks.tolist():
        a, b = c.head[r : r + 2]
        meets = (m.instance[a:b] >= 0) & ~(c.p2p[a:b] | POINT[c.kind[a:b]])
        segments = source(r)
        if segments is not None:
            beside = LeafTime.of(segments).between(c.start[a:b], c.end[a:b], COMPUTE)
            meets &= beside[:, COMPUTE].sum(axis=1) == 0
        out.append((a + np.flatnonzero(meets)).astype(np.int32))
    return np.concatenate(out)


def _among(sorted_rows: Rows, rows: Ints) -> Bools:
    """Which of ``rows`` are there."""
    if not len(sorted_rows):
        return np.zeros(len(rows), np.bool_)
    at = np.minimum(np.searchsorted(sorted_rows, rows), len(sorted_rows) - 1)
    out: Bools = sorted_rows[at] == rows
    return out


def _previous(c: Columns, usable: Rows, rows: Ints, group: Ints) -> Ints:
    """Last ``usable`` row of the same rank in ``group`` that ended before the begin of each row, -1 = none."""
    out = np.full(len(rows), NONE)
    if not len(rows):
        return out
    rank = c.rank[rows]
    first = int(rank.min())
    for low, high in ranges(c.head[first : int(rank.max()) + 2]):
        mine = np.flatnonzero((rank >= first + low) & (rank < first + high))
        if len(mine):
            a, b = np.searchsorted(usable, c.head[[first + low, first + high]])
            out[mine] = _previous_of(c, usable[a:b].astype(np.int64), rows[mine], group[mine])
    return out


def _previous_of(c: Columns, pool: Ints, rows: Ints, group: Ints) -> Ints:
    """The same of rows whose ranks have the usable rows ``pool``."""
    if not len(pool):
        return np.full(len(rows), NONE)
    low, high = c.rank[pool[0]], c.rank[pool[-1]]
    # hosts may count from different epochs: times since the first row of the rank
    zero = c.start[np.minimum(c.head[low : high + 1], len(c) - 1)]
    ranks = int(high - low) + 1
    inside = np.clip(c.rank[rows] - low, 0, ranks - 1)
    within = c.rank[rows] - low == inside
    lane, query = (c.group[pool] + 1) * ranks + c.rank[pool] - low, (group + 1) * ranks + inside
    lanes, dense = np.unique(lane, return_inverse=True)
    since, begin = c.end[pool] - zero[c.rank[pool] - low], c.start[rows] - zero[inside]
    span = int(max(since.max(), begin.max())) + 2
    key = dense * span + since
    order = np.argsort(key, kind="stable")
    at = np.minimum(np.searchsorted(lanes, query), len(lanes) - 1)
    hit = np.searchsorted(key[order], at * span + begin, side="right") - 1
    near = order[np.maximum(hit, 0)]
    ok = (hit >= 0) & (lanes[at] == query) & (dense[near] == at) & (pool[near] != rows) & within
    return np.where(ok, pool[near], NONE)


def terms(c: Columns, late: Arrivals, source: SegmentSource) -> Terms:
    """The additive terms of every late arrival; ``carry`` closes the identity, also over a drift of the two axes."""
    own = leaf_time(source, c.rank[late.row], late.start, c.start[late.row])
    other = leaf_time(source, c.rank[late.reference], late.reference_start, c.start[late.reference])
    known = own[1] & other[1]
    leaves = np.where(known[:, None], own[0] - other[0], 0)
    carry = late.late - leaves.sum(axis=1)
    return Terms(leaves, carry, known & (np.abs(carry) <= np.abs(late.late)))


def leaf_time(source: SegmentSource, rank: Ints, start: Ints, end: Ints) -> tuple[Ints, Bools]:
    """([queries, leaves] ns, whether the rank has segments) for many ranks; one rank's segments at a time."""
    out = np.zeros((len(rank), len(LEAVES)), np.int64)
    known = np.zeros(len(rank), np.bool_)
    for r, mine in by_value(rank):
        segments = source(r)
        if segments is None:
            continue
        out[mine] = LeafTime.of(segments).between(start[mine], end[mine])
        known[mine] = True
    return out, known
