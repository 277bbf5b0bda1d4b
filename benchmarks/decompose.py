"""Speed of the exclusive decomposition against a plain sweep over all 2 N ends, in one process.

    python benchmarks/decompose.py [operations]

Prints sorted intervals per CPU second of both, their ratio, and checks that they agree. The plain sweep sorts the
2 N ends and counts the active operations of each class. ``whole rank`` is everything that ``decompose`` does from
the table on: reading columns, gaps, idle causes, windows, owners of exposed time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from traceview.analysis.coactivity import tabulate
from traceview.analysis.decompose import RankRecord, decompose
from traceview.analysis.intervals import complement, join
from traceview.analysis.layers import layers, pieces
from traceview.analysis.ops import CLS, NONE, Ops
from traceview.analysis.phases import CODE, bits
from traceview.analysis.types import NXN, TRANSFER, OpPhases, Windows
from traceview.schema import GPU_OPS, HOST_RANGES


def gpu_like(n: int) -> Ops:
    """Kernels of some streams: 86 % compute, 6 % communication, 8 % copies, sorted by start; launches 30 µs ahead."""
    rng = np.random.default_rng(1)
    cls = rng.choice(np.array([CLS["compute"], CLS["comm"], CLS["pcie_h2d"]], np.int8), n, p=[0.86, 0.06, 0.08])
    start = np.cumsum(rng.integers(0, 12_000, n))
    length = np.where(cls == CLS["comm"], rng.integers(20_000, 400_000, n), rng.integers(1_000, 15_000, n))
    zeros = np.zeros(n, np.int64)
    return Ops(zeros, start, start + length, cls, zeros > 0, np.full(n, -1, np.int8), start - 30_000, zeros + 1)


def core(ops: Ops, phases: OpPhases, bounds: Any) -> Any:
    """Unions by phase, then one sweep over them."""
    found = layers(*pieces(ops, phases))
    start, end = int(bounds[0]), int(bounds[-1])
    found[CODE["idle_unknown"]] = complement(join(list(found.values())), start, end)
    return tabulate(found, bounds[:-1], bounds[1:])[0]


def plain(ops: Ops) -> Any:
    """ns per set of classes, by a sweep over all ends."""
    times = np.concatenate((ops.start, ops.end))
    order = np.argsort(times, kind="stable")
    times = times[order]
    step = np.repeat(np.array([1, -1], np.int8), len(ops))[order]
    cls = np.concatenate((ops.cls, ops.cls))[order]
    mask = np.zeros(len(times), np.uint8)
    for bit, name in enumerate(("compute", "comm", "pcie_h2d")):
        active = np.cumsum(np.where(cls == CLS[name], step, 0), dtype=np.int32) > 0
        mask |= active.astype(np.uint8) << np.uint8(bit)
    return np.bincount(mask, weights=np.diff(times, append=times[-1]), minlength=8).astype(np.int64)


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of the better of two runs, and the value."""
    seconds = []
    for _ in range(2):
        begin = time.process_time()
        value = work()
        seconds.append(time.process_time() - begin)
    return min(seconds), value


def main(n: int) -> None:
    ops = gpu_like(n)
    zeros = np.zeros(n, np.int8)
    phases = OpPhases(np.arange(n), ops.start.copy(), zeros + np.int8(TRANSFER), zeros + np.int8(NXN))
    bounds = np.linspace(ops.start[0], ops.end.max(), 11).astype(np.int64)
    ours, table = cpu(lambda: core(ops, phases, bounds))
    theirs, sums = cpu(lambda: plain(ops))
    classes = (bits("compute"), bits("comm_transfer"), bits("pcie_h2d"))
    index = sum(((table.masks & c) != 0).astype(np.int64) << k for k, c in enumerate(classes))
    got = np.bincount(index, weights=table.ns.sum(axis=0), minlength=8).astype(np.int64)
    if not np.array_equal(got, sums):
        raise SystemExit(f"the two sweeps differ: {got} {sums}")
    print(f"{n:,} sorted intervals, 3 classes, 10 windows")
    print(f"plain sweep of 2 N ends   {theirs:6.2f} CPU-s   {n / theirs / 1e6:5.1f} M intervals/CPU-s")
    print(f"exclusive decomposition   {ours:6.2f} CPU-s   {n / ours / 1e6:5.1f} M intervals/CPU-s")
    print(f"plain / exclusive         {theirs / ours:6.2f}")
    whole = whole_rank(ops, phases, bounds)
    print(f"whole rank                {whole:6.2f} CPU-s   {n / whole / 1e6:5.1f} M operations/CPU-s")


def whole_rank(ops: Ops, phases: OpPhases, bounds: Any) -> float:
    """CPU seconds of ``decompose`` on the same operations as a declared table."""
    n = len(ops)
    columns = {
        "rank": np.zeros(n, np.int32),
        "device": ops.device.astype(np.int32),
        "stream": ops.device,
        "start": ops.start,
        "end": ops.end,
        "cls": ops.cls,
        "fused_comm": ops.fused,
        "name": ["k"] * n,
        "launch_start": ops.launch,
        "launch_thread": ops.thread,
    }
    step = np.arange(len(bounds) - 1)
    windows = Windows(step * 0, step * 0, step, bounds[:-1], bounds[1:], step >= 0)
    record = RankRecord(0, GPU_OPS.build(columns), HOST_RANGES.empty(), phases, None, [], NONE)
    return cpu(lambda: decompose(record, windows))[0]


if __name__ == "__main__":
    main(int(float(sys.argv[1])) if len(sys.argv) > 1 else 3_000_000)
