"""A job of 2 stages x 2 replicas x 2 tensor-parallel ranks, written as files: what is slow leads its table."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

import traceview as tv
from simulator.job import Job, SlowNode, SlowRank, StageImbalance
from simulator.kineto import write_kineto
from simulator.nccl_log import write_nccl_log
from simulator.simulate import simulate
from traceview.pipeline import StudyOptions
from traceview.result import BlamePlaceRow, Result

MESH: dict[str, Any] = {"layout": "pp", "tp": 2, "pp": 2, "ranks": 8, "hosts": 4, "layers": 2, "steps": 4}


def analyse(faults: tuple[Any, ...], *, log: bool = False, how: StudyOptions | None = None, **job: Any) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        sim = simulate(Job(faults=faults, grad_norm=True, **MESH | job))
        write_kineto(sim, Path(folder), "D2")
        if log:
            write_nccl_log(sim, Path(folder))
        return tv.analyze(tv.open(folder, cache=False, workers=1), how)


def rows(result: Result, by: str) -> list[BlamePlaceRow]:
    return [r for r in result.blame_by if r.by == by]


def slow(*ranks: int) -> tuple[SlowRank, ...]:
    return tuple(SlowRank(r, 1.3) for r in ranks)


SLOW: dict[str, tuple[tuple[Any, ...], str, str, str]] = {
    "a stage": ((StageImbalance(1, 1.3),), "stage", "stage 1", "4-7"),
    "a replica": (slow(2, 3, 6, 7), "replica", "replica 1", "2-3,6-7"),
    "a host": ((SlowNode(1, 1.3),), "host", "node-2", "2-3"),
    "a rail": (slow(1, 3, 5, 7), "rail", "local rank 1", "1,3,5,7"),
}


@pytest.mark.parametrize("what", SLOW)
def test_what_is_slow_leads_its_table_and_every_table_sums_to_the_ledger(what: str) -> None:
    faults, by, name, ranks = SLOW[what]
    result = analyse(faults)
    first = rows(result, by)[0]
    direct, started = (sum(getattr(b, k) for b in result.blame) for k in ("blame_ns", "origin_blame_ns"))
    assert (first.name, first.ranks) == (name, ranks)
    assert first.origin_blame_ns is not None and first.origin_blame_ns > 0.7 * started
    assert direct == result.budget.sub_ns["comm_wait.nxn"]
    for kind in ("host", "stage", "replica", "rail", "collective"):
        assert sum(r.blame_ns for r in rows(result, kind)) == direct, kind
    assert result.blame_by_untold == {}


def test_rails_come_from_the_log_or_the_topology_file_where_there_is_one(tmp_path: Path) -> None:
    logged = analyse(slow(1), log=True, hosts=2, layout="tp", pp=1)
    assert next((r.name, r.ranks) for r in rows(logged, "rail")) == ("mlx5_1:1", "1,5")
    assert {r.basis for r in rows(logged, "rail")} == {"the NCCL log: NICs of network edges"}
    (tmp_path / "topology.csv").write_text("host,rail\nnode-1,red\nnode-2,blue\n")
    given = analyse(slow(1), log=True, hosts=2, how=StudyOptions(topology=str(tmp_path / "topology.csv")))
    assert [(r.name, r.ranks, r.basis) for r in rows(given, "rail")] == [
        ("red", "0-3", "the topology file"),
        ("blue", "4-7", "the topology file"),
    ]


def test_what_no_file_tells_has_no_table_but_a_reason() -> None:
    result = analyse(slow(1), layout="dp", tp=1, pp=1, ranks=4, hosts=1)
    assert {r.by for r in result.blame_by} == {"host", "collective"}
    assert set(result.blame_by_untold) == {"stage", "replica", "rail"}
    assert all(result.blame_by_untold.values())
