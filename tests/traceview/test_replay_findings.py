"""What findings and the verdict say of a replay, beside the simple bound (METHODS h.1, h.2)."""

from __future__ import annotations

import pytest

from traceview.analysis.findings import find_all
from traceview.analysis.verdict import judge
from traceview.config import DEFAULT
from traceview.result import BlameRow, Metric, Result, StragglerRow
from traceview_reports import verdict as words

from .results import MS, result, window


def measured(value: float, unit: str = "ns") -> Metric:
    return Metric(value, unit, 5, "test", "estimated")


def slow_rank(step_by_replay: int | None) -> Result:
    """Rank 0 of four computes 100 ms, the others wait 20 ms for it."""
    value = result(
        [window(r, k, compute=80 + 20 * (r == 0), comm_wait__nxn=20 * (r > 0)) for r in range(4) for k in range(5)]
    )
    row = StragglerRow(0, "node-0", 300 * MS, 300 * MS, 300 * MS, 5, 5, "persistent", "compute_slower", {})
    row.replay_step_ns = step_by_replay
    value.straggler_rows = [row]
    value.blame = [BlameRow(0, "node-0", 300 * MS, 300 * MS, 300 * MS, 300 * MS, 300 * MS, 0)]
    value.metrics = {"step_time": measured(100 * MS), "replay_error": measured(0.013, "fraction")}
    value.findings = find_all(value, DEFAULT)
    return value


LINE = "if fixed: 80.0 ms a step by the simple bound, {} ms by replay (base replay off by 1.3 %)"
MORE = ": in the replay waiting in send/recv, and work that hides on other streams, gets shorter too"
LESS = ": in the replay another rank, its own communication or the schedule then holds the step"


@pytest.mark.parametrize(
    ("step", "text", "saving"),
    [
        (78, LINE.format("78.0"), 22),
        (84, LINE.format("84.0"), 16),
        (70, LINE.format("70.0") + MORE, 30),
        (90, LINE.format("90.0") + LESS, 10),
        (101, LINE.format("100") + LESS, 0),
    ],
)
def test_bound_first_then_the_replay_and_why_they_differ_by_a_fifth(step: int, text: str, saving: int) -> None:
    (found,) = slow_rank(step * MS).findings
    assert found.saving_ns_per_step == 20 * MS
    assert found.replay_ns_per_step == saving * MS
    assert found.evidence[-1] == text


def test_the_saving_line_and_the_cost_tell_both() -> None:
    value = slow_rank(78 * MS)
    (found,) = value.findings
    assert words.saving(value, found) == "−20.0 ms a step [replay −22.0 ms]"
    assert words.saving(value, found, short=True) == "−20.0 ms a step"
    assert judge(value, DEFAULT).cost.endswith("at best 80.0 ms a step when fixed, 78.0 ms by replay")


def test_without_a_replay_the_bound_stands_alone() -> None:
    value = slow_rank(None)
    (found,) = value.findings
    assert words.saving(value, found) == "−20.0 ms a step"
    assert not [e for e in found.evidence if "replay" in e]
    assert judge(value, DEFAULT).cost.endswith("at best 80.0 ms a step when fixed")


def pipeline(**metrics: float) -> Result:
    """Two stages that wait 10 ms of 100 for each other on average."""
    value = result([window(r, k, compute=100 - 20 * r, comm_wait__p2p=20 * r) for r in range(2) for k in range(5)])
    value.metrics = {k: measured(v * MS) for k, v in metrics.items()}
    value.findings = find_all(value, DEFAULT)
    return value


def test_a_slow_rank_of_a_stage_gets_other_advice_than_uneven_stages() -> None:
    both = {"step_time": 100, "step_time_if_balanced_replay": 88, "pipeline_straggler": 8}
    (rank,) = pipeline(**both, pipeline_uneven=1).findings
    (stages,) = pipeline(**both, pipeline_uneven=7).findings
    assert (rank.saving_ns_per_step, rank.replay_ns_per_step, rank.confidence) == (8 * MS, 12 * MS, "likely")
    assert (
        rank.evidence[0] == "10.0 ms a step and rank: 8.00 ms of it by a slow stage or rank, 2.00 ms by the schedule"
    )
    assert rank.advice.startswith("Look for the rank") and stages.advice.startswith("Balance the stages")


def test_waiting_of_the_schedule_alone_is_judged_by_the_formula() -> None:
    (found,) = pipeline(step_time=100, pipeline_straggler=0, pipeline_uneven=0).findings
    assert (found.confidence, found.replay_ns_per_step) == ("possible", None)
    assert "(p-1)/(m+p-1)" in found.basis and found.evidence[0].endswith("10.0 ms by the schedule")


def test_a_refused_replay_is_told() -> None:
    value = pipeline()
    value.metrics = {"pipeline_straggler": Metric(None, "ns", 0, "replay: cannot tell, because", "unavailable")}
    (found,) = find_all(value, DEFAULT)
    assert found.evidence[:2] == ["10.0 ms a step and rank", "replay: cannot tell, because"]


def test_imbalance_is_no_more_than_what_the_named_ones_leave() -> None:
    value = slow_rank(80 * MS)
    value.blame[0] = BlameRow(0, "node-0", 150 * MS, 150 * MS, 0, 0, 0, 0)
    value.blame.append(BlameRow(1, "node-0", 150 * MS, 150 * MS, 0, 0, 0, 0))
    assert {f.id: f.saving_ns_per_step for f in find_all(value, DEFAULT)}["imbalance"] == 7_500_000
    value.metrics["straggler_wait_left"] = measured(3 * MS)
    assert {f.id: f.saving_ns_per_step for f in find_all(value, DEFAULT)}["imbalance"] == 3 * MS
