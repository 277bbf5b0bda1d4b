"""Replay of the used steps under scenarios (METHODS h.2), and what it says of a pipeline (e.6) and a straggler.

The answer is to "same program, faster part": no contention, the schedule and the host's own work stay as they are,
ranks that were not seen do not move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceview import units
from traceview.analysis import replayequal
from traceview.analysis.instances import BLOCK
from traceview.analysis.intervals import Spans, subtract, union
from traceview.analysis.ops import CLS, NONE, Ops, ints
from traceview.analysis.origin import TableSource
from traceview.analysis.replaygraph import Graph, build
from traceview.analysis.replaylane import Lane, lane
from traceview.analysis.replaymeet import Met
from traceview.analysis.replayops import COMM, COPY, KERNEL, Recorded, blocking_calls, host_calls
from traceview.analysis.replayplay import Played, Scenario, play
from traceview.analysis.types import Floats, Ints, Windows
from traceview.config import DEFAULT, Config

_WORK = np.full(len(CLS) + 1, KERNEL, np.int8)
_WORK[[CLS["comm"], CLS["peer_copy"]]] = COMM
_WORK[[CLS["pcie_h2d"], CLS["pcie_d2h"]]] = COPY


@dataclass(frozen=True)
class Inputs:
    """What a replay reads."""

    met: Met
    windows: Windows
    step_of_row: Ints
    gpu_ops: TableSource
    gpu_rows: Callable[[int], int]
    """rank -> number of its GPU operations, without opening them"""
    host_ranges: TableSource
    op_of_row: Callable[[int], Ints]
    """rank -> its row of ``gpu_ops`` for each of its collectives rows, -1 = none"""
    host_shift: Callable[[int], int]


@dataclass(frozen=True)
class Chain:
    """Consecutive used steps that are replayed as one; bounds are local, [ranks, steps + 1]."""

    steps: list[int]
    ranks: list[int]
    device: list[int]
    bounds: Ints


@dataclass(frozen=True)
class Fixed:
    """A replay in which some ranks are typical, ns."""

    step: float
    """step time"""
    left: float
    """exposed straggler wait beyond that of equalised op times, mean per rank and step"""


@dataclass(frozen=True)
class Answer:
    """What the replay says; times in ns, means per rank and step. ``refused``: why it says nothing."""

    steps: list[int] = field(default_factory=list)
    """those that were replayed"""
    refused: str = ""
    off: float = 0.0
    """largest relative error of the base replay over the steps"""
    step: float = 0.0
    """base replay: step time (METHODS b.1) of the replayed steps"""
    balanced: float = 0.0
    """step time with equalised op times"""
    fixed: dict[frozenset[int], Fixed | None] = field(default_factory=dict)
    """if these ranks were typical; None = nobody has their role"""
    waits: float = 0.0
    """exposed point-to-point waiting"""
    bubble: float = 0.0
    """that with equalised op times: the schedule's own"""
    uneven: float = 0.0
    """part of waits - bubble that goes only if the stages are made equal, not just the ranks of a stage"""
    partial: bool = False
    """some communication is not fully observed: its waits do not move"""

    @property
    def measured(self) -> list[int]:
        """The steps that all other numbers are of."""
        return self.steps[warm_up(len(self.steps)) :]


def replay(inputs: Inputs, culprits: list[frozenset[int]], config: Config = DEFAULT) -> Answer:
    """Replay the longest run of used steps that is affordable: as recorded, equalised, and with culprits replaced."""
    chain, why = choose(inputs, config)
    if chain is None:
        return Answer(refused=why)
    lanes = [_lane(inputs, chain, i, config) for i in range(len(chain.ranks))]
    found = [x for x in lanes if x is not None]
    if len(found) < len(lanes):
        return Answer(chain.steps, refused="some rank has no GPU work in the replayed steps")
    graph = build(found, inputs.met)
    del lanes, found
    if graph is None:
        return Answer(chain.steps, refused="the order of events contradicts itself: a clock or a match is wrong")
    base = play(graph, Scenario())
    off = fidelity(graph, base)
    if off > config.replay_refuse:
        return Answer(chain.steps, refused=f"the base replay is off by {units.share(off)}", off=off)
    if not len(graph.row):
        return Answer(chain.steps, refused="the steps hold no communication", off=off)
    if 2 * np.count_nonzero(graph.known) < len(graph.row):
        return Answer(chain.steps, "most communication is not fully observed, or the clocks cannot be compared", off)
    return _answers(graph, base, inputs, culprits, Answer(chain.steps, off=off))


def _answers(g: Graph, base: Played, inputs: Inputs, culprits: list[frozenset[int]], out: Answer) -> Answer:
    roles = replayequal.roles(g, inputs.met, inputs.step_of_row)
    even = play(g, replayequal.balanced(g, roles))
    fixed: dict[frozenset[int], Fixed | None] = dict.fromkeys(culprits)
    least = exposed_wait(g, even, point=False) if culprits else 0.0
    for ranks in culprits:
        if replayequal.comparable(g, roles, set(ranks)):
            played = play(g, replayequal.replaced(g, roles, set(ranks)))
            fixed[ranks] = Fixed(step_time(played), max(0.0, exposed_wait(g, played, point=False) - least))
    waits = bubble = uneven = 0.0
    if g.point.any():
        alike = play(g, replayequal.typical(g, roles))
        waits, bubble, inner = (exposed_wait(g, x, point=True) for x in (base, even, alike))
        uneven = max(0.0, min(inner, waits) - bubble)
    return Answer(
        steps=out.steps,
        off=out.off,
        step=step_time(base),
        balanced=step_time(even),
        fixed=fixed,
        waits=waits,
        bubble=min(bubble, waits),
        uneven=uneven,
        partial=not g.known.all(),
    )


def choose(inputs: Inputs, config: Config) -> tuple[Chain | None, str]:
    """The steps to replay: consecutive, in every rank's record, as many as the limits of ``config`` allow."""
    w = inputs.windows
    used = np.flatnonzero(w.used)
    ranks, lead = np.unique(w.rank[used], return_index=True)
    device = w.device[used[lead]]
    wanted = {(r, d): i for i, (r, d) in enumerate(zip(ranks.tolist(), device.tolist(), strict=True))}
    steps = np.unique(w.step[used])
    bounds = np.zeros((2, len(ranks), len(steps)), np.int64)
    there = np.zeros((len(ranks), len(steps)), np.bool_)
    lane_of = np.array([wanted.get(k, -1) for k in zip(w.rank[used].tolist(), w.device[used].tolist(), strict=True)])
    own = used[lane_of >= 0]
    at = lane_of[lane_of >= 0], np.searchsorted(steps, w.step[own])
    bounds[0][at], bounds[1][at], there[at] = w.start[own], w.end[own], True
    whole = there.all(axis=0) & (bounds[1] > bounds[0]).all(axis=0)
    if (device < 0).any() or not whole.any():
        return None, "no used step has GPU work on every rank"
    joined = np.zeros(len(steps), np.bool_)
    joined[1:] = whole[1:] & whole[:-1] & (bounds[0][:, 1:] == bounds[1][:, :-1]).all(axis=0)
    first, last = _longest(whole, joined)
    count = _operations(inputs, steps[first:last])
    deep, rows = np.cumsum(count.max(axis=0)), np.cumsum(count.sum(axis=0))
    gpu = max(inputs.gpu_rows(r) for r in ranks.tolist()) / len(np.unique(w.step))
    fits = (deep <= config.replay_max_depth) & (rows <= config.replay_rows)
    number = max(1, int(np.count_nonzero(fits & (gpu * np.arange(1, len(fits) + 1) <= config.replay_max_ops))))
    if gpu > config.replay_max_ops:
        return None, f"one step holds {gpu:,.0f} GPU operations of a rank, a replay at most {config.replay_max_ops:,}"
    if rows[0] > config.replay_max_rows:
        held = f"{count[:, 0].sum():,} communication operations"
        return None, f"one step holds {held}, a replay at most {config.replay_max_rows:,}"
    cut = slice(first, first + number)
    edges = np.column_stack((bounds[0][:, cut], bounds[1][:, first + number - 1]))
    return Chain(steps[cut].tolist(), ranks.tolist(), device.tolist(), edges), ""


def _operations(inputs: Inputs, steps: Ints) -> Ints:
    """[ranks, steps]: communication operations; in blocks of rows, there may be millions."""
    ranks, number = int(inputs.met.c.rank.max(initial=0)) + 1, len(steps)
    out = np.zeros(ranks * number, np.int64)
    for low in range(0, len(inputs.step_of_row), BLOCK):
        step = inputs.step_of_row[low : low + BLOCK]
        at = np.minimum(np.searchsorted(steps, step), number - 1)
        own = steps[at] == step
        key = inputs.met.c.rank[low : low + BLOCK][own].astype(np.int64) * number + at[own]
        np.add.at(out, key, 1)
    return out.reshape(ranks, number)


def _longest(whole: Any, joined: Any) -> tuple[int, int]:
    """[first, last) of the longest run of steps, the earliest of equals."""
    best, begin = (0, 0), 0
    for k in range(len(whole)):
        begin = begin if joined[k] else k
        if whole[k] and k + 1 - begin > best[1] - best[0]:
            best = (begin, k + 1)
    return best


def _lane(inputs: Inputs, chain: Chain, i: int, config: Config) -> Lane | None:
    """One rank's records in the chain, None without any; only these are read."""
    rank, bounds, met = chain.ranks[i], chain.bounds[i], inputs.met
    shift = inputs.host_shift(rank)
    whole = inputs.gpu_ops(rank)
    on_device = ints(whole, "device") == chain.device[i]
    rows = np.flatnonzero(on_device & (ints(whole, "end") > bounds[0]) & (ints(whole, "start") < bounds[-1]))
    if not len(rows):
        return None
    low, high = int(rows[0]), int(rows[-1]) + 1
    table = whole.slice(low, high - low)
    ops = Ops.of(table).on_gpu_axis(shift)
    back = ints(table, "launch_end")
    call = np.where(ops.launched & (back != NONE), back - ints(table, "launch_start"), 0)
    of_op = np.full(high - low, -1, np.int64)
    op = inputs.op_of_row(rank)
    first = int(np.searchsorted(met.c.rank, rank))
    inside = np.flatnonzero((op >= low) & (op < high))
    of_op[op[inside] - low] = first + inside

    def true(ns: Ints) -> Ints:
        return met.base.to_true(np.full(len(ns), rank), ns) - met.begin

    # work that was under way at the begin of the chain is replayed from there
    begin = true(np.where(_WORK[ops.cls] == COMM, ops.start, np.maximum(ops.start, bounds[0])))
    launch = np.where(ops.launched, np.minimum(true(np.where(ops.launched, ops.launch, ops.start)), begin), begin)
    record = Recorded(
        stream=ints(table, "stream"),
        start=begin,
        end=true(ops.end),
        launch=launch,
        launched=ops.launched,
        call=np.maximum(call, 0),
        work=_WORK[ops.cls],
        row=of_op,
    )
    record = record.take(rows - low).sorted()
    host = host_calls(inputs.host_ranges(rank), config)
    sync, runtime = (Spans(true(x.start + shift), true(x.end + shift)) for x in host)
    return lane(record, blocking_calls(record, sync, runtime, config), rank, true(bounds), config)


def warm_up(steps: int) -> int:
    """Steps at the begin of a chain that are replayed and not measured: they start as late as was recorded."""
    return min(2, steps // 2)


def step_time(played: Played) -> float:
    """Median over the measured steps of the median rank's window, the lower of two in both (METHODS b.1)."""
    walls = np.diff(played.bounds, axis=1)
    walls = np.sort(walls[:, warm_up(walls.shape[1]) :], axis=0)
    by_step = np.sort(walls[(walls.shape[0] - 1) // 2])
    return float(by_step[(len(by_step) - 1) // 2])


def fidelity(g: Graph, base: Played) -> float:
    """Largest relative error of a step of the base replay."""
    want, have = np.diff(g.bounds, axis=1), np.diff(base.bounds, axis=1)
    middle = (want.shape[0] - 1) // 2
    steps = np.sort(want, axis=0)[middle], np.sort(have, axis=0)[middle]
    return float(np.max(np.abs(steps[1] - steps[0]) / np.maximum(steps[0], 1)))


def exposed_wait(g: Graph, played: Played, *, point: bool) -> float:
    """Waiting that no work or transfer of the rank hides, mean ns per rank and step: p2p (``point``) or the rest.

    Of the measured steps. As in METHODS a.3, straggler wait goes before pipeline wait.
    """
    span = float(np.max(played.bounds) - min(np.min(played.bounds), 0.0)) + 1e9
    lane = g.lane_of_stretch[g.blocks.stretch]
    first = warm_up(g.bounds.shape[1] - 1)

    def spans(start: Floats, end: Floats, which: Ints) -> Spans:
        low, high = played.bounds[which, first], played.bounds[which, -1]
        edges = (np.clip(x, low, high) + which * 2 * span for x in (start, end))
        return union(*(np.rint(x).astype(np.int64) for x in edges))

    rank = lane[g.block_of_row]
    waited = np.minimum(played.waited, played.end)
    waiting = g.joint & (g.point == point)
    moves = waiting | (g.joint & g.point)
    work = np.flatnonzero(g.blocks.kind == KERNEL)
    above = spans(
        np.concatenate((played.block_end[work] - played.busy[work], np.where(moves, waited, played.begin))),
        np.concatenate((played.block_end[work], played.end)),
        np.concatenate((lane[work], rank)),
    )
    found = subtract(spans(played.begin[waiting], waited[waiting], rank[waiting]), above)
    return found.measure / float(g.bounds[:, first + 1 :].size)
