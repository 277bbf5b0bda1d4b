"""The cross-rank critical path of a step (METHODS e.8): what the step is made of, with no waiting in it (I7)."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from traceview.analysis.groups import NONE
from traceview.analysis.leaftime import LeafTime
from traceview.analysis.origin import Facts, late_peer
from traceview.analysis.timebase import TimeBase
from traceview.analysis.types import P2P, TRANSFER, Ints
from traceview.result import PathRow
from traceview.schema import LEAVES

LANES = 64  # ranks whose records are held at a time
HOPS_SHOWN = 200
TRANSFER_LEAF, WAIT_LEAF = LEAVES.index("comm_transfer"), LEAVES.index("comm_wait")
LOST = LEAVES.index("idle_unknown")
BEFORE = LEAVES.index("uncovered")


@dataclass(frozen=True)
class _Lane:
    """One rank's record as plain lists (the walk asks for one moment at a time)."""

    bounds: list[int]
    leaf: list[int]
    joint: list[int]
    """per segment: the last one up to it whose leaf is a transfer or a wait, -1 = none"""
    row: list[int]
    start: list[int]
    end: list[int]
    latest: list[int]
    """per row: the latest end up to it"""


@dataclass
class _Walk:
    """State of a walk: where it is, and what it has consumed."""

    rank: int
    time: int
    """local"""
    true: int
    floor: int
    leaves: list[int] = field(default_factory=lambda: [0] * len(LEAVES))
    by_rank: dict[int, int] = field(default_factory=dict)
    hops: list[int] = field(default_factory=list)
    here: set[int] = field(default_factory=set)
    """ranks seen at this moment"""

    def spend(self, leaf: int, ns: int) -> None:
        """Consume ``ns`` of the path, no further than the floor."""
        ns = min(ns, self.true - self.floor)
        if ns > 0:
            self.leaves[leaf] += ns
            self.by_rank[self.rank] = self.by_rank.get(self.rank, 0) + ns
            self.true -= ns
            self.here = set()


def critical_path(facts: Facts, base: TimeBase, used: list[int]) -> list[PathRow]:
    """One row per step of ``used``: back from the last end of the step to its earliest begin, on the common axis.

    Of ranks whose clocks cannot be compared it is the path of the largest set that can be (the first of equals).
    The leaves sum to the span exactly. Where the walk comes back to a rank without time having passed, or a rank has
    no record, the rest is ``idle_unknown``.
    """
    w = facts.windows
    begin, end = base.to_true(w.rank, w.start), base.to_true(w.rank, w.end)
    walker = _Walker(facts, base)
    part = base.component[w.rank]
    large = part == np.argmax(np.bincount(part)) if len(part) else part
    out = []
    for step in used:
        own = np.flatnonzero((w.step == step) & large)
        if not len(own):
            continue
        last = own[np.argmax(end[own])]
        walk = _Walk(int(w.rank[last]), int(w.end[last]), int(end[last]), int(begin[own].min()))
        span = walk.true - walk.floor
        walker.run(walk)
        leaves = {LEAVES[i]: ns for i, ns in enumerate(walk.leaves) if ns}
        ranks = {str(r): ns for r, ns in sorted(walk.by_rank.items())}
        out.append(PathRow(step, span, leaves, walk.hops[:HOPS_SHOWN], ranks))
    return out


class _Walker:
    """Walks steps back; keeps the records of the ranks that it met last."""

    def __init__(self, facts: Facts, base: TimeBase) -> None:
        self.facts, self.base = facts, base
        self.lanes: OrderedDict[int, _Lane | None] = OrderedDict()
        phases, found = facts.waited.phases, facts.waited.instances
        self.wait_end = phases.wait_end
        self.moving = phases.second == TRANSFER
        self.point = phases.sub == P2P
        self.last, self.instance = found.last, facts.matches.instance
        self.rank = facts.c.rank

    def run(self, walk: _Walk) -> None:
        """Consume the whole span."""
        while walk.true > walk.floor:
            if not walk.hops or walk.hops[-1] != walk.rank:
                walk.hops.append(walk.rank)
            lane = self._lane(walk.rank)
            if lane is None or walk.rank in walk.here:
                walk.spend(LOST, walk.true - walk.floor)
                return
            walk.here.add(walk.rank)
            at = bisect_left(lane.bounds, walk.time) - 1
            if at < 0:
                walk.spend(BEFORE, walk.true - walk.floor)
            elif at >= len(lane.leaf):
                self._stay(walk, lane.bounds[-1], {BEFORE: walk.time - lane.bounds[-1]})
            elif lane.leaf[at] == TRANSFER_LEAF:
                self._transfer(walk, lane, at)
            elif lane.leaf[at] == WAIT_LEAF:
                self._wait(walk, lane, at)
            else:
                self._work(walk, lane, at)

    def _work(self, walk: _Walk, lane: _Lane, at: int) -> None:
        """Everything back to the last transfer or wait of this rank."""
        first = lane.joint[at] + 1
        spent: dict[int, int] = {}
        stop = walk.time
        for i in range(at, first - 1, -1):
            left = walk.true - walk.floor - (walk.time - stop)
            ns = min(stop - lane.bounds[i], left)  # here, not later: what lies below the floor is of this leaf
            spent[lane.leaf[i]] = spent.get(lane.leaf[i], 0) + ns
            stop -= ns
            if ns == left:
                break
        self._stay(walk, stop, spent)

    def _stay(self, walk: _Walk, until: int, spent: dict[int, int]) -> None:
        """Move back on the same rank; a drift of its clock goes to the largest leaf."""
        true = int(self.base.to_true(np.array([walk.rank]), np.array([until]))[0])
        total = walk.true - true
        largest = max(spent, key=lambda k: spent[k])
        spent[largest] += total - sum(spent.values())
        for leaf, ns in spent.items():
            walk.spend(leaf, ns)
        walk.time, walk.here = until, set()

    def _transfer(self, walk: _Walk, lane: _Lane, at: int) -> None:
        """``[L, t)`` of the transfer, then on at L with the member that came last."""
        rows = [r for r in self._active(lane, walk.time) if self.moving[r] and self.wait_end[r] < walk.time]
        if not rows:
            self._stay(walk, lane.bounds[at], {TRANSFER_LEAF: walk.time - lane.bounds[at]})
            return
        row = max(rows, key=lambda r: int(self.wait_end[r]))
        begin = int(self.wait_end[row])
        self._stay(walk, begin, {TRANSFER_LEAF: walk.time - begin})
        self._jump(walk, row)

    def _wait(self, walk: _Walk, lane: _Lane, at: int) -> None:
        """On with the member that is waited for, without consuming time."""
        rows = [r for r in self._active(lane, walk.time) if self.wait_end[r] >= walk.time]
        if rows:
            self._jump(walk, max(rows, key=lambda r: int(self.wait_end[r])))
        else:
            self._stay(walk, lane.bounds[at], {LOST: walk.time - lane.bounds[at]})

    def _jump(self, walk: _Walk, row: int) -> None:
        """To the late member of the row's instance, at the same moment."""
        if self.point[row]:
            peer = int(late_peer(self.facts, np.array([row]))[0])
        else:
            number = int(self.instance[row])
            peer = int(self.last[number]) if number >= 0 else NONE
        if peer == NONE or self.rank[peer] == walk.rank:
            return
        walk.rank = int(self.rank[peer])
        walk.time = int(self.base.to_local(np.array([walk.rank]), np.array([walk.true]))[0])

    def _active(self, lane: _Lane, time: int) -> list[int]:
        """Collectives rows that are under way just before ``time``."""
        out = []
        i = bisect_left(lane.start, time) - 1
        while i >= 0 and lane.latest[i] >= time:
            if lane.end[i] >= time:
                out.append(lane.row[i])
            i -= 1
        return out

    def _lane(self, rank: int) -> _Lane | None:
        if rank in self.lanes:
            self.lanes.move_to_end(rank)
            return self.lanes[rank]
        if len(self.lanes) >= LANES:
            self.lanes.popitem(last=False)
        self.lanes[rank] = self._load(rank)
        return self.lanes[rank]

    def _load(self, rank: int) -> _Lane | None:
        segments = self.facts.segments(rank)
        if segments is None or not len(segments.phase):
            return None
        time, c = LeafTime.of(segments), self.facts.c
        stop = np.isin(time.leaf, (TRANSFER_LEAF, WAIT_LEAF))
        joint = np.maximum.accumulate(np.where(stop, np.arange(len(stop)), -1))
        rows: Ints = np.arange(*np.searchsorted(c.rank, (rank, rank + 1)))
        rows = rows[np.argsort(c.start[rows], kind="stable")]
        latest = np.maximum.accumulate(c.end[rows]) if len(rows) else rows
        lists = (time.bounds, time.leaf, joint, rows, c.start[rows], c.end[rows], latest)
        return _Lane(*(x.tolist() for x in lists))
