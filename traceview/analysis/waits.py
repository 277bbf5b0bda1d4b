"""Who waited, until when (METHODS e.2): phases of every record, and a table of the instances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from traceview.analysis import p2p
from traceview.analysis.groups import N_TO_ONE, N_X_N, NONE, ONE_TO_N, POINT, Columns, columns
from traceview.analysis.instances import BLOCK, Block, Instances, block, by_value, ranges
from traceview.analysis.timebase import TimeBase
from traceview.analysis.types import NXN, P2P, TRANSFER, UNRESOLVED, Bools, Codes, Ints, Matches, Phases, Rows
from traceview.config import DEFAULT, Config

EARLIEST, LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True)
class _View:
    """What the rules look at: columns, matches, and the common axis."""

    c: Columns
    m: Matches
    base: TimeBase
    eps_ns: int | None
    config: Config

    def begin(self, rows: Ints) -> Ints:
        """Begins of rows on the common axis."""
        return self.base.to_true(self.c.rank[rows], self.c.start[rows])

    def end(self, rows: Ints) -> Ints:
        """Ends of rows on the common axis."""
        return self.base.to_true(self.c.rank[rows], self.c.end[rows])

    def eps(self, rows: Ints, others: Ints) -> Any:
        """Tolerance of a comparison between rows, METHODS d.3."""
        if self.eps_ns is not None:
            return self.eps_ns
        if not self.base.sigma.any():
            return self.config.eps_min_ns
        sigma = self.base.pair_sigma(self.c.rank[rows], self.c.rank[others])
        return np.maximum(self.config.eps_min_ns, np.ceil(2 * sigma)).astype(np.int64)


@dataclass(frozen=True)
class Waits:
    """Phases per row, the instances, and per group the median gap between aligned and clock-free waits (ns)."""

    phases: Phases
    instances: Instances
    clock_free_gap: dict[str, int]


def waits(
    collectives: Any | Columns,
    matches: Matches,
    base: TimeBase | None = None,
    *,
    eps_ns: int | None = None,
    config: Config = DEFAULT,
) -> Waits:
    """Waits of all rows: ``[start, wait_end)`` on the rank's own axis, never longer than the record.

    ``base``: the common axis (None = stamps as they are). ``eps_ns``: tolerance before an end ahead of the last
    arrival counts as a violation (None = METHODS d.3 from the clock).
    """
    c = collectives if isinstance(collectives, Columns) else columns(collectives)
    base = base or TimeBase.identity(int(c.rank.max(initial=0)) + 1)
    view = _View(c, matches, base, eps_ns, config)
    found = _instances(view)
    phases = _phases(view, found)
    bad = [np.bincount(b.local, phases.violated[b.rows], len(b.instances)) for b in found.blocks()]
    found = replace(found, violations=np.concatenate([found.violations[:0], *bad]).astype(np.int64))
    return Waits(phases, found, _gaps(c, matches, found, phases))


def _instances(view: _View) -> Instances:
    """All instances: first their rows, then what each of them is, a block at a time."""
    c, m = view.c, view.m
    count = len(m.size)
    lost = int(np.sum(m.instance < 0))
    rows = np.argsort(m.instance, kind="stable")[lost:].astype(np.int32)
    first = np.append(0, np.cumsum(np.bincount(m.instance[rows], minlength=count)))
    member = _members(c, m, rows)
    ahead = np.zeros(len(c), np.int64)
    partners, torn = _comparable(view)
    blocks = [np.arange(a, b) for a, b in ranges(first) or [(0, 0)]]
    parts = [_timing(view, block(rows, first, member, some), torn[some], ahead) for some in blocks]
    columns = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    return Instances(
        rows=rows,
        first=first,
        member=member,
        violations=np.zeros(count, np.int64),
        ahead=ahead,
        partners=partners,
        **columns,
    )


def _members(c: Columns, m: Matches, rows: Rows) -> Bools:
    """Rows that are the first record of their rank in their instance."""
    member = np.ones(len(rows), np.bool_)
    for low in range(1, len(rows), BLOCK):
        part = rows[low - 1 : low + BLOCK]
        member[low : low + BLOCK] = (np.diff(m.instance[part]) != 0) | (np.diff(c.rank[part]) != 0)
    return member


def _comparable(view: _View) -> tuple[p2p.Partners, Bools]:
    """Peers of point-to-point rows whose times can be compared with theirs, and the instances that lack some.

    The others are as good as missing: each row depends on its direct peers only.
    """
    rank, base, found = view.c.rank, view.base, p2p.partners(view.c, view.m.instance)
    torn = np.zeros(len(view.m.size), np.bool_)
    if not len(base.unit) or (base.unit == base.unit[0]).all():
        return found, torn
    peers, missing = [found.sender, found.receiver], found.missing
    for i, peer in enumerate(peers):
        rows = np.flatnonzero(peer >= 0)
        apart = rows[~base.comparable(rank[rows], rank[peer[rows]])]
        if len(apart):
            peers[i], missing = peer.copy(), missing.copy()
            peers[i][apart], missing[apart] = NONE, True
            torn[view.m.instance[apart]] = True
    return p2p.Partners(peers[0], peers[1], missing), torn


def _timing(view: _View, some: Block, torn: Bools, ahead: Ints) -> dict[str, Any]:
    """What is known of each instance of a block; sets ``ahead`` of its rows. ``torn``: by instance, see above."""
    c, m, rows, number, lead = view.c, view.m, some.rows, some.local, some.head[:-1]
    kind, full = c.kind[rows[lead]], m.full[some.instances]
    # of point-to-point every pair counts by itself
    dark = _too_weak(view, rows, lead) & ~(c.p2p[rows[lead]] | POINT[kind])
    free = dark & N_X_N[kind] & full
    begin = view.begin(rows)
    arrived = np.maximum.reduceat(np.where(some.member, begin, EARLIEST), lead)
    hull = _member_durations(c, rows, some.member)
    shortest = np.minimum.reduceat(hull, lead)
    # on weak clocks every end is taken to coincide, so the shortest record arrived last
    left = np.where(free[number], hull - shortest[number], arrived[number] - begin)
    ahead[rows] = left
    total = np.add.reduceat(np.where(some.member, left, 0), lead)
    left = np.where(some.member, left, LATEST)
    zero = np.flatnonzero(left == 0)
    at = zero[np.searchsorted(number[zero], np.arange(len(lead)))]
    left[at] = LATEST
    second = np.minimum.reduceat(left, lead)
    ended, seen = np.maximum.reduceat(view.end(rows), lead), m.seen[some.instances]
    timed = full & ~m.ambiguous[some.instances] & (free | ~dark) & ~torn
    return {
        "kind": kind,
        "group": c.group[rows[lead]],
        "arrived": arrived,
        "earliest": np.minimum.reduceat(begin, lead),
        "ended": ended,
        "last": rows[at],
        "transfer": np.where(timed, np.where(free, shortest, ended - arrived), NONE),
        "transfer_min": shortest,
        "waited": np.where(N_X_N[kind], total, 0),
        "marginal": np.where(seen > 1, (seen - 1) * np.where(second < LATEST, second, 0), 0),
        "clock_free": free,
        "dark": dark & ~free,
        "root": _roots(c, rows, number, kind),
    }


def _member_durations(c: Columns, rows: Ints, member: Bools) -> Ints:
    """Duration of each row's member: from its first begin to its last end (one op may be several kernels)."""
    if member.all():
        return c.end[rows] - c.start[rows]
    head = np.flatnonzero(member)
    hull = np.maximum.reduceat(c.end[rows], head) - c.start[rows[head]]
    return np.repeat(hull, np.diff(np.append(head, len(rows))))


def _too_weak(view: _View, rows: Ints, lead: Ints) -> Bools:
    """Instances whose members' times cannot be compared: across clock units of which one has grade C."""
    rank = view.c.rank[rows]
    weak, unit, part = view.base.weak(rank), view.base.unit[rank], view.base.part[rank]
    crossing = np.minimum.reduceat(unit, lead) != np.maximum.reduceat(unit, lead)
    strange = np.minimum.reduceat(part, lead) != np.maximum.reduceat(part, lead)
    out: Bools = crossing & (np.logical_or.reduceat(weak, lead) | strange)
    return out


def _roots(c: Columns, rows: Ints, number: Ints, kind: Codes) -> Ints:
    """Row of the root of each rooted instance of a block."""
    out = np.full(len(kind), NONE)
    rooted = ONE_TO_N[kind] | N_TO_ONE[kind]
    if not rooted.any():
        return out
    at = np.flatnonzero(rooted[number])
    told = np.where(ONE_TO_N[c.kind[rows[at]]], c.src[rows[at]], c.dst[rows[at]])
    root = np.full(len(kind), NONE)
    np.maximum.at(root, number[at], told)
    own = at[c.rank[rows[at]] == root[number[at]]]
    out[number[own][::-1]] = rows[own][::-1]
    return out


def _phases(view: _View, found: Instances) -> Phases:
    """Phases of all rows, METHODS e.2. What is unmatched does not wait."""
    c = view.c
    wait_end, second = c.start.copy(), np.full(len(c), UNRESOLVED, np.int8)
    violated = np.zeros(len(c), np.bool_)
    point = c.p2p | POINT[c.kind]
    for some in found.blocks():
        rows = some.rows
        target, second[rows] = _ends_of_waiting(view, found, some, point[rows])
        wait_end[rows] = np.clip(view.base.to_local(c.rank[rows], target), c.start[rows], c.end[rows])
        free = rows[found.clock_free[some.number]]
        wait_end[free] = np.minimum(c.start[free] + found.ahead[free], c.end[free])
        violated[rows] = _violations(view, found, some)
    return Phases(wait_end, second, np.where(point, P2P, NXN).astype(np.int8), violated)


def _ends_of_waiting(view: _View, found: Instances, some: Block, point: Bools) -> tuple[Ints, Codes]:
    """(L on the common axis, phase after it) per row of a block; ``point``: rows that are point-to-point."""
    m, rows, number = view.m, some.rows, some.number
    begin = view.begin(rows)
    target, second = begin.copy(), np.full(len(rows), UNRESOLVED, np.int8)
    clear = ~(m.ambiguous[number] | found.dark[number])
    kind, full = found.kind[number], m.full[number]
    everyone = N_X_N[kind] & clear
    target[everyone] = np.maximum(found.arrived[number], begin)[everyone]
    second[everyone & full] = TRANSFER
    rooted = (ONE_TO_N[kind] | N_TO_ONE[kind]) & clear
    if rooted.any():
        target[rooted], second[rooted] = _rooted(view, found, rows[rooted], number[rooted])
    point = point & clear
    if point.any():
        target[point], second[point] = _point_to_point(view, found.partners, rows[point])
    return target, second


def _rooted(view: _View, found: Instances, rows: Ints, number: Ints) -> tuple[Ints, Codes]:
    """1->N: a receiver waits for the root, the root for all unless it left before. N->1: the root waits for all."""
    begin, end, full = view.begin(rows), view.end(rows), view.m.full[number]
    root = found.root[number]
    seen = root >= 0
    latest = np.maximum(found.arrived[number], begin)
    from_root = np.maximum(np.where(seen, view.begin(np.maximum(root, 0)), begin), begin)
    is_root = root == rows
    scatter = ONE_TO_N[found.kind[number]]
    stayed = end >= found.arrived[number]
    leaf = np.where(scatter, from_root, np.where(full & stayed, latest, np.where(end >= from_root, from_root, begin)))
    chief = np.where(scatter & ~stayed, begin, latest)
    target = np.where(seen, np.where(is_root, chief, leaf), begin)
    known = seen & (full | (scatter & ~is_root) | (is_root & scatter & ~stayed))
    return target, np.where(known, TRANSFER, UNRESOLVED).astype(np.int8)


def _point_to_point(view: _View, partners: p2p.Partners, rows: Ints) -> tuple[Ints, Codes]:
    """A receiver waits for its sender; a sender for its receiver unless it ended before (eager).

    Between hosts that only messages align, what is within the proved error is not told: it stays unresolved.
    """
    begin, end, rank = view.begin(rows), view.end(rows), view.c.rank
    sender, receiver = partners.sender[rows].astype(np.int64), partners.receiver[rows].astype(np.int64)
    late, open_ = begin, partners.missing[rows] | ((sender < 0) & (receiver < 0))
    for peer, stays in ((sender, False), (receiver, True)):
        met, peer = peer >= 0, np.maximum(peer, 0)
        arrives = view.begin(peer)
        error = np.where(met, view.base.links.between(rank[rows], rank[peer]), 0.0)
        close = np.abs(arrives - begin) <= error
        if stays:
            close |= np.abs(arrives - end) <= error
            met &= end >= arrives
        close &= error > 0
        late = np.where(met & ~close, np.maximum(late, arrives), late)
        open_ |= close
    return late, np.where(open_, UNRESOLVED, TRANSFER).astype(np.int8)


def _violations(view: _View, found: Instances, some: Block) -> Bools:
    """Rows that end before they can: a member of an n x n before the last arrival, a receiver before its sender."""
    m, rows, number = view.m, some.rows, some.number
    end = view.end(rows)
    all_meet = N_X_N[found.kind[number]] & ~(m.ambiguous | found.dark | found.clock_free)[number]
    out: Bools = all_meet & (end < found.arrived[number] - view.eps(rows, found.last[number]))
    sender = found.partners.sender[rows]
    pairs = np.flatnonzero((sender >= 0) & ~found.dark[number])
    if len(pairs):
        row, other = rows[pairs], sender[pairs].astype(np.int64)
        out[pairs] = end[pairs] < view.begin(other) - view.eps(row, other)
    return out


def _gaps(c: Columns, m: Matches, found: Instances, phases: Phases) -> dict[str, int]:
    """METHODS d.4 cross-check: median |aligned wait - (duration - shortest duration)| per group, full n x n only."""
    fit = N_X_N[found.kind] & m.full & ~m.ambiguous
    fitting = np.flatnonzero(fit)
    out = {}
    for at, own in by_value(found.group[fitting]):
        part = fitting[own]
        name = f"{c.groups[at].name} [{c.groups[at].label}]" if at >= 0 else ""
        sizes = np.append(0, np.cumsum(np.diff(found.first)[part]))
        gap = [_gap(c, found, phases, found.block(part[a:b])) for a, b in ranges(sizes)]
        out[name] = int(np.median(np.concatenate(gap), overwrite_input=True))
    return out


def _gap(c: Columns, found: Instances, phases: Phases, some: Block) -> Ints:
    rows, number = some.rows[some.member], some.number[some.member]
    out: Ints = (c.end[rows] - phases.wait_end[rows]) - found.transfer_min[number]
    return np.abs(out, out=out)
