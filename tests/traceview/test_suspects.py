"""METHODS e.7: what costs nobody, what may be chance, and what several late ranks cost together."""

from __future__ import annotations

import numpy as np
import pytest

from jobs import MS, Job, analyse, training
from traceview.analysis.suspects import _no_chance, _together
from traceview.config import DEFAULT


def numbered(n, k):
    return n


@pytest.mark.parametrize("share", [0.06, 0.3])
def test_a_node_of_eight_among_many_is_named_although_each_owes_little(share):
    job = training(128, 5, 4, slow=dict.fromkeys(range(40, 48), share), seq=numbered, group="world")
    got = analyse(job, {r: f"node-{r // 8}" for r in range(128)})
    assert sorted(got.culprits) == list(range(40, 48))
    assert {r.place for r in got.found.rows} == {"node"}


def test_a_step_in_which_it_cost_nobody_is_not_late():
    """Rank 2 is 40 ms behind in three of nine steps, and 2 ms in the others: late by the letter, but at no cost."""
    job = Job(world=4)
    for k in range(9):
        for i in range(3):
            begin, late = (300 * k + 100 * i) * MS, (40 if k % 3 == 0 else 2) * MS
            job.add(k, {r: begin + late * (r == 2) for r in range(4)}, begin + late + 2 * MS, seq=3 * k + i)
    (row,) = analyse(job).found.rows
    assert (row.rank, row.late_steps, row.kind) == (2, 3, "intermittent")


def lateness(*late):
    """Eight ranks, ten steps; ``late``: (rank, in how many steps)."""
    out = np.zeros((8, 10), np.bool_)
    for rank, count in late:
        out[rank, :count] = True
    return out


@pytest.mark.parametrize(
    ("others", "count", "sure"),
    [
        ((), 2, False),
        ((), 3, True),
        (((1, 1),), 3, True),
        (((1, 1), (2, 2), (3, 1)), 3, False),
        (((1, 1), (2, 2), (3, 1)), 8, True),
    ],
)
def test_late_now_and_then_must_be_more_often_than_the_others(others, count, sure):
    late = lateness((5, count), *others)
    candidates = np.arange(8) == 5
    assert _no_chance(late, np.full(8, 10), candidates, DEFAULT)[5] == sure


@pytest.mark.parametrize(("share", "steps", "named"), [(0.04, 3, []), (0.04, 8, []), (0.1, 3, [2]), (0.1, 8, [2])])
def test_hardly_slower_kernels_are_no_proof(share, steps, named):
    got = analyse(training(4, steps, 40, slow={2: share}, jitter=0.002, seq=numbered, group="world"))
    assert got.culprits == named
    assert bool(got.found.notes) == (not named)


def test_beside_a_far_larger_culprit_small_blame_counts_alone():
    late = np.ones((5, 10), np.bool_)
    own = np.array([100.0, 20.0, 5.0, 5.0, 0.0])
    assert _together(late, own, DEFAULT).tolist() == [130.0, 50.0, 5.0, 5.0, 0.0]
    assert _together(late, np.full(5, 5.0), DEFAULT).tolist() == [25.0] * 5
