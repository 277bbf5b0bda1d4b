"""Mixture-of-experts jobs of known routing, written as files and analysed: uneven tokens are no slow GPU."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import traceview as tv
from simulator.job import ClockDrift, ClockOffset, Fault, Job, MissingRanks, Routing, SlowRank
from simulator.kineto import write_kineto
from simulator.network import GB, Network
from simulator.nsight import write_nsight
from simulator.simulate import simulate
from traceview.result import Finding, Result
from traceview_reports import views

MS = 1_000_000
EVEN = (1.0,) * 8
HOT = (1.0, 1.0, 1.0, 1.0, 1.0, 1.8, 1.0, 1.0)
LOAD = 1.8 * 8 / 8.8
SLOW = SlowRank(2, 1.3)
FAST = Network(nvlink=100_000 * GB, nic=100_000 * GB, intra_latency=100, inter_latency=100)
"""transfers take next to nothing, so that a step is longer by what the experts take"""


@cache
def analyse(style: str, *faults: Fault, fast: bool = False, **job: Any) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        settings = {"ranks": 8, "hosts": 2, "steps": 6, "layout": "ep"} | ({"net": FAST} if fast else {}) | job
        write_kineto(simulate(Job(faults=faults, **settings)), Path(folder), style)
        return tv.analyze(tv.open(folder, cache=False, workers=1))


def finding(result: Result, name: str) -> Finding:
    (found,) = [f for f in result.findings if f.id == name]
    return found


def names(result: Result) -> set[str]:
    """Findings that count straggler wait."""
    return {f.id for f in result.findings if f.section == "stragglers"}


def culprits(result: Result) -> dict[int, tuple[str, str]]:
    return {s.rank: (s.cause, s.tokens) for s in result.straggler_rows}


@pytest.mark.parametrize("style", ["D0", "D2"])
@pytest.mark.parametrize("same_grid", [True, False])
def test_a_hot_rank_has_more_work_and_no_slow_gpu(style: str, same_grid: bool) -> None:
    result = analyse(style, Routing(HOT, same_grid=same_grid))
    assert culprits(result) == {5: ("compute_more_work", "uneven")}
    (row,) = result.straggler_rows
    assert row.load == pytest.approx(LOAD, abs=0.001)
    assert f"its experts get {LOAD:.2f}x the mean tokens" in row.explanation
    assert row.kind == "persistent" and row.slowdown is None
    assert names(result) == {"expert-imbalance"}
    assert result.verdict.headline.startswith(
        f"Rank 5 on node-2 gets {LOAD:.2f}x the mean tokens of expert group 301"
    )
    assert result.verdict.owner == "model code"
    assert "load-balancing loss" in result.verdict.do and "cordon" not in result.verdict.ticket
    assert "straggler" not in result.verdict.rule_outs


@pytest.mark.parametrize("moves", ["", "step", "layer"])
def test_the_saving_is_what_even_tokens_really_save(moves: str) -> None:
    hot, even = (analyse("D2", Routing(load, moves), fast=True) for load in (HOT, EVEN))
    steps = [r.metrics["step_time"].value or 0.0 for r in (hot, even)]
    saving = finding(hot, "expert-imbalance").saving_ns_per_step
    assert saving == pytest.approx(steps[0] - steps[1], rel=0.02)
    assert names(even) == set() and even.straggler_rows == []


@pytest.mark.parametrize(("moves", "words"), [("step", "from step to step"), ("layer", "from layer to layer")])
def test_a_hot_rank_that_moves_is_a_finding_about_the_group(moves: str, words: str) -> None:
    result = analyse("D2", Routing(HOT, moves))
    found = finding(result, "expert-imbalance")
    assert found.title.startswith(f"{words} another rank of expert group 301 is overloaded, {LOAD:.2f}x the mean")
    assert result.straggler_rows == [] and names(result) == {"expert-imbalance"}
    assert found.confidence == "proved"
    assert found.saving_ns_per_step == pytest.approx(17.1 * MS, rel=0.01)
    assert "it arrives last at 60 of 60 combines" in found.evidence


def test_the_table_of_experts_is_on_the_first_screen_where_a_finding_is_about_them() -> None:
    result = analyse("D2", Routing(HOT, "layer"))
    view = views.experts(result, short=True)
    shown = {c.label: c.text(view.rows[0]) for c in view.columns}
    assert shown["busiest x mean"] == "1.64" and shown["moves"] == "by layer" and shown["layers"] == "12"
    assert shown["gain a step"] == "17.1 ms" and shown["busiest last"] == "60/60" and shown["sizes"] == "told"
    even, untold = analyse("D2", Routing(EVEN)), analyse("B3", Routing(HOT))
    assert [len(views.experts(r, short=True).rows) for r in (even, untold)] == [0, 0]
    (row,) = views.experts(untold).rows
    assert {c.label: c.text(row) for c in view.columns}["gain a step"] == "-"


def test_exposed_all_to_alls_get_the_advice_of_their_kind() -> None:
    assert finding(analyse("D2", Routing(EVEN)), "exposed-communication").advice.startswith("MoE: overlap dispatch")


@pytest.mark.parametrize("load", [EVEN, (1.0, 1.02, 0.98, 1.0, 1.01, 1.0, 0.99, 1.0)])
def test_a_slow_gpu_with_even_tokens_is_slow(load: tuple[float, ...]) -> None:
    result = analyse("D2", Routing(load), SLOW)
    assert culprits(result) == {2: ("compute_slower", "")}
    assert result.straggler_rows[0].slowdown == pytest.approx(1.3, abs=0.02)
    assert names(result) == {"straggler-2"}
    assert result.verdict.owner == "hardware"


@pytest.mark.parametrize("same_grid", [True, False])
def test_groups_that_wait_for_each_other_lose_what_the_worst_loses(same_grid: bool) -> None:
    """Two expert groups of four, gradients reduced over all: those of the other group wait for rank 5 too."""
    hot, even = (
        analyse("D2", Routing(load, same_grid=same_grid), fast=True, ep=4, layer_bytes=8_000_000)
        for load in (HOT, EVEN)
    )
    assert culprits(hot) == {5: ("compute_more_work", "uneven")}
    assert names(hot) == {"expert-imbalance"}
    steps = [r.metrics["step_time"].value or 0.0 for r in (hot, even)]
    found = finding(hot, "expert-imbalance")
    assert found.saving_ns_per_step == pytest.approx(steps[0] - steps[1], rel=0.05)
    assert "gets 1.50x the mean tokens of expert group 302; 3 others wait" in found.title


def test_a_slow_rank_of_another_group_leaves_little_to_gain() -> None:
    result = analyse("D2", Routing(HOT), SLOW, ep=4)
    assert culprits(result) == {5: ("compute_more_work", "uneven"), 2: ("compute_slower", "")}
    assert names(result) == {"straggler-5", "straggler-2"}
    assert finding(result, "straggler-5").owner == "model code"
    assert (result.metrics["even_tokens_gain"].value or 0) < 0.02 * (result.metrics["step_time"].value or 0)


def test_two_hot_ranks_are_named_together() -> None:
    result = analyse("D2", Routing((1.0, 1.0, 1.0, 1.0, 1.8, 1.8, 1.0, 1.0)))
    assert culprits(result) == dict.fromkeys((4, 5), ("compute_more_work", "uneven"))
    assert names(result) == {"expert-imbalance"}
    assert finding(result, "expert-imbalance").title.startswith("ranks 4-5 on node-2 get 1.50x the mean tokens")


def test_a_slow_gpu_with_fewer_tokens_than_others_is_slow_and_both_are_named() -> None:
    result = analyse("D2", Routing(HOT), SLOW)
    assert culprits(result) == {5: ("compute_more_work", "uneven"), 2: ("compute_slower", "")}
    assert names(result) == {"expert-imbalance", "straggler-2"}
    (row,) = result.experts
    assert [(hot.rank, round(hot.pace, 2)) for hot in row.ranks] == [(5, 1.0)]
    even = analyse("D2", Routing(EVEN), SLOW, fast=True)
    both = analyse("D2", Routing(HOT), SLOW, fast=True)
    steps = [r.metrics["step_time"].value or 0.0 for r in (both, even)]
    assert finding(both, "expert-imbalance").saving_ns_per_step == pytest.approx(steps[0] - steps[1], rel=0.03)


@pytest.mark.parametrize("same_grid", [True, False])
def test_a_slow_gpu_with_more_tokens_shows_both_terms(same_grid: bool) -> None:
    result = analyse("D2", Routing((1.0, 1.0, 1.2, 1.0, 1.0, 1.0, 1.0, 1.0), same_grid=same_grid), SlowRank(2, 1.5))
    assert culprits(result) == {2: ("compute_slower", "")}
    (row,) = result.straggler_rows
    assert row.slowdown == pytest.approx(1.5, abs=0.01)
    assert row.cause_terms_ns["compute_slower"] > row.cause_terms_ns["compute_more_work"] > 0
    assert "the same kernels take 1.50x as long" in row.explanation
    assert "its experts get 1.17x the mean tokens" in row.explanation
    slow, tokens = finding(result, "straggler-2"), finding(result, "expert-imbalance")
    assert slow.owner == "hardware" and "slower hardware comes on top" in " ".join(tokens.evidence)
    # the two count different parts of one wait
    wait = result.budget.sub_ns["comm_wait.nxn"] / len(result.window_rows)
    assert "less what the finding on its tokens counts" in slow.basis
    assert wait < slow.saving_ns_per_step + tokens.saving_ns_per_step < wait * 8 / 7


def test_padded_experts_leave_nothing_to_gain() -> None:
    result = analyse("D2", Routing(HOT, fixed=1.0))
    assert names(result) == set() and result.straggler_rows == []
    assert result.experts[0].imbalance == pytest.approx(LOAD)
    assert result.experts[0].gain_ns < 0.01 * MS


@pytest.mark.parametrize("style", ["B3"])
def test_without_sizes_it_is_not_told_whether_tokens_or_hardware(style: str) -> None:
    result = analyse(style, Routing(HOT))
    assert culprits(result) == {5: ("unknown", "untold")}
    found = finding(result, "straggler-5")
    assert "more tokens or slower" in found.title and found.owner == "capture"
    assert found.advice.endswith(
        "record the sizes of the all-to-alls with PyTorch 2.4 or later and record_shapes=True."
    )
    (row,) = result.experts
    assert (row.told, row.pairs, row.gain_ns, row.imbalance, row.ranks) == (False, 60, 0, None, [])


def test_without_sizes_a_gpu_that_is_slow_everywhere_is_slow() -> None:
    result = analyse("B3", Routing(EVEN), SLOW)
    assert culprits(result) == {2: ("compute_slower", "")}


def test_clocks_apart_change_nothing() -> None:
    plain = analyse("D2", Routing(HOT))
    apart = analyse("D2", Routing(HOT), ClockOffset(1, 10_000 * MS), ClockDrift(1, 20_000))
    assert culprits(apart) == culprits(plain)
    assert apart.experts[0].gain_ns == pytest.approx(plain.experts[0].gain_ns, rel=0.01)


def test_a_missing_rank_hides_the_gain_but_not_the_tokens_of_those_seen() -> None:
    result = analyse("D2", Routing(HOT), MissingRanks((0,)))
    assert culprits(result) == {5: ("compute_more_work", "uneven")}
    found = finding(result, "straggler-5")
    assert "the mean tokens of its expert group" in found.title and found.owner == "model code"
    assert result.experts[0].gain_ns == 0


def test_split_lists_that_are_cut_still_tell_the_totals() -> None:
    load = (1.0,) * 30 + (3.0, 1.0)
    result = analyse("D2", Routing(load), ranks=32, hosts=4, steps=4, layers=2)
    assert culprits(result) == {30: ("compute_more_work", "uneven")}
    assert result.experts[0].imbalance == pytest.approx(3.0 * 32 / 34, rel=0.001)
    assert all(c.size_class != "no size" for c in result.collective_rows if c.kind == "alltoallv")


@pytest.mark.parametrize(("payload", "cause"), [("blob", "compute_more_work"), ("none", "unknown")])
def test_nsight_tells_tokens_by_the_sends_and_receives_of_its_payloads(
    tmp_path: Path, payload: str, cause: str
) -> None:
    """A rank without a token sends nothing in the combine: torch leaves that out."""
    load = (1.0, 0.0, 1.0, 1.0, 1.0, 1.8, 1.0, 1.0)
    write_nsight(
        simulate(Job(ranks=8, hosts=2, steps=5, layout="ep", faults=(Routing(load),))), tmp_path, payload=payload
    )
    result = tv.analyze(tv.open(tmp_path, cache=False, workers=1))
    assert {s.rank: s.cause for s in result.straggler_rows} == {5: cause}
    told = payload == "blob"
    assert result.experts[0].told is told
    assert names(result) == ({"expert-imbalance"} if told else {"straggler-5", "imbalance"})
    if not told:
        assert "nsys export --include-blobs=true" in finding(result, "straggler-5").advice
    else:
        same = analyse("D2", Routing(load), steps=5).experts[0]
        assert (result.experts[0].gain_ns, result.experts[0].imbalance) == (same.gain_ns, same.imbalance)


def test_all_members_of_an_uneven_all_to_all_are_in_one_size_class() -> None:
    classes = [c for c in analyse("D2", Routing(HOT)).collective_rows if c.kind == "alltoallv"]
    assert [(c.n, c.matched) for c in classes] == [(120, 120)]
