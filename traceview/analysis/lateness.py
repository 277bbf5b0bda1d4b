"""Why an arrival was late: the window since the last common sync, and its exact terms (METHODS e.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.groups import NONE, POINT, Columns
from traceview.analysis.instances import Instances, ranges
from traceview.analysis.leaftime import LeafTime, SegmentSource
from traceview.analysis.types import Bools, Ints, Matches, Windows
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


def arrivals(
    c: Columns, m: Matches, found: Instances, pair: tuple[Ints, Ints], base: tuple[Windows, Ints, SegmentSource]
) -> Arrivals:
    """Windows P of late rows against their reference rows (``pair``); ``base``: windows, step per row, segments.

    A common instance brings two ranks together only if neither computes beside it: after an overlapped one the late
    rank still has the work to do that its reference did while it waited, and that work would look like a cause. Nor
    does a message: its two ends are at different places of a pipeline's schedule.
    """
    rows, reference = pair
    windows, step_of_row, source = base
    sync = blocking(c, np.unique(c.rank[np.concatenate(pair)]), source) & ~(c.p2p | POINT[c.kind])
    late = found.ahead[reference] - found.ahead[rows]
    start, other = _step_starts(c, rows, windows, step_of_row), _step_starts(c, reference, windows, step_of_row)
    best = np.full(len(rows), np.iinfo(np.int64).min)
    for group in _shared_groups(c, rows, reference):
        own = _previous(c, sync & (m.instance >= 0), rows, group)
        twin = row_of(c, found, np.where(own >= 0, m.instance[own], NONE), c.rank[reference])
        fit = (own >= 0) & (twin >= 0) & sync[twin] & (c.end[twin] <= c.start[reference]) & (c.end[own] > best)
        best = np.where(fit, c.end[own], best)
        start, other = np.where(fit, c.end[own], start), np.where(fit, c.end[twin], other)
    return Arrivals(rows, reference, late, np.minimum(start, c.start[rows]), np.minimum(other, c.start[reference]))


def _step_starts(c: Columns, rows: Ints, windows: Windows, step_of_row: Ints) -> Ints:
    """Begin of the device-step window of each row's rank and step; of its first window where there is none."""
    if not len(windows.rank):
        return c.start[rows]
    order = np.lexsort((windows.step, windows.rank))
    rank, step = windows.rank[order], windows.step[order]
    low = step.min()
    span = int(step.max() - low) + 2
    want = c.rank[rows] * span + np.clip(step_of_row[rows] - low, -1, span - 2)
    at = np.clip(np.searchsorted(rank * span + step - low, want, side="right") - 1, 0, len(order) - 1)
    found = windows.start[order][at]
    ok = (rank[at] == c.rank[rows]) & (found <= c.start[rows])
    return np.where(ok, found, c.start[rows])


def _shared_groups(c: Columns, rows: Ints, reference: Ints) -> list[Ints]:
    """Groups that both ranks of each pair are in: the k-th of every pair is in the k-th array (-2 = no more)."""
    ranks = int(c.rank.max(initial=0)) + 1
    pairs, inverse = np.unique(c.rank[rows] * ranks + c.rank[reference], return_inverse=True)
    of_rank: dict[int, set[int]] = {}
    wanted = set(np.unique(np.concatenate((pairs // ranks, pairs % ranks))).tolist())
    for g, group in enumerate(c.groups):
        for r in wanted.intersection(group.members):
            of_rank.setdefault(r, set()).add(g)
    common = [
        sorted(of_rank.get(p // ranks, set()) & of_rank.get(p % ranks, set())) or [NONE] for p in pairs.tolist()
    ]
    depth = max((len(x) for x in common), default=0)
    table = np.array([x + [-2] * (depth - len(x)) for x in common], np.int64).reshape(len(common), depth)
    return [table[inverse, k] for k in range(depth)]


def blocking(c: Columns, ranks: Ints, source: SegmentSource) -> Bools:
    """Rows of ``ranks`` beside which their rank computes nothing (all, where it has no segments)."""
    out = np.zeros(len(c), np.bool_)
    for r in ranks.tolist():
        mine = np.arange(*np.searchsorted(c.rank, (r, r + 1)))  # rows are in rank order
        segments = source(r)
        if segments is None:
            out[mine] = True
        else:
            beside = LeafTime.of(segments).between(c.start[mine], c.end[mine])
            out[mine] = beside[:, COMPUTE].sum(axis=1) == 0
    return out


def _previous(c: Columns, usable: Bools, rows: Ints, group: Ints) -> Ints:
    """Last usable row of the same rank in ``group`` that ended before the begin of each row, -1 = none."""
    out = np.full(len(rows), NONE)
    head = np.searchsorted(c.rank, np.arange(int(c.rank.max(initial=-1)) + 2))  # rows are in rank order
    rank = c.rank[rows]
    for low, high in ranges(head):
        mine = np.flatnonzero((rank >= low) & (rank < high))
        if len(mine):
            pool = head[low] + np.flatnonzero(usable[head[low] : head[high]])
            out[mine] = _previous_of(c, pool, rows[mine], group[mine])
    return out


def _previous_of(c: Columns, pool: Ints, rows: Ints, group: Ints) -> Ints:
    """The same of rows whose ranks have the usable rows ``pool``."""
    if not len(pool):
        return np.full(len(rows), NONE)
    low, high = c.rank[pool[0]], c.rank[pool[-1]]
    # hosts may count from different epochs: times since the first row of the rank
    zero = c.start[np.searchsorted(c.rank, np.arange(low, high + 1))]
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
    for r in np.unique(rank).tolist():
        segments = source(r)
        if segments is None:
            continue
        mine = np.flatnonzero(rank == r)
        out[mine] = LeafTime.of(segments).between(start[mine], end[mine])
        known[mine] = True
    return out, known
