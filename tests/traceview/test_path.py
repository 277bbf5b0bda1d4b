"""METHODS e.8: the cross-rank critical path."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jobs import MS, analyse, training
from scenarios import load, load_extras
from traceview.analysis.groups import columns
from traceview.analysis.match import match
from traceview.analysis.origin import Facts
from traceview.analysis.path import critical_path
from traceview.analysis.phases import CODE
from traceview.analysis.timebase import TimeBase
from traceview.analysis.types import Segments, WaitPieces, Windows
from traceview.analysis.waits import waits

US = 1000


def facts_of(s):
    """A scenario with the exclusive leaves that a.3 gives: compute, then transfer, then wait, else idle."""
    table = s.collectives()
    step = np.zeros(len(table), np.int64)
    found = match(table, step, len(s.ranks))
    waited = waits(table, found, eps_ns=0)
    no = np.zeros(0, np.int64)

    def segments(rank):
        begin, end = s.cover(rank)
        spans = [
            (CODE["compute.plain"], int(g["s"] * US), int(g["e"] * US))
            for g in s.raw["ranks"][str(rank)]["gpu"]
            if g["cls"] == "compute"
        ]
        for row in np.flatnonzero(table["rank"].to_numpy() == rank).tolist():
            a, e, w = table["start"][row].as_py(), table["end"][row].as_py(), int(waited.phases.wait_end[row])
            spans += [(CODE["comm_transfer.nxn"], w, e), (CODE["comm_wait.nxn"], a, w)]
        cuts = sorted({begin, end, *(x for _, a, b in spans for x in (a, b))})
        phase = [min((c for c, a, b in spans if a <= t < b), default=CODE["idle_unknown"]) for t in cuts[:-1]]
        return Segments(np.array(cuts), np.array(phase, np.int8))

    return Facts(columns(table), found, waited, WaitPieces(no, no, no), s.windows(), step, segments)


def test_worked_examples(shared_dir):
    for s in load(shared_dir).values():
        want = s.raw.get("expect_critical_path")
        if want:
            facts = facts_of(s)
            rank, end = want["start"]
            # ties for the last end: the given start decides
            first = [s.ranks.index(rank), *(i for i in range(len(s.ranks)) if s.ranks[i] != rank)]
            w = facts.windows
            ordered = Windows(*(getattr(w, k)[first] for k in ("rank", "device", "step", "start", "end", "used")))
            facts = replace(facts, windows=ordered)
            (row,) = critical_path(facts, TimeBase.identity(len(s.ranks)), [0])
            assert row.leaves_ns == {k: round(v * US) for k, v in want["path"].items()}, s.id
            assert row.wall_ns == end * US


def test_hops_of_the_transitive_example(shared_dir):
    (case,) = [x for x in load_extras(shared_dir)["blame"] if x["id"] == "S14"]
    (row,) = critical_path(facts_of(load(shared_dir)["S14"]), TimeBase.identity(4), [0])
    assert row.hops == case["critical_path_hops"]


@pytest.mark.parametrize("offset", [0.0, 2.0 * MS])
def test_the_slow_rank_is_the_path(offset):
    job = training(8, 4, 6, slow={6: 0.3}, seq=lambda n, k: n)
    job.skew(dict.fromkeys(range(4, 8), offset))
    got = analyse(job, {r: "a" if r < 4 else "b" for r in range(8)})
    rows = critical_path(got.facts, got.clock.base, [0, 1, 2, 3])
    for row in rows:
        assert sum(row.leaves_ns.values()) == row.wall_ns == sum(row.ranks_ns.values())
        assert "comm_wait" not in row.leaves_ns
        assert max(row.ranks_ns, key=row.ranks_ns.get) == "6"
        assert row.leaves_ns.get("idle_unknown", 0) < 0.01 * row.wall_ns


def test_a_rank_without_a_record_ends_the_path():
    got = analyse(training(2, 1, 3, slow={1: 0.3}, seq=lambda n, k: n))
    source = got.facts.segments
    facts = replace(got.facts, segments=lambda r: None if r == 1 else source(r))
    (row,) = critical_path(facts, got.clock.base, [0])
    assert sum(row.leaves_ns.values()) == row.wall_ns
    assert row.leaves_ns["idle_unknown"] > 0
