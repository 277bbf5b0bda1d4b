"""METHODS d.2 and d.3: hosts that share only sends and receives stand where these prove them to, or apart."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import MS, US, Job, analyse, training
from traceview.analysis.causal import FAR, bounds
from traceview.analysis.clock import align
from traceview.analysis.clockjoin import cycles, track
from traceview.analysis.match import match
from traceview.analysis.stragglers import Clocks
from traceview.analysis.timebase import TimeBase
from traceview.analysis.types import TRANSFER, UNRESOLVED
from traceview.analysis.waits import waits
from traceview.result import Clock, HostClock

BEGIN = 1_700_000_000_000_000_000
PPM = 1e-6


def message(job, step, edge, sent, got, *, arrives=None, left=None):
    """A send of ``edge`` (source, target) that begins at ``sent``, and its receive that ends at ``got``; true ns."""
    src, dst = edge
    facts = dict(group="pp", p2p=True, src=src, dst=dst, members=sorted(edge))
    job.add(step, {src: sent}, got if left is None else left, kind="send", **facts)
    job.add(step, {dst: sent if arrives is None else arrives}, got, kind="recv", **facts)


def pipeline(steps=5, period=20 * MS, chain=(0, 1), there=20 * US, back=40 * US, **lost):
    """Micro-batches that go up a chain of ranks and back; ``there`` and ``back``: how long a message is under way."""
    job = Job()
    for step in range(steps):
        for micro in range(2):
            t = BEGIN + step * period + micro * period // 2
            for a, b in pairwise(chain):
                t += MS
                message(job, step, (a, b), t, t + there, arrives=t - 300 * US)
            for a, b in pairwise(chain[::-1]):
                t += MS
                if not lost.get("forward_only"):
                    message(job, step, (a, b), t, t + back, arrives=t - 500 * US)
    return job


def fit(job, hosts=None, anchored=True):
    table, step = job.table()
    hosts = hosts or {r: f"h{r}" for r in sorted(set(job.columns["rank"]))}
    found = match(table, step, None, hosts, anchored=anchored)
    got = align(table, found, hosts)
    return table, found, got


def waited(table, found, got):
    """(wait per row, second phase per row, violations) in table order."""
    out = waits(table, found, got.base)
    return out.phases.wait_end - table["start"].to_numpy(), out.phases.second, out.phases.violated


def true_waits(job):
    table, step = job.table()
    return waited(table, match(table, step, None), align(table, match(table, step, None), one_host(job)))[0]


def one_host(job):
    return dict.fromkeys(sorted(set(job.columns["rank"])), "one")


@pytest.mark.parametrize("offset", [0, 5 * MS, -10_000 * MS])
def test_messages_both_ways_prove_an_interval_and_its_middle_is_the_place(offset):
    """Under way 20 us there and 40 us back: the offset is in -offset + [-20, 40] us."""
    job = pipeline()
    want = true_waits(job)
    job.skew({1: offset})
    table, found, got = fit(job)
    a, b = got.clock.hosts
    assert (a.offset_ns, a.bound_ns, a.basis, a.join_bound_ns) == (0, 0, "reference", None)
    assert b.offset_ns == pytest.approx(-offset + 10 * US, abs=US)
    assert b.bound_ns == b.sigma_ns == b.join_bound_ns == pytest.approx(30 * US, abs=US)
    assert (b.grade, b.basis) == ("B", "sends and receives only, ± 30.1 µs")
    assert got.clock.grade == "B"
    assert got.mismatches == []
    wait, second, violated = waited(table, found, got)
    assert (second == TRANSFER).all()
    assert not violated.any()
    assert np.abs(wait - want).max() <= b.bound_ns
    assert (wait[want == 0] == 0).all()
    assert wait.sum() == pytest.approx(want.sum(), rel=0.06)


@pytest.mark.parametrize("ppm", [20, -20])
def test_offset_and_drift_are_both_bounded_over_a_long_record(ppm):
    """10 s and 20 ppm apart, 40 s of record: at every moment the axis is wrong by the proved bound at most."""
    job = pipeline(steps=40, period=1000 * MS, there=15 * US, back=15 * US)
    want = true_waits(job)
    job.skew({1: 10_000.0 * MS}, {1: ppm * PPM}, BEGIN)
    table, found, got = fit(job)
    b = got.clock.hosts[1]
    assert b.join_bound_ns == pytest.approx(15 * US, abs=US)
    assert b.drift_ppm == pytest.approx(-ppm, abs=0.8)
    for true in (BEGIN, BEGIN + 20_000 * MS, BEGIN + 40_000 * MS):
        local = true + 10_000 * MS + round(ppm * PPM * (true - BEGIN))
        assert abs(got.base.to_true(np.array([1]), np.array([local]))[0] - true) <= b.join_bound_ns
    wait, second, _ = waited(table, found, got)
    assert (second == TRANSFER).all()
    assert np.abs(wait - want).max() <= b.join_bound_ns + 1


def test_messages_one_way_bound_one_side_and_nothing_is_told():
    job = pipeline(forward_only=True)
    table, found, got = fit(job)
    wait, second, violated = waited(table, found, got)
    assert not wait.any()
    assert (second == UNRESOLVED).all()
    assert not violated.any()
    assert [h.grade for h in got.clock.hosts] == ["C", "C"]
    assert any("h0 and h1: messages bound their clocks from one side only" in n for n in got.notes)
    assert (waits(table, found, got.base).instances.transfer == -1).all()


def test_a_wide_interval_is_said_and_nothing_is_told():
    """Under way 400 us each way: +- 400 us is no base for waits of 300 us."""
    table, found, got = fit(pipeline(there=400 * US, back=400 * US))
    wait, second, _ = waited(table, found, got)
    assert not wait.any()
    assert (second == UNRESOLVED).all()
    assert any("h0 and h1: messages prove their clocks to ± 400 µs only, ± 50.0 µs is needed" in n for n in got.notes)
    assert got.clock.hosts[1].offset_ns == 0


def test_messages_that_contradict_each_other_prove_a_mismatch_and_place_nobody():
    """The clock of h1 is set back by 3 ms half-way: no straight line fits."""
    job = pipeline(steps=10)
    half = BEGIN + 100 * MS
    for i, rank in enumerate(job.columns["rank"]):
        if rank == 1 and job.columns["start"][i] >= half:
            job.columns["start"][i] -= 3 * MS
            job.columns["end"][i] -= 3 * MS
    table, found, got = fit(job)
    assert got.mismatches == [
        "h0 and h1: no offset and no drift up to 50 ppm fits their sends and receives: a wrong match or a bad clock"
    ]
    wait, second, _ = waited(table, found, got)
    assert not wait.any()
    assert (second == UNRESOLVED).all()


@pytest.mark.parametrize("ring", [False, True])
def test_stamps_that_contradict_by_less_than_their_own_error_are_no_proof(ring):
    """Messages arrive 2 us before they are sent, both ways: +- 3 us is left of 5 us of error on either side."""
    job = pipeline(there=-2 * US, back=-2 * US)
    if ring:
        job = Job()
        for step in range(6):
            for i, edge in enumerate(((0, 1), (1, 2), (2, 0))):
                t = BEGIN + step * 20 * MS + i * 5 * MS
                message(job, step, edge, t, t - 2 * US, arrives=t - 200 * US)
    _, _, got = fit(job)
    assert got.mismatches == []
    assert {h.grade for h in got.clock.hosts} == {"A", "B"}
    assert all(abs(h.offset_ns) <= h.bound_ns <= 6 * US for h in got.clock.hosts)


def test_messages_between_aligned_hosts_that_contradict_by_less_than_that_accuse_nobody():
    job = Job()
    for k in range(20):
        t = BEGIN + k * 5 * MS
        job.add(k, {0: t, 1: t}, t + MS, group="dp", seq=k)
        message(job, k, (0, 1), t + 2 * MS, t + 2 * MS - 2 * US)
        message(job, k, (1, 0), t + 3 * MS, t + 3 * MS - 2 * US)
    _, _, got = fit(job)
    assert got.mismatches == []
    assert got.clock.grade == "A"


def test_a_message_whose_match_is_not_certain_is_no_proof():
    """What arrives 4 ms before it is sent contradicts nothing if it may have been another message."""
    job = pipeline()
    t = BEGIN + 18 * MS
    message(job, 0, (0, 1), t, t - 4 * MS, arrives=t - 5 * MS, left=t + MS)
    job.skew({1: 8.0 * MS})
    table, found, got = fit(job)
    assert got.mismatches
    odd = found.instance[np.flatnonzero((table["start"].to_numpy() == t) & (table["rank"].to_numpy() == 0))]
    found.ambiguous[odd] = True
    got = align(table, found, {0: "h0", 1: "h1"})
    assert got.mismatches == []
    assert got.clock.hosts[1].offset_ns == pytest.approx(-8 * MS, abs=31 * US)


def test_without_common_steps_a_slip_could_look_like_a_clock_error():
    table, found, got = fit(pipeline(), anchored=False)
    assert not waited(table, found, got)[0].any()
    assert ["may slip" in a for a in got.clock.apart] == [True]


def test_a_chain_is_placed_link_by_link_and_neighbours_compare_by_their_own_bound():
    """Four stages: the error against the first adds up, that between neighbours does not."""
    job = pipeline(chain=(0, 1, 2, 3), there=30 * US, back=30 * US)
    want = true_waits(job)
    error = {0: 0.0, 1: 2.0 * MS, 2: -10_000.0 * MS, 3: 7.0 * MS}
    job.skew(error)
    table, found, got = fit(job)
    assert [h.join_bound_ns for h in got.clock.hosts[1:]] == [
        pytest.approx(k * 30 * US, abs=2 * US) for k in (1, 2, 3)
    ]
    for rank, host in enumerate(got.clock.hosts):
        assert abs(host.offset_ns + error[rank]) <= host.bound_ns
    ranks = np.array([0, 1, 2, 3])
    near, far = got.base.pair_sigma(ranks[:-1], ranks[1:]), got.base.pair_sigma(ranks[:1], ranks[3:])
    assert near.tolist() == [pytest.approx(30 * US, abs=2 * US)] * 3
    assert far.tolist() == [np.inf]
    assert got.base.comparable(ranks[:-1], ranks[1:]).all()
    assert not got.base.comparable(ranks[:1], ranks[3:]).any()
    wait, second, _ = waited(table, found, got)
    assert (second == TRANSFER).all()
    assert np.abs(wait - want).max() <= 31 * US


def test_a_ring_that_sends_one_way_is_bounded_all_the_same():
    """0 -> 1 -> 2 -> 0: whatever is under way on the others bounds the way back."""
    job = Job()
    for step in range(6):
        for i, edge in enumerate(((0, 1), (1, 2), (2, 0))):
            t = BEGIN + step * 20 * MS + i * 5 * MS
            message(job, step, edge, t, t + 10 * US, arrives=t - 200 * US)
    want = true_waits(job)
    job.skew({1: 2.0 * MS, 2: 9_000.0 * MS})
    table, found, got = fit(job)
    assert [h.join_bound_ns for h in got.clock.hosts[1:]] == [pytest.approx(15 * US, abs=US)] * 2
    wait, second, _ = waited(table, found, got)
    assert (second == TRANSFER).all()
    assert np.abs(wait - want).max() <= 16 * US


def test_what_is_within_the_proved_error_is_not_told():
    """+- 30 us: an arrival 10 us after the own is neither waiting nor none; one 300 us after it is waiting."""
    job = pipeline(there=30 * US, back=30 * US)
    t = BEGIN + 15 * MS
    message(job, 0, (0, 1), t, t + 100 * US, arrives=t - 10 * US)
    table, found, got = fit(job)
    wait, second, _ = waited(table, found, got)
    start, rank = table["start"].to_numpy(), table["rank"].to_numpy()
    odd = (np.abs(start - t) <= 10 * US) & (rank >= 0)
    assert odd.sum() == 2
    assert (second[odd] == UNRESOLVED).all()
    assert not wait[odd].any()
    assert (second[~odd] == TRANSFER).all()


@pytest.mark.parametrize(
    ("left", "phase", "wait"),
    [(100 * US, TRANSFER, 0), (480 * US, UNRESOLVED, 0), (700 * US, TRANSFER, 500 * US)],
    ids=["eager", "too close to tell", "late receiver"],
)
def test_a_sender_waits_only_if_it_surely_was_there_when_its_receiver_came(left, phase, wait):
    """The receiver comes 500 us after the sender; clocks are known to +- 30 us."""
    job = pipeline(there=30 * US, back=30 * US)
    t = BEGIN + 15 * MS
    message(job, 0, (0, 1), t, t + 700 * US, arrives=t + 500 * US, left=t + left)
    table, found, got = fit(job)
    have, second, _ = waited(table, found, got)
    own = np.flatnonzero((table["start"].to_numpy() == t) & (table["rank"].to_numpy() == 0))
    assert second[own].tolist() == [phase]
    assert have[own].tolist() == [pytest.approx(wait, abs=30 * US)]


def test_each_edge_of_a_batch_counts_by_itself():
    """Rank 1 receives from 0 (aligned) and sends to 2 (one side only) in one kernel: it waits for 0 alone."""
    job = pipeline()
    t = BEGIN + 15 * MS
    batch = dict(kind="sendrecv", group="pp", p2p=True, members=[0, 1, 2])
    job.add(0, {0: t}, t + MS, src=None, dst=1, **batch)
    job.add(0, {1: t - 2 * MS}, t + MS, src=0, dst=2, **batch)
    job.add(0, {2: t - 9 * MS}, t + MS, src=1, dst=None, **batch)
    table, found, got = fit(job)
    wait, second, _ = waited(table, found, got)
    at = {
        (r, s): i for i, (r, s) in enumerate(zip(table["rank"].to_pylist(), table["start"].to_pylist(), strict=True))
    }
    first, middle, last = at[0, t], at[1, t - 2 * MS], at[2, t - 9 * MS]
    assert wait[middle] == pytest.approx(2 * MS, abs=31 * US)
    assert (wait[first], wait[last]) == (0, 0)
    assert second[[first, middle, last]].tolist() == [TRANSFER, UNRESOLVED, UNRESOLVED]
    assert waits(table, found, got.base).instances.transfer[found.instance[middle]] == -1


def stages(errors, slow=None, back=20 * US, steps=6):
    """Three stages of two hosts each; hosts of a stage share collectives, stages only messages, both ways."""
    job = Job()
    for stage in range(3):
        own = training(2, steps, 12, slow=slow, jitter=0.002, seq=lambda n, k: n, seed=stage)
        for i, rank in enumerate(own.columns["rank"]):
            row = {k: v[i] for k, v in own.columns.items()}
            row |= {"rank": 2 * stage + rank, "members": f"{2 * stage}-{2 * stage + 1}", "group": f"dp{stage}"}
            for key, value in row.items():
                job.columns.setdefault(key, []).append(value)
    for step in range(steps):
        for k in range(6):
            for stage in range(2):
                t = BEGIN + step * 11 * MS + k * MS + stage * 100 * US
                message(job, step, (2 * stage, 2 * stage + 2), t, t + 20 * US, arrives=t - 400 * US)
                message(job, step, (2 * stage + 2, 2 * stage), t + 500 * US, t + 500 * US + back)
    job.skew({r: float(e) for r, (e, _) in errors.items()}, {r: d for r, (_, d) in errors.items()}, BEGIN)
    return job


def inside(job, stage):
    """(waits of the stage's collectives, fitted error of its hosts, names of its stragglers)."""
    hosts = {r: f"h{r}" for r in range(6)}
    table, found, got = fit(job, hosts)
    wait, second, violated = waited(table, found, got)
    own = (table["group"].to_numpy(zero_copy_only=False) == f"dp{stage}") & ~table["p2p"].to_numpy()
    bounds = [h.bound_ns - (h.join_bound_ns or 0) for h in got.clock.hosts[2 * stage : 2 * stage + 2]]
    return wait[own], second[own].tolist(), violated[own].tolist(), bounds


QUIET = {r: (0, 0.0) for r in range(6)}


@cache
def quiet(stage):
    return inside(stages(QUIET), stage)


def culprits(job):
    return analyse(job, {r: f"h{r}" for r in range(6)}, world=6).found.rows


CLOCK = st.tuples(
    st.one_of(st.integers(-20_000 * MS, 20_000 * MS), st.integers(-50 * US, 50 * US)),
    st.sampled_from([0.0, 20 * PPM, -40 * PPM, 300 * PPM]),
)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(clock=CLOCK, other=CLOCK, victim=st.integers(0, 2), back=st.sampled_from([20 * US, 2 * MS, -1 * MS]))
def test_the_clock_of_one_set_changes_nothing_inside_another(clock, other, victim, back):
    """Whatever the clocks of a stage do, and whatever its messages prove, contradictions too."""
    struck = QUIET | {2 * victim: clock, 2 * victim + 1: other}
    for stage in {0, 1, 2} - {victim}:
        wait, *facts = quiet(stage)
        again, *same = inside(stages(struck, back=back), stage)
        assert np.abs(wait - again).max() <= 1  # the axis is rounded to ns
        assert facts[:2] == same[:2]
        assert np.abs(np.subtract(facts[2], same[2])).max() <= 2


def test_a_healthy_pipeline_names_nobody_and_a_slow_rank_of_a_stage_is_named_as_without_messages():
    errors = {0: (0, 0.0), 1: (MS, 0.0), 2: (10_000 * MS, 20 * PPM), 3: (-MS, 0.0), 4: (7 * MS, 0.0), 5: (0, 0.0)}
    assert culprits(stages(errors)) == []
    job = stages(errors, slow={1: 0.3})
    rows = [(r.rank, r.quality, r.late_steps) for r in culprits(job)]
    assert sorted(rank for rank, *_ in rows) == [1, 3, 5]
    job.drop(lambda row: not row["p2p"])
    assert rows == [(r.rank, r.quality, r.late_steps) for r in culprits(job)]


def test_the_error_of_a_place_does_not_weaken_what_is_told_inside_the_set():
    """Hosts 2 and 3 are tied by collectives, their set by messages: between them only the fit counts."""
    base = fit(stages({r: (r * MS, 0.0) for r in range(6)}), {r: f"h{r}" for r in range(6)})[2].base
    assert base.pair_sigma(np.array([2]), np.array([3]))[0] < 2 * US
    assert base.pair_sigma(np.array([0]), np.array([2]))[0] > 15 * US


def test_the_proof_against_a_straggler_counts_the_hosts_of_its_own_set_only():
    hosts = [
        HostClock("a", 0, 0.0, 0.0, 0, "A", 0, component=0),
        HostClock("b", 0, 0.0, 1.0, 40, "A", 0, component=0),
        HostClock("c", 0, 0.0, 900.0, 900, "B", 0, component=2, join_bound_ns=900),
        HostClock("d", 0, 0.0, 902.0, 970, "B", 0, component=2, join_bound_ns=900),
        HostClock("e", 0, 0.0, None, None, "C", 0, component=4),
    ]
    clocks = Clocks(TimeBase.identity(5), dict(enumerate("abcde")), Clock(0, hosts, []))
    assert [clocks.bound(r) for r in range(5)] == [40, 40, 70, 70, None]


def test_messages_correct_an_estimate_that_collectives_put_outside_the_interval():
    """Ends of collectives differ by 60 us on h1 throughout; messages under way 5 us prove that its clock is right."""
    job = Job()
    for k in range(20):
        t = BEGIN + k * 5 * MS
        job.add(k, {0: t, 1: t}, {0: t + MS, 1: t + MS + 60 * US}, group="dp", seq=k)
        message(job, k, (0, 1), t + 2 * MS, t + 2 * MS + 5 * US)
        message(job, k, (1, 0), t + 3 * MS, t + 3 * MS + 5 * US)
    _, _, got = fit(job)
    assert abs(got.clock.hosts[1].offset_ns) <= 5 * US
    assert got.clock.hosts[1].bound_ns <= 10 * US
    assert any("outside what causality allows" in n for n in got.notes)


def test_few_collectives_leave_a_drift_open_and_messages_are_no_proof_against_it():
    """Five collectives in 20 s fit no drift; messages that 20 ppm move by 400 us accuse nobody."""
    job = Job()
    for k in range(40):
        t = BEGIN + k * 500 * MS
        if k % 8 == 0:
            job.add(k, {0: t, 1: t}, t + MS, group="dp", seq=k)
        message(job, k, (0, 1), t + 2 * MS, t + 2 * MS + 20 * US)
        message(job, k, (1, 0), t + 3 * MS, t + 3 * MS + 20 * US)
    job.skew({1: 5.0 * MS}, {1: 20 * PPM}, BEGIN)
    _, _, got = fit(job)
    assert got.mismatches == []
    assert got.clock.hosts[1].drift_ppm == 0


def test_a_receiver_that_ends_before_its_sender_begins_is_counted_before_clipping():
    """One host, two ranks: 1 ms too early is a violation although its wait is clipped to the record."""
    job = Job()
    message(job, 0, (0, 1), BEGIN + 2 * MS, BEGIN + 3 * MS, arrives=BEGIN)
    job.columns["end"][1] = BEGIN + MS
    table, found, got = fit(job, {0: "a", 1: "a"})
    wait, _, violated = waited(table, found, got)
    assert violated.tolist() == [False, True]
    assert wait.tolist() == [0, MS]


def test_bounds_of_one_component_settle_although_another_contradicts_itself():
    instance = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    unit = np.array([0, 1, 0, 1, 2, 3, 3, 4])
    begin = np.array([0, 100, 0, -100, 0, 0, 0, 0])
    end = np.array([50, 150, 50, -50, 10, 20, 5, 5])
    got = bounds(instance, unit, begin, end, np.array([True, False, True, False, False]))
    assert got.empty[:2].any()
    assert not got.empty[2:].any()
    assert (got.low[4], got.high[4]) == (-25, 15)


@settings(max_examples=60, deadline=None)
@given(
    offset=st.integers(-100 * US, 100 * US),
    drift=st.floats(-50, 50),
    there=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 5_000)), min_size=1, max_size=20),
    back=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 5_000)), min_size=1, max_size=20),
)
def test_the_truth_is_always_inside_the_track(offset, drift, there, back):
    """Any messages, under way for any time: the true offset at the ends of the record is never excluded."""

    def at(ms):
        return offset + round(drift * PPM * ms * MS)

    lower = tuple(np.array(x, np.int64) for x in zip(*((t * MS, at(t) - w * US - 1) for t, w in there), strict=True))
    upper = tuple(np.array(x, np.int64) for x in zip(*((t * MS, at(t) + w * US + 1) for t, w in back), strict=True))
    found = track((0, 1), lower, upper, 50 * PPM)
    assert not found.empty
    for ms in (-10, 0, 5_000, 10_000, 10_010):
        low, high = found.at(ms * MS)
        assert low <= at(ms) <= high


def test_bounds_from_one_side_leave_the_other_open():
    times, none = np.array([0, 10 * MS]), np.zeros(0, np.int64)
    assert track((0, 1), (times, np.array([5, 3])), (none, none), 0.0).at(0) == (5, FAR)
    assert track((0, 1), (none, none), (times, np.array([5, 3])), 0.0).at(0) == (-FAR, 3)


def test_cycles():
    assert cycles(6, [(0, 1), (1, 0), (1, 2), (2, 3), (3, 4), (4, 2)]).tolist() == [0, 0, 2, 2, 2, 5]
