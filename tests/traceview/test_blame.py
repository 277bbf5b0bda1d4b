"""METHODS e.3: the ledger."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobs import Job, exposed, training
from scenarios import load, load_extras
from traceview.analysis.blame import blame
from traceview.analysis.match import match
from traceview.analysis.shares import whole
from traceview.analysis.types import WaitPieces
from traceview.analysis.waits import waits

US = 1000


def ledger(table, step, world, **more):
    found = match(table, step, world)
    got = waits(table, found, eps_ns=0)
    return blame(exposed(table, got.phases), table, found, got, step, **more)


def test_scenarios(shared_dir):
    for s in load(shared_dir).values():
        table = s.collectives()
        book = ledger(table, np.zeros(len(table), np.int64), len(s.ranks))
        for facts in s.expect_coll().values():
            if "airport" in facts:
                want = {int(r): int(Fraction(x) * US) for r, x in facts["airport"].items()}
                assert {r: int(book.inclusive[r]) for r in want} == want, s.id
                assert book.inclusive.tolist() == book.direct.tolist()
                assert book.marginal.sum() == facts["marginal"] * US


def test_direct_blame_of_extras(shared_dir):
    scenarios = load(shared_dir)
    for case in load_extras(shared_dir)["blame"]:
        table = scenarios[case["id"]].collectives()
        book = ledger(table, np.zeros(len(table), np.int64), len(scenarios[case["id"]].ranks))
        assert {str(r): x / US for r, x in enumerate(book.direct.tolist()) if x} == case["direct"]


def test_partial_instances_blame_nobody_but_say_at_least(shared_dir):
    table = load(shared_dir)["S08"].collectives()
    book = ledger(table, np.zeros(len(table), np.int64), 4)
    assert not book.direct.any()
    assert book.unblamed == book.total == 30 * US
    assert book.at_least.tolist() == [0, 5 * US, 25 * US]


def test_violated_instances_blame_nobody(shared_dir):
    table = load(shared_dir)["S19"].collectives()
    book = ledger(table, np.zeros(len(table), np.int64), 2)
    assert not book.direct.any()
    assert book.unblamed == book.total == 30 * US


def test_receivers_of_a_broadcast_blame_the_root():
    job = Job()
    job.add(0, {0: 20, 1: 0, 2: 50}, 60, kind="broadcast", src=0, seq=1)
    table, step = job.table()
    book = ledger(table, step, 3)
    assert book.direct.tolist() == [20, 0, 30]  # rank 1 waited 20 for the root, the root 30 for rank 2


def test_only_exposed_waiting_is_in_the_ledger():
    """The victim computes during 6 of its 10: half of the rest is owed by each of two equally late members."""
    job = Job()
    job.add(0, {0: 0, 1: 10, 2: 10}, 20, seq=1)
    table, step = job.table()
    found = match(table, step, 3)
    got = waits(table, found)
    one = np.array([0])
    pieces = WaitPieces(np.array([6]), np.array([10]), one)
    book = blame(pieces, table, found, got, step)
    assert book.direct.tolist() == [0, 2, 2]
    assert book.inclusive.tolist() == [0, 5, 5]
    assert book.last.tolist() == [0, 4, 0]
    assert book.waited.tolist() == [4, 0, 0]


def test_one_slow_rank_of_eight_owes_nearly_everything():
    table, step = training(8, 5, 10, slow={5: 0.2}).table()
    book = ledger(table, step, 8)
    assert book.direct[5] > 0.9 * book.total
    assert book.last_count[5] == book.instances[5] == 50
    assert book.direct.sum() == book.total


jobs = st.lists(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=4, max_size=4), min_size=1, max_size=5
)


def build(drawn, order):
    job = Job()
    for k, members in enumerate(drawn):
        starts = {order[r]: 200 * k + s for r, (s, _) in enumerate(members)}
        ends = {order[r]: 200 * k + s + d for r, (s, d) in enumerate(members)}
        group = "all" if k % 2 else "some"
        job.add(k % 3, starts, ends, seq=k, group=group)
    return job.table()


@given(jobs, st.permutations(range(4)))
def test_blame_sums_to_the_wait_and_follows_the_ranks(drawn, order):
    table, step = build(drawn, list(range(4)))
    book = ledger(table, step, 4)
    assert book.direct.sum() + book.unblamed == book.total == book.waited.sum()
    assert book.last.sum() == book.direct.sum()
    assert (book.direct >= 0).all()
    table, step = build(drawn, order)
    other = ledger(table, step, 4)
    moved = other.direct[list(order)]
    assert np.abs(moved - book.direct).max() <= len(drawn)  # 1 ns of rounding per class and step
    assert (other.waited[list(order)] == book.waited).all()
    assert (other.marginal.sum(), other.total, other.unblamed) == (book.marginal.sum(), book.total, book.unblamed)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_rounding_keeps_the_total(amounts):
    total = round(sum(amounts))
    got = whole(np.array(amounts), np.zeros(len(amounts), np.int64), np.array([total]))
    assert got.sum() == total
    assert np.abs(got - amounts).max() <= 1 + 1e-6
