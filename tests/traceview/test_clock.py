"""METHODS d: offsets, drifts, bounds, grades, and what must not change."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from jobs import MS, US, Job, training
from scenarios import load_extras
from traceview.analysis.causal import FAR, bounds
from traceview.analysis.clock import align
from traceview.analysis.clockfit import find_jump
from traceview.analysis.match import match
from traceview.analysis.waits import waits


def fit(job, hosts, **more):
    table, step = job.table()
    found = match(table, step, None, hosts)
    return table, found, align(table, found, hosts, **more)


def two_hosts(ranks):
    return {r: "a" if r < ranks // 2 else "b" for r in range(ranks)}


def case(shared_dir, name):
    return next(x for x in load_extras(shared_dir)["clock"] if x["id"] == name)


def test_drift_and_offset_of_the_worked_example(shared_dir):
    c1 = case(shared_dir, "C1")
    job = Job()
    for k in range(3):
        ends = {r: round(c1["ends"][str(r)][k] * US) for r in (0, 1)}
        job.add(0, {r: e - 50 for r, e in ends.items()}, ends, seq=k)
    _, _, got = fit(job, {0: "a", 1: "b"}, t_ref_ns=0, fit_drift=True)
    a, b = got.clock.hosts
    assert (a.offset_ns, a.drift_ppm) == (0, 0.0)
    assert b.drift_ppm == pytest.approx(c1["expect"]["rho"] * 1e6, rel=1e-6)
    assert b.offset_ns == pytest.approx(c1["expect"]["theta"] * US, abs=1)


def test_causal_interval_of_the_worked_example(shared_dir):
    c2 = case(shared_dir, "C2")
    job = Job()
    for k in range(2):
        starts, ends = ({r: c2[x][str(r)][k] * US for r in (0, 1)} for x in ("starts", "ends"))
        job.add(0, starts, ends, seq=k)
    _, _, got = fit(job, {0: "a", 1: "b"})
    want = c2["expect"]
    assert got.clock.hosts[1].offset_ns == want["estimate"] * US
    assert got.clock.hosts[1].bound_ns == want["bound_of_estimate"] * US


def test_bounds_as_an_interval(shared_dir):
    c2 = case(shared_dir, "C2")
    instance, unit = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    begin, end = (np.array([c2[x][str(r)][k] for k in (0, 1) for r in (0, 1)]) for x in ("starts", "ends"))
    got = bounds(instance, unit, begin, end, np.array([True, False]))
    assert [got.low[1], got.high[1]] == c2["expect"]["interval_theta1_minus_theta0"]
    assert not got.empty.any()


def test_bounds_add_along_a_path_and_one_side_may_be_open():
    far = FAR
    instance, unit = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2])
    begin, end = np.array([0, 0, 0, -far]), np.array([10, 20, far, 7])
    got = bounds(instance, unit, begin, end, np.array([True, False, False]))
    assert (got.low[1], got.high[1]) == (-20, 10)
    assert (got.low[2], got.high[2]) == (-27, far)


def test_contradicting_bounds_are_proof_of_a_mismatch():
    instance, unit = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    begin, end = np.array([0, 100, 0, -100]), np.array([50, 150, 50, -50])
    assert bounds(instance, unit, begin, end, np.array([True, False])).empty.any()


def test_one_host_is_left_bit_for_bit():
    job = training(8, 4, 10, slow={3: 0.1}, seq=lambda n, k: n)
    table, _, got = fit(job, dict.fromkeys(range(8), "a"))
    start, rank = table["start"].to_numpy(), table["rank"].to_numpy()
    assert got.base.is_identity
    assert got.base.to_true(rank, start) is start
    assert got.clock.grade == "A"
    assert got.clock.hosts[0].bound_ns == 0


@pytest.mark.parametrize(("offset", "ppm"), [(2.0 * MS, 0.0), (10_000.0 * MS, 20.0), (-3.0 * MS, -20.0)])
def test_injected_clock_errors_are_found_and_waits_do_not_change(offset, ppm):
    """Two hosts: waits within a few us of the truth whatever the clock of the second does."""
    pieces = dict(slow={6: 0.2}, seq=lambda n, k: n, step_ns=300 * MS)
    truth, _ = training(8, 5, 10, **pieces).table()
    plain = waits(truth, match(truth, np.zeros(len(truth), np.int64), 8))
    job = training(8, 5, 10, **pieces)
    begin = min(job.columns["start"])
    hosts = two_hosts(8)
    job.skew({r: offset for r in range(4, 8)}, {r: ppm * 1e-6 for r in range(4, 8)}, begin)
    table, found, got = fit(job, hosts, t_ref_ns=begin + round(offset))
    b = got.clock.hosts[1]
    assert b.offset_ns == pytest.approx(-offset, abs=5 * US)
    assert b.drift_ppm == pytest.approx(-ppm, abs=3)
    assert got.clock.grade == "A"
    again = waits(table, found, got.base)
    wait = again.phases.wait_end - table["start"].to_numpy()
    want = plain.phases.wait_end - truth["start"].to_numpy()
    assert np.abs(wait - want).max() < 10 * US
    assert not again.phases.violated.any()


def test_a_drift_is_not_fitted_to_a_short_record():
    job = training(4, 2, 5, seq=lambda n, k: n)
    _, _, got = fit(job, two_hosts(4))
    assert not got.base.drift.any()


def test_a_component_does_not_feel_the_other():
    """Two jobs that share no collective: a clock error in one changes nothing of the other."""

    def build(error):
        job = Job()
        for part, members in enumerate(((0, 1), (2, 3))):
            own = training(2, 3, 6, seq=lambda n, k: n, seed=part)
            for i, rank in enumerate(own.columns["rank"]):
                row = {k: v[i] for k, v in own.columns.items()}
                row |= {"rank": members[rank], "members": f"{members[0]}-{members[1]}"}
                for key, value in row.items():
                    job.columns.setdefault(key, []).append(value)
        job.skew({3: error, 1: 777.0 * US})
        return fit(job, {0: "a", 1: "b", 2: "c", 3: "d"})

    _, _, before = build(5.0 * MS)
    _, _, after = build(-80_000.0 * MS)
    assert before.clock.hosts[:2] == after.clock.hosts[:2]
    assert before.base.component[0] != before.base.component[2]
    assert any("share no collective" in n for n in after.notes)
    assert after.clock.hosts[3].offset_ns == pytest.approx(80_000 * MS, abs=10 * US)


def test_hosts_that_share_nothing_are_not_compared():
    """A send between hosts without any common collective: no wait is claimed."""
    job = Job()
    for k in range(8):
        t = k * MS
        job.add(k, {0: t, 1: t + 10}, t + 1000, group="a", seq=k)
        job.add(k, {2: t, 3: t + 10}, t + 1000, group="b", seq=k)
        job.add(k, {1: t + 2000}, t + 9000, group="pp", kind="send", p2p=True, src=1, dst=2, members=[1, 2])
        job.add(k, {2: t + 7000}, t + 9000, group="pp", kind="recv", p2p=True, src=1, dst=2, members=[1, 2])
    table, found, got = fit(job, {0: "a", 1: "a", 2: "b", 3: "b"})
    again = waits(table, found, got.base)
    p2p = table["p2p"].to_numpy()
    assert (again.phases.wait_end[p2p] == table["start"].to_numpy()[p2p]).all()
    assert (again.phases.wait_end[~p2p] > table["start"].to_numpy()[~p2p]).any()
    assert not again.phases.violated.any()


def test_a_rank_whose_own_clock_deviates_is_aligned_apart():
    """Rank 2 of 4 on one host converts GPU ticks 90 us off: un-pooled, named, the others untouched."""
    job = training(4, 4, 10, seq=lambda n, k: n)
    job.skew({2: 90.0 * US})
    _, _, got = fit(job, dict.fromkeys(range(4), "a"))
    assert [r.rank for r in got.clock.ranks if r.eta_ns] == [2]
    assert got.clock.ranks[2].eta_ns == pytest.approx(-90 * US, abs=3 * US)
    assert not got.base.shift[[0, 1, 3]].any()
    assert any("rank 2" in n for n in got.notes)


def test_a_stepped_clock_is_aligned_piecewise():
    job = training(4, 10, 10, seq=lambda n, k: n)
    half = sorted(job.columns["start"])[len(job.columns["start"]) // 2]
    for i, r in enumerate(job.columns["rank"]):
        if r >= 2 and job.columns["start"][i] >= half:
            job.columns["start"][i] += 3 * MS
            job.columns["end"][i] += 3 * MS
    table, found, got = fit(job, two_hosts(4))
    assert any("stepped" in n for n in got.notes)
    again = waits(table, found, got.base)
    residual = again.instances.ended - again.instances.arrived
    assert residual.max() < 0.5 * MS
    assert again.phases.violated.sum() <= 4


def test_too_few_shared_collectives_are_grade_c():
    job = training(4, 1, 2, seq=lambda n, k: n)
    job.skew({2: 5.0 * MS, 3: 5.0 * MS})
    table, found, got = fit(job, two_hosts(4))
    assert got.clock.grade == "C"
    again = waits(table, found, got.base)
    assert again.instances.clock_free.all()
    assert (again.phases.wait_end <= table["end"].to_numpy()).all()


def test_offsets_reach_hosts_that_meet_only_through_others():
    """Ranks 0-1, 1-2, 2-3 share groups, each rank on its own host: offsets add along the chain."""
    rng = np.random.default_rng(3)
    job = Job()
    for k in range(40):
        for pair in ((0, 1), (1, 2), (2, 3)):
            t = 10 * MS * k + 2 * MS * pair[0]
            job.add(k, {r: t + int(rng.integers(0, 300)) * US for r in pair}, t + MS, group=f"g{pair[0]}", seq=k)
    error = {0: 0.0, 1: 4.0 * MS, 2: -9.0 * MS, 3: 1_000.0 * MS}
    job.skew(error)
    _, _, got = fit(job, {r: f"h{r}" for r in range(4)})
    assert [h.offset_ns for h in got.clock.hosts] == [-round(error[r]) for r in range(4)]
    assert {h.component for h in got.clock.hosts} == {0}


def test_find_jump():
    time = np.arange(40)
    noise = np.random.default_rng(0).normal(0, 3, 40)
    assert find_jump(time, noise, 20.0) is None
    at, height = find_jump(time, noise + 100.0 * (time >= 25), 20.0)
    assert at == 25
    assert height == pytest.approx(100, abs=5)


def test_scattered_ends_of_host_collectives_un_pool_nobody():
    """gloo: every process has the system clock of its host, and ends scatter by milliseconds."""
    rng = np.random.default_rng(2)
    job = Job()
    for k in range(30):
        starts = {r: 20 * MS * k + int(rng.integers(0, 5 * MS)) for r in range(4)}
        job.add(0, starts, {r: 20 * MS * k + 6 * MS + int(rng.exponential(3 * MS)) for r in range(4)}, seq=k)
    table, step = job.table()
    host = table.set_column(table.schema.get_field_index("device"), "device", pa.array([-1] * len(table), pa.int32()))
    found = match(host, step, 4)
    got = align(host, found, dict.fromkeys(range(4), "a"))
    assert got.base.is_identity
    assert got.notes == []


def test_the_error_of_an_offset_between_two_hosts_is_what_repeating_it_scatters():
    """sigma over many draws of the same job with end jitter: about the standard deviation of the estimate."""
    offsets, sigmas = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        job = Job()
        for k in range(40):
            t = MS * k
            job.add(k, {0: t, 1: t}, {r: t + 500 * US + int(rng.normal(0, 20 * US)) for r in (0, 1)}, seq=k)
        b = fit(job, {0: "a", 1: "b"})[2].clock.hosts[1]
        offsets.append(b.offset_ns)
        sigmas.append(b.sigma_ns)
    assert 0.4 * np.std(offsets) < np.median(sigmas) < 2 * np.std(offsets)
