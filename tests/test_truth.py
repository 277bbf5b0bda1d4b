"""The whole pipeline recovers the truth of random simulated jobs, written in real formats.

``TRACEVIEW_TRUTH_JOBS`` sets the number of random jobs in all (default 40, the same ones every time; CI 200). The
long run is one command: ``TRACEVIEW_TRUTH_JOBS=2000 pytest tests/test_truth.py``.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import traceview as tv
from simulator import (
    AllocatorStorm,
    AxisShift,
    ClockOffset,
    DroppedStart,
    ExpertImbalance,
    Job,
    MissingRanks,
    Sim,
    SlowLoader,
    SlowNode,
    SlowRank,
    StageImbalance,
    simulate,
    write_kineto,
    write_nsight,
)
from simulator.draw import jobs
from simulator.job import EPOCH
from simulator.truth import Truth, truth
from simulator.truth_overlap import overlaps
from simulator.truth_path import critical_path
from traceview.result import CollectiveRow, HostClock, Result, Window

JOBS = int(os.environ.get("TRACEVIEW_TRUTH_JOBS", "200" if os.environ.get("CI") else "40"))
LAYOUTS = {"dp": {}, "fsdp": {}, "tp": {"tp": 2}, "pp": {"pp": 2}, "ep": {}}
US, MS = 1_000, 1_000_000


def random_jobs(share: float) -> Callable[[Any], Any]:
    """Settings of a property that gets this share of the jobs; the default ones are the same every time."""
    count = max(4, int(JOBS * share))
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=JOBS <= 200,
        suppress_health_check=list(HealthCheck),
    )


def analyse(sim: Sim, style: str = "D2") -> Result:
    """Write the run (``style``: a Kineto class or an Nsight version) and analyse the folder."""
    with tempfile.TemporaryDirectory() as folder:
        if style[0] == "2":
            write_nsight(sim, Path(folder), style, payload="blob" if style >= "2024.6" else "json")
        else:
            write_kineto(sim, Path(folder), style)
        return tv.analyze(tv.open(folder, cache=False, workers=1))


def facts(window: Any) -> tuple[int, int, dict[str, int]]:
    """Start, end and leaves without the zeros, of a result's window or of a true one."""
    if isinstance(window, Window):
        return window.start_ns, window.end_ns, {k: v for k, v in window.leaves_ns.items() if v}
    return window.start, window.end, {k: v for k, v in window.leaves.items() if v}


def true_window(known: Truth, window: Window) -> Any:
    """The true window of a rank and step."""
    return next(w for w in known.windows if (w.rank, w.step) == (window.rank, window.step))


def check_sums(result: Result) -> None:
    """I2, I3 and I5: windows, budget and ledger add up to the nanosecond."""
    for window in result.window_rows:
        assert sum(window.leaves_ns.values()) == window.end_ns - window.start_ns
    assert sum(result.budget.leaves_ns.values()) == result.budget.wall_ns
    assert result.budget.wall_ns == sum(w.end_ns - w.start_ns for w in result.window_rows)
    blame, wait = sum(b.blame_ns for b in result.blame), result.budget.sub_ns.get("comm_wait.nxn", 0)
    assert blame <= wait if result.budget.leaves_ns["comm_unresolved"] else blame == wait
    by_place = Counter[str]()
    for row in result.blame_by:
        by_place[row.by] += row.blame_ns
    assert set(by_place.values()) <= {blame}


def check_exact(sim: Sim, style: str) -> None:
    """Every used window: bounds and all leaves, to the nanosecond."""
    result, known = analyse(sim, style), truth(sim)
    check_sums(result)
    assert result.window_rows
    for window in result.window_rows:
        assert facts(window) == facts(true_window(known, window))


@random_jobs(0.3)
@given(job=jobs(losses=True), style=st.sampled_from(["D2", "D1"]))
def test_leaves_are_exact(job: Job, style: str) -> None:
    check_exact(simulate(job), style)


def test_leaves_are_exact_with_three_axes() -> None:
    """Two pipeline stages of two tensor-parallel pairs, and a reduction over all ranks."""
    slow = (SlowRank(3, 1.3), StageImbalance(1, 1.2))
    check_exact(
        simulate(Job("pp", ranks=8, hosts=4, steps=4, tp=2, pp=2, layers=2, grad_norm=True, faults=slow)), "D2"
    )


@random_jobs(0.1)
@given(job=jobs())
def test_leaves_are_exact_without_sequence_numbers(job: Job) -> None:
    check_exact(simulate(job), "D0")


@random_jobs(0.1)
@given(job=jobs(("dp", "fsdp"), tick=1000))
def test_leaves_are_exact_without_any_facts_of_the_collectives(job: Job) -> None:
    """Old files name no group: the world is assumed, which is right for these layouts."""
    check_exact(simulate(job), "B3")


@random_jobs(0.15)
@given(job=jobs(), style=st.sampled_from(["2023.3", "2024.6", "2026.1"]))
def test_leaves_are_exact_in_nsight_reports(job: Job, style: str) -> None:
    check_exact(simulate(job), style)


@random_jobs(0.1)
@given(job=jobs(("dp", "fsdp")))
def test_critical_path_is_exact(job: Job) -> None:
    """Leaves, length and the ranks that it runs over (one collective at a time, so it is unique)."""
    sim = simulate(replace(job, faults=tuple(f for f in job.faults if not isinstance(f, MissingRanks))))
    known = truth(sim)
    for row in analyse(sim).critical_path:
        path = critical_path(sim, known, row.step)
        assert row.wall_ns == path.wall == sum(path.leaves.values())
        assert {k: v for k, v in row.leaves_ns.items() if v} == path.leaves
        assert row.hops == path.hops


@random_jobs(0.1)
@given(job=jobs(("dp", "fsdp", "tp", "ep")))
def test_blame_overlap_and_step_time_are_exact(job: Job) -> None:
    """Inclusive blame is the airport split of every instance of the used steps, to its rounding."""
    lost = (MissingRanks, DroppedStart)
    sim = simulate(replace(job, faults=tuple(f for f in job.faults if not isinstance(f, lost))))
    result, known = analyse(sim), truth(sim)
    used = result.run.steps.used
    want: dict[int, float] = {}
    for met in known.met:
        if sim.step_of(met.instance) in used:
            for rank, ns in met.airport().items():
                want[rank] = want.get(rank, 0) + ns
    have = {b.rank: b.blame_inclusive_ns for b in result.blame}
    for rank, ns in want.items():
        assert abs(have.get(rank, 0) - ns) <= len(known.met)
    for name, share in overlaps(sim, known, used).items():
        assert result.metrics[name].value == (None if share is None else pytest.approx(share, abs=1e-12))
    times = sorted(known.step_time(step) for step in used)
    assert result.metrics["step_time"].value in (times[(len(times) - 1) // 2], times[len(times) // 2])


@pytest.mark.parametrize("style", ["D2", "D0", "2026.1"])
def test_groups_of_more_ranks_than_a_file_lists(style: str) -> None:
    """Rank lists are cut at 30 entries: the members come from the metadata of the groups."""
    faults = (SlowRank(33, 1.4), ClockOffset(3, 777_000))
    check_exact(simulate(Job("fsdp", ranks=40, hosts=5, steps=4, layers=2, kernels=1, faults=faults)), style)


def offset_errors(result: Result, known: Truth, clock: HostClock) -> list[float]:
    """Error of the host's axis at the begin and the end of the used windows, ns."""
    theta, ppb = known.offsets[clock.host]
    out = []
    for at in (min(w.start_ns for w in result.window_rows), max(w.end_ns for w in result.window_rows)):
        want = theta + ppb * 1e-9 * (at - EPOCH + theta)
        have = clock.offset_ns + clock.drift_ppm * 1e-6 * (at - result.clock.t_ref_ns)
        out.append(have - want)
    return out


@random_jobs(0.15)
@given(
    job=jobs(("dp", "fsdp", "tp", "ep"), clocks=True),
    jitter=st.sampled_from([0, 0, 3 * US]),
    style=st.sampled_from(["D2", "D2", "2026.1"]),
)
def test_clocks_and_waits_are_recovered_within_the_stated_bound(job: Job, jitter: int, style: str) -> None:
    """Offsets within 4 sigma (1 us with so few collectives) and the causal bound, leaves within what that allows."""
    job = replace(job, steps=6, end_jitter_ns=jitter)
    sim = simulate(job)
    result, known = analyse(sim, style), truth(sim)
    check_sums(result)
    clock = result.clock.hosts[-1]
    span = max(w.end_ns for w in result.window_rows) - min(w.start_ns for w in result.window_rows)
    unfitted = 0 if clock.drift_ppm else abs(known.offsets[clock.host][1]) * span * 1e-9
    errors = [abs(e) for e in offset_errors(result, known, clock)]
    allowed = max(4 * (clock.sigma_ns or 0), US) + unfitted
    assert max(errors) <= allowed
    assert clock.bound_ns is None or max(errors) <= clock.bound_ns + unfitted
    per_step = max(len(i.ops) for i in sim.instances) and len(sim.instances) / job.steps
    for window in result.window_rows:
        start, end, leaves = facts(window)
        true_start, true_end, want = facts(true_window(known, window))
        assert (start, end) == (true_start, true_end)
        for leaf in leaves.keys() | want.keys():
            assert abs(leaves.get(leaf, 0) - want.get(leaf, 0)) <= allowed * (per_step + 1)


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("hosts", [1, 2])
def test_a_healthy_job_has_no_straggler_and_no_finding(layout: str, hosts: int) -> None:
    """What a layout costs by its nature, the bubble of a pipeline above all, is no straggler and no finding."""
    job = Job(layout=layout, ranks=4, hosts=hosts, steps=6, layer_bytes=12_000_000, buckets=6, **LAYOUTS[layout])
    job = replace(job, activation_bytes=400_000, micro_batches=8, layer_ns=4 * MS)
    sim = simulate(job)
    result = analyse(sim)
    check_sums(result)
    assert result.straggler_rows == []
    limit = 0.02 * truth(sim).step_time(4)
    costly = {f.id: f.saving_ns_per_step for f in result.findings if (f.saving_ns_per_step or 0) > limit}
    assert costly == {}
    # stages on two hosts share sends and receives only: small ones, that prove the clocks well enough
    assert result.verdict.status == "healthy"
    assert result.clock.grade == ("B" if layout == "pp" and hosts == 2 else "A")


def test_an_uneven_pipeline_waits_more_than_its_schedule() -> None:
    """One stage of two takes 1.3 times as long: the other waits for it, and that is told apart from the bubble."""
    even = Job(layout="pp", pp=2, ranks=2, steps=6, layers=4, micro_batches=8)
    (found,) = (f for f in analyse(simulate(replace(even, faults=(StageImbalance(1, 1.3),)))).findings)
    assert found.id == "pipeline-wait"
    assert found.saving_ns_per_step is not None
    assert 0.08 < found.saving_ns_per_step / truth(simulate(even)).step_time(3) < 0.16


@pytest.mark.parametrize("layout", ["dp", "fsdp", "tp", "ep"])
def test_the_slow_rank_is_named(layout: str) -> None:
    """Under clocks that are 2 ms apart; where others pass the lateness on (tensor parallel), the origin is named."""
    faults = (SlowRank(2, 1.5), ClockOffset(1, 2 * MS))
    job = Job(layout=layout, ranks=4, hosts=2, steps=8, faults=faults, **LAYOUTS[layout])
    result = analyse(simulate(job))
    check_sums(result)
    first = result.straggler_rows[0]
    assert (first.rank, first.host, first.kind, first.cause) == (2, "node-2", "persistent", "compute_slower")
    assert first.origin_blame_ns >= 0.9 * sum(b.origin_blame_ns for b in result.blame)
    if layout != "tp":  # there the peer of the slow rank exposes more of its transfers, which is its own
        assert len(result.straggler_rows) == 1


@pytest.mark.parametrize(("style", "confidence"), [("D2", "proved"), ("B3", "likely")])
def test_an_assumed_group_proves_nothing(style: str, confidence: str) -> None:
    """Files that name no group give the same culprit, with less confidence."""
    result = analyse(simulate(Job(ranks=4, steps=8, tick=1000, faults=(SlowRank(2, 1.5),))), style)
    assert [s.rank for s in result.straggler_rows] == [2]
    assert result.verdict.confidence == confidence


CULPRITS: dict[str, tuple[Any, int, str]] = {
    "loader": (SlowLoader(80 * MS, ranks=(1,)), 1, "data"),
    "allocator": (AllocatorStorm(1, 8 * MS), 1, "host"),
    "slow now and then": (SlowRank(3, 1.6, from_step=8), 3, "compute_slower"),
}


@pytest.mark.parametrize("name", sorted(CULPRITS))
def test_other_culprits_are_named_with_their_cause(name: str) -> None:
    fault, rank, cause = CULPRITS[name]
    result = analyse(simulate(Job(ranks=4, steps=12, faults=(fault,))))
    check_sums(result)
    assert [(s.rank, s.cause) for s in result.straggler_rows] == [(rank, cause)]


def test_experts_with_more_tokens_have_more_work_and_are_not_slow() -> None:
    """The same kernels over a larger grid."""
    fault = ExpertImbalance((0.7, 0.7, 1.9, 0.7))
    result = analyse(simulate(Job(layout="ep", ranks=4, steps=8, faults=(fault,))))
    assert [(s.rank, s.cause) for s in result.straggler_rows] == [(2, "compute_more_work")]


def test_a_slow_node_is_one_place() -> None:
    """All ranks of the host, and the finding says node."""
    result = analyse(simulate(Job(ranks=8, hosts=2, steps=8, faults=(SlowNode(1, 1.4),))))
    assert {s.rank for s in result.straggler_rows} == {4, 5, 6, 7}
    assert {s.place for s in result.straggler_rows} == {"node"}


@pytest.mark.parametrize("layout", ["dp", "fsdp", "tp", "ep"])
def test_collectives_add_up(layout: str) -> None:
    """Number, waiting, transfer and bandwidth of every class, over the used steps, and never the first."""
    sim = simulate(Job(layout=layout, ranks=4, steps=5, faults=(SlowRank(1, 1.2),), **LAYOUTS[layout]))
    met: dict[tuple[str, str], list[Any]] = {}
    for one in truth(sim).met:
        met.setdefault((one.instance.group.name, one.instance.kind), []).append(one)
    rows: dict[tuple[str, str], list[CollectiveRow]] = {}
    for row in analyse(sim).collective_rows:
        rows.setdefault((row.group, row.kind), []).append(row)
    assert rows.keys() == met.keys()
    for key, found in rows.items():
        used = met[key][len(met[key]) // 5 :]
        assert sum(r.n for r in found) == sum(r.matched for r in found) == len(used)
        assert sum(r.wait_ns for r in found) == sum(sum(m.waits.values()) for m in used)
        assert sum(r.transfer_ns for r in found) == sum(m.transfer * len(m.end) for m in used)
        rates = [m.instance.size / m.transfer for m in used]
        assert all(min(rates) <= r.algbw <= max(rates) for r in found if r.algbw is not None)


def test_sigma_tells_the_scatter_of_the_ends() -> None:
    """Two hosts whose kernels end up to 3 us apart: the offset is known to some 100 ns, and not to 2."""
    sim = simulate(Job(ranks=4, hosts=2, steps=10, end_jitter_ns=3 * US, faults=(ClockOffset(1, 5 * MS),)))
    clock = analyse(sim).clock.hosts[1]
    assert clock.sigma_ns is not None
    assert 50 <= clock.sigma_ns <= 1_000
    assert abs(clock.offset_ns + 5 * MS) <= max(4 * clock.sigma_ns, US)


def test_a_cut_file_is_not_an_idle_gpu() -> None:
    """GPU records come last in a file, so a cut one loses them: time after the last one is not covered."""
    sim = simulate(Job(ranks=2, steps=6))
    with tempfile.TemporaryDirectory() as folder:
        path = write_kineto(sim, Path(folder))[1]
        text = path.read_bytes()
        path.write_bytes(text[: text.rindex(b'"cat": "kernel"') * 8 // 10])
        result = tv.analyze(tv.open(folder, cache=False, workers=1))
    check_sums(result)
    cut = [w for w in result.window_rows if w.rank == 1]
    assert sum(w.leaves_ns["uncovered"] for w in cut) > 0
    assert [f.title.partition(" % ")[2] for f in result.findings if f.id == "unknown-idle"] == [
        "of the step is missing from the record: a file was cut or records were lost"
    ]
    assert sum(w.leaves_ns["idle_unknown"] for w in cut) < 0.01 * sum(w.end_ns - w.start_ns for w in cut)


def test_a_shifted_host_axis_is_moved_back_and_told() -> None:
    """By the smallest launch latency less than truth: 4 us of 30 cannot be seen."""
    result = analyse(simulate(Job(steps=4, tick=1000, faults=(AxisShift(1, 30 * US),))))
    shifts = {r.rank: r.host_axis_shift_ns for r in result.clock.ranks}
    assert shifts.get(1) == -26 * US
    assert not shifts.get(0)


def test_missing_ranks_leave_transfer_unresolved() -> None:
    """Nobody knows when the missing rank came: wait is a lower bound, the rest is not guessed."""
    sim = simulate(Job(ranks=4, steps=5, faults=(MissingRanks((1,)), SlowRank(2, 1.5))))
    check_exact(sim, "D2")
    result = analyse(sim)
    assert result.run.missing_ranks == [1]
    assert result.budget.leaves_ns["comm_transfer"] == 0
    assert result.budget.leaves_ns["comm_unresolved"] > 0
    (found,) = (f for f in result.findings if f.id == "straggler-2")
    assert found.saving_ns_per_step is not None
    waits = [r.sub_ns.get("comm_wait.nxn", 0) for r in result.rank_rows]
    assert 0 < found.saving_ns_per_step <= max(waits) / len(result.run.steps.used)
