"""Who waited, until when (METHODS e.2): phases of every record, and a table of the instances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from traceview.analysis import p2p
from traceview.analysis.groups import N_TO_ONE, N_X_N, NONE, ONE_TO_N, POINT, Columns, columns
from traceview.analysis.shares import Axis, axis
from traceview.analysis.timebase import TimeBase
from traceview.analysis.types import NXN, P2P, TRANSFER, UNRESOLVED, Bools, Codes, Ints, Matches, Phases
from traceview.config import DEFAULT, Config

EARLIEST, LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True)
class Instances:
    """Matched instances; times on the common axis, ns; one element per instance unless said.

    ``rows`` lists the collectives rows instance by instance, then by rank and start; instance i has
    ``rows[first[i]:first[i + 1]]``.
    """

    rows: Ints
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

    @cached_property
    def number(self) -> Ints:
        """Instance number per element of ``rows``."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    @cached_property
    def line(self) -> Axis:
        """Members in order of (instance, time left at arrival): the last to arrive first."""
        every = self.member.all()
        row = self.rows if every else self.rows[self.member]
        return axis(row, self.number if every else self.number[self.member], self.ahead[row], len(self))


@dataclass(frozen=True)
class _View:
    """What the rules look at: columns, matches, and begins and ends on the common axis."""

    c: Columns
    m: Matches
    base: TimeBase
    begin: Ints
    end: Ints
    eps_ns: int | None
    config: Config

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
    view = _View(c, matches, base, base.to_true(c.rank, c.start), base.to_true(c.rank, c.end), eps_ns, config)
    found = _instances(view)
    target, second, sub = _ends_of_waiting(view, found)
    violated = _violations(view, found)
    wait_end = np.clip(base.to_local(c.rank, target), c.start, c.end)
    wait_end = _clock_free(c, found, wait_end)
    bad = np.bincount(found.number, violated[found.rows], len(found)).astype(np.int64)
    phases = Phases(wait_end, second, sub, violated)
    return Waits(phases, replace(found, violations=bad), _gaps(c, matches, found, phases))


def _instances(view: _View) -> Instances:
    c, m = view.c, view.m
    order = np.argsort(m.instance, kind="stable")
    rows = order[np.searchsorted(m.instance[order], 0) :]
    count = len(m.size)
    number = m.instance[rows]
    first = np.searchsorted(number, np.arange(count + 1))
    rank = c.rank[rows]
    member = np.ones(len(rows), np.bool_)
    member[1:] = (number[1:] != number[:-1]) | (rank[1:] != rank[:-1])
    lead = first[:-1]
    kind = c.kind[rows[lead]]
    dark = _too_weak(view, rows, lead)
    free = dark & N_X_N[kind] & m.full
    begin = view.begin[rows]
    earliest = np.minimum.reduceat(begin, lead)
    arrived = np.maximum.reduceat(np.where(member, begin, EARLIEST), lead)
    left = arrived[number] - begin
    del begin  # 8 bytes a row: the largest runs have millions
    hull = _member_durations(c, rows, member)
    shortest = np.minimum.reduceat(hull, lead)
    if free.any():
        # every end is taken to coincide, so the shortest record arrived last
        left = np.where(free[number], hull - shortest[number], left)
    del hull
    ended = np.maximum.reduceat(view.end[rows], lead)
    ahead = np.zeros(len(c), np.int64)
    ahead[rows] = left
    left[~member] = 0
    total = np.add.reduceat(left, lead)
    left[~member] = LATEST
    zero = np.flatnonzero(left == 0)
    at = zero[np.searchsorted(number[zero], np.arange(count))]
    left[at] = LATEST
    second = np.minimum.reduceat(left, lead)
    return Instances(
        rows=rows,
        first=first,
        member=member,
        kind=kind,
        group=c.group[rows[lead]],
        arrived=arrived,
        earliest=earliest,
        ended=ended,
        last=rows[at],
        transfer=np.where(m.full & ~m.ambiguous, ended - arrived, NONE),
        transfer_min=shortest,
        waited=np.where(N_X_N[kind], total, 0),
        marginal=np.where(m.seen > 1, (m.seen - 1) * np.where(second < LATEST, second, 0), 0),
        violations=np.zeros(count, np.int64),
        clock_free=free,
        dark=dark & ~free,
        ahead=ahead,
        partners=p2p.partners(c, m.instance),
        root=_roots(c, rows, number, kind, count),
    )


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
    weak, unit, part = view.base.weak(rank), view.base.unit[rank], view.base.component[rank]
    crossing = np.minimum.reduceat(unit, lead) != np.maximum.reduceat(unit, lead)
    strange = np.minimum.reduceat(part, lead) != np.maximum.reduceat(part, lead)
    out: Bools = crossing & (np.logical_or.reduceat(weak, lead) | strange)
    return out


def _roots(c: Columns, rows: Ints, number: Ints, kind: Codes, count: int) -> Ints:
    """Row of the root of each rooted instance."""
    out = np.full(count, NONE)
    rooted = ONE_TO_N[kind] | N_TO_ONE[kind]
    if not rooted.any():
        return out
    at = np.flatnonzero(rooted[number])
    told = np.where(ONE_TO_N[c.kind[rows[at]]], c.src[rows[at]], c.dst[rows[at]])
    root = np.full(count, NONE)
    np.maximum.at(root, number[at], told)
    own = at[c.rank[rows[at]] == root[number[at]]]
    out[number[own][::-1]] = rows[own][::-1]
    return out


def _ends_of_waiting(view: _View, found: Instances) -> tuple[Ints, Codes, Codes]:
    """(L on the common axis, phase after it, whose waiting it is) per row."""
    c, m, begin = view.c, view.m, view.begin
    target = begin.copy()
    second = np.full(len(c), UNRESOLVED, np.int8)
    number = found.number
    clear = ~(m.ambiguous | found.dark)
    sure = clear[number]
    rows = found.rows[sure]
    number = number[sure]
    kind, full = found.kind[number], m.full[number]
    latest = np.maximum(found.arrived[number], begin[rows])
    everyone = N_X_N[kind]
    target[rows[everyone]] = latest[everyone]
    second[rows[everyone & full]] = TRANSFER
    rooted = ONE_TO_N[kind] | N_TO_ONE[kind]
    if rooted.any():
        _rooted(view, found, (rows[rooted], number[rooted], full[rooted]), target, second)
    point = c.p2p | POINT[c.kind]
    if point.any():
        sure_rows = np.append(clear, False)[m.instance]
        _point_to_point(view, found.partners, np.flatnonzero(point & sure_rows), target, second)
    return target, second, np.where(point, P2P, NXN).astype(np.int8)


def _rooted(view: _View, found: Instances, part: tuple[Ints, Ints, Bools], target: Ints, second: Codes) -> None:
    """1->N: a receiver waits for the root, the root for all unless it left before. N->1: the root waits for all."""
    rows, number, full = part
    begin, end = view.begin, view.end
    root = found.root[number]
    seen = root >= 0
    latest = np.maximum(found.arrived[number], begin[rows])
    from_root = np.maximum(np.where(seen, begin[root], begin[rows]), begin[rows])
    is_root = root == rows
    scatter = ONE_TO_N[found.kind[number]]
    stayed = end[rows] >= found.arrived[number]
    leaf = np.where(
        scatter, from_root, np.where(full & stayed, latest, np.where(end[rows] >= from_root, from_root, begin[rows]))
    )
    chief = np.where(scatter & ~stayed, begin[rows], latest)
    target[rows] = np.where(seen, np.where(is_root, chief, leaf), begin[rows])
    known = seen & (full | (scatter & ~is_root) | (is_root & scatter & ~stayed))
    second[rows] = np.where(known, TRANSFER, UNRESOLVED)


def _point_to_point(view: _View, partners: p2p.Partners, rows: Ints, target: Ints, second: Codes) -> None:
    """A receiver waits for its sender; a sender for its receiver unless it ended before (eager)."""
    begin, end = view.begin, view.end
    _, source, sink = p2p.ends(view.c)
    sender, receiver = partners.sender[rows], partners.receiver[rows]
    begins = np.append(begin, EARLIEST)
    late = np.maximum(begin[rows], begins[sender])
    waits_for = begins[receiver]
    late = np.where((receiver >= 0) & (end[rows] >= waits_for), np.maximum(late, waits_for), late)
    target[rows] = late
    missing = ((source[rows] >= 0) & (sender < 0)) | ((sink[rows] >= 0) & (receiver < 0))
    none = (sender < 0) & (receiver < 0)
    second[rows] = np.where(missing | none, UNRESOLVED, TRANSFER)


def _violations(view: _View, found: Instances) -> Bools:
    """Rows that end before they can: a member of an n x n before the last arrival, a receiver before its sender."""
    c, m, begin, end = view.c, view.m, view.begin, view.end
    out = np.zeros(len(c), np.bool_)
    number = found.number
    take = (N_X_N[found.kind] & ~(m.ambiguous | found.dark | found.clock_free))[number]
    rows, number = found.rows[take], number[take]
    out[rows] = end[rows] < found.arrived[number] - view.eps(rows, found.last[number])
    pairs = np.flatnonzero((found.partners.sender >= 0) & ~np.append(found.dark, True)[m.instance])
    if len(pairs):
        sender = found.partners.sender[pairs]
        out[pairs] = end[pairs] < begin[sender] - view.eps(pairs, sender)
    return out


def _clock_free(c: Columns, found: Instances, wait_end: Ints) -> Ints:
    """Waits of instances on weak clocks: duration minus the shortest duration."""
    if not found.clock_free.any():
        return wait_end
    rows = found.rows[np.repeat(found.clock_free, np.diff(found.first))]
    wait_end[rows] = np.minimum(c.start[rows] + found.ahead[rows], c.end[rows])
    return wait_end


def _gaps(c: Columns, m: Matches, found: Instances, phases: Phases) -> dict[str, int]:
    """METHODS d.4 cross-check: median |aligned wait - (duration - shortest duration)| per group, full n x n only."""
    number = found.number
    take = (N_X_N[found.kind] & m.full & ~m.ambiguous)[number] & found.member
    rows, number = found.rows[take], number[take]
    gap = np.abs((phases.wait_end[rows] - c.start[rows]) - (c.end[rows] - c.start[rows] - found.transfer_min[number]))
    group = found.group[number]
    order = np.argsort(group, kind="stable")
    cuts = np.flatnonzero(np.diff(group[order], prepend=-2))
    out = {}
    for part in np.split(order, cuts[1:]) if len(order) else []:
        at = int(group[part[0]])
        name = f"{c.groups[at].name} [{c.groups[at].label}]" if at >= 0 else ""
        out[name] = int(np.median(gap[part]))
    return out
