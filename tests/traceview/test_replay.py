"""METHODS h.2 and e.6: replay of recorded steps."""

from __future__ import annotations

from dataclasses import replace as changed

import numpy as np
import pytest

from replays import inputs_of, of_ops
from scenarios import load, load_extras
from traceview.analysis import replay, replayequal
from traceview.analysis.replaygraph import build
from traceview.analysis.replayplay import Scenario, play
from traceview.config import DEFAULT

US = 1_000


def graph_of(inputs):
    chain, why = replay.choose(inputs, DEFAULT)
    assert chain, why
    return build([replay._lane(inputs, chain, i, DEFAULT) for i in range(len(chain.ranks))], inputs.met)


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
    return g, replayequal.roles(g, inputs.met, inputs.step_of_row)


@pytest.mark.parametrize("name", ["S02", "S03", "S09", "S10a", "S10b", "S10c", "S14", "S15", "S16", "S17"])
def test_the_base_replay_is_what_was_recorded(shared_dir, name):
    g, _ = scenario(shared_dir, name)
    played = play(g, Scenario())
    assert replay.fidelity(g, played) == 0
    assert np.array_equal(played.bounds, g.bounds)
    assert np.array_equal(played.end - played.waited, g.transfer)


def test_what_if_of_the_worked_examples(shared_dir):
    """S14: replaced 35, balanced 37.5. S02: balanced 62.5, replaced 55."""
    for name, rank, typical, even in (("S14", 3, 35, 37.5), ("S02", 1, 55, 62.5)):
        g, roles = scenario(shared_dir, name)
        assert makespan(g, replayequal.replaced(g, roles, {rank})) == typical
        assert makespan(g, replayequal.balanced(g, roles)) == even
