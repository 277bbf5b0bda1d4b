"""Communication through host memory: evidence E1 to E3, what it costs, and a twin that has none of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview as tv
from simulator import Job, Network, simulate
from simulator.kineto import write_kineto
from simulator.nccl_log import write_nccl_log
from simulator.nsight import write_nsight
from traceview.analysis.findings import bandwidth, exposed_comm, host_staged
from traceview.config import DEFAULT
from traceview.result import CollectiveRow, CopyRow, Finding, Result

from .results import MS, result, window

SAMPLES = Path(__file__).parents[2] / "sample_traces"
MB = 1_000_000


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEVIEW_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def row(busbw: float, size: int = 256 * MB, exposed_ms: int = 40, **more: object) -> CollectiveRow:
    return CollectiveRow(
        *("dp", "allreduce", "64-128 MiB", 4, 4, 0, 0, exposed_ms * MS),
        busbw=busbw,
        bytes=size,
        peak=12.5,
        efficiency=busbw / 12.5,
        verdict="healthy",
        transport="NET/IB",
        host_staged=True,
        unstaged_peak=50.0,
        pcie=25.0,
        facts={"staged_why": "GPUDirect RDMA is off (NIC 0: distance PHB > PXB)", "staged_edges": "0->1 NET/IB"},
        **more,  # type: ignore[arg-type]
    )


def job(*rows: CollectiveRow, copies: tuple[CopyRow, ...] = ()) -> Result:
    """Two ranks, two steps of 100 ms, 40 ms of each exposed."""
    value = result([window(r, k, compute=60, comm_transfer__nxn=40) for r in (0, 1) for k in (0, 1)])
    value.collective_rows = list(rows)
    value.copies = list(copies)
    return value


def only(value: Result) -> Finding:
    (finding,) = host_staged.find(value, DEFAULT)
    return finding


def test_saving_is_what_a_healthy_direct_path_would_win() -> None:
    finding = only(job(row(20.0, exposed_ms=160)))
    assert finding.saving_ns_per_step == 40 * MS * (1 - 20 / 40)  # 160 ms over 4 windows; 80 % of 50 GB/s
    assert finding.confidence == "likely"  # E1 and 20/50 < 0.7
    assert "distance PHB > PXB" in finding.title and "PCIe switch" in finding.advice
    assert finding.evidence[0] == "edges in the NCCL log: 0->1 NET/IB of group dp"
    assert any(e.startswith("path: GPU > host memory > NIC") and "25 GB/s" in e for e in finding.evidence)


def test_a_flat_rate_at_the_pcie_ceiling_is_proof() -> None:
    rows = [row(b, size) for b, size in ((12.0, 64 * MB), (12.4, 256 * MB), (12.6, 1024 * MB))]
    finding = only(job(*rows))
    assert finding.confidence == "proved"
    assert any(e.startswith("rate: 3 sizes of allreduce dp all near 12.4 GB/s") for e in finding.evidence)


@pytest.mark.parametrize("rates", [(6.0, 12.0, 20.0), (12.0, 12.4), (40.0, 40.0, 40.0)])
def test_no_proof_without_three_equal_rates_below_the_ceiling(rates: tuple[float, ...]) -> None:
    found = host_staged.find(job(*[row(b, (i + 1) * 64 * MB, 160) for i, b in enumerate(rates)]), DEFAULT)
    assert all(f.confidence != "proved" for f in found)


def test_slow_pinned_copies_are_listed() -> None:
    slow = CopyRow("pcie_h2d", "pinned", 10, 10 * MB, 1, 0, 6.0, 10)
    assert any("pinned at 6 of 25 GB/s" in e for e in only(job(row(12.0, exposed_ms=160), copies=(slow,))).evidence)


def test_staging_that_costs_nothing_is_no_finding() -> None:
    assert host_staged.find(job(row(45.0)), DEFAULT) == []  # as fast as a direct path
    assert host_staged.find(job(row(12.0, exposed_ms=0)), DEFAULT) == []


def test_exposed_communication_leaves_the_share_of_the_wire_to_this_finding() -> None:
    value = job(row(20.0, exposed_ms=160))
    (rest,) = exposed_comm.find(value, DEFAULT)
    assert rest.saving_ns_per_step == 40 * MS - (only(value).saving_ns_per_step or 0)
    assert bandwidth.find(value, DEFAULT) == []


def test_the_sample_says_which_edges_why_and_what_it_costs() -> None:
    found = tv.analyze(SAMPLES / "host_staged")
    finding = found.findings[0]
    assert finding.id == "host-staged"
    assert "GPUDirect RDMA is off" in finding.title and "no peer-to-peer" in finding.title
    assert finding.evidence[0].startswith("edges in the NCCL log: 0->1 SHM, 0->3 NET/IB, 1->0 SHM, 1->2 NET/IB")
    assert any("bound 25, 50 without staging" in e for e in finding.evidence)
    assert any("ms a step" in e for e in finding.evidence)
    assert finding.saving_ns_per_step and finding.saving_ns_per_step > 10 * MS
    assert {(r.tier, r.transport, r.host_staged) for r in found.collective_rows} == {
        ("inter-host", "NET/IB + SHM", True)
    }


def test_an_nsight_report_joins_by_the_hash_of_the_communicator(tmp_path: Path) -> None:
    sim = simulate(Job(ranks=4, hosts=2, steps=4))
    write_nsight(sim, tmp_path)
    write_nccl_log(sim, tmp_path, "2.27", subsystems=("INIT", "NET", "TUNING"))
    (row,) = tv.analyze(tmp_path).collective_rows
    assert (row.transport, row.algorithm, row.facts["protocol"]) == ("NET/IB/GDRDMA + P2P/CUMEM", "Ring", "Simple")
    assert row.group == row.facts["communicator"]
    assert float(row.facts["nccl_expects_us"]) == pytest.approx(120.4 + 96e6 / 22.0 / 1000, rel=1e-3)
    assert row.verdict == "healthy" and row.peak == 50.0


def test_multi_node_nvlink_is_one_domain(tmp_path: Path) -> None:
    sim = simulate(Job(ranks=4, hosts=2, steps=4, net=Network(domain=4)))
    write_kineto(sim, tmp_path, gz=True)
    write_nccl_log(sim, tmp_path, "2.27", subsystems=("INIT", "NET"))
    (row,) = tv.analyze(tmp_path).collective_rows
    assert (row.tier, row.transport, row.facts["bound"]) == ("nvlink", "P2P/CUMEM + P2P/MNNVL", "NVLink ring")
    assert row.verdict == "healthy"


def test_the_twin_with_gpudirect_has_no_such_finding(tmp_path: Path) -> None:
    sim = simulate(Job(ranks=4, hosts=2, steps=4))
    write_kineto(sim, tmp_path, gz=True)
    write_nccl_log(sim, tmp_path, "2.27", subsystems=("INIT", "NET", "TUNING", "GRAPH"))
    found = tv.analyze(tmp_path)
    assert {(r.host_staged, r.transport, r.facts["gpudirect"]) for r in found.collective_rows if r.transport} == {
        (False, "NET/IB/GDRDMA + P2P/CUMEM", "yes")
    }
    assert not any(f.id == "host-staged" for f in found.findings)
