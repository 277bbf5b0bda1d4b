"""Cross-rank analysis of arbitrary tables: it never fails, and the invariants of METHODS hold."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import Job, exposed, segments_of, step_windows
from traceview.analysis.blame import blame
from traceview.analysis.clock import align
from traceview.analysis.groups import columns
from traceview.analysis.match import match
from traceview.analysis.origin import Facts, origin
from traceview.analysis.path import critical_path
from traceview.analysis.stragglers import Clocks, find
from traceview.analysis.waits import waits
from traceview.schema import COLL_KINDS

row = st.fixed_dictionaries(
    {
        "rank": st.integers(0, 4),
        "start": st.integers(0, 400),
        "length": st.integers(0, 60),
        "kind": st.sampled_from(COLL_KINDS),
        "group": st.sampled_from([None, "a", "b"]),
        "members": st.sampled_from([None, "0-1", "0-4", "2-3"]),
        "group_size": st.sampled_from([None, 2, 5]),
        "seq": st.sampled_from([None, None, 0, 1, 2]),
        "p2p": st.booleans(),
        "src": st.sampled_from([None, 0, 1, 4]),
        "dst": st.sampled_from([None, 0, 2]),
        "dtype": st.sampled_from([None, "Float"]),
        "elems_in": st.sampled_from([None, 1, 2]),
        "step": st.sampled_from([-1, 0, 1, 2]),
        "launch_start": st.sampled_from([None, 5]),
        "name": st.sampled_from(["x", "y"]),
    }
)


def job_of(rows):
    job = Job()
    for r in rows:
        facts = {k: v for k, v in r.items() if k not in ("rank", "start", "length", "step", "members")}
        job.add(r["step"], {r["rank"]: r["start"]}, r["start"] + r["length"], **facts)
        job.columns["members"][-1] = r["members"]
        job.columns["group_size"][-1] = r["group_size"]
    return job


def everything(rows, hosts, anchored):
    table, step = job_of(rows).table()
    found = match(table, step, 5, hosts, anchored=anchored)
    clock = align(table, found, hosts)
    waited = waits(table, found, clock.base)
    pieces = exposed(table, waited.phases)
    c = columns(table)
    ledger = blame(pieces, c, found, waited, step)
    windows = step_windows(table, step)
    record = {r: segments_of(table, waited.phases, windows, r) for r in np.unique(c.rank).tolist()}
    facts = Facts(c, found, waited, pieces, windows, step, record.get)
    owed = origin(facts, ledger)
    used = sorted({k for k in step.tolist() if k >= 0})
    verdict = find(facts, ledger, owed, Clocks(clock.base, hosts, clock.clock), used)
    return table, found, waited, ledger, owed.by_rank, verdict, critical_path(facts, clock.base, used)


hosts_of = st.sampled_from([["a"] * 5, ["a", "a", "b", "b", "b"], list("abcde")])


@settings(max_examples=60)
@given(st.lists(row, min_size=1, max_size=30), hosts_of, st.booleans())
def test_no_table_breaks_it_and_sums_hold(rows, names, anchored):
    hosts = dict(enumerate(names))
    table, found, waited, ledger, owed, verdict, path = everything(rows, hosts, anchored)
    start, end = table["start"].to_numpy(), table["end"].to_numpy()
    assert ((waited.phases.wait_end >= start) & (waited.phases.wait_end <= end)).all()
    assert ledger.direct.sum() + ledger.unblamed == ledger.total == ledger.waited.sum()
    assert owed.sum() == ledger.direct.sum()
    assert (ledger.direct >= 0).all() and (owed >= 0).all()
    for i in range(len(found.size)):
        rank = table["rank"].to_numpy()[found.instance == i]
        assert len(np.unique(rank)) == found.seen[i]
    assert all(r.blame_ns >= 0 for r in verdict.rows)
    for step in path:
        assert sum(step.leaves_ns.values()) == step.wall_ns
        assert "comm_wait" not in step.leaves_ns


@settings(max_examples=25)
@given(st.lists(row, min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_input_order_is_irrelevant(rows, random):
    hosts = dict.fromkeys(range(5), "a")
    shuffled = sorted(rows, key=lambda r: (r["rank"], r["start"], random.random()))
    ordered = sorted(rows, key=lambda r: (r["rank"], r["start"]))
    if len({(r["rank"], r["start"]) for r in rows}) < len(rows):
        return  # equal starts on a rank have no order of their own
    a, b = everything(ordered, hosts, True), everything(random.sample(shuffled, len(shuffled)), hosts, True)
    assert a[3].direct.tolist() == b[3].direct.tolist()
    assert a[2].phases.wait_end.tolist() == b[2].phases.wait_end.tolist()
