"""The graph of a run for a replay: blocks of all ranks, their communication, their hosts and the ends of their steps.

Every edge is ``source + lag``; a scenario only changes lags. Times are ns on the common axis from the chain's begin.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from traceview.analysis import maxplus
from traceview.analysis.intervals import Spans
from traceview.analysis.replay.lane import Blocks, Lane, Stretches
from traceview.analysis.replay.meet import Met, dependencies, find
from traceview.analysis.types import P2P, Bools, Ints, Rows

ORIGIN = 0


@dataclass(frozen=True)
class Calls:
    """Blocking calls of the hosts of all lanes."""

    start: Ints
    end: Ints
    before: Ints
    """the call before on the same rank, -1 = none"""
    rest: Ints
    """from the end of the operation that was waited for to the return"""
    lane: Ints


@dataclass(frozen=True)
class Graph:
    """Nodes: the origin, blocks, ends of communication, instances, blocking calls, bounds of steps."""

    blocks: Blocks
    stretches: Stretches
    lane_of_stretch: Ints
    ranks: list[int]
    """of the lanes"""
    data: list[Spans]
    """of the lanes: when the host waits for input"""
    work: list[Spans]
    """of the lanes: when it does what leads to launches"""
    row: Ints
    """collectives row of every communication end"""
    block_of_row: Ints
    transfer: Ints
    """per communication end: from L to the end"""
    joint: Bools
    """per communication end: it waits for what other ranks are known to do"""
    known: Bools
    """per communication end: whether it waits, and for whom, is known"""
    point: Bools
    calls: Calls
    constant: Ints
    term: Rows
    """which term of the scenario is added: 0 = none, then one per block, per block from its host, per communication
    end, per blocking call"""
    first_bound: int
    bounds: Ints
    """[ranks, steps + 1] as recorded"""
    plan: maxplus.Order


def build(lanes: list[Lane], met: Met) -> Graph | None:
    """The graph of the lanes; None if their order contradicts itself (clocks, or a wrong match)."""
    draft = _Draft(lanes, met)
    blocks = draft.blocks
    draft.inside_lanes()
    transfer, joint, known = draft.communication()
    calls = draft.hosts()
    first_bound = draft.node
    draft.step_bounds()
    source, target, constant, term = draft.edges()
    plan = maxplus.order(draft.node, source, target)
    if plan is None:
        return None
    rows = blocks.row[draft.ends]
    return Graph(
        blocks=blocks,
        stretches=Stretches(
            *(np.concatenate([getattr(x.stretches, f.name) for x in lanes]) for f in fields(Stretches))
        ),
        lane_of_stretch=np.repeat(np.arange(len(lanes)), [len(x.stretches.row) for x in lanes]),
        ranks=[x.rank for x in lanes],
        data=[x.data for x in lanes],
        work=[x.work for x in lanes],
        row=rows,
        block_of_row=draft.ends,
        transfer=transfer,
        joint=joint,
        known=known,
        point=met.waited.phases.sub[rows] == P2P,
        calls=calls,
        constant=constant,
        term=term,
        first_bound=first_bound,
        bounds=np.stack([x.bounds for x in lanes]),
        plan=plan,
    )


def _offsets(counts: list[int]) -> Ints:
    return np.cumsum([0, *counts[:-1]]).astype(np.int64)


def _stack(lanes: list[Lane], first_call: Ints) -> Blocks:
    """Blocks of all lanes, with numbers of stretches and calls over all lanes."""
    stretch = _offsets([len(x.stretches.row) for x in lanes])
    columns = {}
    for name in (f.name for f in fields(Blocks)):
        parts = [getattr(x.blocks, name) for x in lanes]
        if name == "stretch":
            parts = [p + at for p, at in zip(parts, stretch.tolist(), strict=True)]
        elif name == "host":
            parts = [np.where(p >= 0, p + at, p) for p, at in zip(parts, first_call.tolist(), strict=True)]
        columns[name] = np.concatenate(parts)
    return Blocks(**columns)


class _Draft:
    """Nodes and edges under construction. Nodes: the origin, blocks, communication ends, instances, calls, bounds."""

    def __init__(self, lanes: list[Lane], met: Met) -> None:
        self.lanes, self.met = lanes, met
        self.first_block = _offsets([len(x.blocks.row) for x in lanes])
        self.first_call = _offsets([len(x.calls.op) for x in lanes])
        self.blocks = _stack(lanes, self.first_call)
        self.ends = np.flatnonzero(self.blocks.row >= 0)
        count = len(self.blocks.row)
        self.node = 1 + count + len(self.ends)
        self.exit = np.arange(1, count + 1)
        """per block: the node of its end"""
        self.exit[self.ends] = 1 + count + np.arange(len(self.ends))
        self.ended = self.blocks.end.copy()
        """per block: its end as recorded"""
        self.ended[self.ends] = met.ends(self.blocks.row[self.ends])
        self._parts: list[tuple[Rows, Rows, Ints, Rows]] = []

    def _add(self, source: Ints, target: Ints, constant: Ints | int, term: Ints | int) -> None:
        parts = np.broadcast_arrays(source, target, constant, term)
        narrow = [parts[i].astype(np.int32) for i in (0, 1, 3)]
        self._parts.append((narrow[0], narrow[1], parts[2].astype(np.int64), narrow[2]))

    def edges(self) -> tuple[Rows, Rows, Ints, Rows]:
        """(source, target, constant, term) of all."""
        source, target, constant, term = zip(*self._parts, strict=True)
        self._parts = []
        return np.concatenate(source), np.concatenate(target), np.concatenate(constant), np.concatenate(term)

    def inside_lanes(self) -> None:
        """Order inside the ranks."""
        for x, at in zip(self.lanes, self.first_block.tolist(), strict=True):
            target, free = x.target + at, x.free + at
            self._add(self.exit[x.source + at], 1 + target, 0, 1 + target)
            self._add(np.full(len(free), ORIGIN), 1 + free, 0, 1 + free)

    def communication(self) -> tuple[Ints, Bools, Bools]:
        """Ends of communication: (time from L to each end, it waits for others, that is known)."""
        rows, met = self.blocks.row[self.ends], self.met
        begins, ends = 1 + self.ends, self.exit[self.ends]
        term = 1 + 2 * len(self.blocks.row) + np.arange(len(rows))
        self._add(begins, ends, 0, term)
        number = met.matches.instance[rows]
        latest, joint = met.starts(rows).copy(), np.zeros(len(rows), np.bool_)
        known_rows, together, peers = dependencies(met, rows, number)
        for peer, of in peers:
            at, known = find(rows, peer)
            start = met.starts(peer)
            np.maximum.at(latest, of, start)
            joint[of] = True
            self._add(np.where(known, begins[at], ORIGIN), ends[of], np.where(known, 0, start), term[of])
        shared = np.unique(number[together])
        if len(shared):
            arrived = met.waited.instances.arrived[number[together]] - met.begin
            latest[together] = np.maximum(latest[together], arrived)
            joint[together] = True
            place = np.searchsorted(shared, number[together])
            self._add(self.node + place, ends[together], 0, term[together])
            some = met.waited.instances.block(shared)
            peer, owner = some.rows[some.member], some.local[some.member]
            at, known = find(rows, peer)
            fixed = np.where(known, 0, met.starts(peer))
            self._add(np.where(known, begins[at], ORIGIN), self.node + owner, fixed, 0)
        self.node += len(shared)
        return met.ends(rows) - latest, joint, known_rows

    def hosts(self) -> Calls:
        """Blocking calls, and the launches after them."""
        start = np.concatenate([x.calls.start for x in self.lanes])
        end = np.concatenate([x.calls.end for x in self.lanes])
        op = np.concatenate([x.calls.op + at for x, at in zip(self.lanes, self.first_block.tolist(), strict=True)])
        lane = np.repeat(np.arange(len(self.lanes)), [len(x.calls.op) for x in self.lanes])
        which = np.arange(len(start))
        before = np.where(which > self.first_call[lane], which - 1, -1)
        rest = end - self.ended[op]
        count = len(self.blocks.row)
        term = 1 + 2 * count + len(self.ends) + which
        self._add(np.where(before >= 0, self.node + before, ORIGIN), self.node + which, 0, term)
        self._add(self.exit[op], self.node + which, rest, 0)
        held = np.flatnonzero(self.blocks.held)
        host = self.blocks.host[held]
        self._add(np.where(host >= 0, self.node + host, ORIGIN), 1 + held, 0, 1 + count + held)
        self.node += len(which)
        return Calls(start, end, before, rest, lane)

    def step_bounds(self) -> None:
        """A step ends a fixed time after the last of its operations."""
        for x, at in zip(self.lanes, self.first_block.tolist(), strict=True):
            steps = len(x.bounds) - 1
            block = x.bound_block + at
            last = np.zeros(steps + 1, np.int64)
            np.maximum.at(last, x.bound_step, self.ended[block])
            self._add(self.exit[block], self.node + x.bound_step - 1, (x.bounds - last)[x.bound_step], 0)
            empty = np.setdiff1d(np.arange(1, steps + 1), x.bound_step)
            self._add(np.full(len(empty), ORIGIN), self.node + empty - 1, x.bounds[empty], 0)
            self.node += steps
