"""Every fault has its exact effect, and only that; no jitter, so that all can be computed by hand."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from simulator import (
    AllocatorStorm,
    AxisShift,
    Checkpoint,
    ClockDrift,
    ClockOffset,
    CudaGraphs,
    DroppedStart,
    ExpertImbalance,
    HostPauses,
    HostReads,
    HostStaged,
    Job,
    LateStart,
    LaunchBound,
    LossyNic,
    MissingFirstCollectives,
    MissingRanks,
    Network,
    OverflowedDurations,
    PageableCopies,
    SharedNic,
    Sim,
    SingleQueue,
    SlowLink,
    SlowLoader,
    SlowNode,
    SlowRank,
    StageImbalance,
    capture,
    simulate,
    write_kineto,
)
from simulator.truth import Truth, truth

MS = 1_000_000
COMPUTE = 54_720_000  # of a step of the plain job


def run(*faults: Any, **changes: Any) -> Sim:
    """The plain job (2 hosts x 2 GPUs, data parallel) with faults."""
    return simulate(Job(**({"ranks": 4, "hosts": 2, "steps": 4, "jitter": 0, "faults": faults} | changes)))


def leaf(known: Truth, name: str, step: int = 3) -> list[int]:
    """A leaf of all ranks in a step."""
    return [w.leaves.get(name, 0) for w in known.windows if w.step == step]


def transfers(sim: Sim) -> list[int]:
    """Transfer time of every collective."""
    return [m.transfer for m in truth(sim).met]


def test_plain_job_has_even_ranks() -> None:
    known = truth(run())
    assert leaf(known, "compute") == [COMPUTE] * 4
    assert leaf(known, "comm_wait") == [0] * 4
    assert known.step_time(3) == known.step_time(2)


def test_slow_rank_is_last_everywhere_and_the_others_wait() -> None:
    known = truth(run(SlowRank(2, 1.5)))
    assert leaf(known, "compute") == [COMPUTE, COMPUTE, COMPUTE * 3 // 2, COMPUTE]
    assert all(max(m.arrival, key=m.arrival.__getitem__) == 2 for m in known.met)
    waits = leaf(known, "comm_wait")
    assert waits[2] == 0
    assert waits[0] == waits[1] == waits[3] > COMPUTE // 3


def test_slow_rank_from_a_step_on_and_drifting() -> None:
    known = truth(run(SlowRank(1, 1.25, from_step=2, drift=0.25)))
    compute = [leaf(known, "compute", step)[1] for step in (1, 2, 3, 4)]
    assert compute == [COMPUTE, COMPUTE * 5 // 4, COMPUTE * 3 // 2, COMPUTE * 7 // 4]


def test_slow_node() -> None:
    assert leaf(truth(run(SlowNode(1, 2.0))), "compute") == [COMPUTE, COMPUTE, 2 * COMPUTE, 2 * COMPUTE]


def test_transfer_follows_from_bytes_and_links() -> None:
    sim = run()
    size, net = sim.instances[0].size, Network()
    assert transfers(sim)[0] == net.inter_latency + 2 * size * 3 // 4 // 2 // 24  # two NICs of 24 GB/s
    inside = run(net=Network(domain=4))
    assert transfers(inside)[0] == net.intra_latency + 2 * size * 3 // 4 // 240


@pytest.mark.parametrize("fault", [SlowLink("nic:1:0", 0.5), SharedNic()])
def test_half_of_the_network_doubles_the_transfers(fault: Any) -> None:
    latency = Network().inter_latency
    assert [t - latency for t in transfers(run(fault))] == [2 * (t - latency) for t in transfers(run())]


def test_a_slow_link_that_nobody_needs_changes_nothing() -> None:
    assert transfers(run(SlowLink("nv:0", 0.5))) == transfers(run())


def test_two_groups_share_a_link_at_fair_rates() -> None:
    """Both tensor-parallel halves reduce gradients over the same NIC at the same time: each gets half."""
    alone = {"layout": "tp", "tp": 2, "layers": 2, "buckets": 1}
    own, shared = run(**alone), run(SharedNic(), **alone)
    gradients = [i for i, m in enumerate(truth(own).met) if m.instance.group.desc == "mesh_dp"]
    latency = Network().inter_latency
    before = [transfers(own)[i] - latency for i in gradients]
    after = [transfers(shared)[i] - latency for i in gradients]
    assert after == [2 * t for t in before]


def test_lossy_nic_lengthens_every_third_transfer() -> None:
    plain, lossy = transfers(run()), transfers(run(LossyNic(1, 3, 7 * MS)))
    assert [b - a for a, b in zip(plain, lossy, strict=True)] == [0, 0, 7 * MS] * 4


def test_host_staging_moves_everything_over_pcie() -> None:
    sim = run(HostStaged())
    traffic = 2 * sim.instances[0].size * 3 // 4
    assert transfers(sim)[0] == Network().inter_latency + (traffic + traffic // 2) // 24


def test_pageable_copies_are_exposed() -> None:
    known = truth(run(PageableCopies()))
    assert leaf(known, "pcie_h2d") == [12_000_000 // 6] * 4
    assert leaf(truth(run()), "pcie_h2d") == [0] * 4


def test_slow_loader_on_all_ranks_is_nobodys_straggling() -> None:
    known = truth(run(SlowLoader(80 * MS)))
    assert min(leaf(known, "idle_data")) > 40 * MS
    assert leaf(known, "comm_wait") == [0] * 4


def test_slow_loader_on_one_rank_makes_the_others_wait() -> None:
    known = truth(run(SlowLoader(80 * MS, ranks=(1,))))
    data, wait = leaf(known, "idle_data"), leaf(known, "comm_wait")
    assert [d > 40 * MS for d in data] == [False, True, False, False]
    assert [w > 30 * MS for w in wait] == [True, False, True, True]


def test_host_pauses_stop_one_rank() -> None:
    known = truth(run(HostPauses(200 * MS, every=1, ranks=(2,))))
    # the pause is a Python call, which is not read by default
    assert [h > 140 * MS for h in leaf(known, "idle_unknown")] == [False, False, True, False]


def test_allocator_storm_waits_for_the_device() -> None:
    known = truth(run(AllocatorStorm(1, 3 * MS)))
    assert leaf(known, "idle_host")[1] + leaf(known, "idle_sync")[1] == 3 * MS + 6_000
    assert leaf(known, "idle_host")[0] == 0


def test_checkpoint_stalls_all_ranks_once() -> None:
    known = truth(run(Checkpoint(3, 50 * MS)))
    assert leaf(known, "pcie_d2h") == [6 * 48_000_000 // 24] * 4
    assert [leaf(known, "idle_host", s)[0] + leaf(known, "idle_sync", s)[0] for s in (2, 4)] == [0, 4_000]
    assert leaf(known, "idle_host")[0] + leaf(known, "idle_sync")[0] == 50 * MS + 4_000


def test_launch_bound_host() -> None:
    known = truth(run(LaunchBound(2_500_000)))
    assert min(leaf(known, "idle_host")) > COMPUTE // 2


def test_host_reads_drain_the_queue() -> None:
    known = truth(run(HostReads(2)))
    assert leaf(known, "pcie_d2h") == [2 * 1_500] * 4
    assert min(leaf(known, "idle_sync")) > 0


def test_imbalanced_stage_and_experts() -> None:
    compute = leaf(truth(run(StageImbalance(1, 1.5), layout="pp", pp=2)), "compute")
    assert compute[2:] == [c * 3 // 2 for c in compute[:2]]
    loads = leaf(truth(run(ExpertImbalance((1.0, 0.5, 2.0, 0.5)), layout="ep")), "compute")
    expert = 6 * 3 * MS * 3 // 2
    assert [c - COMPUTE for c in loads] == [0, -expert // 2, expert, -expert // 2]


def test_single_queue_starts_in_launch_order() -> None:
    for rank in run(SingleQueue(), layout="fsdp").programs:
        assert all(a.start <= b.start for a, b in pairwise(rank.gpu))
    assert not all(a.start <= b.start for a, b in pairwise(run(layout="fsdp").programs[0].gpu))


def test_clocks_shift_stamps_and_nothing_else() -> None:
    sim = run(ClockOffset(1, 5 * MS), ClockDrift(1, 20_000))
    known, plain = truth(sim), truth(run())
    assert known.offsets == {"node-1": (0, 0), "node-2": (-5 * MS, 20_000)}
    assert [m.waits for m in known.met] == [m.waits for m in plain.met]
    assert sim.local(2, 10**9) - sim.local(0, 10**9) == 5 * MS - 20_000


def test_axis_shift_moves_host_stamps_of_one_rank() -> None:
    plain, moved = capture(run())[1], capture(run(AxisShift(1, 30_000)))[1]
    assert {b.start - a.start for a, b in zip(plain.host, moved.host, strict=True)} == {30_000}
    assert [g.start for g in plain.gpu] == [g.start for g in moved.gpu]


def test_late_start_loses_the_steps_before(tmp_path: Path) -> None:
    caps = capture(run(LateStart(2, 1, 5 * MS)))
    assert [s for s, _ in caps[2].marks] == [3, 4]
    assert [s for s, _ in caps[1].marks] == [1, 2, 3, 4]
    assert min(g.start for g in caps[2].gpu) >= caps[2].start


def test_missing_ranks_leave_the_rest_unresolved(tmp_path: Path) -> None:
    sim = run(MissingRanks((1,)))
    assert len(write_kineto(sim, tmp_path)) == 3
    known = truth(sim)
    assert not any(m.full for m in known.met)
    assert leaf(known, "comm_transfer") == [0] * 3
    assert min(leaf(known, "comm_unresolved")) > 0


def test_lost_records() -> None:
    plain = capture(run())[1]
    first = capture(run(MissingFirstCollectives(1, 2)))[1]
    assert [sum(g.row.cls == "comm" for g in c.gpu) for c in (plain, first)] == [12, 10]
    dropped = capture(run(DroppedStart(1, 10)))[1]
    assert len(plain.gpu) - len(dropped.gpu) == 10
    assert min(g.start for g in dropped.gpu) > min(g.start for g in plain.gpu)
    long = [g for g in capture(run(OverflowedDurations(1, 2)))[1].gpu if g.stamped_end != g.end]
    assert [g.stamped_end - g.start for g in long] == [4_294_967_295] * 2


def test_graphs_keep_the_time_and_hide_or_share_the_launch() -> None:
    opaque, nodes = truth(run(CudaGraphs("graph"))), truth(run(CudaGraphs("node")))
    assert leaf(nodes, "compute") == [COMPUTE] * 4
    assert [a + b for a, b in zip(leaf(opaque, "compute"), leaf(opaque, "gpu_opaque"), strict=True)] == [
        COMPUTE + 17 * 1_000
    ] * 4


def test_faults_combine() -> None:
    known = truth(run(SlowRank(0, 1.5), SlowRank(0, 2.0), SlowNode(0, 1.0), SlowLoader(MS)))
    assert leaf(known, "compute") == [3 * COMPUTE, COMPUTE, COMPUTE, COMPUTE]


def test_overflow_reaches_the_file(tmp_path: Path) -> None:
    paths = write_kineto(run(OverflowedDurations(0, 1)), tmp_path, gz=True)
    durations = [e.get("dur", 0) for e in json.loads(gzip.decompress(paths[0].read_bytes()))["traceEvents"]]
    assert max(durations) == 4_294_967.295
