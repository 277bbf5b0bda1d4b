"""METHODS h: what the step would take, by simple bound and by replay, on worked examples."""

from __future__ import annotations

from dataclasses import replace as changed

import numpy as np
import pytest

from replays import inputs_of
from scenarios import Scenario, load
from traceview.analysis.replay.answer import Base, base_replay
from traceview.analysis.replay.made import made_of
from traceview.analysis.whatif.answer import Replayed, answer
from traceview.analysis.whatif.asked import Asked
from traceview.analysis.whatif.choices import choices
from traceview.analysis.whatif.facts import Facts, Moved, moved, remaining
from traceview.config import DEFAULT
from traceview.result import Metric, StragglerRow, Window

from .results import result

US = 1_000
TWICE = Asked(network=(("all", 2.0),))


def windows_of(s):
    """The windows that the example expects; a transfer that no leaf shows is hidden behind compute."""
    out = []
    for (rank, step), leaves in s.expect_leaves().items():
        whole = {k: v for k, v in leaves.items() if v}
        hidden = (
            s.expect_metrics().get((rank, step), {}).get("hidden_transfer", 0) if "expect_metrics" in s.raw else 0
        )
        both = {"comm_transfer": whole.get("comm_transfer", 0), "compute+comm_transfer": hidden}
        waits = {"comm_wait.nxn": whole["comm_wait"]} if "comm_wait" in whole else {}
        out.append(Window(rank, 0, step, *s.cover(rank), whole, waits, both))
    return out


def asking(s, **facts):
    """(Facts, replay) of a worked example with one communication operation per rank."""
    found = result(windows_of(s))
    found.metrics["step_time"] = Metric(float(found.step_rows[0].wall_ns), "ns", 1, "", "proved")
    for name, value in facts.items():
        setattr(found, name, value)
    inputs = inputs_of(s)
    leaves = {w.rank: w.leaves_ns.get("comm_transfer", 0) for w in found.window_rows}
    exposed = np.array([leaves[r] for r in inputs.met.c.rank.tolist()], np.int64)
    m = moved(found, inputs.met.c, inputs.met.waited.phases, exposed, inputs.step_of_row, DEFAULT)
    return Facts(found, m, None), Replayed.of(base_replay(inputs), inputs)


def row(s, asked, **facts):
    f, replayed = asking(s, **facts)
    return answer(f, replayed, [asked], DEFAULT).answers[0]


def late(rank, origin_us):
    return StragglerRow(rank, "h", 0, origin_us * US, 0, 1, 1, "persistent", "compute_slower", {})


CASES = {
    "W1: network x2": ("S02", TWICE, (62.5, 62.5), 62.5),
    "W1: rebalance": ("S02", Asked(balance=True), (62.5, 62.5), 62.5),
    "half the network": ("S02", Asked(network=(("all", 0.5),)), (85, 85), 85),
    "W2: network x2": ("S03", TWICE, (35, 40), 35),
    "perfect overlap": ("S03", Asked(overlap=True), (30, 30), 30),
    "free communication": ("S03", Asked(communication=False), (20, 30), 20),  # the lower of two ranks, as T_k
    "W3: rebalance": ("S14", Asked(balance=True), (37.5, 37.5), 37.5),
    "staging": ("S11", Asked(staging=False), (35, 35), 55),
    "nothing": ("S02", Asked(data_wait=False), (70, 70), 70),
}


@pytest.mark.parametrize("case", CASES)
def test_worked_examples(shared_dir, case):
    name, asked, bound, played = CASES[case]
    found = row(load(shared_dir)[name], asked)
    assert [ns / US for ns in found.bound_ns] == list(bound)
    assert found.replay_ns / US == played
    assert found.step_ns == found.replay_ns and found.saving_ns == answer_step(shared_dir, name) - found.replay_ns


def answer_step(shared_dir, name):
    return result(windows_of(load(shared_dir)[name])).step_rows[0].wall_ns


def test_a_replaced_rank(shared_dir):
    """W3: 45 becomes 35; who owes half of the waiting brings half of it by the bound."""
    s = load(shared_dir)["S14"]
    found = row(s, Asked(replace=frozenset({3})), straggler_rows=[late(3, 30)])
    assert (found.bound_ns, found.replay_ns) == ([35 * US, 35 * US], 35 * US)
    found = row(s, Asked(replace=frozenset({3})), straggler_rows=[late(3, 15), late(2, 15)])
    assert found.bound_ns == [40 * US, 40 * US]


def made(g, played):
    return {k: round(v / US, 6) for k, v in made_of(g, played).items() if v}


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("S02", {"compute": 55, "communication": 15}),
        ("S03", {"compute": 20, "communication": 30}),
        ("S14", {"compute": 30, "communication": 15}),
    ],
)
def test_what_the_step_is_made_of_is_its_critical_path(shared_dir, name, groups):
    """METHODS e.8, from the replay."""
    base = base_replay(inputs_of(load(shared_dir)[name]))
    assert made(base.graph, base.played) == groups


def test_the_parts_are_those_of_the_scenario(shared_dir):
    found = row(load(shared_dir)["S02"], TWICE)
    assert found.made_of_ns == {"compute": 55 * US, "communication": 7.5 * US, "PCIe staging": 0, "idle": 0}
    assert found.next == "compute 88.0 % of it"


def one(leaves, gpu, host=()):
    """One rank without communication. ``gpu``: (class, stream, start, end, launch); ``host``: (kind, start, end)."""
    last = max(g[3] for g in gpu)
    records = [{"cls": c, "stream": q, "s": s, "e": e, "ls": ls} for c, q, s, e, ls in gpu]
    ranges = [{"kind": kind, "s": s, "e": e} for kind, s, e in host]
    lane = {"window": [0, last], "gpu": records, "host": ranges}
    return Scenario("one", {"ranks": {"0": lane}, "expect": {"0/0": leaves}})


def test_a_copy_that_hides_behind_another_stream():
    """W4: the bound sees nothing, the copy held the stream all the same."""
    s = one({"compute": 10}, [("compute", 1, 0, 5, 0), ("pcie_h2d", 2, 0, 5, 0), ("compute", 2, 5, 10, 0)])
    found = row(s, Asked(staging=False))
    assert (found.bound_ns, found.replay_ns) == ([10 * US, 10 * US], 5 * US)
    assert found.told.startswith("the replay saves more than the bound")


GAPS = one(
    {"compute": 40, "idle_host": 3, "idle_data": 2, "idle_launch": 5},
    [("compute", 7, 0, 20, 0), ("compute", 7, 30, 50, 25)],
    [("cpu", 0, 23), ("data", 23, 25)],
)


def test_launch_gaps_and_waits_for_input_are_different_parts_of_the_host():
    """CUDA graphs: the second launch waits for the input alone, at 2 us, so it queues. Input ready: 25 becomes 23."""
    found = row(GAPS, Asked(launch_gaps=False))
    assert (found.bound_ns, found.replay_ns, found.quality) == ([42 * US, 42 * US], 40 * US, "upper_bound")
    found = row(GAPS, Asked(data_wait=False))
    assert (found.bound_ns, found.replay_ns, found.quality) == ([48 * US, 48 * US], 48 * US, "estimated")


def test_savings_of_different_parts_add_up(shared_dir):
    both = changed(TWICE, balance=True)
    found = row(load(shared_dir)["S02"], both)
    assert (found.bound_ns, found.replay_ns) == ([55 * US, 55 * US], 55 * US)
    assert found.options == "--network all=2 --balance"
    assert found.title == "network all x2, work evenly spread"


def test_latency_is_not_scaled():
    none = np.zeros(2, np.int64)
    m = Moved(none, none, none, np.array([0, 1]), ["g", "h"], ["rack", "nvlink"], np.array([10.0, 0.0]), np.ones(2))
    transfer, rows = np.array([30, 30]), np.array([0, 1])
    assert (30 * remaining(m, TWICE, rows, transfer)).tolist() == [20, 15]
    assert (30 * remaining(m, Asked(network=(("inter", 2.0),)), rows, transfer)).tolist() == [20, 30]
    assert (30 * remaining(m, Asked(network=(("h", 3.0),)), rows, transfer)).tolist() == pytest.approx([30, 10])
    assert remaining(m, TWICE, rows, np.array([4, 0])).tolist() == [1, 1]


def test_communication_without_host_memory_goes_at_its_bound():
    none = np.zeros(1, np.int64)
    m = Moved(none, none, none, none, ["g"], ["rack"], np.zeros(1), np.array([4.0]))
    assert remaining(m, Asked(staging=False), none, np.array([40])).tolist() == [0.25]


@pytest.mark.parametrize("factor", [1.0, 1.5, 2.0, 10.0, 1e9])
def test_a_faster_network_never_makes_it_slower_and_free_is_the_least(shared_dir, factor):
    for name in ("S02", "S03", "S14"):
        s = load(shared_dir)[name]
        faster = row(s, Asked(network=(("all", factor),)))
        free = row(s, Asked(communication=False))
        assert free.replay_ns <= faster.replay_ns <= answer_step(shared_dir, name)
        assert faster.bound_ns[0] <= faster.bound_ns[1] <= answer_step(shared_dir, name)


def test_the_largest_saving_comes_first_and_unknown_ones_last(shared_dir):
    f, replayed = asking(load(shared_dir)["S02"])
    found = answer(
        f, replayed, [Asked(even_tokens=True), Asked(data_wait=False), TWICE, Asked(balance=True)], DEFAULT
    )
    assert [r.options for r in found.answers] == ["--balance", "--network all=2", "--no-data-wait", "--even-tokens"]
    assert [r.saving_ns for r in found.answers] == [7_500, 7_500, 0, None]
    assert found.answers[-1].told.startswith("cannot tell, because there are no all-to-alls")
    assert found.answers[0].gpu_hours_a_day == pytest.approx(7.5 / 70 * 2 * 24)


def test_a_refused_replay_leaves_the_bound_and_says_why(shared_dir):
    f, replayed = asking(load(shared_dir)["S03"])
    refused = changed(replayed, base=Base([0], "the base replay is off by 7.0 %", 0.07))
    (found,) = answer(f, refused, [TWICE], DEFAULT).answers
    assert (found.replay_ns, found.step_ns) == (None, 40 * US)  # the cautious end
    assert found.told == "no replay: the base replay is off by 7.0 %"
    assert found.made_of_ns == {} and found.next == ""


def test_a_replay_that_is_off_is_told():
    f, replayed = asking(GAPS)
    off = changed(replayed, base=changed(replayed.base, off=0.03))
    assert answer(f, off, [], DEFAULT).warnings == [
        "the base replay is off by 3.0 % of the step: take its numbers with care"
    ]


def test_what_can_be_asked_of_a_run(shared_dir):
    f, _ = asking(load(shared_dir)["S02"])
    wanted = [a.options for a in choices(f, [frozenset({1})])]
    assert wanted == [
        "--network unknown=2", "--replace 1", "--balance", "--overlap", "--free-communication",
    ]  # fmt: skip
    f, _ = asking(GAPS)
    assert [a.options for a in choices(f, [])] == ["--no-data-wait", "--no-launch-gaps"]


UNTOLD = {
    "no host": (
        one({"compute": 10, "idle_unknown": 10}, [("compute", 7, 0, 10, None), ("compute", 7, 20, 20, None)]),
        Asked(data_wait=False),
        "cannot tell, because the record holds nothing of the host: record CPU activity too",
    ),
    "no GPU": (
        one({"idle_host": 10}, [("compute", 7, 10, 10, None)]),
        Asked(launch_gaps=False),
        "cannot tell, because no work on a GPU was recorded: record CUDA or ROCm activity",
    ),
    "no transfer": (
        GAPS,
        TWICE,
        "cannot tell, because no transfer of all is fully observed: record all ranks at once",
    ),
}


@pytest.mark.parametrize("case", UNTOLD)
def test_what_cannot_be_told_says_how_to_record_it(case):
    s, asked, why = UNTOLD[case]
    found = row(s, asked)
    assert (found.bound_ns, found.step_ns, found.saving_ns, found.quality) == (None, None, None, "unavailable")
    assert found.told == why


def test_who_compares_with_nobody_has_no_replay():
    found = row(GAPS, Asked(replace=frozenset({0})))
    assert found.told == "no replay: nobody makes the same communication calls as rank 0"
    assert found.bound_ns == [50 * US, 50 * US]
