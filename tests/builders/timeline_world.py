"""A small training job for the timeline's tests and benchmark: parts on disk, a result and the detail beside it.

Every rank runs the same kernels each step; one rank is slower, so the others wait in the last all-reduce of a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from traceview.analysis.phases import CODE
from traceview.analysis.types import Segments
from traceview.result import (
    BlameRow,
    Budget,
    Clock,
    Excluded,
    Finding,
    QualityInfo,
    RankRow,
    Result,
    RunInfo,
    StepRow,
    Steps,
    StragglerRow,
    Verdict,
    Where,
)
from traceview.run import PartMeta, Run, SourceMeta, write_part
from traceview.schema import COLL_KINDS, COLLECTIVES, GPU_CLASSES, GPU_OPS, HOST_KINDS, HOST_RANGES
from traceview_reports.html.timeline_data import Detail, RankDetail, origin_of

T0 = 1_790_000_000_000_000_000
KERNELS = ("sm90_xmma_gemm_bf16", "flash_fwd_kernel", "vectorized_elementwise_kernel", "layer_norm_kernel")
OPS = ("aten::mm", "aten::scaled_dot_product_attention", "aten::add_", "aten::native_layer_norm")


@dataclass
class World:
    """How large, who is late, and what strange names there are."""

    ranks: int = 4
    steps: int = 3
    kernels: int = 60
    late: int = 2
    per_host: int = 8
    kernel_ns: int = 80_000
    names: tuple[str, ...] = KERNELS
    seed: int = 1
    slow: float = 1.15
    offsets: bool = True
    host: bool = True


def _codes(table, names):
    return np.array([table.index(n) for n in names], np.int8)


def _segments(layers, start, end):
    """Segments of [start, end): ``layers`` are (phase, starts, ends), the strongest first."""
    cuts = np.unique(np.concatenate([[start, end], *[np.clip(a, start, end) for _, s, e in layers for a in (s, e)]]))
    phase = np.full(len(cuts) - 1, CODE["idle_launch"], np.int8)
    for name, s, e in reversed(layers):
        depth = np.zeros(len(cuts), np.int64)
        np.add.at(depth, np.searchsorted(cuts, np.clip(s, start, end)), 1)
        np.add.at(depth, np.searchsorted(cuts, np.clip(e, start, end)), -1)
        phase[np.cumsum(depth)[:-1] > 0] = CODE[name]
    return Segments(cuts, phase)


def _schedule(world: World, rank: int):
    """Times of one rank on the common axis: step begins, kernel starts and ends (steps, kernels)."""
    rng = np.random.default_rng([world.seed, rank])
    factor = world.slow if rank == world.late else 1.0
    dur = rng.gamma(4.0, world.kernel_ns / 4, (world.steps, world.kernels)) * factor + 1_000
    gap = rng.exponential(2_000, (world.steps, world.kernels)) + 500
    ends = np.cumsum(dur + gap, axis=1) + 600_000  # the step begins with loading data and a copy
    return (ends - dur).astype(np.int64), ends.astype(np.int64)


def build(folder: Path, world: World) -> tuple[Run, Result, Detail]:
    """Write the parts and return what the report is given."""
    busy = {r: _schedule(world, r) for r in range(world.ranks)}
    arrive = np.array([busy[r][1][:, -1] + 5_000 for r in range(world.ranks)])  # (ranks, steps)
    last = arrive.max(axis=0)
    begins = np.concatenate(([0], np.cumsum(last + 700_000)))
    parts, ranks = {}, {}
    for r in range(world.ranks):
        offset = (r * 37_003 - 90_000) if world.offsets else 0
        tables, detail = _rank(world, r, busy[r], arrive, last, begins, T0 - offset)
        meta = PartMeta(SourceMeta(f"rank{r}.json", "kineto"), rank=r, world_size=world.ranks)
        meta.host = f"node-{r // world.per_host:03d}"
        parts[r] = write_part(folder / str(r), meta, tables)
        ranks[r] = RankDetail(**detail, offset_ns=offset)
    run = Run("world", parts, world_size=world.ranks)
    return run, _result(world, begins, last, arrive), Detail(ranks, origin_of(ranks))


def _rank(world, r, busy, arrive, last, begins, base):
    k_start, k_end = ((a + begins[:-1, None]).ravel() + base for a in busy)
    steps, n = world.steps, world.kernels
    a_start = arrive[r] + begins[:-1] + base
    a_end = last + begins[:-1] + base + 400_000
    m_start = k_start.reshape(steps, n)[:, n // 2]  # a reduce-scatter under the second half of the kernels
    m_end = m_start + 900_000
    c_start = begins[:-1] + base + 450_000
    c_end = c_start + 120_000
    start = np.concatenate((k_start, a_start, m_start, c_start))
    end = np.concatenate((k_end, a_end, m_end, c_end))
    count = len(k_start)
    name = [world.names[i % len(world.names)] for i in range(count)]
    name += ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL"] * steps
    name += ["ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"] * steps + ["Memcpy HtoD (Pageable -> Device)"] * steps
    cls = ["compute"] * count + ["comm"] * (2 * steps) + ["pcie_h2d"] * steps
    order = np.lexsort((end, start))
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    launch = np.concatenate((k_start - 30_000, a_start - 40_000, m_start - 40_000, c_start - 20_000))
    zero = np.zeros(len(order), np.int64)
    size = np.concatenate((np.zeros(count + 2 * steps, np.int64), np.full(steps, 16_000_000)))
    gpu = GPU_OPS.build(
        {
            "device": zero,
            "stream": np.concatenate((np.full(count, 7), np.full(2 * steps, 20), np.full(steps, 9)))[order],
            "start": start[order],
            "end": end[order],
            "cls": _codes(GPU_CLASSES, cls)[order],
            "fused_comm": zero.astype(bool),
            "name": np.array(name, object)[order],
            "correlation": np.arange(len(order)) * 3 + 100,
            "launch_start": launch[order],
            "launch_end": launch[order] + 5_000,
            "launch_thread": zero + 1,
            "bytes": size[order],
        },
        stored=True,
    )
    c_order = np.lexsort((np.concatenate((a_start, m_start)),))
    op = back[count : count + 2 * steps][c_order]
    coll_start, coll_end = np.concatenate((a_start, m_start))[c_order], np.concatenate((a_end, m_end))[c_order]
    kind = np.concatenate((np.zeros(steps, np.int8), np.ones(steps, np.int8)))[c_order]
    m = 2 * steps
    colls = COLLECTIVES.build(
        {
            "op": op,
            "device": np.zeros(m, np.int64),
            "stream": np.full(m, 20),
            "start": coll_start,
            "end": coll_end,
            "kind": np.where(kind == 0, COLL_KINDS.index("allreduce"), COLL_KINDS.index("reduce_scatter")).astype(
                np.int8
            ),
            "group": np.array(["0"] * m, object),
            "group_desc": np.array(["default_pg"] * m, object),
            "members": np.array([f"0-{world.ranks - 1}"] * m, object),
            "group_size": np.full(m, world.ranks),
            "seq": np.arange(m),
            "p2p": np.zeros(m, bool),
            "dtype": np.array(["bfloat16"] * m, object),
            "bytes": np.full(m, 50_000_000),
            "coalesced": np.ones(m, np.int64),
            "facts": np.zeros(m, np.int8),
            "name": np.array(name, object)[count : count + m][c_order],
        },
        stored=True,
    )
    wait_a = np.concatenate((last + begins[:-1] + base, m_start + 20_000))[c_order]
    tables = {"gpu_ops": gpu, "collectives": colls}
    if world.host:
        tables["host_ranges"] = _hosts(world, k_start, begins[:-1] + base)
    waits = np.flatnonzero(kind == 0)
    layers = [
        ("compute.plain", k_start, k_end),
        ("comm_transfer.nxn", wait_a, coll_end),
        ("comm_wait.nxn", coll_start[waits], wait_a[waits]),
        ("pcie_h2d.pageable", c_start, c_end),
        ("idle_data", begins[:-1] + base, c_start),
    ]
    segments = _segments(layers, int(begins[0] + base), int(begins[-1] + base))
    step_of = np.concatenate((np.arange(steps), np.arange(steps)))[c_order]
    late = np.where((kind == 0) & (wait_a > coll_start), arrive.argmax(axis=0)[step_of], -1)
    detail = {
        "step": np.arange(steps),
        "step_start": begins[:-1] + base,
        "step_end": begins[1:] + base,
        "wait_end": wait_a,
        "second": np.zeros(m, np.int8),
        "sub": np.zeros(m, np.int8),
        "late_rank": late,
        "instance": np.arange(m),
        "segments": segments,
    }
    return tables, detail


def _hosts(world, k_start, begins):
    op_s, op_e = k_start - 34_000, k_start - 20_000
    rt_s, rt_e = k_start - 30_000, k_start - 25_000
    start = np.concatenate((op_s, rt_s, begins))
    end = np.concatenate((op_e, rt_e, begins + 440_000))
    n = len(k_start)
    name = [OPS[i % len(OPS)] for i in range(n)] + ["cudaLaunchKernel"] * n + ["DataLoader.__next__"] * world.steps
    kind = ["op"] * n + ["runtime"] * n + ["data"] * world.steps
    order = np.lexsort((-end, start))
    return HOST_RANGES.build(
        {
            "thread": np.ones(len(order), np.int64),
            "start": start[order],
            "end": end[order],
            "kind": _codes(HOST_KINDS, kind)[order],
            "name": np.array(name, object)[order],
        },
        stored=True,
    )


def _result(world, begins, last, arrive) -> Result:
    steps = list(range(1, world.steps)) or [0]
    hosts: dict[str, list[int]] = {}
    for r in range(world.ranks):
        hosts.setdefault(f"node-{r // world.per_host:03d}", []).append(r)
    lost = int((last - arrive).sum())
    blame = (world.late, "node-000", lost, lost, lost)
    slow = StragglerRow(*blame, world.steps, world.steps, "persistent", "compute_slower", {})
    marks = Steps("profiler_step", steps, [Excluded(0, "the first")])
    ranks = list(range(world.ranks))
    return Result(
        verdict=Verdict("rank is late", "proved"),
        run=RunInfo("world", world.ranks, ranks, [], hosts, [], marks),
        budget=Budget(0, {}, {}, {}),
        window_rows=[],
        metrics={},
        collective_rows=[],
        straggler_rows=[slow] if world.ranks > 1 else [],
        clock=Clock(0, [], []),
        findings=[Finding("late", "late", 1, "b", "proved", [], "a", Where(world.late, steps[-1]))],
        quality=QualityInfo(),
        step_rows=[StepRow(s, int(begins[s + 1] - begins[s]), 0, 0, {}, world.late) for s in steps],
        rank_rows=[
            RankRow(r, f"node-{r // world.per_host:03d}", 0, "H100", 0, {"compute": int(arrive[r].sum())}, {})
            for r in range(world.ranks)
        ],
        blame=[BlameRow(*blame, lost, 0, 0)] if world.ranks > 1 else [],
    )
