"""METHODS e.7: a rank that is late behind a named straggler and costs nobody anything is told as the next limit."""

from __future__ import annotations

import pytest

from jobs import MS, Job, analyse


def late(behind, *, steps=6, every=1):
    """Four ranks: rank 3 is 30 ms late and rank 2 ``behind`` ms in ``every``-th step; 20 ms of each wait hide."""
    job = Job(world=4)
    for k in range(steps):
        begin = {r: 100 * MS * k + 40 * MS for r in range(4)}
        begin[2] += behind * MS * (k % every == 0)
        begin[3] += 30 * MS
        job.add(k, begin, begin[3] + MS, seq=2 * k)
        job.add(k, dict.fromkeys(range(4), begin[3] + 11 * MS), begin[3] + 12 * MS, seq=2 * k + 1)
    return analyse(job, hide=20 * MS).found


def test_it_is_told_with_its_cause_and_behind_whom():
    found = late(20)
    assert [r.rank for r in found.rows] == [3]
    (row,) = found.hidden
    assert (row.rank, row.behind, row.late_ns, row.late_steps, row.steps) == (2, 3, 20 * MS, 6, 6)
    assert row.cause == "compute_slower"
    assert "costs nothing while rank 3 is later" in row.explanation


@pytest.mark.parametrize(("behind", "every"), [(0, 1), (20, 3)])
def test_a_rank_that_is_in_time_in_most_steps_does_not_hide(behind, every):
    assert late(behind, every=every).hidden == []


def test_nobody_hides_where_nobody_is_named():
    job = Job(world=4)
    for k in range(6):
        begin = {r: 100 * MS * k + (40 + 15 * (r == 2)) * MS for r in range(4)}
        job.add(k, begin, begin[2] + MS, seq=k)
    found = analyse(job, hide=20 * MS).found
    assert found.rows == []
    assert found.hidden == []
