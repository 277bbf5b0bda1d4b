"""METHODS a.2 and e.2: phases and the instance table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import Job, training
from scenarios import load
from traceview.analysis.match import match
from traceview.analysis.timebase import GRADE_C, TimeBase
from traceview.analysis.types import TRANSFER, UNRESOLVED
from traceview.analysis.waits import waits


def both(table, step=None, world=4, **more):
    step = np.zeros(len(table), np.int64) if step is None else step
    found = match(table, step, world)
    return found, waits(table, found, **more)


def test_nothing_matched_is_a_table_of_no_instances():
    job = Job()
    job.add(0, {0: 0}, 10, group="", kind="send", src=None, dst=None)
    lonely, _ = job.table()
    for table in (lonely.slice(0, 0), lonely):
        found, got = both(table)
        assert len(got.instances) == len(found.size) == 0
        assert got.phases.wait_end.tolist() == table["start"].to_pylist()
        assert len(got.instances.rows) == 0


def test_scenarios(shared_dir):
    for s in load(shared_dir).values():
        table, want = s.collectives(), s.simple_phases()
        found, got = both(table, world=len(s.ranks), eps_ns=0)
        for name in ("wait_end", "second", "sub", "violated"):
            assert getattr(got.phases, name).tolist() == getattr(want, name).tolist(), (s.id, name)
        number = dict(zip(s.instances, found.instance.tolist(), strict=True))
        for name, facts in s.expect_coll().items():
            check_instance(table, got, number[name], facts, s.instances, name)


def check_instance(table, got, i, facts, names, name):
    table_of = got.instances
    us = 1000
    actual = {
        "L": table_of.arrived[i] / us,
        "T": table_of.transfer[i] / us if table_of.transfer[i] >= 0 else None,
        "T_min": table_of.transfer_min[i] / us,
        "total_wait": table_of.waited[i] / us,
        "last": table["rank"][int(table_of.last[i])].as_py(),
        "marginal": table_of.marginal[i] / us,
        "violations": table_of.violations[i],
        "wait": {
            str(table["rank"][row].as_py()): (got.phases.wait_end[row] - table["start"][row].as_py()) / us
            for row, n in enumerate(names)
            if n == name
        },
    }
    for key in facts.keys() & actual.keys():
        assert actual[key] == facts[key], (name, key)


def test_reduce_root_waits_for_all_and_others_only_if_they_stayed():
    job = Job()
    job.add(0, {0: 0, 1: 10, 2: 30}, {0: 60, 1: 20, 2: 60}, kind="reduce", dst=0, seq=1)
    table, step = job.table()
    _, got = both(table, step)
    assert (got.phases.wait_end - table["start"].to_numpy()).tolist() == [30, 0, 0]
    assert (got.phases.second == TRANSFER).all()


def test_broadcast_receivers_wait_for_the_root_only():
    job = Job()
    job.add(0, {0: 20, 1: 0, 2: 50}, 60, kind="broadcast", src=0, seq=1)
    table, step = job.table()
    _, got = both(table, step)
    assert (got.phases.wait_end - table["start"].to_numpy()).tolist() == [30, 20, 0]


def test_rooted_without_its_root_is_unresolved():
    job = Job()
    job.add(0, {1: 0, 2: 50}, 60, kind="broadcast", src=0, seq=1, members=[0, 1, 2])
    table, step = job.table()
    _, got = both(table, step)
    assert (got.phases.wait_end == table["start"].to_numpy()).all()
    assert (got.phases.second == UNRESOLVED).all()


def test_ring_of_batches_waits_for_direct_peers_only():
    """Rank 2 is late by 50: 1 (sends to it) and 3 (receives from it) wait, 0 does not."""
    job = Job()
    ranks = range(4)
    job.add(
        0,
        {0: 0, 1: 0, 2: 50, 3: 0},
        100,
        kind="sendrecv",
        p2p=True,
        src={r: (r - 1) % 4 for r in ranks},
        dst={r: (r + 1) % 4 for r in ranks},
    )
    table, step = job.table()
    _, got = both(table, step)
    assert got.phases.wait_end.tolist() == [0, 50, 50, 50]


def test_receiver_that_ends_before_its_sender_starts_is_a_violation():
    job = Job()
    job.add(0, {0: 100_000}, 120_000, kind="send", p2p=True, src=0, dst=1, members=[0, 1])
    job.add(0, {1: 0}, 20_000, kind="recv", p2p=True, src=0, dst=1, members=[0, 1])
    table, step = job.table()
    _, got = both(table, step)
    assert got.phases.violated.tolist() == [False, True]


def test_one_operation_of_several_kernels_counts_once():
    """Rank 1 issues two kernels for one op: it arrives with the first, the later one does not wait."""
    job = Job()
    job.add(0, {0: 0, 1: 10}, {0: 40, 1: 20}, seq=5)
    job.add(0, {1: 25}, 40, seq=5, members=[0, 1])
    table, step = job.table()
    found, got = both(table, step)
    assert found.seen.tolist() == [2]
    assert got.instances.arrived.tolist() == [10]
    assert got.phases.wait_end.tolist() == [10, 10, 25]


def test_weak_clocks_fall_back_to_durations():
    """Grade C across hosts: wait = duration - shortest duration, whatever the stamps say."""
    job = Job()
    job.add(0, {0: 0, 1: 30}, 100, seq=1)
    job.skew({1: 5000.0})
    table, step = job.table()
    base = TimeBase.identity(2)
    base = TimeBase(
        base.shift, base.drift, base.pivot, base.sigma, np.array([0, 1]), base.component, base.grade + GRADE_C
    )
    _, got = both(table, step, base=base, eps_ns=10**9)
    start = table["start"].to_numpy()
    assert (got.phases.wait_end - start).tolist() == [30, 0]
    assert got.instances.clock_free.tolist() == [True]


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=2, max_size=6),
    st.integers(-(10**15), 10**15),
)
def test_wait_never_exceeds_the_record_and_shift_changes_nothing(members, shift):
    job = Job()
    job.add(0, {r: s for r, (s, _) in enumerate(members)}, {r: s + d for r, (s, d) in enumerate(members)}, seq=1)
    table, step = job.table()
    _, got = both(table, step, eps_ns=0)
    start, end = table["start"].to_numpy(), table["end"].to_numpy()
    assert ((got.phases.wait_end >= start) & (got.phases.wait_end <= end)).all()
    job.skew(dict.fromkeys(range(len(members)), 0.0))
    job.columns["start"] = [x + shift for x in job.columns["start"]]
    job.columns["end"] = [x + shift for x in job.columns["end"]]
    moved, step = job.table()
    _, again = both(moved, step, eps_ns=0)
    assert (again.phases.wait_end - shift).tolist() == got.phases.wait_end.tolist()
    assert again.phases.violated.tolist() == got.phases.violated.tolist()


@pytest.mark.parametrize("missing", [0, 3])
def test_partial_instances_are_lower_bounds(missing):
    job = training(8, 2, 3, slow={5: 0.3}, seq=lambda n, k: n)
    job.drop(lambda r: r["rank"] >= missing)
    table, step = job.table()
    _, got = both(table, step, world=8)
    assert (got.phases.second == (UNRESOLVED if missing else TRANSFER)).all()
    late = table["rank"].to_numpy() == 5
    assert (got.phases.wait_end[late] == table["start"].to_numpy()[late]).all()
    assert (got.phases.wait_end[~late] > table["start"].to_numpy()[~late]).all()
