"""Which steps are replayed, and the records of every rank in them as a lane of the graph (METHODS h.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceview.analysis.instances import BLOCK
from traceview.analysis.ops import CLS, NONE, Ops, ints
from traceview.analysis.origin import TableSource
from traceview.analysis.replay.lane import Lane, lane
from traceview.analysis.replay.meet import Met
from traceview.analysis.replay.ops import COMM, COPY, KERNEL, Host, Recorded, blocking_calls, host_spans
from traceview.analysis.types import Ints, Windows
from traceview.config import Config

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


def lane_of(inputs: Inputs, chain: Chain, i: int, config: Config) -> Lane | None:
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
    found = host_spans(inputs.host_ranges(rank), lambda ns: true(ns + shift), config)
    calls = blocking_calls(record, found.sync, found.runtime, config)
    host = Host(calls, found.data, found.work)
    return lane(record, host, rank, true(bounds), config)
