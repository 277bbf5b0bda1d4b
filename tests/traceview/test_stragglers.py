"""METHODS e.4, e.5, e.7: the right culprit and cause, or nobody."""

from __future__ import annotations

import numpy as np
import pytest

from jobs import MS, US, Job, analyse, training
from scenarios import load, load_extras
from traceview.analysis.cause import Late, explain
from traceview.analysis.lateness import Arrivals, terms
from traceview.analysis.leaftime import LeafTime
from traceview.analysis.origin import late_rows, lateness_of
from traceview.analysis.places import places
from traceview.analysis.stragglers import kind_of, significant_last
from traceview.analysis.types import Segments, Windows
from traceview.config import DEFAULT


def numbered(n, k):
    return n


def scenario_job(s):
    """A scenario as a job: its collectives, and its windows."""
    job = Job()
    for name in dict.fromkeys(s.instances):
        rows = [
            (r, g) for r in s.ranks for g in s.raw["ranks"][str(r)]["gpu"] if g["cls"] == "comm" and g["coll"] == name
        ]
        starts = {r: g["s"] * US for r, g in rows}
        job.add(0, starts, {r: g["e"] * US for r, g in rows}, group=name, seq=0)
    return job, s.windows()


def test_direct_and_origin_blame_of_the_worked_examples(shared_dir):
    scenarios = load(shared_dir)
    for case in load_extras(shared_dir)["blame"]:
        job, windows = scenario_job(scenarios[case["id"]])
        got = analyse(job, windows=windows)
        direct = {str(r): x / US for r, x in enumerate(got.ledger.direct.tolist()) if x}
        origin = {str(r): x / US for r, x in enumerate(got.origin.tolist()) if x}
        assert (direct, origin) == (case["direct"], case["origin"]), case["id"]


@pytest.mark.parametrize("ranks", [2, 8, 64, 512])
def test_one_slow_rank(ranks):
    got = analyse(training(ranks, 6, 8 if ranks < 512 else 2, slow={ranks // 2: 0.2}, seq=numbered, group="world"))
    (row,) = got.found.rows
    assert row.rank == ranks // 2
    assert row.kind == "persistent"
    assert row.late_steps == row.steps == 6
    assert row.cause == "compute_slower"
    assert 1.15 < float(row.explanation.split("take ")[1].split("x")[0]) < 1.25
    assert row.quality == "proved"
    assert row.origin_blame_ns > 0.8 * got.ledger.total
    assert abs(sum(row.cause_terms_ns.values()) - row.cause_terms_ns["compute_slower"]) < 0.1 * sum(
        row.cause_terms_ns.values()
    )


@pytest.mark.parametrize("nodes", [2, 8])
def test_a_slow_node(nodes):
    ranks = 8 * nodes
    hosts = {r: f"node-{r // 8}" for r in range(ranks)}
    job = training(ranks, 5, 6, slow={r: 0.25 for r in range(8, 16)}, seq=numbered, jitter=0.02)
    job.skew({r: 2.0 * MS * (r // 8) for r in range(ranks)})
    got = analyse(job, hosts)
    assert sorted(got.culprits) == list(range(8, 16))
    assert {r.place for r in got.found.rows} == {"node"}
    assert {r.host for r in got.found.rows} == {"node-1"}


def test_two_culprits_at_once():
    got = analyse(training(8, 6, 8, slow={2: 0.3, 5: 0.3}, seq=numbered, jitter=0.03))
    assert sorted(got.culprits) == [2, 5]
    assert {r.place for r in got.found.rows} == {"gpu"}


@pytest.mark.parametrize("offset", [2.0 * MS, 10_000.0 * MS])
@pytest.mark.parametrize("culprit", [1, 6])
def test_host_offsets_with_drift(offset, culprit):
    """The clock of the second host is off by 2 ms or 10 s and drifts 20 ppm: the culprit stays the same."""
    job = training(8, 6, 8, slow={culprit: 0.2}, seq=numbered, step_ns=200 * MS)
    begin = min(job.columns["start"])
    job.skew(dict.fromkeys(range(4, 8), offset), dict.fromkeys(range(4, 8), 20e-6), begin)
    got = analyse(job, {r: "a" if r < 4 else "b" for r in range(8)})
    assert got.culprits == [culprit]
    assert got.found.rows[0].cause == "compute_slower"


@pytest.mark.parametrize("with_seq", [True, False])
def test_a_missing_first_allreduce_changes_no_name(with_seq):
    job = training(8, 6, 5, slow={4: 0.2}, seq=numbered if with_seq else None, truth=numbered)
    job.drop(lambda r: not (r["rank"] == 1 and r["truth"] == 0))
    job.columns.pop("truth")
    assert analyse(job).culprits == [4]


def test_three_missing_ranks_give_lower_bounds_or_nobody():
    for missing, want in (((1, 2, 3), [5]), ((5, 6, 7), [])):
        job = training(8, 6, 5, slow={5: 0.2}, seq=numbered)
        job.drop(lambda r, gone=missing: r["rank"] not in gone)
        got = analyse(job, world=8)
        assert got.culprits == want
        assert {r.quality for r in got.found.rows} <= {"lower_bound"}
        assert not got.ledger.direct.any()


def test_capture_starts_17_s_apart():
    job = training(4, 40, 2, slow={3: 0.2}, step_ns=1_000 * MS, seq=numbered)
    begin = min(job.columns["start"])
    job.drop(lambda r: r["rank"] != 1 or r["start"] > begin + 17_000 * MS)
    assert analyse(job).culprits == [3]


def test_two_groups_with_one_name():
    """Two data-parallel groups called alike; only one has a culprit."""
    job = Job()
    for part, members in enumerate(((0, 1, 2, 3), (4, 5, 6, 7))):
        own = training(4, 6, 5, slow={1: 0.2} if part else {}, seq=numbered, seed=part)
        for values in zip(*own.columns.values(), strict=True):
            row = dict(zip(own.columns, values, strict=True))
            row |= {"rank": members[row["rank"]], "members": f"{members[0]}-{members[-1]}"}
            for key, value in row.items():
                job.columns.setdefault(key, []).append(value)
    assert analyse(job).culprits == [5]


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_short_captures_say_so(steps):
    got = analyse(training(8, steps, 6, slow={3: 0.25}, seq=numbered))
    (row,) = got.found.rows
    assert (row.rank, row.kind, row.late_steps) == (3, "too_few_steps", steps)
    assert "more steps would tell" in row.explanation


@pytest.mark.parametrize(("jitter", "collectives"), [(0.05, 10), (0.5, 50), (0.3, 200)])
def test_healthy_jittery_jobs_have_no_straggler(jitter, collectives):
    for seed in range(4):
        got = analyse(training(8, 3, collectives, jitter=jitter, seed=seed, seq=numbered))
        assert got.culprits == []
        assert got.ledger.direct.sum() + got.ledger.unblamed == got.ledger.total


def test_healthy_with_a_thousand_collectives_a_step():
    got = analyse(training(8, 3, 1000, jitter=0.4, step_ns=50 * MS, transfer_ns=20 * US, seq=numbered))
    assert got.culprits == []


def test_lateness_within_the_clock_error_is_not_told():
    """8 us late in each of 400 collectives matters, but a clock may be off by as much: cannot tell."""
    job = Job(world=4)
    for k in range(400):
        t = 100 * US * k
        job.add(k // 100, {r: t + (8 * US if r == 2 else 0) for r in range(4)}, t + 50 * US, seq=k)
    got = analyse(job)
    assert got.culprits == []
    assert any("cannot tell" in n and "2" in n for n in got.found.notes)


def test_causes_other_than_compute():
    for phase, cause in (("idle_data", "data"), ("idle_host", "host"), ("pcie_h2d.pageable", "copies")):
        job = training(4, 5, 5, slow={2: 0.3}, seq=numbered)
        got = analyse(job, gaps={2: [(phase, 0.3 / 1.3), ("compute.plain", 1.0)]})
        (row,) = got.found.rows
        assert (row.rank, row.cause) == (2, cause)


def test_more_work_is_not_slower_work():
    got = analyse(training(4, 5, 5, slow={2: 0.5}, seq=numbered), extra={2: 2})
    (row,) = got.found.rows
    assert row.cause == "compute_more_work"
    assert row.names[0] == "extra"


def test_a_relay_is_not_a_culprit():
    """S14 over many steps: rank 3 is slow, rank 2 is late in the data-parallel group only because it waited for 3."""
    job = Job(world=4)
    for k in range(6):
        t = 100 * MS * k
        late = 10 * MS
        job.add(k, {0: t + 20 * MS, 1: t + 20 * MS}, t + 25 * MS, group="tp0", seq=k)
        job.add(k, {2: t + 20 * MS, 3: t + 20 * MS + late}, t + 25 * MS + late, group="tp1", seq=k)
        job.add(k, {0: t + 25 * MS, 2: t + 25 * MS + late}, t + 35 * MS + late, group="dp0", seq=k)
        job.add(k, {1: t + 25 * MS, 3: t + 25 * MS + late}, t + 35 * MS + late, group="dp1", seq=k)
    got = analyse(job)
    assert got.ledger.direct.tolist() == [0, 0, 60 * MS, 120 * MS]
    assert got.origin.tolist() == [0, 0, 0, 180 * MS]
    assert got.culprits == [3]


def test_the_schedule_of_a_pipeline_names_nobody():
    """Four stages pass their gradients back and then meet: the first is last because it waited, and so on."""
    job = Job(world=4)
    for k in range(6):
        t, done = 100 * MS * k, 10 * MS
        for r in (2, 1, 0):  # a stage computes for 10 ms and hands on; its neighbour waits for that from the start
            begin, pair = t + (3 - r) * done, {"src": r + 1, "dst": r, "p2p": True, "group": f"pp{r}"}
            job.add(k, {r + 1: begin}, begin + MS, kind="send", members=(r, r + 1), **pair)
            job.add(k, {r: t}, begin + MS, kind="recv", members=(r, r + 1), **pair)
        job.add(k, {r: t + (4 - r) * done + MS * (r < 3) for r in range(4)}, t + 45 * MS, group="world", seq=k)
    got = analyse(job)
    assert got.ledger.total > 0
    assert got.culprits == []
    assert sum(b.by_schedule_ns for b in got.found.blame) > 0.8 * got.ledger.total


@pytest.mark.parametrize(("transfer", "kept"), [(10, 0), (14, 4), (30, 20)])
def test_communication_is_the_cause_only_as_far_as_it_took_longer(transfer, kept):
    """Rank 2 exposes 20 ms more of its earlier communication than rank 0: a slow link, or a delay that moved it?"""
    job = Job(world=4)
    for k in range(3):
        t, late = 100 * MS * k, 20 * MS
        job.add(k, dict.fromkeys((0, 1), t), t + 10 * MS, group="g0", seq=k)
        job.add(k, dict.fromkeys((2, 3), t), t + transfer * MS, group="g1", seq=k)
        job.add(k, {r: t + 40 * MS + late * (r > 1) for r in range(4)}, t + 70 * MS, seq=k)
    facts = analyse(job).facts
    row, reference = (int(np.flatnonzero(facts.c.rank == r)[5]) for r in (2, 0))
    late = Arrivals(*(np.array([x]) for x in (row, reference, 20 * MS, 200 * MS, 200 * MS)))
    got = explain(facts, Late(late, {"comm_transfer": 20 * MS}, "world"))
    want = {"comm_transfer": kept * MS, "carry": (20 - kept) * MS}
    assert got.terms_ns == {k: v for k, v in want.items() if v}
    assert got.cause == ("communication" if kept == 20 else "unknown")


def test_one_more_transfer_of_the_same_length_is_no_slow_link():
    """An earlier wait of rank 2 moved a whole transfer into its window; that of rank 0 was done before."""
    job = Job(world=4)
    for k in range(3):
        t = 100 * MS * k
        for ranks, begin in (((0, 1), t - 20 * MS), ((2, 3), t + 5 * MS)):
            job.add(k, dict.fromkeys(ranks, begin), begin + 10 * MS, group=f"g{ranks[0]}", seq=2 * k)
            job.add(k, dict.fromkeys(ranks, t + 25 * MS), t + 35 * MS, group=f"g{ranks[0]}", seq=2 * k + 1)
        job.add(k, {r: t + 40 * MS + 10 * MS * (r > 1) for r in range(4)}, t + 70 * MS, seq=k)
    facts = analyse(job).facts
    row, reference = (int(np.flatnonzero(facts.c.rank == r)[8]) for r in (2, 0))
    late = Arrivals(*(np.array([x]) for x in (row, reference, 10 * MS, 200 * MS, 200 * MS)))
    got = explain(facts, Late(late, {"comm_transfer": 10 * MS}, "world"))
    assert got.terms_ns == {"carry": 10 * MS}


def test_where_stages_meet_the_groups_inside_a_stage_say_why():
    """Ranks 0 and 1 are one stage, 2 and 3 the other, two pipelines; rank 1 is slow, and its stage is last anyway."""
    job = Job(world=4)
    for k in range(6):
        t = 200 * MS * k
        for r in (0, 1):  # the last stage sends its gradients at 50 ms; the first has received since the begin
            pair = {"src": r + 2, "dst": r, "p2p": True, "group": f"pp{r}", "members": (r, r + 2)}
            job.add(k, {r + 2: t + 50 * MS}, t + 51 * MS, kind="send", **pair)
            job.add(k, {r: t + 1 * MS}, t + 51 * MS, kind="recv", **pair)
        job.add(k, {0: t + 60 * MS, 1: t + 80 * MS}, t + 81 * MS, group="tp0", seq=k)
        job.add(k, {2: t + 60 * MS, 3: t + 60 * MS}, t + 61 * MS, group="tp1", seq=k)
        job.add(
            k, {0: t + 90 * MS, 1: t + 91 * MS, 2: t + 70 * MS, 3: t + 70 * MS}, t + 92 * MS, group="world", seq=k
        )
    (row,) = analyse(job).found.rows
    assert (row.rank, row.cause) == (1, "compute_slower")


@pytest.mark.parametrize("slow", [(), (3,)])
def test_the_last_stage_is_judged_by_its_own_group_not_by_the_meeting_of_stages(slow):
    """Ranks 2 and 3 are the last stage of two pipelines: done first, and never last where all meet."""
    job = Job(world=4)
    for k in range(6):
        t, late = 200 * MS * k, dict.fromkeys(slow, 20 * MS)
        for r in (0, 1):
            pair = {"src": r + 2, "dst": r, "p2p": True, "group": f"pp{r}", "members": (r, r + 2)}
            job.add(k, {r + 2: t + 50 * MS}, t + 51 * MS, kind="send", **pair)
            job.add(k, {r: t + 1 * MS}, t + 51 * MS, kind="recv", **pair)
        for group in ((0, 1), (2, 3)):
            begin = {r: t + (60 if r > 1 else 120) * MS + late.get(r, 0) for r in group}
            job.add(k, begin, max(begin.values()) + MS, group=f"dp{group[0]}", seq=k)
        arrive = {r: t + (122 if r < 2 else 90) * MS for r in range(4)}
        job.add(k, arrive, t + 125 * MS, group="world", seq=k)
    assert {r.rank: r.cause for r in analyse(job).found.rows} == dict.fromkeys(slow, "compute_slower")


def test_two_culprits_in_different_groups_are_both_named():
    """Rank 1 holds the tensor group of 0-3 and rank 5, less, that of 4-7: where the two meet half of all are late."""
    job = Job(world=8)
    for k in range(6):
        t = 200 * MS * k
        for i in range(2):
            for low, slow, late in ((0, 1, 40 * MS), (4, 5, 20 * MS)):
                begin = {r: t + 50 * MS + i * (late + 55 * MS) + late * (r == slow) for r in range(low, low + 4)}
                job.add(k, begin, begin[slow] + MS, group=f"tp{low}", seq=2 * k + i)
        for r in range(4):
            begin = {r: t + 187 * MS, r + 4: t + 147 * MS}
            job.add(k, begin, t + 188 * MS, group=f"dp{r}", seq=k)
    assert {r.rank: r.cause for r in analyse(job).found.rows} == dict.fromkeys((1, 5), "compute_slower")


def test_the_terms_sum_to_the_lateness():
    got = analyse(training(6, 4, 5, slow={2: 0.2, 4: 0.1}, jitter=0.1, seq=numbered))
    facts = got.facts
    late = lateness_of(facts, *late_rows(facts, got.ledger.row_ns))
    found = terms(facts.c, late, facts.segments)
    start = facts.c.start
    assert len(late)
    assert (late.late == start[late.row] - start[late.reference]).all()
    assert (late.late == found.carry + found.leaves.sum(axis=1)).all()
    assert (found.carry == late.start - late.reference_start).all()  # I6: the carry is what the starts of P differ by


def test_leaf_time_between():
    time = LeafTime.of(Segments(np.array([0, 10, 30, 40]), np.array([0, 7, 0], np.int8)))
    got = time.between(np.array([-5, 5, 35, 50]), np.array([5, 35, 35, 60]))
    assert got.sum(axis=1).tolist() == [5, 30, 0, 0]
    assert got[1, 0] == 10
    assert got[1, 4] == 20


@pytest.mark.parametrize(
    ("ranks", "want"),
    [
        (8, {5: 4, 8: 5, 10: 6, 20: 9, 3: None}),
        (64, {5: 3, 8: 4, 10: 4, 20: 5}),
        (1024, {5: 2, 8: 3}),
        (2, {5: None, 8: 8, 10: 10, 20: 17}),
    ],
)
def test_how_often_last_is_no_chance(ranks, want):
    assert {k: significant_last(ranks, k) for k in want} == want


def test_kinds():
    cases = {(5, 5): "persistent", (3, 5): "intermittent", (1, 5): "transient", (4, 4): "too_few_steps"}
    assert {k: kind_of(*k) for k in cases} == cases


def test_places():
    def of(late, job, hosts):
        table, _ = job.table()
        from traceview.analysis.groups import columns

        return set(places(late, hosts, columns(table), DEFAULT).values())

    # 8 ranks: tensor pairs, pipeline of two stages, data-parallel pairs
    job = Job()
    for pair in ((0, 1), (2, 3), (4, 5), (6, 7)):
        job.add(0, dict.fromkeys(pair, 0), 1, group=f"tp{pair[0]}")
    for pair in ((0, 2), (1, 3), (4, 6), (5, 7)):
        job.add(0, dict.fromkeys(pair, 2), 3, group=f"dp{pair[0]}")
    for pair in ((0, 4), (1, 5), (2, 6), (3, 7)):
        job.add(
            0, {pair[0]: 4}, 5, group=f"pp{pair[0]}", kind="send", p2p=True, src=pair[0], dst=pair[1], members=pair
        )
        job.add(
            0, {pair[1]: 4}, 5, group=f"pp{pair[0]}", kind="recv", p2p=True, src=pair[0], dst=pair[1], members=pair
        )
    one = dict.fromkeys(range(8), "a")
    assert of({4, 5, 6, 7}, job, one) == {"stage"}
    assert of({2, 3}, job, one) == {"gpu"}  # a tensor group of one stage: neither a stage nor a replica
    assert of({5}, job, one) == {"gpu"}
    assert of({0, 1, 2, 3}, job, {r: "a" if r < 4 else "b" for r in range(8)}) == {"node"}
    flat = Job()
    for pair in ((0, 1), (2, 3)):
        flat.add(0, dict.fromkeys(pair, 0), 1, group=f"tp{pair[0]}")
    for pair in ((0, 2), (1, 3)):
        flat.add(0, dict.fromkeys(pair, 2), 3, group=f"dp{pair[0]}")
    assert of({2, 3}, flat, dict.fromkeys(range(4), "a")) == {"replica"}
    wide = Job()
    wide.add(0, dict.fromkeys(range(12), 0), 1)
    assert of({1, 5, 9}, wide, {r: f"h{r // 4}" for r in range(12)}) == {"rail"}


def test_permuting_the_ranks_permutes_the_rows():
    job = training(6, 5, 5, slow={1: 0.25, 4: 0.1}, seq=numbered)
    order = [3, 5, 0, 2, 1, 4]
    moved = Job(world=6, columns=dict(job.columns) | {"rank": [order[r] for r in job.columns["rank"]]})
    a, b = analyse(job), analyse(moved)
    assert [order[r] for r in a.culprits] == b.culprits
    assert [r.late_steps for r in a.found.rows] == [r.late_steps for r in b.found.rows]
    assert [r.cause for r in a.found.rows] == [r.cause for r in b.found.rows]
    assert np.abs(a.ledger.direct - b.ledger.direct[order]).max() <= 5


def test_nothing_at_all():
    empty = Windows(*(np.zeros(0, np.int64) for _ in range(5)), np.zeros(0, np.bool_))
    job = Job()
    job.add(0, {0: 0}, 10, seq=0)
    got = analyse(job, windows=empty)
    assert got.culprits == []
    assert got.found.arrivals[0].n == 1


def test_one_collective_proves_nothing(shared_dir):
    """S02 has 15 us of waiting and a ledger that says for whom, but one collective makes nobody a straggler."""
    job, windows = scenario_job(load(shared_dir)["S02"])
    got = analyse(job, windows=windows)
    assert got.ledger.direct.tolist() == [0, 15 * US]
    assert got.culprits == []
    assert any("whether rank 1 made the others wait" in n and "chance" in n for n in got.found.notes)


def test_misaligned_stamps_make_no_straggler(shared_dir):
    job, windows = scenario_job(load(shared_dir)["S19"])
    got = analyse(job, windows=windows)
    assert got.culprits == []
    assert got.ledger.unblamed == got.ledger.total


def relayed(missing):
    """Two tensor pairs, data-parallel across them; rank 3 is slow, rank 2 relays it. Some ranks have no file."""
    job = Job(world=4)
    for k in range(6):
        t, late = 100 * MS * k, 10 * MS
        job.add(k, {0: t + 20 * MS, 1: t + 20 * MS}, t + 25 * MS, group="tp0", seq=k)
        job.add(k, {2: t + 20 * MS, 3: t + 20 * MS + late}, t + 25 * MS + late, group="tp1", seq=k)
        for i in (0, 1):
            starts = {i: t + 25 * MS, i + 2: t + 25 * MS + late}
            job.add(k, starts, t + 35 * MS + late, group=f"dp{i}", seq=k)
        job.add(k, {r: t + 40 * MS + late for r in range(4)}, t + 41 * MS + late, group="world", seq=k)
    job.drop(lambda r: r["rank"] not in missing)
    return analyse(job, world=4)


def test_a_relay_is_not_named_for_a_culprit_that_is_missing():
    got = relayed({3})
    assert got.culprits == []
    assert got.ledger.direct[2] > 0  # rank 0 did wait for rank 2
    assert any("rank 2" in n for n in got.found.notes)
