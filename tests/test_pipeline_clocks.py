"""Pipelines whose stages are on hosts of their own and share only sends and receives: files in, the truth out."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceview as tv
from simulator import Sim, simulate, write_kineto
from simulator.job import (
    EPOCH,
    ClockDrift,
    ClockOffset,
    DroppedStart,
    Job,
    LateStart,
    MissingFirstCollectives,
    MissingRanks,
    SlowRank,
)
from simulator.truth import truth
from traceview import units
from traceview.result import Result

MS = 1_000_000
CLOCKS = {"same": (0, 0), "2 ms": (2 * MS, 0), "10 s and 20 ppm": (10_000 * MS, 20_000)}
SMALL, LARGE = 200_000, 16_000_000
"""bytes of an activation: under way for about 12 us, and for about 690 us"""


def run(stages: int, clock: str = "same", faults: tuple[Any, ...] = (), **more: Any) -> tuple[Sim, Result]:
    """A pipeline with a host per stage; the clock of host h is h times as far off."""
    offset, ppb = CLOCKS[clock]
    errors = [(ClockOffset(h, h * offset), ClockDrift(h, ppb * (-1) ** h)) for h in range(1, stages)]
    settings: dict[str, Any] = dict(layout="pp", ranks=stages, hosts=stages, pp=stages, steps=5)
    job = Job(faults=(*faults, *(f for pair in errors for f in pair)), **(settings | more))
    sim = simulate(job)
    with tempfile.TemporaryDirectory() as folder:
        write_kineto(sim, Path(folder), "D2")
        return sim, tv.analyze(tv.open(folder, cache=False, workers=1))


def used(sim: Sim, result: Result) -> list[Any]:
    """The true windows of the used steps."""
    return [w for w in truth(sim).windows if w.step in result.run.steps.used]


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("stages", [2, 4])
def test_small_messages_prove_the_clocks_and_waits_are_the_truth_within_the_bound(stages: int, clock: str) -> None:
    sim, result = run(stages, clock, activation_bytes=SMALL)
    known = truth(sim)
    assert (result.clock.grade, result.clock.apart, result.verdict.status) == ("B", [], "healthy")
    assert result.straggler_rows == []
    assert result.quality.violations == 0
    for rank, host in enumerate(result.clock.hosts[1:], 1):
        theta, ppb = known.offsets[host.host]
        own = [w for w in result.window_rows if w.rank == rank]
        for at in (own[0].start_ns, own[-1].end_ns):
            want = theta + ppb * 1e-9 * (at - EPOCH + theta)
            have = host.offset_ns + host.drift_ppm * 1e-6 * (at - result.clock.t_ref_ns)
            assert abs(have - want) <= host.join_bound_ns
    near = result.clock.neighbours_ns
    assert f"clocks B (error {units.time(near)})" in result.verdict.coverage
    messages = 4 * sim.job.micro_batches  # of a stage in the middle, a step
    for window in result.window_rows:
        true = next(w for w in known.windows if (w.rank, w.step) == (window.rank, window.step))
        for leaf, ns in window.leaves_ns.items():
            if not leaf.startswith("comm_"):
                assert ns == true.leaves.get(leaf, 0)
        assert abs(window.leaves_ns["comm_wait"] - true.leaves["comm_wait"]) <= messages * near


@pytest.mark.parametrize("clock", ["same", "10 s and 20 ppm"])
def test_large_messages_prove_too_little_and_that_is_the_verdict(clock: str) -> None:
    sim, result = run(4, clock, activation_bytes=LARGE)
    assert result.budget.leaves_ns["comm_wait"] == 0
    assert result.straggler_rows == []
    assert result.verdict.status == "cannot_tell"
    assert "node-1 and node-2: messages prove their clocks to ± 69" in " ".join(result.clock.apart)
    # what a class of messages takes beyond its fastest is pipeline wait, and never a straggler's
    least, true = (
        result.metrics["pipeline_wait_at_least"],
        sum(w.leaves.get("comm_wait", 0) for w in used(sim, result)),
    )
    assert least.quality == "lower_bound"
    assert 0.5 * true < least.value * result.budget.wall_ns <= true
    assert result.metrics["straggler_wait_at_least"].value == 0
    finding = next(f for f in result.findings if f.id == "unresolved-communication")
    assert "messages prove their clocks" in " ".join(finding.evidence)
    assert "collective over all stages" in finding.advice
    # what needs no comparison does not feel the clocks: no path runs over 10 s, no rate comes of them
    assert all(row.wall_ns < 400 * MS for row in result.critical_path)
    assert all(row.algbw is None for row in result.collective_rows)


def test_the_slow_rank_of_a_stage_is_named_whatever_the_clocks_of_the_stages() -> None:
    """Two replicas, the ranks of a stage on one host: the all-reduces of a stage tell, messages do not disturb."""
    job: dict[str, Any] = dict(ranks=8, activation_bytes=SMALL, layers=4)
    named = []
    for clock in ("same", "10 s and 20 ppm"):
        _, result = run(4, clock, (SlowRank(2, 1.4),), **job)
        named.append([(s.rank, s.cause, s.kind) for s in result.straggler_rows])
    assert named[0] == named[1]
    assert [rank for rank, *_ in named[0]] == [2]
    assert run(4, "10 s and 20 ppm", **job)[1].straggler_rows == []


LOSSES = st.one_of(
    st.builds(MissingFirstCollectives, st.integers(0, 2), st.integers(1, 4)),
    st.builds(DroppedStart, st.integers(0, 2), st.integers(1, 12)),
    st.builds(LateStart, st.integers(0, 2), st.integers(1, 2), st.sampled_from([0, 5 * MS])),
    st.builds(MissingRanks, st.tuples(st.integers(0, 2))),
)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    errors=st.lists(st.tuples(st.integers(-(10**10), 10**10), st.sampled_from([0, 20_000, -20_000])), max_size=3),
    losses=st.lists(LOSSES, max_size=1),
    size=st.sampled_from([1_000, SMALL, LARGE]),
    micro=st.integers(1, 4),
    jitter=st.sampled_from([0, 3_000]),
)
def test_no_clock_and_no_lost_record_makes_waiting_or_a_straggler_of_a_healthy_pipeline(
    errors: list[tuple[int, int]], losses: list[Any], size: int, micro: int, jitter: int
) -> None:
    faults = [f for h, (ns, ppb) in enumerate(errors) for f in (ClockOffset(h, ns), ClockDrift(h, ppb))]
    more = dict(layers=3, kernels=1, activation_bytes=size, micro_batches=micro, end_jitter_ns=jitter)
    sim, result = run(3, faults=(*faults, *losses), **more)
    known = truth(sim)
    assert result.straggler_rows == []
    assert result.quality.violations == 0
    assert not [a for a in result.clock.apart if "bad clock" in a]
    error = (result.clock.neighbours_ns or 0) + jitter
    for window in result.window_rows:
        true = next(w for w in known.windows if (w.rank, w.step) == (window.rank, window.step))
        assert window.leaves_ns["comm_wait"] <= true.leaves.get("comm_wait", 0) + 4 * micro * error
        assert window.leaves_ns["compute"] == true.leaves["compute"]
