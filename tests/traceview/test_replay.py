"""METHODS h.2 and e.6: replay of recorded steps."""

from __future__ import annotations

from dataclasses import replace as changed

import numpy as np
import pytest

from jobs import Job
from replays import inputs_of, of_ops, of_table
from scenarios import load, load_extras
from traceview.analysis.replay import answer as replay
from traceview.analysis.replay import chain, equal
from traceview.analysis.replay.chain import lane_of
from traceview.analysis.replay.graph import build
from traceview.analysis.replay.play import Scenario, play
from traceview.analysis.types import UNRESOLVED, Windows
from traceview.config import DEFAULT

US = 1_000


def graph_of(inputs):
    picked, why = chain.choose(inputs, DEFAULT)
    assert picked, why
    return build([lane_of(inputs, picked, i, DEFAULT) for i in range(len(picked.ranks))], inputs.met)


def makespan(g, how=None):
    return play(g, how or Scenario()).bounds.max() / US


def resized(g, ops, new):
    """The graph with other durations of compute, found by what they were; ``ops`` of one stream without a gap add."""
    lanes = g.lane_of_stretch[g.blocks.stretch]
    factor = np.ones(len(g.blocks.row))
    for rank, stream in {(o["rank"], o["stream"]) for o in ops if "coll" not in o}:
        own = [o for o in ops if (o["rank"], o["stream"]) == (rank, stream)]
        was = sum(o["dur"] for o in own)
        (at, *_) = np.flatnonzero((lanes == rank) & (g.blocks.work == was * US))
        factor[at] = sum(new[o["id"]] for o in own) / was
    blocks = changed(g.blocks, work=g.blocks.work * factor, load=g.blocks.load * factor[:, None])
    return changed(g, blocks=blocks)


@pytest.mark.parametrize("case", ["W1", "W2", "W3", "W4"])
def test_worked_examples(shared_dir, case):
    """Every scenario of the example, as a change of the graph that its recorded base gives."""
    (case,) = (x for x in load_extras(shared_dir)["replay"] if x["id"] == case)
    base = case["base"]
    g = graph_of(of_ops(base))
    assert makespan(g) == case["base_makespan"]
    for scenario in case["scenarios"]:
        new = {o["id"]: o["dur"] for o in scenario["ops"]}
        (scale,) = {new[o["id"]] / o["dur"] for o in base if "coll" in o} or {1.0}
        network = Scenario(transfer=1 / scale if scale else np.inf)
        assert makespan(resized(g, base, new), network) == scenario["makespan"], scenario["name"]


def scenario(shared_dir, name):
    inputs = inputs_of(load(shared_dir)[name])
    g = graph_of(inputs)
    return g, equal.roles(g, inputs.met, inputs.step_of_row)


@pytest.mark.parametrize("name", ["S02", "S03", "S09", "S10a", "S10b", "S10c", "S14", "S15", "S16", "S17"])
def test_the_base_replay_is_what_was_recorded(shared_dir, name):
    g, _ = scenario(shared_dir, name)
    played = play(g, Scenario())
    assert replay.fidelity(g, played) == 0
    assert np.array_equal(played.bounds, g.bounds)
    assert np.array_equal(played.end - played.waited, g.transfer)


CAPS = {
    "all": ({}, [0, 1, 2], ""),
    "operations in all": ({"replay_rows": 8}, [0, 1], ""),
    "operations of a rank": ({"replay_max_depth": 2}, [0], ""),
    "one step always": ({"replay_rows": 1, "replay_max_depth": 1}, [0], ""),
    "GPU operations of a rank": ({"replay_max_ops": 9}, [0, 1], ""),
    "a step of too many GPU operations": (
        {"replay_max_ops": 3},
        None,
        "one step holds 4 GPU operations of a rank, a replay at most 3",
    ),
    "but not a huge one": (
        {"replay_max_rows": 3},
        None,
        "one step holds 4 communication operations, a replay at most 3",
    ),
}


def steps_of(used=(True, True, True), gap=0):
    """Two ranks, three steps of 100 us with two all-reduces each."""
    job = Job(world=2)
    for k in range(3):
        begin = k * (100 + gap) * US
        job.add(k, {0: begin + 10 * US, 1: begin + 20 * US}, begin + 30 * US)
        job.add(k, {0: begin + 80 * US, 1: begin + 80 * US}, begin + 100 * US)
    table, step = job.table()
    at = np.arange(3) * (100 + gap) * US
    bounds = [np.tile(x, 2) for x in (np.arange(3), at, at + 100 * US, np.array(used))]
    windows = Windows(np.repeat([0, 1], 3), np.zeros(6, np.int64), *bounds)
    return of_table(table, step, windows)


@pytest.mark.parametrize("case", CAPS)
def test_as_many_steps_as_the_limits_allow(case):
    limits, steps, why = CAPS[case]
    picked, told = chain.choose(steps_of(), changed(DEFAULT, **limits))
    assert (picked and picked.steps, told) == (steps, why)


@pytest.mark.parametrize(
    ("shape", "steps"),
    [({"used": (True, False, True)}, [0]), ({"used": (False, True, True)}, [1, 2]), ({"gap": 5}, [0])],
)
def test_only_steps_that_follow_each_other_are_one_chain(shape, steps):
    picked, _ = chain.choose(steps_of(**shape), DEFAULT)
    assert picked.steps == steps


def test_a_chain_of_steps_is_replayed_as_it_was():
    answer = replay.replay(steps_of(), [])
    assert (answer.refused, answer.off, answer.step, answer.partial) == ("", 0, 100 * US, False)
    assert answer.balanced == 95 * US  # 10 and 20 us of work before the first all-reduce become 15 and 15


def test_what_was_not_observed_does_not_move_and_refuses_if_it_is_most():
    inputs = steps_of()
    rows = inputs.met.matches.instance < 0
    second = np.where(np.arange(len(rows)) % 4 < 2, UNRESOLVED, inputs.met.waited.phases.second)
    some = changed(inputs.met.waited, phases=changed(inputs.met.waited.phases, second=second.astype(np.int8)))
    answer = replay.replay(changed(inputs, met=changed(inputs.met, waited=some)), [])
    assert (answer.refused, answer.partial, answer.off) == ("", True, 0)
    none = changed(some, phases=changed(some.phases, second=np.full(len(rows), UNRESOLVED, np.int8)))
    answer = replay.replay(changed(inputs, met=changed(inputs.met, waited=none)), [])
    assert answer.refused.startswith("most communication is not fully observed")


def test_a_rank_without_gpu_work_in_the_steps_is_refused():
    inputs = steps_of()
    empty = changed(inputs, gpu_ops=lambda r: inputs.gpu_ops(r).slice(0, 0) if r else inputs.gpu_ops(r))
    assert replay.replay(empty, []).refused == "some rank has no GPU work in the replayed steps"


def test_steps_without_communication_are_refused():
    inputs = steps_of()
    none = changed(inputs, op_of_row=lambda r: np.full(6, -1))
    assert replay.replay(none, []).refused == "the steps hold no communication"


def test_a_culprit_that_compares_with_nobody():
    """Rank 1 alone is in two groups."""
    job = Job(world=3)
    job.add(0, {0: 10 * US, 1: 30 * US}, 40 * US, group="a")
    job.add(0, {1: 50 * US, 2: 50 * US}, 60 * US, group="b")
    table, step = job.table()
    windows = Windows(np.arange(3), *(np.full(3, x) for x in (0, 0, 0, 60 * US)), np.ones(3, np.bool_))
    answer = replay.replay(of_table(table, step, windows), [frozenset({1})])
    assert (answer.refused, answer.fixed) == ("", {frozenset({1}): None})


def test_an_order_that_contradicts_itself_is_refused():
    """Each rank sends only after it has received from the other: no clocks allow that."""
    job = Job(world=2)
    for kind, at in (("recv", 10), ("send", 30)):
        for rank in (0, 1):
            ends = {"src": 1 - rank, "dst": rank} if kind == "recv" else {"src": rank, "dst": 1 - rank}
            facts = {"kind": kind, "p2p": True, "seq": 7 + (rank == 0) ^ (kind == "send")}
            job.add(0, {rank: at * US}, (at + 15) * US, members=(0, 1), **ends, **facts)
    table, step = job.table()
    windows = Windows(np.array([0, 1]), *(np.array([x, x]) for x in (0, 0, 0, 50 * US)), np.array([True, True]))
    inputs = of_table(table, step, windows, eps_ns=10**9)
    answer = replay.replay(inputs, [])
    assert answer.refused == "the order of events contradicts itself: a clock or a match is wrong"


def test_what_if_of_the_worked_examples(shared_dir):
    """S14: replaced 35, balanced 37.5. S02: balanced 62.5, replaced 55."""
    for name, rank, typical, even in (("S14", 3, 35, 37.5), ("S02", 1, 55, 62.5)):
        g, roles = scenario(shared_dir, name)
        assert makespan(g, equal.replaced(g, roles, {rank})) == typical
        assert makespan(g, equal.balanced(g, roles)) == even
