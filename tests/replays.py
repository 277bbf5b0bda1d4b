"""Inputs of a replay from worked examples and from hand-made operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from scenarios import Scenario, ns
from traceview.analysis.groups import columns
from traceview.analysis.match import match
from traceview.analysis.replay.chain import Inputs
from traceview.analysis.replay.meet import Met
from traceview.analysis.timebase import TimeBase
from traceview.analysis.types import Windows
from traceview.analysis.waits import waits
from traceview.schema import GPU_OPS, HOST_RANGES


def inputs_of(s: Scenario) -> Inputs:
    """Inputs of a scenario whose windows are given: one step, clocks as they are."""
    table = s.collectives()
    step = np.zeros(len(table), np.int64)
    found = match(table, step, len(s.ranks))
    base = TimeBase.identity(max(s.ranks) + 1)
    rank, op = table["rank"].to_numpy(), table["op"].to_numpy()
    return Inputs(
        met=Met(columns(table), found, waits(table, found, eps_ns=0), base, 0),
        windows=s.windows(),
        step_of_row=step,
        gpu_ops=s.gpu_ops,
        gpu_rows=lambda r: s.gpu_ops(r).num_rows,
        host_ranges=s.host_ranges,
        op_of_row=lambda r: op[rank == r],
        host_shift=lambda r: 0,
    )


def of_table(table: Any, step: Any, windows: Windows, eps_ns: int = 0) -> Inputs:
    """Inputs of a ``jobs.Job``: between its collectives every rank computes, on a stream of its own."""
    ranks = np.unique(table["rank"].to_numpy()).tolist()
    found = match(table, step, len(ranks), dict.fromkeys(ranks, "a"))
    base = TimeBase.identity(len(ranks))
    rank = table["rank"].to_numpy()

    def gpu_ops(r: int) -> Any:
        rows = np.flatnonzero(rank == r)
        start, end = (table[k].to_numpy()[rows] for k in ("start", "end"))
        idle = np.append(int(windows.start[windows.rank == r].min()), end[:-1])
        busy = np.flatnonzero(start > idle)
        comm = zip(start, end, 0 * start + 20, len(rows) * ["comm"], strict=True)
        both = [*((idle[i], start[i], 7, "compute") for i in busy), *comm]
        return GPU_OPS.build(table_of(r, sorted(both)))

    def op_of_row(r: int) -> Any:
        ops = gpu_ops(r)
        comm = np.flatnonzero(np.array(ops["cls"].to_pylist()) == "comm")
        return comm

    return Inputs(
        met=Met(columns(table), found, waits(table, found, base, eps_ns=eps_ns), base, 0),
        windows=windows,
        step_of_row=step,
        gpu_ops=gpu_ops,
        gpu_rows=lambda r: gpu_ops(r).num_rows,
        host_ranges=lambda r: HOST_RANGES.empty(),
        op_of_row=op_of_row,
        host_shift=lambda r: 0,
    )


def table_of(rank: int, ops: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Columns of ``gpu_ops`` from (start, end, stream, class)."""
    start, end, stream, cls = (list(x) for x in zip(*ops, strict=True))
    n = len(ops)
    return {
        "rank": [rank] * n,
        "device": [0] * n,
        "stream": stream,
        "start": start,
        "end": end,
        "cls": cls,
        "fused_comm": [False] * n,
        "name": cls,
    }


def timed(ops: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Operations of ``check/extras.json`` with begin and end, by the rule of its description."""
    done: dict[str, dict[str, Any]] = {}
    while len(done) < len(ops):
        for group in _together(ops):
            if all(o["id"] not in done and _ready(o, ops, done) is not None for o in group):
                starts = [_ready(o, ops, done) for o in group]
                for o, start in zip(group, starts, strict=True):
                    done[o["id"]] = o | {"s": start, "e": max(starts) + o["dur"]}
    return [done[o["id"]] for o in ops]


def _together(ops: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    names = list(dict.fromkeys(o.get("coll", o["id"]) for o in ops))
    return [[o for o in ops if o.get("coll", o["id"]) == name] for name in names]


def _ready(o: dict[str, Any], ops: list[dict[str, Any]], done: dict[str, Any]) -> float | None:
    queue = [p for p in ops if (p["rank"], p["stream"]) == (o["rank"], o["stream"])]
    before = [p["id"] for p in queue[: queue.index(o)]][-1:] + o.get("deps", [])
    if any(p not in done for p in before):
        return None
    return max([o.get("release", 0), *(done[p]["e"] for p in before)])


def of_ops(ops: list[dict[str, Any]]) -> Inputs:
    """Inputs of operations as in ``check/extras.json``: recorded as their rule plays them, launched in list order."""
    found = timed(ops)
    last = max(o["e"] for o in found)
    ranks: dict[str, Any] = {}
    for o in found:
        lane = ranks.setdefault(str(o["rank"]), {"window": [0, last], "gpu": [], "host": []})
        comm = {"cls": "comm", "coll": o["coll"], "bytes": 4000} if "coll" in o else {"cls": "compute"}
        launch = o.get("release", 0.0)
        lane["gpu"].append(comm | {"s": o["s"], "e": o["e"], "stream": o["stream"], "ls": launch})
    return inputs_of(Scenario("W", {"ranks": ranks}))


__all__ = ["inputs_of", "ns", "of_ops", "timed"]
