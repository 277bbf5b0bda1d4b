"""The replay against the simulator: what it predicts is what the job without the fault does (METHODS e.6, h.2)."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import traceview as tv
from simulator.job import (
    AllocatorStorm,
    ClockOffset,
    Job,
    MissingRanks,
    SlowLoader,
    SlowNode,
    SlowRank,
    StageImbalance,
)
from simulator.kineto import write_kineto
from simulator.simulate import simulate
from traceview.result import Result

MS = 1_000_000
PIPELINE = Job(layout="pp", pp=2, ranks=2, steps=5, layers=4, kernels=2, micro_batches=8)
WIDE = Job(layout="pp", pp=2, ranks=4, steps=5, layers=4, kernels=2, micro_batches=8)


RESULTS: dict[str, Result] = {}


def analyse(job: Job) -> Result:
    """The result of a job; each is made once."""
    if repr(job) not in RESULTS:
        RESULTS[repr(job)] = _analyse(job)
    return RESULTS[repr(job)]


def _analyse(job: Job) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        write_kineto(simulate(job), Path(folder), "D2")
        return tv.analyze(tv.open(folder, cache=False, workers=1))


def value(job: Job, name: str) -> float:
    found = analyse(job).metrics[name].value
    assert found is not None
    return found


def finding(job: Job, name: str) -> Any:
    return next((f for f in analyse(job).findings if f.id == name), None)


def test_an_even_pipeline_has_its_schedule_and_no_straggler() -> None:
    step = value(PIPELINE, "step_time")
    assert value(PIPELINE, "replay_error") == 0
    assert value(PIPELINE, "pipeline_straggler") < 0.005 * step
    assert value(PIPELINE, "step_time_if_balanced_replay") == pytest.approx(step, rel=0.002)
    assert value(PIPELINE, "pipeline_bubble") == pytest.approx(step / 9, rel=0.1)  # (p - 1) / (m + p - 1)
    assert finding(PIPELINE, "pipeline-wait") is None


@pytest.mark.parametrize("stage", [0, 1])
def test_a_slow_stage_is_told_from_the_schedule(stage: int) -> None:
    """Made equal, the step is that of a job whose stages all have the mean."""
    job = replace(PIPELINE, faults=(StageImbalance(stage, 1.3),))
    even = replace(PIPELINE, layer_ns=round(1.15 * PIPELINE.layer_ns))
    assert value(job, "step_time_if_balanced_replay") == pytest.approx(value(even, "step_time"), rel=0.005)
    assert value(job, "pipeline_bubble") < 1.2 * value(even, "pipeline_bubble")
    assert value(job, "pipeline_straggler") > 0.04 * value(job, "step_time")
    assert value(job, "pipeline_uneven") == pytest.approx(value(job, "pipeline_straggler"), rel=0.02)
    found = finding(job, "pipeline-wait")
    assert found.saving_ns_per_step == value(job, "pipeline_straggler")
    assert "by a slow stage or rank" in found.evidence[0] and found.advice.startswith("Balance")


def test_both_parts_are_the_pipeline_wait_of_the_budget() -> None:
    job = replace(PIPELINE, faults=(StageImbalance(1, 1.3),))
    result = analyse(job)
    both = value(job, "pipeline_straggler") + value(job, "pipeline_bubble")
    assert both == pytest.approx(result.budget.sub_ns["comm_wait.p2p"] / len(result.window_rows), abs=1)


def test_a_slow_rank_of_a_stage_is_no_uneven_stage() -> None:
    job = replace(WIDE, faults=(SlowRank(2, 1.5),))
    assert value(job, "pipeline_straggler") > 0.04 * value(job, "step_time")
    assert value(job, "pipeline_uneven") < 0.1 * value(job, "pipeline_straggler")
    assert value(job, "step_time_if_replaced_replay") == pytest.approx(value(WIDE, "step_time"), rel=0.005)


def test_who_is_late_for_a_named_rank_over_the_pipeline_takes_no_turns() -> None:
    """Ranks of other stages wait for the slow one in receives and are late themselves: the replay explains that."""
    job = Job(layout="pp", pp=4, ranks=8, steps=5, layers=8, kernels=2, micro_batches=8, faults=(SlowRank(5, 1.5),))
    assert [s.rank for s in analyse(job).straggler_rows] == [5]
    assert value(job, "straggler_wait_left") < 0.002 * value(job, "step_time")
    assert finding(job, "imbalance") is None


REPLACED: dict[str, tuple[Job, Any, float]] = {
    "dp": (Job(ranks=4, steps=5), SlowRank(2, 1.5), 0.002),
    "fsdp": (Job("fsdp", ranks=4, steps=5), SlowRank(2, 1.5), 0.002),
    "tp": (Job("tp", tp=2, ranks=4, steps=5), SlowRank(2, 1.5), 0.01),
    "ep": (Job("ep", ranks=4, steps=5), SlowRank(2, 1.5), 0.005),
    "a node": (Job(ranks=8, hosts=2, steps=5), SlowNode(1, 1.4), 0.005),
    "clocks apart": (Job(ranks=4, hosts=2, steps=5, faults=(ClockOffset(1, 2 * MS),)), SlowRank(2, 1.5), 0.002),
    "its loader": (Job(ranks=4, steps=5), SlowLoader(80 * MS, ranks=(1,)), 0.015),
    "a loader in a pipeline": (WIDE, SlowLoader(80 * MS, ranks=(1,)), 0.01),
    "its allocator": (Job(ranks=4, steps=5), AllocatorStorm(1, 8 * MS), 0.015),
}


@pytest.mark.parametrize("case", REPLACED)
def test_a_replaced_culprit_leaves_the_healthy_step(case: str) -> None:
    healthy, fault, close = REPLACED[case]
    job = replace(healthy, faults=(*healthy.faults, fault))
    want = value(healthy, "step_time")
    assert value(job, "step_time_if_replaced_replay") == pytest.approx(want, rel=close)
    row = analyse(job).straggler_rows[0]
    assert row.replay_step_ns == pytest.approx(want, rel=close)
    found = finding(job, f"straggler-{row.rank}")
    assert found.replay_ns_per_step == pytest.approx(value(job, "step_time") - want, rel=0.06)
    assert "by the simple bound" in found.evidence[-1] and "by replay" in found.evidence[-1]


def test_a_refused_replay_says_why() -> None:
    """With a member of every collective missing nothing can move."""
    job = Job(ranks=4, steps=5, faults=(SlowRank(2, 1.5), MissingRanks((0,))))
    result = analyse(job)
    metric = result.metrics["step_time_if_replaced_replay"]
    assert (metric.value, metric.quality) == (None, "unavailable")
    assert metric.basis == (
        "replay: cannot tell, most communication is not fully observed, or the clocks cannot be compared"
    )
    assert [s.replay_step_ns for s in result.straggler_rows] == [None]
    assert finding(job, "straggler-2").replay_ns_per_step is None


def test_what_is_not_observed_makes_savings_lower_bounds() -> None:
    """A rank of one of two pipelines is missing: its gradient collectives stay as they are."""
    job = replace(WIDE, faults=(StageImbalance(1, 1.3), MissingRanks((0,))))
    quality = {k: v.quality for k, v in analyse(job).metrics.items()}
    assert quality["pipeline_straggler"] == "lower_bound"
    assert quality["pipeline_bubble"] == quality["step_time_if_balanced_replay"] == "upper_bound"
