"""Random jobs for property tests: layouts and faults that can be combined, small enough to run by the hundred."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from simulator import job as f
from simulator.job import Job
from simulator.network import Network

MS = 1_000_000
LAYOUTS = (("dp", 1, 1), ("fsdp", 1, 1), ("tp", 2, 1), ("pp", 1, 2), ("ep", 1, 1))


def _slowness(ranks: int, hosts: int) -> list[st.SearchStrategy[f.Fault]]:
    rank = st.integers(0, ranks - 1)
    return [
        st.builds(f.SlowRank, rank, st.sampled_from([1.1, 1.5, 2.0]), st.integers(0, 3), st.sampled_from([0.0, 0.1])),
        st.builds(f.SlowNode, st.integers(0, hosts - 1), st.just(1.25)),
        st.builds(f.SlowLink, st.sampled_from(["nv:0", "pcie:1", "nic:0:0", "spine"]), st.sampled_from([0.1, 0.5])),
        st.builds(f.LossyNic, st.integers(0, hosts - 1), st.integers(2, 5), st.just(3 * MS)),
        st.builds(f.SharedNic),
        st.builds(f.HostStaged),
        st.builds(f.PageableCopies),
        st.builds(f.SlowLoader, st.sampled_from([5 * MS, 40 * MS]), st.none() | st.tuples(rank)),
        st.builds(f.AllocatorStorm, rank, st.just(2 * MS)),
        st.builds(f.Checkpoint, st.integers(1, 4), st.just(20 * MS)),
        st.builds(f.LaunchBound, st.sampled_from([50_000, 2 * MS])),
        st.builds(f.HostReads, st.integers(1, 2)),
        st.builds(f.SingleQueue),
    ]


def _losses(ranks: int, layout: str) -> list[st.SearchStrategy[f.Fault]]:
    """What goes wrong in the record rather than in the run; only sequence numbers bring such ranks together.

    Point to point has none in common, so a pipeline that starts late on one rank stays unresolved in part.
    """
    rank = st.integers(0, ranks - 1)
    late = st.builds(f.LateStart, rank, st.integers(1, 2), st.sampled_from([0, 5 * MS]))
    return [
        *([] if layout == "pp" else [late]),
        st.builds(f.MissingFirstCollectives, rank, st.integers(1, 4)),
        st.builds(f.OverflowedDurations, rank, st.integers(1, 2)),
        st.builds(f.AxisShift, rank, st.sampled_from([-30_000, 30_000])),
        st.builds(f.DroppedStart, rank, st.integers(1, 8)),
        st.builds(f.HostPauses, st.just(60 * MS), st.just(2)),
    ]


@st.composite
def jobs(
    draw: Any,
    layouts: tuple[str, ...] = ("dp", "fsdp", "tp", "pp", "ep"),
    *,
    clocks: bool = False,
    losses: bool = False,
    tick: int = 1,
) -> Job:
    """A job of 2 to 8 ranks, 4 steps and up to three faults.

    With ``clocks`` its hosts disagree about the time, with ``losses`` its record has up to two faults of its own.
    """
    layout, tp, pp = draw(st.sampled_from([x for x in LAYOUTS if x[0] in layouts]))
    # only an n x n collective over hosts ties their clocks together: a pipeline alone does not
    hosts = 1 if layout == "pp" else draw(st.sampled_from([2] if clocks else [1, 2]))
    per_host = draw(st.sampled_from([2, 4] if layout in ("tp", "pp") else [1, 2, 3]))
    ranks = max(2, hosts * per_host)
    hosts = hosts if ranks % hosts == 0 else 1
    found: list[f.Fault] = draw(st.lists(st.one_of(_slowness(ranks, hosts)), max_size=3))
    if losses:
        found += draw(st.lists(st.one_of(_losses(ranks, layout)), max_size=2))
    if layout == "pp":
        found += draw(st.lists(st.builds(f.StageImbalance, st.integers(0, pp - 1), st.just(1.3)), max_size=1))
    if layout == "ep":
        loads = st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=ranks, max_size=ranks)
        routed = st.builds(f.Routing, loads.map(tuple), st.sampled_from(["", "step", "layer"]), st.booleans())
        found += draw(st.lists(st.builds(f.ExpertImbalance, loads.map(tuple)) | routed, max_size=1))
    if layout == "dp":
        found += draw(st.lists(st.just(f.CudaGraphs("node")), max_size=1))
    if ranks > 2 and hosts == 1:
        found += draw(st.lists(st.builds(f.MissingRanks, st.tuples(st.integers(0, ranks - 1))), max_size=1))
    if clocks:
        offset = draw(st.integers(-3 * MS // tick, 3 * MS // tick)) * tick
        found.append(f.ClockOffset(1, offset))
        found.append(f.ClockDrift(1, draw(st.sampled_from([0, 0, 20_000]))))
    return Job(
        layout=layout,
        ranks=ranks,
        hosts=hosts,
        steps=4,
        faults=tuple(found),
        seed=draw(st.integers(0, 999)),
        tp=tp,
        pp=pp,
        layers=draw(st.integers(2, 3)),
        kernels=draw(st.integers(1, 2)),
        layer_ns=2 * MS,
        layer_bytes=draw(st.sampled_from([8_000_000, 48_000_000, 200_000_000])),
        buckets=draw(st.integers(1, 3)),
        micro_batches=3,
        accumulate=draw(st.sampled_from([1, 1, 2])),
        queue_limit=draw(st.sampled_from([1024, 1024, 16])),
        net=Network(domain=draw(st.sampled_from([None, ranks]))),
        tick=tick,
    )
