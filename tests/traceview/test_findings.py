"""A result in, findings and a verdict out."""

from __future__ import annotations

import pytest

from traceview.analysis.findings import find_all
from traceview.analysis.verdict import judge
from traceview.config import DEFAULT
from traceview.result import BlamePlaceRow, BlameRow, CollectiveRow, IdleRow, Result, Source, StragglerRow, Verdict

from .results import MS, result, window


def judged(value: Result) -> Verdict:
    value.findings = find_all(value, DEFAULT)
    return judge(value, DEFAULT)


@pytest.mark.parametrize(
    ("leaf", "finding"),
    [
        ("comm_transfer__nxn", "exposed-communication"),
        ("idle_data", "data-loading"),
        ("pcie_h2d__pageable", "staging"),
        ("idle_sync", "sync"),
        ("idle_host", "host-bound"),
        ("idle_launch", "host-bound"),
        ("comm_wait__p2p", "pipeline-wait"),
    ],
)
def test_each_cause_has_its_finding(leaf: str, finding: str) -> None:
    value = result([window(r, k, compute=90, **{leaf: 10}) for r in range(2) for k in range(5)])
    verdict = judged(value)
    assert [f.id for f in value.findings] == [finding]
    assert value.findings[0].saving_ns_per_step == 10 * MS
    assert verdict.status == "slow"
    assert "10.0 %" in verdict.headline


@pytest.mark.parametrize("leaf", ["comm_unresolved", "gpu_opaque", "idle_unknown", "uncovered"])
def test_the_unknown_has_no_saving_and_no_wrong_verdict(leaf: str) -> None:
    value = result([window(0, k, compute=40, **{leaf: 60}) for k in range(5)])
    verdict = judged(value)
    assert value.findings and all(f.saving_ns_per_step is None for f in value.findings)
    assert verdict.status == "cannot_tell" and verdict.do


def test_windows_of_no_length_are_no_measurement() -> None:
    verdict = judged(result([window(0, k) for k in range(3)]))
    assert verdict.status == "cannot_tell" and verdict.headline == "Cannot tell: no step could be measured"


def test_a_healthy_run_says_so() -> None:
    verdict = judged(result([window(r, k, compute=99, idle_launch=1) for r in range(4) for k in range(5)]))
    assert verdict.status == "healthy"
    assert verdict.headline.startswith("Healthy: 99.0 %")
    assert "straggler 0.0 %" in verdict.rule_outs


def test_a_straggler_leads_and_its_saving_is_the_wait_that_goes_back_to_it() -> None:
    windows = [
        window(r, k, compute=80 if r else 100, comm_wait__nxn=20 if r else 0) for r in range(4) for k in range(5)
    ]
    value = result(windows)
    value.straggler_rows = [
        StragglerRow(0, "node-0", 300 * MS, 300 * MS, 300 * MS, 5, 5, "persistent", "compute_slower", {})
    ]
    value.blame = [BlameRow(0, "node-0", 300 * MS, 300 * MS, 300 * MS, 300 * MS, 300 * MS, 0)]
    verdict = judged(value)
    assert value.findings[0].id == "straggler-0"
    assert value.findings[0].saving_ns_per_step == 20 * MS  # the median of 20, 20, 20, 0
    assert "Rank 0 on node-0" in verdict.headline
    assert verdict.owner == "hardware"
    assert "straggler" not in verdict.rule_outs


@pytest.mark.parametrize(("slowdown", "confidence"), [(1.04, "likely"), (1.05, "proved"), (None, "proved")])
def test_kernels_slower_by_less_than_5_percent_are_no_proof(slowdown: float | None, confidence: str) -> None:
    value = result([window(r, k, compute=80, comm_wait__nxn=20) for r in range(2) for k in range(5)])
    row = StragglerRow(0, "node-0", 300 * MS, 300 * MS, 300 * MS, 5, 5, "persistent", "compute_slower", {})
    row.quality, row.slowdown = "proved", slowdown
    value.straggler_rows = [row]
    assert [f.confidence for f in find_all(value, DEFAULT) if f.id == "straggler-0"] == [confidence]


@pytest.mark.parametrize(("ms", "bound"), [(9, False), (10, True)])
def test_a_step_is_staging_bound_from_10_percent_on(ms: int, bound: bool) -> None:
    value = result([window(0, k, compute=100 - ms, pcie_h2d__pinned=ms) for k in range(5)])
    (finding,) = find_all(value, DEFAULT)
    assert ("the step is staging-bound: at least 10.0 % of it" in finding.evidence) is bound


def test_wait_without_a_listed_straggler_is_imbalance() -> None:
    value = result([window(r, k, compute=90, comm_wait__nxn=10) for r in range(4) for k in range(5)])
    value.blame = [BlameRow(r, "node-0", 50 * MS, 50 * MS, 0, 0, 0, 0) for r in range(4)]
    judged(value)
    assert [f.id for f in value.findings] == ["imbalance"]
    assert "take turns" in value.findings[0].title


def test_wait_for_one_rank_that_is_not_sure_to_be_slow_says_so() -> None:
    value = result([window(r, k, compute=90, comm_wait__nxn=10) for r in range(4) for k in range(3)])
    value.blame = [BlameRow(2, "node-0", 90 * MS, 90 * MS, 0, 0, 0, 0), BlameRow(1, "node-0", MS, MS, 0, 0, 0, 0)]
    judged(value)
    assert "mostly for rank 2, on too little evidence" in value.findings[0].title


def test_wait_for_ranks_that_may_wait_for_missing_ones_asks_for_their_traces() -> None:
    value = result([window(r, k, compute=90, comm_wait__nxn=10) for r in range(4) for k in range(5)])
    value.blame = [BlameRow(2, "node-0", 90 * MS, 90 * MS, 0, 0, 0, 0)]
    value.run.missing_ranks = [6]
    judged(value)
    (finding,) = [f for f in value.findings if f.id == "imbalance"]
    assert "rank 6 without a trace" in finding.title and finding.advice.startswith("Add the trace of rank 6")
    assert (finding.confidence, finding.owner) == ("possible", "capture")


def test_outlier_steps_are_found_and_explained() -> None:
    windows = [window(0, k, compute=100, idle_host=100 if k == 4 else 0) for k in range(8)]
    value = result(windows)
    judged(value)
    slow = next(f for f in value.findings if f.id == "slow-steps")
    assert slow.where.step == 4
    assert slow.title.startswith("1 outlier among 8 steps, step 4 by ") and slow.evidence[0] == "step 4"
    assert "idle" in slow.evidence[1]


def test_allocator_time_is_named() -> None:
    value = result([window(0, k, compute=90, idle_host=10) for k in range(5)])
    value.idle = [IdleRow("idle_host", "alloc", 50 * MS)]
    judged(value)
    assert {"allocator", "host-bound"} <= {f.id for f in value.findings}
    (bound,) = [f for f in value.findings if f.id == "host-bound"]
    assert "over more of the step, if there are some already" in bound.advice  # a step may be graphs in part


def test_no_window_is_a_verdict_too() -> None:
    assert judged(result([])).status == "cannot_tell"


def test_cpu_only_runs_are_told_apart() -> None:
    verdict = judged(result([window(0, k, comm_host=30, idle_host=70) for k in range(5)]))
    assert verdict.status == "cannot_tell" and "no GPU activity" in verdict.headline


def test_gpu_records_outside_of_the_used_steps_are_told_apart_too() -> None:
    value = result([window(0, k, idle_host=100) for k in range(5)])
    value.run.gpu_ranks = [0]
    assert "the GPU activity on record (rank 0) is outside of the used steps" in judged(value).headline


def waiting(blamed: int, *, unresolved: int = 0, ranks: int = 4) -> Result:
    """Five steps of 100 ms: 20 ms of straggler wait in each, ``blamed`` ms of it in the ledger."""
    value = result(
        [
            window(r, k, compute=80 - unresolved, comm_wait__nxn=20, comm_unresolved__nxn=unresolved)
            for r in range(ranks)
            for k in range(5)
        ],
        ranks,
    )
    value.blame = [BlameRow(0, "", blamed * MS * 5 * ranks, blamed * MS * 5 * ranks, 0, 0, 0, 0)]
    return value


@pytest.mark.parametrize(
    ("first", "words"), [(1, "take turns"), (8, "mostly for stage 0 (ranks 0-1) of the pipeline")]
)
def test_a_stage_whose_ranks_are_late_together_is_told(first: int, words: str) -> None:
    value = waiting(20)
    value.blame = [BlameRow(r, "", n * MS, n * MS, 0, 0, 0, 0) for r, n in enumerate((first, first, 1, 1))]
    value.blame_by = [
        BlamePlaceRow("stage", f"stage {i}", ranks, 0, 0, 0, 0, 0, "estimated", "the descriptions of the groups")
        for i, ranks in enumerate(("0-1", "2-3"))
    ]
    judged(value)
    (found,) = (f for f in value.findings if f.id == "imbalance")
    assert words in found.title


def test_waiting_that_nobody_is_blamed_for_is_not_healthy() -> None:
    verdict = judged(waiting(0))
    assert verdict.status == "cannot_tell"
    assert verdict.headline == "Cannot tell: ranks wait 20.0 % of the step, and for whom cannot be told"
    assert judged(waiting(20)).status == "slow"


def test_waiting_beside_missing_ranks_is_not_healthy_either() -> None:
    value = waiting(0)
    value.run.missing_ranks = [7]
    assert judged(value).status == "cannot_tell"


def test_more_hiding_than_any_finding_saves_cannot_be_told() -> None:
    assert judged(waiting(20, unresolved=30)).status == "cannot_tell"
    assert judged(waiting(20, unresolved=10)).status == "slow"


def test_a_quarter_unknown_is_not_healthy() -> None:
    verdict = judged(result([window(r, k, compute=75, comm_unresolved=25) for r in range(4) for k in range(5)], 8))
    assert verdict.status == "cannot_tell"
    verdict = judged(result([window(r, k, compute=97, comm_unresolved=3) for r in range(4) for k in range(5)], 8))
    assert verdict.status == "healthy"


def test_what_the_unknown_may_hide_is_not_ruled_out() -> None:
    verdict = judged(result([window(0, k, compute=60, idle_host=20, comm_unresolved=20) for k in range(5)], 2))
    assert verdict.status == "slow"
    assert verdict.rule_outs == "input 0.0 % | copies 0.0 %"  # the unresolved may be network; the host is the cause


def test_a_large_share_is_no_rule_out() -> None:
    windows = [window(r, k, compute=60, comm_transfer__nxn=30, idle_host=10) for r in range(2) for k in range(5)]
    assert judged(result(windows)).rule_outs == "straggler 0.0 % | input 0.0 % | copies 0.0 %"


def test_without_a_gpu_its_idle_time_is_no_finding_and_nothing_is_ruled_out() -> None:
    value = result([window(0, k, comm_host=30, idle_host=40, idle_sync=15, idle_unknown=15) for k in range(5)])
    verdict = judged(value)
    assert [f.id for f in value.findings] == ["exposed-communication"]
    assert verdict.rule_outs == ""


def test_a_mean_off_the_median_is_told() -> None:
    value = result([window(0, k, compute=100, idle_host=100 if k == 4 else 0) for k in range(5)])
    assert judged(value).slow.startswith("100 ms a step in the median, 120 ms in the mean")


def test_work_that_was_launched_and_did_not_start_is_told_from_a_lack_of_records() -> None:
    value = result([window(0, k, compute=40, idle_unknown=60) for k in range(5)])
    value.idle = [IdleRow("idle_unknown", "queued", 250 * MS), IdleRow("idle_unknown", "", 50 * MS)]
    verdict = judged(value)
    assert "50.0 ms of work that was launched and did not start, 10.0 ms without any host activity" in verdict.cause
    assert "kept the launched work from starting" in verdict.do


def test_a_cut_trace_is_the_reason_for_what_is_unresolved() -> None:
    value = result([window(r, k, compute=75, comm_unresolved=25) for r in range(4) for k in range(5)])
    value.rank_rows[2].truncated = True
    verdict = judged(value)
    assert "the trace of rank 2 is cut short" in verdict.cause and "whole trace of rank 2" in verdict.do


def test_a_small_unknown_is_an_upper_bound_of_what_is_ruled_out() -> None:
    value = result([window(r, k, compute=75, idle_host=22, comm_unresolved=3) for r in range(4) for k in range(5)], 8)
    assert judged(value).rule_outs == "straggler ≤ 3.0 % | network ≤ 3.0 % | input 0.0 % | copies 0.0 %"


def across(group: str, members: str, ratio: float) -> CollectiveRow:
    return CollectiveRow(
        group, "allreduce", "64-128 MiB", 10, 10, 0, 0, 200 * MS, busbw=50 * ratio, members=members, peers_ratio=ratio
    )


def test_a_host_that_is_slow_in_every_group_that_crosses_it_is_named() -> None:
    value = result([window(r, k, compute=90, comm_transfer__nxn=10) for r in range(16) for k in range(3)])
    value.run.hosts = {f"node-{h}": [4 * h, 4 * h + 1, 4 * h + 2, 4 * h + 3] for h in range(4)}
    value.collective_rows = [
        across("a", "0,4", 0.5),
        across("b", "1,8", 0.6),
        across("c", "5,9", 1.0),
        across("d", "10,12", 1.0),
        across("e", "6,13", 1.1),
    ]
    judged(value)
    (found,) = (f for f in value.findings if f.id.startswith("grey"))
    assert found.id == "grey-failure-node-0" and "all 2 groups that cross node-0" in found.title
    value.collective_rows[1].peers_ratio = 1.0  # now group a alone is slow: it may be either of its hosts
    judged(value)
    assert not [f for f in value.findings if f.id.startswith("grey")]


def test_a_record_without_steps_has_no_step_time() -> None:
    value = result([window(0, 0, compute=50, idle_host=50)])
    value.run.steps.source = "all"
    verdict = judged(value)
    assert verdict.slow == "100 ms recorded, no steps found" and "no steps" in verdict.coverage


def test_a_cut_trace_is_seen_in_the_coverage() -> None:
    value = result([window(r, k, compute=100) for r in range(2) for k in range(5)])
    value.run.sources = [Source("a.json", "kineto", "D2", 1, 10, 10, 0, 0, 0, truncated=True)]
    assert judged(value).coverage.startswith("ranks 2/2 (1 cut short)  steps 5 of 5")
