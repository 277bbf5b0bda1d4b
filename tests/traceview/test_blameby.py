"""METHODS e.3: the ledger by host, stage, replica, rail and class of collectives sums to the ledger by rank."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import MS, US, Job, analyse, training
from scenarios import load
from traceview.analysis import blameby, roles
from traceview.analysis.rails import rails
from traceview.analysis.roles import Places
from traceview.result import BlamePlaceRow
from traceview.run import parse_members
from traceview.units import ranks as as_ranges


def split(got, hosts: dict[int, str], *places: Places, described=()) -> list[BlamePlaceRow]:
    """Every kind of place of an analysed job."""
    sure = blameby.sure_ranks(hosts, got.found.rows)
    rows = [
        row
        for place in (blameby.host_places(hosts), *places)
        for row in blameby.by_place(place, got.found.blame, hosts, sure, got.ledger.at_least)
    ]
    c = got.facts.c
    texts = described or [set() for _ in c.groups]
    return rows + blameby.by_class(got.ledger.classes, c, texts, sure=len(set(hosts.values())) == 1)


def brief(rows: list[BlamePlaceRow], by: str) -> dict[str, tuple]:
    """name -> (direct, started, inclusive, waited) in us."""
    return {
        r.name: tuple(
            x if x is None else x // US for x in (r.blame_ns, r.origin_blame_ns, r.inclusive_ns, r.waited_ns)
        )
        for r in rows
        if r.by == by
    }


def scenario(shared_dir, name: str):
    s = load(shared_dir)[name]
    job = Job()
    for instance in dict.fromkeys(s.instances):
        rows = [
            (r, g)
            for r in s.ranks
            for g in s.raw["ranks"][str(r)]["gpu"]
            if g["cls"] == "comm" and g["coll"] == instance
        ]
        starts = {r: g["s"] * US for r, g in rows}
        job.add(0, starts, {r: g["e"] * US for r, g in rows}, group=instance, seq=0)
    return analyse(job, windows=s.windows())


def test_s14_by_every_place(shared_dir) -> None:
    got = scenario(shared_dir, "S14")
    hosts = {0: "a", 1: "a", 2: "b", 3: "b"}
    replica = Places("replica", {0: "replica 0", 1: "replica 0", 2: "replica 1", 3: "replica 1"}, "told")
    rows = split(got, hosts, replica, rails(hosts, {}, {}))
    assert brief(rows, "host") == {"b": (30, 30, 30, 10), "a": (0, 0, 0, 20)}
    assert brief(rows, "replica") == {"replica 1": (30, 30, 30, 10), "replica 0": (0, 0, 0, 20)}
    assert brief(rows, "rail") == {"local rank 1": (20, 30, 20, 10), "local rank 0": (10, 0, 10, 20)}
    assert {name: row[0] for name, row in brief(rows, "collective").items()} == Counter(
        {f"{g.name} allreduce": 10 for g in got.facts.c.groups if g.members != (0, 1)}
    )


@pytest.mark.parametrize(
    ("name", "by_host"),
    [
        ("S15", {"b": (20, 20, 20, 0), "a": (0, 0, 0, 20)}),
        ("S16", {"b": (14, 14, 14, 0), "a": (2, 2, 2, 16)}),
    ],
)
def test_late_together_and_one_after_the_other(shared_dir, name, by_host) -> None:
    got = scenario(shared_dir, name)
    ranks = sorted(set(got.facts.c.rank.tolist()))
    hosts = {r: "b" if r >= 2 else "a" for r in ranks}
    rows = split(got, hosts)
    assert brief(rows, "host") == by_host
    assert [r.blame_ns for r in rows if r.by == "collective"] == [sum(x[0] for x in by_host.values()) * US]


def test_partly_observed_collectives_give_lower_bounds() -> None:
    """S08: three of four members seen."""
    job = Job()
    job.add(0, {0: 10 * US, 1: 20 * US, 2: 30 * US}, 60 * US, members=range(4), seq=0)
    got = analyse(job, world=4)
    rows = split(got, dict.fromkeys(range(3), "a"))
    assert [(r.by, r.blame_ns, r.waited_ns, r.at_least_ns, r.quality) for r in rows] == [
        ("host", 0, 30 * US, 30 * US, "lower_bound"),
        ("collective", 0, 30 * US, 30 * US, "lower_bound"),
    ]


def test_ranks_without_a_label_are_one_row_so_that_sums_hold() -> None:
    got = analyse(training(4, 5, 4, slow={1: 0.3, 2: 0.2}))
    place = Places("rail", {1: "east"}, "topology file")
    rows = split(got, dict.fromkeys(range(4), "a"), place)
    rail = {r.name: r for r in rows if r.by == "rail"}
    assert (rail["east"].ranks, rail["(not told)"].ranks) == ("1", "0,2-3")
    assert (rail["east"].basis, rail["(not told)"].basis) == ("topology file", "")
    assert rail["east"].blame_ns + rail["(not told)"].blame_ns == got.ledger.direct.sum()
    assert rail["east"].blame_ns == got.ledger.direct[1] > 0


def test_no_label_no_rows() -> None:
    got = analyse(training(4, 5, 4, slow={1: 0.3}))
    rows = split(got, {r: f"?{r}" for r in range(4)}, Places("stage", why="nobody said"))
    assert {r.by for r in rows} == {"collective"}


def test_quality_says_what_the_clocks_and_the_labels_allow() -> None:
    got = analyse(training(4, 6, 8, slow={1: 0.3}))
    assumed = Places("rail", {r: "x" for r in range(4)}, "assumed: so", assumed=True)
    rows = split(got, dict.fromkeys(range(4), "a"), assumed)
    assert {r.by: r.quality for r in rows} == {"host": "proved", "rail": "estimated", "collective": "proved"}
    got.found.rows[0].quality = "estimated"
    two = split(got, {0: "a", 1: "b", 2: "a", 3: "a"})
    assert {r.quality for r in two} == {"estimated"}


# A job of 2 pipeline stages x 2 replicas x 2 tensor-parallel ranks in one step
TENSOR, DATA, PIPE = (
    ((0, 1), (2, 3), (4, 5), (6, 7)),
    ((0, 2), (1, 3), (4, 6), (5, 7)),
    ((0, 4), (1, 5), (2, 6), (3, 7)),
)


def mesh_step(late: dict[int, int], order=tuple(range(8)), names=("tp", "dp", "pp"), steps: int = 3) -> Job:
    """Tensor, pipeline, data parallel and world collectives; ``late``: ns by which a rank comes to each of them."""
    job = Job(world=8)
    for k in range(steps):
        t = 100 * MS * k
        for i, families in enumerate((TENSOR, DATA)):
            at = t + 20 * MS * i
            for members in families:
                starts = {order[r]: at + late.get(r, 0) for r in members}
                facts = {"group": f"{names[i]}{members}", "group_desc": names[i], "seq": k}
                job.add(k, starts, at + 15 * MS, **facts, members=sorted(starts), kind="allreduce")
        for a, b in PIPE:
            pair = {"src": order[a], "dst": order[b], "p2p": True, "group": f"{names[2]}{a}", "group_desc": names[2]}
            members = sorted((order[a], order[b]))
            job.add(k, {order[a]: t + 40 * MS}, t + 42 * MS, kind="send", seq=None, members=members, **pair)
            job.add(k, {order[b]: t + 40 * MS}, t + 42 * MS, kind="recv", seq=None, members=members, **pair)
        starts = {order[r]: t + 60 * MS + late.get(r, 0) for r in range(8)}
        job.add(k, starts, t + 80 * MS, group="0", group_desc="default_pg", seq=k)
    return job


def roled(got, hosts: dict[int, str]) -> list[BlamePlaceRow]:
    described = roles.descriptions(got.facts.c)
    groups = roles.axes_of(got.facts.c, described)
    places = (roles.stages(groups), roles.replicas(groups, hosts), rails(hosts, {}, {}))
    return split(got, hosts, *places, described=described)


HOSTS = {r: f"node-{r // 2}" for r in range(8)}
SLOW = {
    "a stage": ((4, 5, 6, 7), "stage", "stage 1"),
    "a replica": ((2, 3, 6, 7), "replica", "replica 1"),
    "a host": ((2, 3), "host", "node-1"),
    "a rail": ((1, 3, 5, 7), "rail", "local rank 1"),
}


@pytest.mark.parametrize("what", SLOW)
def test_what_is_slow_leads_its_table(what: str) -> None:
    slow, by, name = SLOW[what]
    job = mesh_step(dict.fromkeys(slow, 5 * MS))
    rows = roled(analyse(job, HOSTS), HOSTS)
    first = next(r for r in rows if r.by == by)
    total = sum(r.blame_ns for r in rows if r.by == by)
    assert (first.name, first.blame_ns, first.origin_blame_ns) == (name, total, total)
    assert first.ranks == as_ranges(list(slow))
    assert {r.by for r in rows} == {"host", "stage", "replica", "rail", "collective"}


text = st.text(max_size=8)


@settings(max_examples=30)
@given(
    st.dictionaries(st.integers(0, 7), st.integers(0, 9 * MS), max_size=8),
    st.permutations(range(8)),
    st.tuples(text, text, text) | st.just(("tp", "dp", "pp")),
    st.lists(text, min_size=8, max_size=8),
    st.sets(st.integers(0, 7), max_size=3),
)
def test_every_kind_sums_to_the_ledger_and_follows_the_ranks(late, order, names, hostnames, missing) -> None:
    hosts = {r: h for r, h in enumerate(hostnames) if r not in missing}
    job = mesh_step(late, names=names, steps=2)
    job.drop(lambda row: row["rank"] not in missing)
    got = analyse(job, hosts)
    rows = roled(got, hosts)
    assert rows or not got.found.blame
    for by in {r.by for r in rows}:
        own = [r for r in rows if r.by == by]
        assert sum(r.blame_ns for r in own) == got.ledger.direct.sum(), by
        assert sum(r.inclusive_ns for r in own) == got.ledger.inclusive.sum(), by
        assert sum(r.waited_ns for r in own) == got.ledger.total, by
        assert sum(r.at_least_ns for r in own) == got.ledger.at_least.sum(), by
        if by != "collective":
            assert sum(r.origin_blame_ns for r in own) == got.origin.sum()
            assert sorted(as_ranges([x]) for r in own for x in parse_members(r.ranks)) == sorted(map(str, hosts))
    moved_job = mesh_step(late, tuple(order), names, steps=2)
    moved_job.drop(lambda row: row["rank"] not in {order[r] for r in missing})
    moved_hosts = {order[r]: h for r, h in hosts.items()}
    moved = roled(analyse(moved_job, moved_hosts), moved_hosts)
    for by in ("host", "collective"):
        before, after = (Counter({r.name: r.blame_ns for r in x if r.by == by}) for x in (rows, moved))
        assert before.keys() == after.keys()
        assert all(abs(before[n] - after[n]) <= 40 for n in before), by  # 1 ns per class, step and rank
