"""METHODS c: key ladder, validation, repair."""

from __future__ import annotations

import numpy as np
import pytest

from jobs import US, Job, training
from scenarios import load, load_extras
from traceview.analysis.match import match
from traceview.schema import COLLECTIVES


def together(table, found):
    """Sets of (rank, ordinal of the row on its rank) that are one instance."""
    rank = table["rank"].to_numpy()
    ordinal = np.arange(len(rank)) - np.searchsorted(rank, rank)
    out: dict[int, set] = {}
    for r, k, i in zip(rank.tolist(), ordinal.tolist(), found.instance.tolist(), strict=True):
        if i >= 0:
            out.setdefault(i, set()).add((r, k))
    return sorted(sorted(x) for x in out.values())


def test_scenarios(shared_dir):
    for s in load(shared_dir).values():
        table = s.collectives()
        found, given = match(table, np.zeros(len(table), np.int64), len(s.ranks)), s.matches()
        assert together(table, found) == together(table, given), s.id
        assert not found.ambiguous.any(), s.id
        assert sorted(found.size.tolist()) == sorted(given.size.tolist()), s.id


def test_one_name_with_two_rank_sets_is_two_groups(shared_dir):
    (case,) = [m for m in load_extras(shared_dir)["matching"] if m["id"] == "M2"]
    job = Job()
    for i, r in enumerate(case["records"]):
        job.add(0, {r["rank"]: 10 * i}, 100, group=r["pg"], seq=r["seq"], members=r["ranks"])
    table, step = job.table()
    found = match(table, step, 4)
    assert [[r for r, _ in x] for x in together(table, found)] == case["expect"]["instances"]
    assert found.full.all()
    assert [g.members for g in found.groups] == ["0-1", "2-3"]


def test_index_slip_is_repaired_by_overlap(shared_dir):
    (case,) = [m for m in load_extras(shared_dir)["matching"] if m["id"] == "M1"]
    job = Job()
    for rank, intervals in case["intervals"].items():
        for start, end in intervals:
            job.add(0, {int(rank): start * US}, end * US, members=[0, 1])
    table, step = job.table()
    found = match(table, step, 2)
    assert together(table, found) == [[(0, 0)], [(0, 1), (1, 0)], [(0, 2), (1, 1)], [(1, 2)]]


def test_a_missing_first_allreduce_with_sequence_numbers():
    job = training(8, 3, 4, seq=lambda n, k: n)
    job.drop(lambda r: not (r["rank"] == 3 and r["seq"] == 0))
    table, step = job.table()
    found = match(table, step, 8)
    assert found.seen.tolist() == [7] + [8] * 11
    assert found.full.sum() == 11
    assert (found.level == 1).all()


@pytest.mark.parametrize("equal_sizes", [False, True])
def test_a_missing_first_allreduce_without_sequence_numbers(equal_sizes):
    """Different sizes tell the place (K3); with equal sizes the common clock of one host does."""
    sizes = {"elems_in": 7, "elems_out": 7} if equal_sizes else {"elems_out": lambda n, k: k}
    job = training(8, 3, 4, truth=lambda n, k: n, **{k: v for k, v in sizes.items() if k != "elems_in"})
    if equal_sizes:
        job.columns["elems_in"] = [7] * len(job.columns["rank"])
    job.drop(lambda r: not (r["rank"] == 3 and r["truth"] == 0))
    truth = job.columns.pop("truth")
    rank, start = np.array(job.columns["rank"]), np.array(job.columns["start"])
    truth = np.array(truth)[np.lexsort((start, rank))]
    table, step = job.table()
    found = match(table, step, 8)
    assert (found.instance >= 0).all()
    assert sorted(found.seen.tolist()) == [7] + [8] * 11
    for i in range(len(found.seen)):
        assert len(np.unique(truth[found.instance == i])) == 1


def test_a_missing_first_allreduce_across_hosts_is_placed_by_the_next_step():
    """Equal sizes and another clock: the offset comes from the steps that match evenly."""
    job = training(4, 3, 4, elems_out=5, truth=lambda n, k: n)
    job.columns["elems_in"] = [7] * len(job.columns["rank"])
    job.drop(lambda r: not (r["rank"] == 3 and r["truth"] == 0))
    job.columns.pop("truth")
    job.skew({3: 10_000_000_000.0})
    table, step = job.table()
    found = match(table, step, 4, {0: "a", 1: "a", 2: "b", 3: "c"})
    assert sorted(found.seen.tolist()) == [3] + [4] * 11


def test_counts_differ_and_nothing_tells_the_place():
    """Equal sizes, unknown clocks, one step: the rows of the odd rank stay unmatched; the others match."""
    job = training(3, 1, 4, elems_out=5, truth=lambda n, k: n)
    job.columns["elems_in"] = [7] * len(job.columns["rank"])
    job.drop(lambda r: not (r["rank"] == 2 and r["truth"] == 0))
    job.columns.pop("truth")
    job.skew({2: 5e9})
    table, step = job.table()
    found = match(table, step, 3, {0: "a", 1: "a", 2: "b"})
    assert found.seen.tolist() == [2, 2, 2, 2]
    assert not found.full.any()
    assert found.groups[0].unmatched == 3


def test_late_capture_without_step_numbers():
    """No marks: rank 1 started recording 17 s late; on one host the time tells."""
    job = training(2, 30, 2, step_ns=1_000_000_000)
    begin = min(job.columns["start"])
    job.drop(lambda r: r["rank"] == 0 or r["start"] > begin + 17_000_000_000)
    table, _ = job.table()
    found = match(table, np.full(len(table), -1), 2, anchored=False)
    assert found.full.sum() == (table["rank"].to_numpy() == 1).sum() > 10
    assert not found.ambiguous.any()
    start, end = table["start"].to_numpy(), table["end"].to_numpy()
    for i in np.flatnonzero(found.full):
        a, b = np.flatnonzero(found.instance == i)
        assert max(start[a], start[b]) < min(end[a], end[b])


def test_slip_across_hosts_by_residual():
    """Irregular intervals: the end differences tell the slip although the clocks differ by seconds."""
    rng = np.random.default_rng(1)
    ends = np.cumsum(rng.integers(1_000_000, 9_000_000, 30))
    job = Job()
    for i, e in enumerate(ends.tolist()):
        if i:
            job.add(0, {0: e - 1000}, e, members=[0, 1])
        if i < 29:
            job.add(0, {1: e - 1200}, e, members=[0, 1])
    job.skew({1: 3e9})
    table, _ = job.table()
    found = match(table, np.full(len(table), -1), 2, {0: "a", 1: "b"}, anchored=False)
    assert found.full.sum() == 28
    assert not found.ambiguous[found.full].any()


def test_slip_across_hosts_stays_ambiguous_when_every_interval_is_alike():
    job = Job()
    for i in range(20):
        e = 1_000_000 * i
        job.add(0, {0: e - 1000, 1: e - 1200}, e)
    job.skew({1: 3e9})
    table, _ = job.table()
    found = match(table, np.full(len(table), -1), 2, {0: "a", 1: "b"}, anchored=False)
    assert found.ambiguous.all()


def test_no_group_facts_one_host():
    """K4: matched in an assumed world by order, because the intervals overlap."""
    job = training(4, 3, 5, group=None, members=None)
    job.columns["group"] = [None] * len(job.columns["rank"])
    job.columns["members"] = [None] * len(job.columns["rank"])
    job.columns["group_size"] = [None] * len(job.columns["rank"])
    table, step = job.table()
    found = match(table, step, 4)
    assert found.full.all()
    assert (found.level == 4).all()
    assert found.groups[0].level == "K4"


@pytest.mark.parametrize("told", [True, False])
def test_nobody_communicates_alone(told):
    """One rank of a world of unknown size: its peers are missing, whatever it names its group."""
    job = training(1, 3, 5, members=None, **({} if told else {"group": None}))
    for key in ("members", "group_size") if told else ("group", "members", "group_size"):
        job.columns[key] = [None] * len(job.columns["rank"])
    table, step = job.table()
    assert not match(table, step, None).full.any()


def test_no_group_facts_and_no_overlap_is_unmatched():
    """Two pairs that reduce at different times are not one world."""
    job = Job()
    for i in range(6):
        for ranks, at in (((0, 1), 0), ((2, 3), 500)):
            job.add(0, {r: i * 1000 + at for r in ranks}, i * 1000 + at + 100)
    for key in ("group", "members", "group_size"):
        job.columns[key] = [None] * len(job.columns["rank"])
    table, step = job.table()
    found = match(table, step, 4)
    assert (found.instance == -1).all()
    assert "intervals do not overlap" in found.notes[0]


def test_metadata_that_differs_is_ambiguous():
    job = Job()
    job.add(0, {0: 0, 1: 5}, 10, seq=1)
    job.add(0, {0: 20, 1: 25}, 30, seq=2, elems_in={0: 5, 1: 6})
    table, step = job.table()
    assert match(table, step, 2).ambiguous.tolist() == [False, True]


def test_missing_ranks_are_partial():
    job = training(4, 2, 2, seq=lambda n, k: n)
    job.drop(lambda r: r["rank"] != 2)
    table, step = job.table()
    found = match(table, step, 4)
    assert found.seen.tolist() == [3] * 4
    assert found.size.tolist() == [4] * 4
    assert not found.full.any()
    assert found.groups[0].partial == 4


def test_send_and_receive_channels_per_direction():
    """1F1B between two stages: activations go down, gradients come back; sequence numbers differ by side."""
    job = Job()
    for i in range(3):
        t = 1000 * i
        for kind, rank, at in (("send", 0, t), ("recv", 1, t + 5), ("send", 1, t + 500), ("recv", 0, t + 400)):
            down = (kind, rank) in (("send", 0), ("recv", 1))
            src, dst = (0, 1) if down else (1, 0)
            job.add(
                0, {rank: at}, at + 100, kind=kind, p2p=True, src=src, dst=dst, members=[0, 1, 2], seq=7 * i + rank
            )
    table, step = job.table()
    found = match(table, step, 3)
    assert found.full.all()
    assert found.size.tolist() == [2] * 6
    kinds = np.array(table["kind"].to_pylist())
    for i in range(6):
        assert sorted(kinds[found.instance == i]) == ["recv", "send"]


def test_a_ring_of_batches_is_one_instance_of_direct_edges():
    job = Job()
    starts = {r: r * 10 for r in range(4)}
    job.add(
        0,
        starts,
        100,
        kind="sendrecv",
        p2p=True,
        src={r: (r - 1) % 4 for r in range(4)},
        dst={r: (r + 1) % 4 for r in range(4)},
    )
    table, step = job.table()
    found = match(table, step, 4)
    assert found.instance.tolist() == [0, 0, 0, 0]
    assert found.size.tolist() == [4]


def test_rows_outside_steps_are_matched_on_their_own():
    job = training(2, 1, 3)
    table, step = job.table()
    found = match(table, np.full(len(step), -1), 2)
    assert found.full.all()
    assert len(found.full) == 3


def test_empty():
    found = match(COLLECTIVES.empty(), np.zeros(0, np.int64), None)
    assert len(found.size) == 0
