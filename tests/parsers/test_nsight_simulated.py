"""Simulated jobs, written as Kineto and as Nsight, give the same tables and the same verdict, to the nanosecond.

Both writers store exact nanoseconds, so nothing of a clock conversion is left to tolerate.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import traceview as tv
from simulator import (
    ClockOffset,
    CudaGraphs,
    HostPauses,
    Job,
    PageableCopies,
    SlowLoader,
    SlowRank,
    simulate,
    write_kineto,
    write_nsight,
)
from simulator.nsight_schema import VERSIONS
from traceview.run import Run
from traceview.schema import COLLECTIVES, COUNTERS, GPU_OPS
from traceview_parsers import nsight
from traceview_parsers.reader import ReadOptions

JOBS = {
    "dp": Job(ranks=4, hosts=2, steps=5, faults=(SlowRank(2, 1.5), ClockOffset(1, 3_000_000))),
    "fsdp": Job(layout="fsdp", ranks=4, hosts=2, steps=4, layers=2, faults=(ClockOffset(1, 5_000_000),)),
    "tp": Job(layout="tp", tp=2, ranks=4, steps=4, layers=2, faults=(SlowRank(1, 1.4),)),
    "pp": Job(layout="pp", pp=2, ranks=4, steps=4, layers=2),
    "ep": Job(layout="ep", ranks=4, steps=4, layers=2),
    "copies": Job(ranks=2, steps=4, faults=(PageableCopies(), SlowLoader(9_000_000, (1,)))),
    "pauses": Job(ranks=2, steps=5, faults=(HostPauses(8_000_000),)),
    "node": Job(ranks=2, steps=4, faults=(CudaGraphs("node"),)),
}
FACTS = ("device", "start", "end", "launch_start", "kind", "group_size", "p2p", "src", "dst", "bytes", "coalesced")


def opened(folder: Path) -> Run:
    run = tv.open(folder, cache=False)
    assert isinstance(run, Run)
    return run


@pytest.mark.parametrize("name", JOBS)
def test_both_formats_give_the_same(name: str, tmp_path: Path) -> None:
    sim = simulate(JOBS[name])
    write_kineto(sim, tmp_path / "k")
    write_nsight(sim, tmp_path / "n")
    by_kineto, by_nsight = opened(tmp_path / "k"), opened(tmp_path / "n")
    assert by_nsight.ranks == by_kineto.ranks and by_nsight.world_size == by_kineto.world_size
    for rank in by_kineto.ranks:
        assert by_nsight.host(rank) == by_kineto.host(rank)
        a, b = by_kineto.table(GPU_OPS, rank), by_nsight.table(GPU_OPS, rank)
        for column in ("device", "stream", "start", "end", "cls", "launch_start", "launch_end", "bytes", "mem"):
            assert b[column].to_pylist() == a[column].to_pylist(), column
        a, b = by_kineto.table(COLLECTIVES, rank), by_nsight.table(COLLECTIVES, rank)
        for column in FACTS:
            told = [x for x in zip(a[column].to_pylist(), b[column].to_pylist(), strict=True) if x[0] is not None]
            assert [x[1] for x in told] == [x[0] for x in told], column
    one, two = tv.analyze(by_kineto), tv.analyze(by_nsight)
    assert two.budget.leaves_ns == one.budget.leaves_ns
    assert two.windows().to_pylist() == one.windows().to_pylist()
    assert two.stragglers().to_pylist() == one.stragglers().to_pylist()


def parts(folder: Path, tmp_path: Path) -> list[Any]:
    out = []
    for path in sorted(folder.iterdir()):
        out += nsight.read(path, tmp_path / f"out-{folder.name}-{path.stem}", ReadOptions(), None)
    return out


@pytest.mark.parametrize("payload", ["blob", "hex", "json"])
@pytest.mark.parametrize("version", ["2024.6", "2026.1"])
def test_payloads_in_every_encoding(payload: str, version: str, tmp_path: Path) -> None:
    sim = simulate(Job(layout="fsdp", ranks=4, hosts=2, steps=2, layers=2))
    write_nsight(sim, tmp_path / "n", version, payload=payload)
    found = parts(tmp_path / "n", tmp_path)
    assert [(p.meta.rank, p.meta.rank_source, p.meta.world_size) for p in found] == [
        (r, "payload", 4) for r in range(4)
    ]
    for part in found:
        rows = part.table(COLLECTIVES).to_pylist()
        assert {r["facts"] for r in rows} == {"payload"} and {r["group_size"] for r in rows} == {4}
        assert {r["members"] for r in rows} == {"0-3"} and all(r["bytes"] for r in rows)


@pytest.mark.parametrize("version", sorted(VERSIONS))
def test_every_version_gives_the_same_gpu_work(version: str, tmp_path: Path) -> None:
    sim = simulate(Job(ranks=2, steps=2))
    write_nsight(sim, tmp_path / "n", version, payload="none")
    write_nsight(sim, tmp_path / "new", "2026.1", payload="none")
    for old, new in zip(parts(tmp_path / "n", tmp_path), parts(tmp_path / "new", tmp_path), strict=True):
        assert old.table(GPU_OPS).to_pylist() == new.table(GPU_OPS).to_pylist()
        assert {r["facts"] for r in old.table(COLLECTIVES).to_pylist()} == {"cpu_record"}


def test_one_report_a_rank(tmp_path: Path) -> None:
    sim = simulate(Job(ranks=3, steps=2))
    write_nsight(sim, tmp_path / "n", per="rank", payload="none")
    found = parts(tmp_path / "n", tmp_path)
    assert [(p.meta.rank, p.meta.rank_source) for p in found] == [(r, "env") for r in range(3)]


def test_a_graph_as_one_interval_is_opaque(tmp_path: Path) -> None:
    write_nsight(simulate(Job(ranks=2, steps=2, faults=(CudaGraphs("graph"),))), tmp_path / "n")
    for part in parts(tmp_path / "n", tmp_path):
        assert part.table(GPU_OPS)["cls"].to_pylist().count("gpu_opaque") == 2
        assert part.meta.source.facts["graph_mode"] == "Graph"


def test_metrics(tmp_path: Path) -> None:
    sim = simulate(Job(ranks=2, steps=2))
    write_nsight(sim, tmp_path / "n", metrics=True)
    for rank, part in enumerate(parts(tmp_path / "n", tmp_path)):
        rows = part.table(COUNTERS).to_pylist()
        assert {r["device"] for r in rows} == {rank}
        assert {r["name"] for r in rows} == {
            "gpu.SMs Active", "gpu.PCIe RX Throughput", "gpu.NVLink TX Responses User Data"
        }  # fmt: skip


MIXED = {
    "pp": Job(layout="pp", pp=4, ranks=4, steps=6, layers=4),
    "dp": Job(ranks=4, hosts=2, steps=6, faults=(SlowRank(3, 1.4),)),
    "fsdp": Job(layout="fsdp", ranks=4, hosts=2, steps=6, layers=2, faults=(SlowRank(3, 1.4),)),
    "tp": Job(
        layout="tp", tp=2, ranks=4, hosts=2, steps=6, layers=2, faults=(SlowRank(3, 1.4), ClockOffset(1, 900_000))
    ),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("nsight_ranks", [(2, 3), (0, 1), (1, 2)])
def test_half_of_the_ranks_in_another_format_change_nothing(
    name: str, nsight_ranks: tuple[int, int], tmp_path: Path
) -> None:
    sim = simulate(MIXED[name])
    kineto, reports = write_kineto(sim, tmp_path / "k"), write_nsight(sim, tmp_path / "n", per="rank")
    pure = tv.analyze(opened(tmp_path / "k"))
    mixed = tv.analyze(tv.open([(reports if r in nsight_ranks else kineto)[r] for r in range(4)], cache=False))
    assert mixed.budget.leaves_ns == pure.budget.leaves_ns
    told = [(s["rank"], s["cause"], s["kind"], s["late_steps"]) for s in pure.stragglers().to_pylist()]
    assert [(s["rank"], s["cause"], s["kind"], s["late_steps"]) for s in mixed.stragglers().to_pylist()] == told
    assert any("groups matched across formats" in w for w in mixed.quality.warnings)


def test_a_clock_that_is_off_by_steps_makes_no_wrong_match(tmp_path: Path) -> None:
    """The steps of the other host seem 17 further: matched right or not at all."""
    job = Job(layout="fsdp", ranks=4, hosts=2, steps=6, layers=2, faults=(SlowRank(3, 1.4),))
    pure = tv.analyze(opened(write_kineto(simulate(job), tmp_path / "k")[0].parent))
    off = replace(job, faults=(*job.faults, ClockOffset(1, 17 * 22_000_000)))
    kineto, reports = (
        write_kineto(simulate(off), tmp_path / "a"),
        write_nsight(simulate(off), tmp_path / "b", per="rank"),
    )
    mixed = tv.analyze(tv.open([*kineto[:2], *reports[2:]], cache=False))
    waited = mixed.budget.leaves_ns.get("comm_wait", 0)
    assert waited <= 1.001 * pure.budget.leaves_ns["comm_wait"]
    assert {s["rank"] for s in mixed.stragglers().to_pylist()} <= {3}


def test_reports_without_payloads_are_matched_where_there_is_one_group(tmp_path: Path) -> None:
    sim = simulate(MIXED["fsdp"])
    kineto = write_kineto(sim, tmp_path / "k")
    reports = write_nsight(sim, tmp_path / "n", per="rank", payload="none")
    pure, mixed = tv.analyze(opened(tmp_path / "k")), tv.analyze(tv.open([*kineto[:2], *reports[2:]], cache=False))
    assert mixed.budget.leaves_ns == pure.budget.leaves_ns
    assert {m.level for m in mixed.matching} == {"K4"}
    assert any("assumed to be of group 0" in w for w in mixed.quality.warnings)


def test_reports_without_payloads_are_not_matched_where_there_are_several(tmp_path: Path) -> None:
    sim = simulate(MIXED["tp"])
    kineto = write_kineto(sim, tmp_path / "k")
    reports = write_nsight(sim, tmp_path / "n", per="rank", payload="none")
    mixed = tv.analyze(tv.open([*kineto[:2], *reports[2:]], cache=False))
    assert not any(m.matched for m in mixed.matching if m.members != "0-1")
    assert any("tell no groups, the others several" in w for w in mixed.quality.warnings)
