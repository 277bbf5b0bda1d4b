"""The graph of a run for a replay: blocks of all ranks, their communication, their hosts and the ends of their steps.

Every edge is ``source + lag``; a scenario only changes lags. Times are ns on the common axis from the chain's begin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis import maxplus
from traceview.analysis.groups import N_TO_ONE, N_X_N, ONE_TO_N, Columns
from traceview.analysis.replaylane import Blocks, Lane, Stretches
from traceview.analysis.replayops import COPY, KERNEL
from traceview.analysis.timebase import TimeBase
from traceview.analysis.types import P2P, TRANSFER, Bools, Floats, Ints, Matches
from traceview.analysis.waits import Waits

ORIGIN = 0


@dataclass(frozen=True)
class Met:
    """The cross-rank facts that the graph needs."""

    c: Columns
    matches: Matches
    waited: Waits
    base: TimeBase
    begin: int
    """origin of the chain on the common axis, ns"""

    def starts(self, rows: Ints) -> Ints:
        """Begin of rows on the graph's axis."""
        return self.base.to_true(self.c.rank[rows], self.c.start[rows]) - self.begin

    def ends(self, rows: Ints) -> Ints:
        """End of rows on the graph's axis."""
        return self.base.to_true(self.c.rank[rows], self.c.end[rows]) - self.begin


@dataclass(frozen=True)
class Scenario:
    """What a replay changes; None = as recorded. Factors are per stretch of ``Graph.stretches``."""

    kernels: Floats | None = None
    copies: Floats | None = None
    host: Floats | None = None
    """host time between communication calls"""
    transfer: float = 1.0


@dataclass(frozen=True)
class Graph:
    """Nodes: the origin, blocks, ends of communication, instances, blocking calls, bounds of steps."""

    blocks: Blocks
    stretches: Stretches
    lane_of_stretch: Ints
    lanes: list[Lane]
    row: Ints
    """collectives row of every communication end"""
    block_of_row: Ints
    transfer: Ints
    """per communication end: from L to the end"""
    joint: Bools
    """per communication end: it waits for what other ranks are known to do"""
    point: Bools
    call_start: Ints
    call_end: Ints
    call_before: Ints
    """the blocking call before on the same rank, -1 = none"""
    call_rest: Ints
    call_lane: Ints
    source: Ints
    target: Ints
    constant: Ints
    term: Ints
    """which scenario term is added: see ``terms``"""
    first_bound: int
    bounds: Ints
    """[ranks, steps + 1] as recorded"""
    plan: maxplus.Order


def build(lanes: list[Lane], met: Met) -> Graph | None:
    """The graph of the lanes; None if their order contradicts itself (clocks, or a wrong match)."""
    blocks, shift, calls_at = _stack(lanes)
    stretch_at = _offsets([len(x.stretches.row) for x in lanes])
    stretches = Stretches(*(np.concatenate([getattr(x.stretches, k) for x in lanes]) for k in _names(Stretches)))
    ends = np.flatnonzero(blocks.row >= 0)
    edges = _Edges(len(blocks.row), len(ends))
    exits = np.arange(1, len(blocks.row) + 1)
    exits[ends] = len(blocks.row) + 1 + np.arange(len(ends))
    next_node = 1 + len(blocks.row) + len(ends)
    transfer, joint, next_node = _communication(met, blocks.row[ends], ends, edges, next_node)
    ended = blocks.end.copy()
    ended[ends] = met.ends(blocks.row[ends])
    hosts = _hosts(lanes, shift, exits, ended, edges, next_node, calls_at)
    next_node += len(hosts[0])
    host_node = np.where(blocks.host >= 0, next_node - len(hosts[0]) + blocks.host, ORIGIN)
    held = np.flatnonzero(blocks.held)
    edges.add(host_node[held], 1 + held, 0, edges.host(held))
    for x, at in zip(lanes, shift.tolist(), strict=True):
        edges.add(exits[x.source + at], 1 + x.target + at, 0, edges.block(x.target + at))
        edges.add(np.full(len(x.free), ORIGIN), 1 + x.free + at, 0, edges.block(x.free + at))
    bounds = np.stack([x.bounds for x in lanes])
    _step_bounds(lanes, shift, exits, ended, edges, next_node)
    nodes = next_node + len(lanes) * (bounds.shape[1] - 1)
    source, target, constant, term = edges.done()
    plan = maxplus.order(nodes, source, target)
    if plan is None:
        return None
    return Graph(
        blocks=blocks,
        stretches=stretches,
        lane_of_stretch=np.repeat(np.arange(len(lanes)), np.diff([*stretch_at, len(stretches.row)])),
        lanes=lanes,
        row=blocks.row[ends],
        block_of_row=ends,
        transfer=transfer,
        joint=joint,
        point=met.waited.phases.sub[blocks.row[ends]] == P2P,
        call_start=hosts[0],
        call_end=hosts[1],
        call_before=hosts[2],
        call_rest=hosts[3],
        call_lane=hosts[4],
        source=source,
        target=target,
        constant=constant,
        term=term,
        first_bound=next_node,
        bounds=bounds,
        plan=plan,
    )


def _names(kind: type) -> list[str]:
    return list(kind.__dataclass_fields__)


def _offsets(counts: list[int]) -> Ints:
    return np.cumsum([0, *counts[:-1]]).astype(np.int64)


def _stack(lanes: list[Lane]) -> tuple[Blocks, Ints, Ints]:
    """(blocks of all lanes with global stretch and call numbers, first block and first call of each lane)."""
    shift = _offsets([len(x.blocks.row) for x in lanes])
    stretch = _offsets([len(x.stretches.row) for x in lanes])
    calls = _offsets([len(x.calls.op) for x in lanes])
    columns = {}
    for name in _names(Blocks):
        parts = [getattr(x.blocks, name) for x in lanes]
        if name == "stretch":
            parts = [p + at for p, at in zip(parts, stretch.tolist(), strict=True)]
        elif name == "host":
            parts = [np.where(p >= 0, p + at, p) for p, at in zip(parts, calls.tolist(), strict=True)]
        columns[name] = np.concatenate(parts)
    return Blocks(**columns), shift, calls


class _Edges:
    """Edges under construction. Terms of a scenario: nothing, per block, per block from its host, per end, per call."""

    def __init__(self, blocks: int, ends: int) -> None:
        self._blocks, self._ends = blocks, ends
        self._parts: list[tuple[Ints, Ints, Ints, Ints]] = []

    def block(self, which: Ints) -> Ints:
        return 1 + which

    def host(self, which: Ints) -> Ints:
        return 1 + self._blocks + which

    def end(self, which: Ints) -> Ints:
        return 1 + 2 * self._blocks + which

    def call(self, which: Ints) -> Ints:
        return 1 + 2 * self._blocks + self._ends + which

    def add(self, source: Ints, target: Ints, constant: Ints | int, term: Ints | int) -> None:
        """Edges of one sort; constants and terms may be one for all."""
        parts = np.broadcast_arrays(source, target, constant, term)
        self._parts.append((parts[0], parts[1], parts[2], parts[3]))

    def done(self) -> tuple[Ints, Ints, Ints, Ints]:
        """(source, target, constant, term)."""
        columns = [np.concatenate(column).astype(np.int64) for column in zip(*self._parts, strict=True)]
        return columns[0], columns[1], columns[2], columns[3]


def _communication(met: Met, rows: Ints, block: Ints, edges: _Edges, node: int) -> tuple[Ints, Bools, int]:
    """Edges of every communication end: (time from L to the end, waits for others, next free node)."""
    which = np.arange(len(rows))
    end_node = 1 + edges._blocks + which
    number = met.matches.instance[rows]
    begin = met.starts(rows)
    latest = begin.copy()
    edges.add(1 + block, end_node, 0, edges.end(which))
    together, peers = _dependencies(met, rows, number)
    joint = np.zeros(len(rows), np.bool_)
    for peer, of in peers:
        at, known = _find(rows, peer)
        start = met.starts(peer)
        np.maximum.at(latest, of, start)
        joint[of] = True
        edges.add(np.where(known, 1 + block[at], ORIGIN), end_node[of], np.where(known, 0, start), edges.end(of))
    shared = np.unique(number[together])
    if len(shared):
        found = met.waited.instances
        place = np.searchsorted(shared, number[together])
        arrived = found.arrived[number[together]] - met.begin
        latest[together] = np.maximum(latest[together], arrived)
        joint[together] = True
        edges.add(node + place, end_node[together], 0, edges.end(together))
        low, high = found.first[shared], found.first[shared + 1]
        members = np.concatenate([np.arange(a, b) for a, b in zip(low.tolist(), high.tolist(), strict=True)])
        owner = np.repeat(np.arange(len(shared)), high - low)
        keep = found.member[members]
        peer, owner = found.rows[members[keep]], owner[keep]
        at, known = _find(rows, peer)
        fixed = np.where(known, 0, met.starts(peer))
        edges.add(np.where(known, 1 + block[at], ORIGIN), node + owner, fixed, 0)
    return met.ends(rows) - latest, joint, node + len(shared)


def _find(rows: Ints, wanted: Ints) -> tuple[Ints, Bools]:
    """Place of each wanted row among ``rows``, and whether it is there."""
    by = np.argsort(rows, kind="stable")
    at = by[np.minimum(np.searchsorted(rows[by], wanted), len(rows) - 1)]
    return at, rows[at] == wanted


def _dependencies(met: Met, rows: Ints, number: Ints) -> tuple[Ints, list[tuple[Ints, Ints]]]:
    """METHODS e.2: (rows that wait for all members, [(row of a peer, those that wait for it)]), as places in ``rows``.

    What is not fully observed, or contradicts the clocks, waits for nobody: it keeps its duration.
    """
    found, phases, m = met.waited.instances, met.waited.phases, met.matches
    sure = (number >= 0) & (phases.second[rows] == TRANSFER) & ~phases.violated[rows]
    sure[sure] &= ~(found.clock_free | found.dark | m.ambiguous)[number[sure]]
    kind = np.where(sure, met.c.kind[rows], -1)
    point = sure & (phases.sub[rows] == P2P)
    stayed = np.zeros(len(rows), np.bool_)
    stayed[sure] = met.ends(rows[sure]) + met.begin >= found.arrived[number[sure]]
    root = np.where(sure, found.root[number], -1) if len(found.root) else number
    scatter, reduce_ = sure & ONE_TO_N[kind] & (root >= 0), sure & N_TO_ONE[kind] & (root >= 0)
    full = np.zeros(len(rows), np.bool_)
    full[sure] = m.full[number[sure]]
    own = root == rows
    everyone = sure & ~point & N_X_N[kind] & full
    everyone |= (scatter & own | reduce_ & (own | full)) & stayed
    leaf = np.flatnonzero(scatter & ~own)
    sender, receiver = found.partners.sender[rows], found.partners.receiver[rows]
    receives = np.flatnonzero(point & (sender >= 0))
    sends = np.flatnonzero(point & (receiver >= 0))
    sends = sends[met.ends(rows[sends]) >= met.starts(receiver[sends])]
    return np.flatnonzero(everyone), [(root[leaf], leaf), (sender[receives], receives), (receiver[sends], sends)]


def _hosts(
    lanes: list[Lane], shift: Ints, exits: Ints, ended: Ints, edges: _Edges, node: int, calls_at: Ints
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Blocking calls of all lanes: (begin, end, call before, rest after the operation ended, lane)."""
    start = np.concatenate([x.calls.start for x in lanes])
    end = np.concatenate([x.calls.end for x in lanes])
    op = np.concatenate([x.calls.op + at for x, at in zip(lanes, shift.tolist(), strict=True)])
    lane = np.repeat(np.arange(len(lanes)), [len(x.calls.op) for x in lanes])
    which = np.arange(len(start))
    before = np.where(which > calls_at[lane], which - 1, -1)
    rest = end - ended[op]
    edges.add(np.where(before >= 0, node + before, ORIGIN), node + which, 0, edges.call(which))
    edges.add(exits[op], node + which, rest, 0)
    return start, end, before, rest, lane


def _step_bounds(lanes: list[Lane], shift: Ints, exits: Ints, ended: Ints, edges: _Edges, node: int) -> None:
    """A step ends a fixed time after the last of its operations."""
    for x, at in zip(lanes, shift.tolist(), strict=True):
        steps = len(x.bounds) - 1
        block = x.bound_block + at
        last = np.zeros(steps + 1, np.int64)
        np.maximum.at(last, x.bound_step, ended[block])
        edges.add(exits[block], node + x.bound_step - 1, (x.bounds - last)[x.bound_step], 0)
        empty = np.setdiff1d(np.arange(1, steps + 1), x.bound_step)
        edges.add(np.full(len(empty), ORIGIN), node + empty - 1, x.bounds[empty], 0)
        node += steps


@dataclass(frozen=True)
class Played:
    """One scenario, played."""

    bounds: Floats
    """[ranks, steps + 1]"""
    begin: Floats
    """of every communication operation (``Graph.row``)"""
    waited: Floats
    """L of it"""
    end: Floats
    block_end: Floats
    busy: Floats
    """per block: how long it is busy at its end"""


def play(g: Graph, how: Scenario) -> Played:
    """Replay: when everything would happen. Near-linear in edges, one pass per level."""
    factor = np.ones(len(g.blocks.row))
    for kind, given in ((KERNEL, how.kernels), (COPY, how.copies)):
        if given is not None:
            factor = np.where(g.blocks.kind == kind, given[g.blocks.stretch], factor)
    own = g.blocks.fixed + factor * g.blocks.work
    transfer = np.where(g.joint & (g.transfer > 0), g.transfer / how.transfer, g.transfer)
    lag = g.constant + _terms(g, how, factor, own, transfer)[g.term]
    when = maxplus.evaluate(g.plan, lag)
    blocks, ends = len(g.blocks.row), len(g.row)
    end = when[1 + blocks : 1 + blocks + ends]
    ranks, steps = g.bounds.shape[0], g.bounds.shape[1] - 1
    last = when[g.first_bound :].reshape(ranks, steps)
    return Played(
        bounds=np.column_stack((g.bounds[:, 0], last)),
        begin=when[1 : 1 + blocks][g.block_of_row],
        waited=end - transfer,
        end=end,
        block_end=when[1 : 1 + blocks],
        busy=own - g.blocks.lead,
    )


def _terms(g: Graph, how: Scenario, factor: Floats, own: Floats, transfer: Floats) -> Floats:
    b, warp = g.blocks, _Warp(g, how.host)
    called = np.append(g.call_end, 0)
    lane = g.lane_of_stretch[b.stretch]
    back = np.where(b.host >= 0, warp(called[b.host], lane), 0.0)
    held = np.full(len(own), -np.inf)
    for k in range(b.launch.shape[1]):
        held = np.maximum(held, warp(b.launch[:, k], lane) + b.after[:, k] + factor * b.load[:, k])
    before = np.where(g.call_before >= 0, warp(called[g.call_before], g.call_lane), 0.0)
    calls = warp(g.call_start, g.call_lane) - before + g.call_rest
    return np.concatenate(([0.0], own, held - back, transfer, calls))


class _Warp:
    """Host time of a scenario: each stretch of a rank's host runs by its factor."""

    def __init__(self, g: Graph, factor: Floats | None) -> None:
        self._lanes: list[tuple[int, Ints, Floats, float]] = []
        if factor is None:
            return
        for i in np.unique(g.lane_of_stretch[factor != 1.0]).tolist():
            a, b = np.searchsorted(g.lane_of_stretch, (i, i + 1))
            begin = g.stretches.begin[a:b]
            passed = np.append(0.0, np.cumsum(np.diff(begin) * factor[a : b - 1]))
            self._lanes.append((i, begin, begin[0] + passed, float(factor[b - 1])))

    def __call__(self, time: Ints, lane: Ints) -> Floats:
        """Times of the host in the scenario; ``lane`` is ascending."""
        out = time.astype(np.float64)
        for i, begin, warped, last in self._lanes:
            low, high = np.searchsorted(lane, (i, i + 1))
            own = time[low:high]
            inside = np.interp(own, begin, warped)
            late = np.where(own > begin[-1], warped[-1] + last * (own - begin[-1]), inside)
            out[low:high] = np.where(own > begin[0], late, own)
        return out
