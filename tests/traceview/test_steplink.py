"""METHODS b.2: steps that every rank counts for itself are numbered by the collectives that ranks share."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

import traceview as tv
from jobs import MS, Job
from simulator.job import Job as Simulated
from simulator.job import LateStart, SlowRank
from simulator.kineto import write_kineto
from simulator.simulate import simulate
from traceview.analysis.match import match
from traceview.analysis.steplink import shifts
from traceview.schema import COLLECTIVES


def counted(groups, lost, steps=6, crossing=False):
    """Rank -> shift, where each rank counts its steps from its own first one and ``lost[rank]`` came before.

    ``crossing``: every third collective is launched in the step before on its last member.
    """
    job = Job(world=1 + max(max(g) for g in groups))
    for k in range(steps):
        for g in groups:
            for i in range(3):
                seen = [r for r in g if k >= lost.get(r, 0)]
                t = 100 * MS * k + 20 * MS * i
                facts = {"group": str(g), "members": g, "seq": 3 * k + i}
                step = {
                    r: k - lost.get(r, 0) - (crossing and i == 2 and r == g[-1] and k > lost.get(r, 0)) for r in seen
                }
                for r in seen:
                    job.add(step[r], {r: t}, t + MS, **facts)
    table, step = job.table()
    return shifts(table["rank"].to_numpy(), step, match(table, step, job.world, anchored=False))


WORLD = [tuple(range(4))]
TWO = [(0, 1), (2, 3), (0, 2), (1, 3)]


@pytest.mark.parametrize("groups", [WORLD, TWO])
@pytest.mark.parametrize("lost", [{}, {2: 2}, {0: 3}, {0: 1, 2: 3}, {0: 2, 1: 2}])
def test_a_later_record_counts_on_from_what_it_missed(groups, lost):
    assert counted(groups, lost) == {r: lost.get(r, 0) for r in range(4)}


def test_what_most_collectives_say_counts():
    assert counted(TWO, {2: 2}, crossing=True) == {0: 0, 1: 0, 2: 2, 3: 0}


def test_ranks_that_share_nothing_keep_their_numbers():
    assert counted([(0, 1), (2, 3)], {1: 2, 2: 1}) == {0: 0, 1: 2, 2: 1, 3: 0}


def test_without_a_collective_there_is_nothing_to_link():
    none = np.zeros(0, np.int64)
    assert shifts(none, none, match(COLLECTIVES.empty(), none, 2)) == {}


def test_a_capture_that_starts_later_without_marks_has_the_steps_of_the_others():
    with tempfile.TemporaryDirectory() as folder:
        job = Simulated(ranks=8, hosts=2, steps=8, faults=(SlowRank(5, 1.3), LateStart(3, 2)))
        write_kineto(simulate(job), Path(folder), "D2")
        for path in Path(folder).glob("*.json"):
            path.write_text(path.read_text().replace("ProfilerStep#", "Something#"))
        result = tv.analyze(tv.open(folder, cache=False, workers=1))
    assert result.run.steps.source == "optimizer"
    assert result.run.steps.used == [1, 3, 4, 5, 6, 7]  # 2 is the first one of rank 3
    assert [s.rank for s in result.straggler_rows] == [5]
