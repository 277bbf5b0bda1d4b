"""One rank of a replay: its operations as blocks between the points where it meets another stream, rank or its host.

A block is a run of operations of one stream that only its first one's predecessors, or the host, can hold. It ends at
``max(begin + fixed + f x work, host)``, so the graph of a run is as large as its communication, not as its kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.intervals import Spans
from traceview.analysis.replay.ops import (
    COMM,
    UNKNOWN,
    Blocking,
    Host,
    Recorded,
    launch_order,
    previous,
    waits_between_streams,
)
from traceview.analysis.types import Bools, Codes, Floats, Ints
from traceview.config import Config

LINES = (0.0, 1.0, 2.0)
"""Factors of the work at which the launch that holds a block is looked for; in between it is one of these"""


@dataclass(frozen=True)
class Blocks:
    """Runs of operations; times in ns."""

    fixed: Ints
    """residual gaps; of a block that waits for nothing on record its begin is one"""
    work: Ints
    """scaled by a scenario"""
    kind: Codes
    """KERNEL, COPY or COMM"""
    stretch: Ints
    row: Ints
    """collectives row of a block that is one communication operation, else -1"""
    end: Ints
    """observed; of a block with a row its begin"""
    host: Ints
    """blocking call after which it was launched, -1 = none"""
    held: Bools
    """some launch of it is known"""
    launch: Ints
    """[blocks, len(LINES)]"""
    after: Ints
    """[blocks, len(LINES)]: fixed time from that launch to the end of the block"""
    load: Ints
    """[blocks, len(LINES)]: work from that launch to the end of the block"""
    gaps: Ints
    """part of ``fixed``: launch latency, up to what is ordinary, of every operation"""
    gaps_after: Ints
    """[blocks, len(LINES)]: that part of ``after``"""


@dataclass(frozen=True)
class Stretches:
    """What a rank does after one of its communication calls and before the next; the first is before any call."""

    row: Ints
    """the call it follows, -1 for the first"""
    begin: Ints
    """when that call was made on the host"""
    busy: Ints
    """host time until the next call that no blocking call took"""
    work: Ints
    """[stretches, KERNEL and COPY]"""


@dataclass(frozen=True)
class Lane:
    """A rank's part of the graph; node numbers are those of its blocks."""

    rank: int
    blocks: Blocks
    stretches: Stretches
    calls: Blocking
    """``op`` is the block that the call waited for"""
    source: Ints
    target: Ints
    free: Ints
    """blocks that wait for nothing on record: they keep their begin"""
    bound_block: Ints
    """the last block of every stream before each bound of a step"""
    bound_step: Ints
    """which bound"""
    bounds: Ints
    data: Spans
    """when its host waits for input"""
    work: Spans
    """when its host does what leads to launches"""


def lane(ops: Recorded, host: Host, rank: int, bounds: Ints, config: Config) -> Lane:
    """The part of ``rank``; ``bounds`` are those of its steps."""
    calls = host.calls
    met = ops.row >= 0
    place = launch_order(ops)
    before = previous(ops)
    source, target = waits_between_streams(ops, place, config)
    stretch, stretches = _stretches(ops, place, calls, bounds)
    call = np.searchsorted(calls.end, ops.launch, "right") - 1
    edge_op, edge_step = _last_before(ops, bounds)
    cut = (before < 0) | met | _changes(stretch) | _changes(call) | _changes(ops.work)
    cut[target] = True
    after = np.zeros(len(ops) + 1, np.bool_)
    for op in (source, calls.op, edge_op, np.flatnonzero(met)):
        after[op + 1] = True
    cut |= after[:-1]
    first = np.flatnonzero(cut)
    block = np.cumsum(cut) - 1
    ready, free = _ready(ops, before, source, target)
    gaps = np.where(free, 0, np.clip(ops.start - ready, 0, config.launch_tau_max_ns))
    blocks = _blocks(ops, _Cut(first, block), _Idle(ops.start - ready, gaps), stretch, call)
    chained = first[before[first] >= 0]
    return Lane(
        rank=rank,
        blocks=blocks,
        stretches=stretches,
        calls=Blocking(calls.start, calls.end, block[calls.op]),
        source=np.concatenate((block[before[chained]], block[source])),
        target=np.concatenate((block[chained], block[target])),
        free=np.unique(block[free]),
        bound_block=block[edge_op],
        bound_step=edge_step,
        bounds=bounds,
        data=host.data,
        work=host.work,
    )


def _changes(values: Ints | Codes) -> Bools:
    out = np.zeros(len(values), np.bool_)
    out[1:] = values[1:] != values[:-1]
    return out


def _last_before(ops: Recorded, bounds: Ints) -> tuple[Ints, Ints]:
    """(operation, bound): the last of each stream to end by the bound of a step; the first bound has none."""
    found, which = [], []
    for low, high in ops.streams():
        at = np.searchsorted(np.maximum.accumulate(ops.end[low:high]), bounds[1:], "right") - 1
        found.append(low + at[at >= 0])
        which.append(1 + np.flatnonzero(at >= 0))
    return np.concatenate(found), np.concatenate(which)


def _ready(ops: Recorded, before: Ints, source: Ints, target: Ints) -> tuple[Ints, Bools]:
    """(When every operation could have begun, nothing on record holds it)."""
    ready = np.where(before >= 0, ops.end[before], np.iinfo(np.int64).min)
    np.maximum.at(ready, target, ops.end[source])
    ready = np.where(ops.launched, np.maximum(ready, ops.launch), ready)
    free = ready == np.iinfo(np.int64).min
    return np.where(free, 0, ready), free


def _stretches(ops: Recorded, place: Ints, calls: Blocking, bounds: Ints) -> tuple[Ints, Stretches]:
    order = np.empty(len(ops), np.int64)
    order[place] = np.arange(len(ops))
    joint = ops.row >= 0
    passed = np.cumsum(joint[order])
    stretch = np.empty(len(ops), np.int64)
    stretch[order] = passed - joint[order]
    joints = order[joint[order]]
    begin = np.append(bounds[0], np.maximum.accumulate(np.maximum(ops.launch[joints], bounds[0])))
    blocked = union_before(calls, np.append(begin, max(int(bounds[-1]), int(begin[-1]))))
    span = np.diff(np.append(begin, max(int(bounds[-1]), int(begin[-1]))))
    work = np.stack(
        [
            np.bincount(stretch[mine], (ops.end - ops.start)[mine], len(begin)).astype(np.int64)
            for mine in (ops.work == kind for kind in range(COMM))
        ],
        axis=1,
    )
    row = np.append(UNKNOWN, ops.row[joints])
    return stretch, Stretches(row, begin, np.maximum(span - np.diff(blocked), 0), work)


def union_before(calls: Blocking, time: Ints) -> Ints:
    """Time that blocking calls took before each moment; they do not overlap."""
    total = np.append(0, np.cumsum(calls.end - calls.start))
    at = np.searchsorted(calls.start, time, "right")
    over = np.where(at > 0, np.maximum(np.append(calls.end, 0)[at - 1] - time, 0), 0)
    out: Ints = total[at] - over
    return out


@dataclass(frozen=True)
class _Cut:
    """First operation of every block, and block of every operation."""

    first: Ints
    block: Ints


@dataclass(frozen=True)
class _Idle:
    """Per operation: how long after everything allowed it it began, and how much of that is launch latency."""

    gap: Ints
    latency: Ints


def _blocks(ops: Recorded, cut: _Cut, idle: _Idle, stretch: Ints, host: Ints) -> Blocks:
    met, first, block = ops.row >= 0, cut.first, cut.block
    length = np.where(met, 0, ops.end - ops.start)
    moves = ops.work != COMM
    fixed = idle.gap + np.where(moves, 0, length)
    work = np.where(moves, length, 0)
    last = np.append(first[1:], len(ops)) - 1

    def until_end(amount: Ints) -> Ints:
        total = np.cumsum(amount)
        out: Ints = total[last][block] - total + amount
        return out

    after, load, gaps_after = until_end(fixed), until_end(work), until_end(idle.latency)
    lines = [_holding(ops, block, first, after + f * load) for f in LINES]
    held = lines[0] >= 0
    line = np.maximum(np.stack(lines, axis=1), 0)
    return Blocks(
        fixed=np.add.reduceat(fixed, first),
        work=np.add.reduceat(work, first),
        kind=ops.work[first],
        stretch=stretch[first],
        row=np.where(met[first], ops.row[first], UNKNOWN),
        end=np.where(met[first], ops.start[first], ops.end[last]),
        host=host[first],
        held=held,
        launch=ops.launch[line],
        after=after[line],
        load=load[line],
        gaps=np.add.reduceat(idle.latency, first),
        gaps_after=gaps_after[line],
    )


def _holding(ops: Recorded, block: Ints, first: Ints, until_end: Floats) -> Ints:
    """Per block: the operation whose launch holds it longest, -1 = no launch is known."""
    when = np.where(ops.launched, ops.launch + until_end, -np.inf)
    latest = np.maximum.reduceat(when, first)
    hits = np.flatnonzero((when == latest[block]) & ops.launched)
    out = np.full(len(first), UNKNOWN)
    out[block[hits[::-1]]] = hits[::-1]
    return out
