"""The simulator's Nsight Systems exports: tables and columns of the real exports, rows that agree with the run."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from simulator import CudaGraphs, Job, simulate
from simulator.nsight import communicators, write_nsight
from simulator.nsight_schema import VERSIONS

REAL = {"2024.6": "h100x8_fuser_report.sqlite", "2026.1": "mock.sqlite"}
PAYLOADS = ("NVTX_PAYLOAD_SCHEMAS", "NVTX_PAYLOAD_SCHEMA_ENTRIES", "NVTX_EVENTS")


def shape(path: Path) -> dict[str, list[tuple[str, str, int]]]:
    """Table -> (column, type, not null)."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        names = [n for (n,) in db.execute("select name from sqlite_master where type = 'table'")]
        out = {n: [(c[1], c[2], c[3]) for c in db.execute(f"pragma table_info({n})")] for n in names}
    db.close()
    return out


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        out = db.execute(query).fetchall()
    db.close()
    return out


@pytest.mark.parametrize("version", sorted(REAL))
def test_tables_have_the_columns_of_real_exports(version: str, shared_dir: Path, tmp_path: Path) -> None:
    ours = shape(write_nsight(simulate(Job(steps=2)), tmp_path, version)[0])
    theirs = shape(shared_dir / "traces/nsight" / REAL[version])
    payloads = shape(shared_dir / "traces/nsight/mfu_2gpu_before.sqlite")
    compared = 0
    for table, columns in ours.items():
        real = theirs.get(table) or (payloads[table] if table in PAYLOADS else None)
        assert real is not None, table
        assert columns == real, table
        compared += 1
    assert compared > 12


def test_old_versions_lack_what_came_later(tmp_path: Path) -> None:
    sim = simulate(Job(steps=2))
    old = shape(write_nsight(sim, tmp_path / "a", "2021")[0])
    assert not [t for t in old if t.startswith(("ENUM_", "META_", "EXPORT_"))]
    assert "binaryData" not in [c[0] for c in old["NVTX_EVENTS"]]
    middle = shape(write_nsight(sim, tmp_path / "b", "2023.3")[0])
    assert "META_DATA_EXPORT" in middle
    assert "greenContextId" not in [c[0] for c in middle["CUPTI_ACTIVITY_KIND_KERNEL"]]


@pytest.mark.parametrize("version", sorted(VERSIONS))
def test_rows_are_those_of_the_run(version: str, tmp_path: Path) -> None:
    sim = simulate(Job(ranks=4, hosts=2, steps=2))
    paths = write_nsight(sim, tmp_path, version)
    assert [p.name for p in paths] == ["node-1.sqlite", "node-2.sqlite"]
    for host, path in enumerate(paths):
        (start,) = rows(path, "select utcEpochNs from TARGET_INFO_SESSION_START_TIME")[0]
        kernels = rows(path, 'select start, "end", globalPid from CUPTI_ACTIVITY_KIND_KERNEL')
        for rank in (2 * host, 2 * host + 1):
            mine = sorted((s + start, e + start) for s, e, pid in kernels if (pid >> 24) & 0xFFFFFF == 1234 + rank)
            want = [g for g in sim.programs[rank].gpu if g.cls in ("compute", "comm")]
            assert mine == sorted((sim.local(rank, g.start), sim.local(rank, g.end)) for g in want)
        assert rows(path, "select count(*) from CUPTI_ACTIVITY_KIND_MEMCPY") == [(4,)]


def test_payloads_name_the_communicator_and_the_bytes(tmp_path: Path) -> None:
    sim = simulate(Job(steps=2, layers=3))
    known = communicators(sim)
    (path,) = write_nsight(sim, tmp_path, "2026.1", payload="blob")
    query = "select s.value, n.binaryData from NVTX_EVENTS n join StringIds s on s.id = n.textId where n.domainId = 1"
    calls = [(name, int.from_bytes(b[32:40], "little"), b) for name, b in rows(path, query)]
    assert {c for _, c, _ in calls} == set(known)
    sizes = {int.from_bytes(b[40:48], "little") for name, _, b in calls if name == "ncclAllReduce"}
    assert sizes == {i.size for i in sim.instances}


def test_graph_mode_hides_the_kernels(tmp_path: Path) -> None:
    (path,) = write_nsight(simulate(Job(steps=2, faults=(CudaGraphs("graph"),))), tmp_path)
    assert rows(path, "select count(*) from CUPTI_ACTIVITY_KIND_GRAPH_TRACE") == [(8,)]
    (nodes,) = write_nsight(simulate(Job(steps=2, faults=(CudaGraphs("node"),))), tmp_path)
    assert "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" not in shape(nodes)
    assert rows(nodes, "select count(*) from CUPTI_ACTIVITY_KIND_KERNEL where graphNodeId is not null") == [(144,)]


def test_two_runs_are_the_same(tmp_path: Path) -> None:
    sim = simulate(Job(steps=2))
    first = [p.read_bytes() for p in write_nsight(sim, tmp_path / "a", metrics=True)]
    assert first == [p.read_bytes() for p in write_nsight(simulate(Job(steps=2)), tmp_path / "b", metrics=True)]
