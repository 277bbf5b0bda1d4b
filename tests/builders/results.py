"""Results as the analysis would give them, coherent by construction: leaves sum to windows, windows to budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from traceview import units
from traceview.config import DEFAULT
from traceview.result import (
    ArrivalRow,
    BlamePlaceRow,
    BlameRow,
    Budget,
    Clock,
    CollectiveRow,
    CopyRow,
    Excluded,
    Finding,
    HostClock,
    IdleRow,
    KernelRow,
    MatchRow,
    MemoryRow,
    Metric,
    PathRow,
    QualityInfo,
    RankClock,
    RankRow,
    Result,
    RunInfo,
    Source,
    StepRow,
    Steps,
    StragglerRow,
    Unclassified,
    Verdict,
    Where,
    Window,
    group_ns,
)
from traceview.schema import LEAVES

MS = 1_000_000
Profile = Callable[[int, int], dict[str, int]]
EVIL = 'evil</script><img src=x onerror="window.PWN=1">\u2028{0.__class__}{1}%s[red]\x1b[31m\'"&'
EVIL_LONG = "z" * 4096 + EVIL


def leaves(**ms: float) -> dict[str, int]:
    """All leaves in ns from milliseconds; ``wait`` and ``p2p`` are the two halves of comm_wait."""
    out = dict.fromkeys(LEAVES, 0)
    for name, value in ms.items():
        out["comm_wait" if name in ("wait", "p2p") else name] += round(value * MS)
    return out


def build(ranks: int, steps: int, profile: Profile, hosts_of: int = 8, **fields: Any) -> Result:
    """A result whose windows are ``profile(rank, step)`` in leaf milliseconds (see ``leaves``)."""
    windows = [_window(r, k, profile(r, k)) for r in range(ranks) for k in range(1, steps + 1)]
    leaf_sum, sub_sum = _total(windows, "leaves_ns"), _total(windows, "sub_ns")
    wall = sum(w.end_ns - w.start_ns for w in windows)
    budget = Budget(wall, leaf_sum, sub_sum, {g: ns / wall for g, ns in group_ns(leaf_sum, sub_sum).items()})
    hosts = {
        f"node-{h:03d}": list(range(h * hosts_of, min(ranks, (h + 1) * hosts_of)))
        for h in range(-(-ranks // hosts_of))
    }
    host = {r: h for h, members in hosts.items() for r in members}
    step_rows = [_step([w for w in windows if w.step == k]) for k in range(1, steps + 1)]
    median = sorted(s.wall_ns for s in step_rows)[(len(step_rows) - 1) // 2]
    base: dict[str, Any] = {
        "verdict": Verdict("Healthy.", "proved"),
        "run": RunInfo(
            "llama-13b-pretrain",
            ranks,
            list(range(ranks)),
            [],
            hosts,
            [_source(r) for r in range(ranks)],
            Steps("profiler_step", list(range(1, steps + 1)), [Excluded(0, "first recorded step")]),
            ["NVIDIA H100 80GB HBM3"],
        ),
        "budget": budget,
        "window_rows": windows,
        "metrics": {
            "step_time": Metric(float(median), "ns", steps, "median over steps of the median window", "proved"),
            "goodput": Metric(
                budget.shares["compute"], "fraction", len(windows), "compute share less excess", "proved"
            ),
            "overlap_transfer": Metric(0.612, "fraction", len(windows), "transfer beside compute", "proved"),
        },
        "collective_rows": [],
        "straggler_rows": [],
        "clock": Clock(0, [], []),
        "findings": [],
        "quality": QualityInfo(),
        "step_rows": step_rows,
        "rank_rows": [_rank(r, host[r], [w for w in windows if w.rank == r]) for r in range(ranks)],
        "kernels": [
            KernelRow(
                "ampere_bf16_s16816gemm_bf16_128x256",
                "compute",
                4_000 * ranks,
                900 * MS * ranks,
                225_000,
                300_000,
                ranks,
                "aten::mm",
            ),
            KernelRow(
                "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
                "comm",
                100 * ranks,
                90 * MS * ranks,
                900_000,
                5 * MS,
                ranks,
                "c10d::allreduce_",
            ),
        ],
        "thresholds": DEFAULT.as_dict(),
        "tool_version": "0.1.0",
    }
    return Result(**(base | fields))


def _window(rank: int, step: int, ms: dict[str, float]) -> Window:
    leaf = leaves(**ms)
    start = 1_700_000_000_000_000_000 + step * 1_000 * MS
    sub = {"comm_wait.nxn": round(ms.get("wait", 0) * MS), "comm_wait.p2p": round(ms.get("p2p", 0) * MS)}
    return Window(rank, 0, step, start, start + sum(leaf.values()), leaf, sub)


def _total(rows: list[Any], field: str) -> dict[str, int]:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(getattr(row, field))
    return dict(total)


def _step(windows: list[Window]) -> StepRow:
    spans = sorted((w.end_ns - w.start_ns, w.rank) for w in windows)
    return StepRow(
        windows[0].step,
        spans[(len(spans) - 1) // 2][0],
        spans[0][0],
        spans[-1][0],
        _total(windows, "leaves_ns"),
        spans[-1][1],
        _total(windows, "sub_ns"),
    )


def _rank(rank: int, host: str, windows: list[Window]) -> RankRow:
    wall = sum(w.end_ns - w.start_ns for w in windows)
    return RankRow(
        rank, host, 0, "NVIDIA H100 80GB HBM3", wall, _total(windows, "leaves_ns"), _total(windows, "sub_ns")
    )


def _source(rank: int) -> Source:
    return Source(f"traces/rank{rank}.json.gz", "kineto", "C2", rank, 10_400_000, 81_234, 0, 0, 0, False)


def healthy(ranks: int = 8, steps: int = 10) -> Result:
    """Everything as it should be."""
    return build(
        ranks,
        steps,
        lambda r, k: {"compute": 560 + (r * k) % 5, "comm_transfer": 22, "wait": 2, "idle_launch": 4},
        verdict=Verdict(
            "Healthy: 94.9 % of the rank time is compute.",
            "proved",
            "healthy",
            slow="589 ms a step, within 1 % of this run's own best",
            coverage=f"ranks {ranks}/{ranks}  steps {steps} of {steps + 1}  clocks A",
            rule_outs="stragglers 0.3 % | input 0.0 % | copies 0.0 % | host 0.7 %",
            next="exposed all-reduce, 22 ms a step",
        ),
        clock=Clock(0, [HostClock("node-000", 0, 0.0, 0.0, 0, "A", 0, 0, 200)], []),
    )


def _by_place(host: str, victims: int, ranks: int) -> list[BlamePlaceRow]:
    """The ledger of one culprit on ``host`` by place."""
    every, quality = units.ranks(list(range(ranks))), "proved"
    rail = "assumed: equal local ranks of all hosts share a rail"
    return [
        BlamePlaceRow("host", host, every, victims, victims, victims, victims, 0, quality, "the traces"),
        BlamePlaceRow("rail", "local rank 1", "1,3", victims, victims, victims, 0, 0, "estimated", rail),
        BlamePlaceRow("rail", "(not told)", "0,2", 0, 0, 0, victims, 0, "estimated", ""),
        BlamePlaceRow(
            "collective", "0 allreduce", every, victims - 7, None, victims, victims, 0, quality, "the traces"
        ),
        BlamePlaceRow("collective", "0 allgather", every, 7, None, 7, 7, 0, quality, "the traces"),
    ]


def slow_rank(ranks: int = 8, steps: int = 10, culprit: int = 3) -> Result:
    """One rank computes 10 % slower; the others wait."""
    wait = 58

    def profile(r: int, k: int) -> dict[str, float]:
        slow = r == culprit
        return {
            "compute": 418 + (0 if not slow else wait) + (r * 7 + k) % 3,
            "comm_transfer": 60,
            "wait": 0 if slow else wait,
            "pcie_h2d": 6,
            "idle_host": 12,
            "idle_data": 3 + 40 * (k == 7),
            "gpu_memset": 1,
        }

    victims = (ranks - 1) * wait * MS * steps
    origin = Where(culprit, 5, 1_700_000_005_000_000_000, 1_700_000_005_600_000_000)
    host = f"node-{culprit // 8:03d}"
    result = build(
        ranks,
        steps,
        profile,
        verdict=Verdict(
            f"Rank {culprit} on {host} computes 1.14x slower than its peers and costs 58 ms a step.",
            "proved",
            "slow",
            slow="560 ms a step, 11.5 % over what it would take without the slow rank (502 ms)",
            coverage=f"ranks {ranks}/{ranks}  steps {steps} of {steps + 1}  clocks A",
            cause=f"rank {culprit} on {host} computes 1.14x slower than its peers and costs 58 ms a step; "
            f"{ranks - 1} others wait in {steps}/{steps} steps, 190/200 collectives",
            cost="58 ms a step on 7 ranks = 0.9 GPU-h a day; if fixed: 502 ms +- 3",
            do=f"cordon {host}, check clocks and temperature of GPU 3, restart",
            owner="hardware",
            rule_outs="network 0.91 of its bound | input 0.5 % | copies 1.1 % | host 2.2 %",
            next="exposed all-reduce, 60 ms a step",
            ticket=f"host {host}  rank {culprit}  GPU 3 NVIDIA H100 80GB HBM3\n"
            "window 2023-11-14T22:13:25Z .. 22:13:35Z, steps 1-10\n"
            "same kernels 1.14x slower than the median of 7 peers in 10/10 steps\n"
            f"traceview analyze traces/ --focus rank={culprit}",
        ),
        straggler_rows=[
            StragglerRow(
                culprit,
                host,
                victims,
                victims,
                victims + 30 * MS,
                steps,
                steps,
                "persistent",
                "compute_slower",
                {"compute": 58 * MS, "idle_host": 1 * MS, "comm_wait": -58 * MS},
                last_ns=victims,
                marginal_ns=victims,
                last_count=190,
                collectives=200,
                names=["flash_fwd_kernel 1.15x", "gemm_128x256 1.14x"],
                reference_rank=4,
                explanation="the same kernels take 1.14x the median of the peers",
                quality="proved",
            )
        ],
        blame=[BlameRow(culprit, host, victims, victims, victims + 30 * MS, victims, victims, 0)],
        blame_by=_by_place(host, victims, ranks),
        blame_by_untold={"stage": "no group is described as a pipeline", "replica": "no group is data parallel"},
        collective_rows=[
            CollectiveRow(
                "default_pg",
                "allreduce",
                "64-128 MB",
                100 * steps,
                100 * steps,
                victims,
                ranks * steps * 48 * MS,
                ranks * steps * 40 * MS,
                92.0,
                161.0,
                "intra-host",
                370.0,
                0.43,
                ranks,
                67_108_864,
                "degraded",
            ),
            CollectiveRow(
                "default_pg",
                "allgather",
                "1-2 MB",
                80 * steps,
                80 * steps,
                3 * MS,
                ranks * steps * 14 * MS,
                ranks * steps * 20 * MS,
                20.0,
                17.5,
                "intra-host",
                370.0,
                None,
                ranks,
                1_500_000,
                "too small for a verdict",
            ),
        ],
        copies=[
            CopyRow("pcie_h2d", "pageable", 80 * steps, 400_000_000, 80 * MS, 40 * MS, 4.9, 40),
            CopyRow("pcie_h2d", "pinned", 80 * steps, 4_000_000_000, 160 * MS, 8 * MS, 24.8, 80),
        ],
        idle=[
            IdleRow("idle_host", "", ranks * steps * 12 * MS),
            IdleRow(
                "idle_data", "DataLoader", ranks * (3 * steps + 40) * MS, ["enumerate(DataLoader)#_SingleProcess"]
            ),
        ],
        memory=[MemoryRow(r, 0, 61_000_000_000 + r * 10_000_000, 70_000_000_000, 0) for r in range(min(ranks, 8))],
        clock=Clock(
            0,
            [HostClock("node-000", 0, 0.0, 1_200.0, 8_400, "A", 0, 0, 200)],
            [RankClock(2, 0, 4_200)],
            "A",
            {"default_pg": 1_900},
        ),
        matching=[MatchRow("default_pg", units.ranks(list(range(ranks))), "K1", 180 * steps, 180 * steps, 0, 0, 0)],
        arrivals=[
            ArrivalRow(
                "default_pg",
                "allreduce",
                r,
                100 * steps,
                (58 if r == culprit else 0) * MS,
                190 if r == culprit else 1,
            )
            for r in range(ranks)
        ],
        critical_path=[
            PathRow(k, 538 * MS, leaves(compute=477, comm_transfer=48, idle_host=13), [0, culprit, 0])
            for k in range(1, steps + 1)
        ],
        findings=[
            Finding(
                "straggler",
                f"Rank {culprit} is 14 % slower than its peers",
                58 * MS,
                "rebalanced step",
                "proved",
                [
                    f"{ranks - 1} of {ranks} ranks wait 58 ms in all-reduce for it, in {steps} of {steps} steps",
                    "the same kernels take 1.14x the median of the peers",
                ],
                f"Check clocks, power cap and temperature of GPU 3 on {host}, or drain the node.",
                origin,
                "hardware",
                "stragglers",
            ),
            Finding(
                "exposed_comm",
                "Two thirds of the all-reduce time is exposed",
                40 * MS,
                "perfect overlap",
                "likely",
                ["overlap of transfer 61.2 %", "161 GB/s busbw of 370 expected"],
                "Start gradient buckets earlier: smaller first bucket, or overlap_grad_reduce.",
                Where(0, 5, origin.start_ns, origin.end_ns),
                "launch configuration",
                "communication",
            ),
            Finding(
                "pageable",
                "Input batches are copied from pageable memory",
                5 * MS,
                "exposed staging",
                "possible",
                ["pageable copies run at 4.9 GB/s, pinned ones at 24.8 GB/s"],
                "Set pin_memory=True.",
                Where(0, 1),
                "input pipeline",
                "copies",
            ),
        ],
        quality=QualityInfo(assumptions=["bound of intra-host groups is from the device name: NVLink 450 GB/s"]),
    )
    result.step_rows[min(6, steps - 1)].outlier = True
    result.rank_rows[culprit].late_ns = 58 * MS * steps
    result.metrics["busbw"] = Metric(161.0, "GB/s", 100 * steps, "allreduce 64-128 MB on default_pg", "proved")
    result.metrics["busbw_of_bound"] = Metric(0.43, "fraction", 100 * steps, "161 of 370 GB/s", "estimated")
    return result


def exposed_comm() -> Result:
    """Communication that nothing hides, no straggler."""
    return build(
        4,
        6,
        lambda r, k: {"compute": 100, "comm_transfer": 80, "comm_unresolved": 10, "wait": 1, "p2p": 20},
        verdict=Verdict(
            "Exposed communication takes 42.7 % of the rank time.",
            "likely",
            "slow",
            slow="211 ms a step",
            cause="all-reduce starts after the backward pass",
            coverage="ranks 4/4  steps 6 of 7",
        ),
    )


def cpu_only() -> Result:
    """gloo on the CPU: no GPU, no clocks worth a name."""
    return build(
        2,
        4,
        lambda r, k: {"comm_host": 12, "idle_host": 50, "idle_data": 20 + 5 * r, "uncovered": 1},
        verdict=Verdict(
            "The GPU was never used: this is a CPU run.",
            "cannot tell",
            "cannot_tell",
            do="record with ProfilerActivity.CUDA if GPUs are used",
            coverage="ranks 2/2  steps 4 of 5",
        ),
        kernels=[],
    )


def one_rank() -> Result:
    """A single process: nothing to compare with."""
    return build(
        1,
        3,
        lambda r, k: {"compute": 30, "pcie_h2d": 9, "idle_sync": 11.125, "gpu_d2d": 0.5},
        verdict=Verdict(
            "Cannot tell who straggles: 1 of 8 ranks was given.",
            "cannot tell",
            "cannot_tell",
            slow="50.6 ms a step",
            coverage="ranks 1/8  steps 3 of 4",
            do="record all ranks",
        ),
    )


def many(ranks: int = 512, steps: int = 20) -> Result:
    """The scale case."""
    return slow_rank(ranks, steps, culprit=331)


def everything_wrong() -> Result:
    """Every list filled, every counter raised."""
    result = slow_rank(8, 10)
    result.run.missing_ranks = [8, 9, 10, 15]
    result.run.world_size = 16
    result.run.steps.excluded.append(Excluded(11, "record ends before the step does"))
    result.run.sources[2].truncated = True
    result.run.sources[2].dropped = 41
    result.run.sources[2].warnings = ["cut after 10.4 MB; counts of rank 2 are floors"]
    result.rank_rows[2].truncated = True
    result.quality = QualityInfo(
        12,
        3,
        41,
        7,
        1_200,
        [Unclassified("my_company::secret_kernel<int>", 40 * MS)],
        ["ranks 8-10,15 are missing", "two files claim rank 5: traces/b.json is ignored"],
        6,
        3,
        ["NIC speed unknown"],
    )
    result.clock.hosts.append(HostClock("?rank7", -1_203_456, 12.5, 61_000.0, 400_000, "C", 3, 1, 12))
    result.clock.grade = "C"
    result.matching.append(MatchRow("tp_0", "0-7", "K3", 400, 310, 60, 30, 12, "counts differ between ranks"))
    return result


def hostile() -> Result:
    """Every text field of the result is an attack."""
    result = slow_rank(4, 3, culprit=1)
    return Result.from_json(_poison(result))


def _poison(result: Result) -> bytes:
    keep = {"status", "quality", "schema", "unit", "confidence", "section"}

    def walk(value: Any, key: str = "") -> Any:
        if isinstance(value, str):
            return value if key in keep else (EVIL_LONG if len(value) > 40 else EVIL)
        if isinstance(value, list):
            return [walk(v, key) for v in value]
        if isinstance(value, dict):
            return {k + EVIL * k.startswith("node-"): walk(v, k) for k, v in value.items()}
        return value

    return msgspec.json.encode(walk(msgspec.to_builtins(result)))


ALL: dict[str, Callable[[], Result]] = {
    "healthy": healthy,
    "slow_rank": slow_rank,
    "exposed_comm": exposed_comm,
    "cpu_only": cpu_only,
    "one_rank": one_rank,
    "many": many,
    "everything_wrong": everything_wrong,
    "hostile": hostile,
}
