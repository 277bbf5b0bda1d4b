"""METHODS e.6: layers of experts with known tokens and speeds; what even tokens would save."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jobs import MS, US, Job, Verdict, analyse
from traceview.analysis.experts import Account, accounts, rows, step_gain
from traceview.analysis.types import WaitPieces
from traceview.result import ExpertRow

HIDDEN = 1000
TRANSFER = 200 * US
Loads = list[int]


class Moe:
    """A job of expert layers: each rank computes 2 ms, dispatches, computes for its tokens, combines."""

    def __init__(self, ranks: int = 4, **facts: Any) -> None:
        self.job, self.ranks, self.facts = Job(world=ranks), ranks, facts
        self.now, self.step = dict.fromkeys(range(ranks), 10 * MS), 0

    def exchange(self, sent: Loads | None, received: Loads | None, **facts: Any) -> None:
        """One all-to-all-v; None = the trace tells no sizes."""
        end = max(self.now.values()) + TRANSFER
        told = {
            "elems_in": None if sent is None else dict(enumerate(sent)),
            "elems_out": None if received is None else dict(enumerate(received)),
        }
        base = {"kind": "alltoallv", "group": "ep", "name": "ncclDevKernel_SendRecv"} | self.facts
        self.job.add(self.step, dict(self.now), end, **(base | told | facts))
        self.now = dict.fromkeys(self.now, end)

    def compute(self, ns: list[float]) -> None:
        for r, x in enumerate(ns):
            self.now[r] += round(x)

    def layer(
        self,
        tokens: Loads,
        speed: list[float] | None = None,
        fixed: float = 0.0,
        told: bool = True,
        scales: bool = False,
    ) -> None:
        """1 ms of compute per token of a rank (over the mean, ``fixed`` of it whatever it gets), times its speed."""
        n, speed = self.ranks, speed or [1.0] * self.ranks
        out = [t * HIDDEN for t in tokens]
        even = [sum(out) // n] * n
        self.compute([2 * MS * s for s in speed])
        self.exchange(even if told else None, out if told else None)
        if scales:  # each token has a scale per 10 elements
            self.exchange([x // 10 for x in even], [x // 10 for x in out])
        mean = sum(tokens) / n
        self.compute([MS * s * (fixed * mean + (1 - fixed) * t) for s, t in zip(speed, tokens, strict=True)])
        self.exchange(out if told else None, even if told else None)

    def analyse(self) -> Verdict:
        return analyse(self.job)


def account(got: Verdict, steps: range = range(100)) -> Account:
    (found,) = accounts(got.facts, list(steps))
    return found


def row(got: Verdict) -> ExpertRow:
    (found,) = rows(got.facts.c, accounts(got.facts, list(range(100))), np.zeros(len(got.facts.c), np.int64))
    return found


def moe(*layers: Loads, steps: int = 3, ranks: int = 4, **how: Any) -> Verdict:
    """Every step has these layers."""
    m = Moe(ranks)
    for m.step in range(steps):
        for tokens in layers:
            m.layer(tokens, **how)
    return m.analyse()


def test_gain_is_largest_minus_mean_of_the_compute() -> None:
    found = account(moe([5, 1, 1, 1], [0, 4, 3, 1]))
    assert found.told and found.token_share == 1.0
    assert found.load.tolist() == [[2.5, 0.5, 0.5, 0.5], [0.0, 2.0, 1.5, 0.5]] * 3
    assert found.gain.tolist() == [3 * MS, 2 * MS] * 3
    assert found.waited.tolist() == found.gain.tolist()
    assert found.pace.tolist() == [1.0] * 4


def test_only_the_share_that_follows_the_tokens_can_be_gained() -> None:
    found = account(moe([5, 1, 1, 1], fixed=0.5))
    assert found.token_share == pytest.approx(0.5)
    assert found.gain == pytest.approx([1.5 * MS] * 3)


def test_padded_experts_take_the_same_time_whatever_they_get() -> None:
    found = account(moe([5, 1, 1, 1], fixed=1.0))
    assert found.token_share == 0.0
    assert found.gain.tolist() == [0.0] * 3


def test_a_slow_rank_with_even_tokens_gains_nothing_and_has_its_pace() -> None:
    got = moe([2, 2, 2, 2], speed=[1.0, 1.5, 1.0, 1.0])
    found = account(got)
    assert found.gain.tolist() == [0.0] * 3
    assert found.pace == pytest.approx([1.0, 1.5, 1.0, 1.0])
    assert row(got).ranks == [] and row(got).correlation is None


def test_with_a_slow_rank_beside_even_tokens_gain_only_up_to_it() -> None:
    """Rank 0 computes 5 ms, the slow rank 1.5; at 2 tokens each that is 2 and 3."""
    found = account(moe([5, 1, 1, 1], speed=[1.0, 1.5, 1.0, 1.0]))
    assert found.pace == pytest.approx([1.0, 1.5, 1.0, 1.0])
    assert found.gain == pytest.approx([2 * MS] * 3)


def test_the_slow_rank_may_be_the_loaded_one() -> None:
    """10 ms against 1; at 2 tokens each 4 against 2."""
    found = account(moe([5, 1, 1, 1], [1, 5, 1, 1], [1, 1, 5, 1], speed=[2.0, 1.0, 1.0, 1.0]))
    assert found.pace == pytest.approx([2.0, 1.0, 1.0, 1.0])
    assert found.gain == pytest.approx([6 * MS, 1 * MS, 1 * MS] * 3)


def test_a_late_dispatch_is_no_matter_of_tokens() -> None:
    """Rank 3 comes 4 ms late to the dispatch and has the fewest tokens: nobody waits for it at the combine."""
    m = Moe()
    m.compute([0, 0, 0, 4 * MS])
    m.layer([3, 3, 1, 1])
    assert account(m.analyse()).gain.tolist() == [1 * MS]


def test_a_late_combine_that_is_not_compute_is_no_matter_of_tokens() -> None:
    """Rank 3 has the fewest tokens, and a pause: it arrives at 9 ms whatever the others do."""
    m = Moe()
    even, out = [2 * HIDDEN] * 4, [5 * HIDDEN, HIDDEN, HIDDEN, HIDDEN]
    m.exchange(even, out)
    m.compute([5 * MS, 1 * MS, 1 * MS, 9 * MS])
    m.exchange(out, even)
    got = analyse(m.job, gaps={3: [("compute.plain", 1 / 9), ("idle_host", 8 / 9)]})
    found = account(got)
    assert found.work.tolist() == [[5 * MS, MS, MS, MS]]
    assert found.gain.tolist() == [0.0]


def test_waiting_that_compute_hides_is_no_gain() -> None:
    got = moe([5, 1, 1, 1])
    nothing = WaitPieces(*(np.empty(0, np.int64) for _ in fields(WaitPieces)))
    assert account(replace(got, facts=replace(got.facts, pieces=nothing))).gain.tolist() == [0.0] * 3


def test_scales_go_on_their_own_between_dispatch_and_combine() -> None:
    found = account(moe([5, 1, 1, 1], [1, 1, 1, 5], scales=True))
    assert found.gain.tolist() == [3 * MS] * 6


def test_counts_that_go_before_are_no_pair() -> None:
    m = Moe()
    for m.step in range(3):
        for tokens in ([5, 1, 1, 1], [1, 5, 1, 1]):
            m.exchange([4] * 4, [4] * 4, kind="alltoall")
            m.layer(tokens)
    assert account(m.analyse()).gain.tolist() == [3 * MS] * 6


def test_a_record_that_begins_with_a_combine() -> None:
    """The same tokens in every layer: combine and next dispatch fit each other too, but lead inwards."""
    m = Moe()
    m.exchange([5000, 1000, 1000, 1000], [2000] * 4)
    for _ in range(3):
        m.layer([5, 1, 1, 1])
    assert account(m.analyse()).gain.tolist() == [3 * MS] * 3


def test_two_micro_batches_in_turn() -> None:
    """Dispatch 1, dispatch 2, combine 1, combine 2: each finds its own."""
    m = Moe()
    for m.step in range(3):
        even, one, two = [2000] * 4, [5000, 1000, 1000, 1000], [1000, 1000, 5000, 1000]
        m.exchange(even, one)
        m.exchange(even, two)
        m.compute([5 * MS, MS, MS, MS])
        m.exchange(one, even)
        m.compute([MS, MS, 5 * MS, MS])
        m.exchange(two, even)
    found = account(m.analyse())
    assert found.load.argmax(axis=1).tolist() == [0, 2] * 3
    assert len(found.step) == 6


def test_even_all_to_alls_pair_off_one_after_the_other() -> None:
    assert len(account(moe([2, 2, 2, 2], [2, 2, 2, 2], steps=3)).step) == 6


def test_steps_that_are_not_used_do_not_count() -> None:
    assert account(moe([5, 1, 1, 1], steps=4), range(1, 3)).step.tolist() == [1, 2]


def test_nobody_gets_a_token() -> None:
    assert account(moe([0, 0, 0, 0])).gain.tolist() == [0.0] * 3


def test_a_missing_rank_may_be_the_loaded_one_so_no_gain_is_told() -> None:
    m = Moe()
    for m.step in range(3):
        m.layer([5, 1, 1, 1])
    m.job.drop(lambda r: r["rank"] != 2)
    m.job.columns["members"] = ["0-3"] * len(m.job.columns["members"])
    found = account(analyse(m.job, world=4))
    assert found.ranks.tolist() == [0, 1, 3]
    assert found.gain.tolist() == [0.0] * 3
    assert found.load[0] == pytest.approx([15 / 7, 3 / 7, 3 / 7])


def test_next_to_no_tokens_tell_nothing_of_the_pace() -> None:
    """The kernels of a rank without tokens take 20 us: that is no hundred times a typical rank's time per token."""
    m = Moe()
    even, out = [2 * HIDDEN] * 4, [0, 2 * HIDDEN, 4 * HIDDEN, 2 * HIDDEN]
    for m.step in range(3):
        m.exchange(even, out)
        m.compute([20 * US, 2 * MS, 4 * MS, 2 * MS])
        m.exchange(out, even)
    found = account(m.analyse())
    assert found.pace[0] == 1.0
    assert found.gain == pytest.approx([2 * MS] * 3, rel=0.02)


def test_groups_have_accounts_of_their_own() -> None:
    m = Moe()
    for name, tokens in (("ep_a", [5, 1, 1, 1]), ("ep_b", [1, 1, 1, 5])):
        m.facts = {"group": name}
        m.layer(tokens)
    found = accounts(m.analyse().facts, [0])
    assert [a.ranks[a.load.argmax()] for a in found] == [0, 3]


def test_no_all_to_all_no_account() -> None:
    job = Job(world=2)
    job.add(0, {0: MS, 1: 2 * MS}, 3 * MS)
    assert accounts(analyse(job).facts, [0]) == []


def test_untold_sizes_pair_by_order_and_gain_nothing() -> None:
    found = account(moe([5, 1, 1, 1], [1, 1, 1, 5], told=False))
    assert not found.told and found.gain.tolist() == [0.0] * 6
    assert found.work[:2].tolist() == [[5 * MS, MS, MS, MS], [MS, MS, MS, 5 * MS]]


def test_untold_sizes_of_an_odd_number_have_no_order() -> None:
    m = Moe()
    m.layer([5, 1, 1, 1], told=False)
    m.exchange(None, None)
    assert accounts(m.analyse().facts, [0]) == []


def test_names_tell_dispatch_and_combine() -> None:
    """DeepEP: a notification comes before each dispatch."""
    m = Moe()
    for m.step in range(3):
        m.exchange(None, None, name="void deep_ep::intranode::notify_dispatch<4>(int const*)")
        m.exchange(None, None, name="void deep_ep::intranode::dispatch<4, 768>(int4*)")
        m.compute([5 * MS, MS, MS, MS])
        m.exchange(None, None, name="void deep_ep::intranode::combine<__nv_bfloat16, 4>(int4*)")
    assert account(m.analyse()).work.tolist() == [[5 * MS, MS, MS, MS]] * 3


@given(st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=1, max_size=4))
def test_alike_gpus_gain_largest_minus_mean(layers: list[Loads]) -> None:
    found = account(moe(*layers, steps=1))
    for tokens, gain, waited in zip(layers, found.gain.tolist(), found.waited.tolist(), strict=True):
        assert gain == pytest.approx((max(tokens) - sum(tokens) / 4) * MS, abs=MS * 0.01 * sum(tokens))
        assert gain <= waited + 1


@given(
    st.lists(st.integers(0, 9), min_size=4, max_size=4),
    st.lists(st.sampled_from([1.0, 1.2, 2.0]), min_size=4, max_size=4),
    st.sampled_from([0.0, 0.3]),
)
def test_gain_is_never_more_than_the_waiting_or_less_than_nothing(
    tokens: Loads, speed: list[float], fixed: float
) -> None:
    found = account(moe(tokens, steps=1, speed=speed, fixed=fixed))
    slack = (found.left.max(axis=1)).astype(float)
    assert ((found.gain >= 0) & (found.gain <= slack + 1)).all()


def test_row_of_a_persistent_hot_rank() -> None:
    found = row(moe([5, 1, 1, 1], [5, 1, 1, 1]))
    assert (found.group, found.members, found.group_size, found.pairs, found.steps) == ("ep", "0-3", 4, 6, 3)
    assert (found.imbalance, found.imbalance_max, found.moves, found.loaded_last) == (2.5, 2.5, "", 6)
    assert found.gain_ns == found.wait_ns == 18 * MS
    assert [(r.rank, r.load, r.pairs, r.steps, r.gain_ns) for r in found.ranks] == [(0, 2.5, 6, 3, 18 * MS)]


@pytest.mark.parametrize(
    ("per_step", "moves"),
    [
        ([[[5, 1, 1, 1]] * 2, [[1, 5, 1, 1]] * 2, [[1, 1, 5, 1]] * 2], "step"),
        ([[[5, 1, 1, 1], [1, 5, 1, 1], [1, 1, 5, 1]]] * 3, "layer"),
        ([[[5, 1, 1, 1]] * 2, [[5, 1, 1, 1]] * 2, [[1, 1, 5, 1]] * 2], ""),
        ([[[5, 5, 1, 1]] * 2, [[5, 5, 1, 1]] * 2, [[5, 5, 1, 1]] * 2], ""),
    ],
)
def test_whether_the_loaded_rank_moves(per_step: list[list[Loads]], moves: str) -> None:
    m = Moe()
    for m.step, layers in enumerate(per_step):
        for tokens in layers:
            m.layer(tokens)
    assert row(m.analyse()).moves == moves


@pytest.mark.parametrize(
    ("late", "gain"),
    [
        (None, 0.5 * MS),  # the groups never meet: two ranks of four are 1 ms faster
        (0, 1.0 * MS),  # they meet: all wait for rank 0
        (0.4 * MS, 0.6 * MS),  # rank 3 of the other group is late as well
        (2 * MS, 0.0),  # and here it is the last anyway
    ],
)
def test_groups_save_what_the_last_of_all_does(late: float | None, gain: float) -> None:
    job = Job(world=4)
    for group, ranks, tokens in (("ep_a", (0, 1), (3, 1)), ("ep_b", (2, 3), (2, 2))):
        even, out = dict.fromkeys(ranks, 2 * HIDDEN), {r: t * HIDDEN for r, t in zip(ranks, tokens, strict=True)}
        told = {"kind": "alltoallv", "group": group}
        job.add(0, dict.fromkeys(ranks, 10 * MS), 11 * MS, elems_in=even, elems_out=out, **told)
        there = {r: 11 * MS + t * MS for r, t in zip(ranks, tokens, strict=True)}
        job.add(0, there, max(there.values()) + MS, elems_in=out, elems_out=even, **told)
    if late is not None:
        job.add(0, {0: 15 * MS, 1: 15 * MS, 2: 14 * MS, 3: 14 * MS + round(late)}, 18 * MS)
    facts = analyse(job).facts
    assert step_gain(facts, accounts(facts, [0]), [0]) == pytest.approx(gain)


def test_equally_loaded_ranks_share_the_gain() -> None:
    found = row(moe([5, 5, 1, 1]))
    assert [(r.rank, r.load, r.gain_ns) for r in found.ranks] == [(0, 5 / 3, 3 * MS), (1, 5 / 3, 3 * MS)]
    assert found.gain_ns == 6 * MS and found.loaded_last == 3


@given(st.lists(st.integers(0, 5), min_size=6, max_size=6))
def test_rank_correlation_is_spearmans(tokens: Loads) -> None:
    """Arrival follows tokens and a tie-break of its own."""
    m = Moe(6)
    out, even = [t * 6 for t in tokens], [sum(tokens)] * 6
    m.exchange(even, out)
    arrival = [(3 * t + r) * MS // 2 for r, t in enumerate(reversed(tokens))]
    m.compute(arrival)
    m.exchange(out, even)
    found = row(m.analyse())
    if len(set(tokens)) > 1:
        assert found.correlation == pytest.approx(stats.spearmanr(tokens, arrival).statistic)
    assert found.correlation_n == 6


def test_even_sizes_would_shorten_the_transfer_by_the_busiest_rank_at_most() -> None:
    got = moe([5, 1, 1, 1], steps=1)
    exposed = np.full(len(got.facts.c), 100 * US)
    (found,) = rows(got.facts.c, accounts(got.facts, [0]), exposed)
    # busier direction: 5, 2, 2, 2 thousand elements, mean 2.75, in dispatch and combine
    assert found.transfer_ns == 2 * 45 * US
