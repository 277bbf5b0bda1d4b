"""Formulas and bounds against the worked example, nccl-tests' own tables and public measurements."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.analysis import bounds, peaks
from traceview.analysis.bounds import Links
from traceview.analysis.tiers import Layout
from traceview.schema import COLL_KINDS

H100 = peaks.load().device("NVIDIA H100 80GB HBM3")
assert H100 is not None
H100_NODE = Links(ring=H100.ring_gbs, nvlink=H100.nvlink_gbs, pcie=52.0)


def nodes(count: int, local: int) -> Layout:
    return Layout((local,) * count)


def efficiency(kind: str, busbw: float, layout: Layout, links: Links, algorithm: str = "") -> float:
    limit = bounds.bound(kind, layout, links, algorithm)
    assert limit is not None
    return busbw / limit.gbs


def test_worked_examples(shared_dir: Path) -> None:
    for case in json.loads((shared_dir / "check/extras.json").read_text())["busbw"]:
        factor = bounds.bus_factor(case["kind"], case["n"])
        value = bounds.algbw(case["bytes"], case["ns"])
        assert value == pytest.approx(case["algbw"], rel=1e-12)
        assert factor is not None and value * factor == pytest.approx(case["busbw"], rel=1e-12)


@pytest.mark.parametrize(
    ("test", "n", "size", "time_us", "busbw"),
    [
        ("all_reduce_perf", 8, 8589934592, 32000.0, 469.76),
        ("all_gather_perf", 8, 1073741824, 2607.6, 360.30),
        ("reduce_scatter_perf", 8, 1073741824, 2628.1, 357.49),
        ("alltoall_perf", 80, 8589934592, 168000.0, 50.49),
        ("broadcast_perf", 8, 536870912, 1600.0, 335.54),
        ("reduce_perf", 8, 536870912, 1700.0, 315.81),
        ("gather_perf", 4, 268435456, 1000.0, 201.33),
        ("scatter_perf", 4, 268435456, 1000.0, 201.33),
        ("sendrecv_perf", 4, 134217728, 700.0, 191.74),
    ],
)
def test_nccl_tests_prints_the_same(test: str, n: int, size: int, time_us: float, busbw: float) -> None:
    kind = bounds.test_kind(test)
    assert kind in COLL_KINDS
    factor = bounds.bus_factor(kind, n)
    value = bounds.algbw(size, round(time_us * 1000))
    assert factor is not None and value is not None
    assert value * factor == pytest.approx(busbw, rel=1e-3)


def test_public_tables_read_as_they_should() -> None:
    a3_mega = Links(ring=H100_NODE.ring, nvlink=450, node_nics=200.0)
    assert efficiency("allreduce", 338.8, nodes(2, 8), a3_mega) == pytest.approx(0.90, abs=0.005)
    gh200 = Links(ring=370.8, nvlink=450, node_nics=100.0)
    assert efficiency("allreduce", 92.2, nodes(64, 4), gh200, "Ring") == pytest.approx(0.92, abs=0.005)
    h100 = Links(ring=370.8, nvlink=450, node_nics=400.0)
    assert efficiency("alltoall", 50.5, nodes(10, 8), h100) == pytest.approx(0.92, abs=0.005)
    assert efficiency("sendrecv", 15.2, nodes(10, 8), h100) < 0.4  # the one that is not healthy


@pytest.mark.parametrize(
    ("device", "n", "busbw", "algorithm"),
    [
        ("NVIDIA A100-SXM4-80GB", 8, 234.9, "Ring"),
        ("NVIDIA H100 80GB HBM3", 4, 366.4, "Ring"),
        ("NVIDIA H100 80GB HBM3", 4, 377.0, "NVLS"),
        ("NVIDIA H100 80GB HBM3", 6, 443.0, "NVLS"),
        ("NVIDIA H200", 8, 367.6, "Ring"),
        ("NVIDIA H200", 8, 482.3, "NVLS"),
        ("NVIDIA GB200", 72, 846.8, "NVLS"),
        ("NVIDIA GB300", 72, 937.0, "NVLS"),
    ],
)
def test_no_healthy_node_reads_above_its_bound(device: str, n: int, busbw: float, algorithm: str) -> None:
    known = peaks.load().device(device)
    assert known is not None
    links = Links(ring=known.ring_gbs, nvlink=known.nvlink_gbs)
    assert 0.7 <= efficiency("allreduce", busbw, nodes(1, n), links, algorithm) <= 1.02


@pytest.mark.parametrize(
    ("kind", "busbw"), [("allreduce", 345.0), ("allgather", 324.0), ("reduce_scatter", 323.0), ("alltoall", 50.5)]
)
def test_ten_nodes_are_healthy(kind: str, busbw: float) -> None:
    links = Links(ring=370.8, nvlink=450, pcie=52, node_nics=400.0, nic=50.0, node_ranks=8)
    assert 0.7 <= efficiency(kind, busbw, nodes(10, 8), links) <= 1.02


def test_host_staged_paths_are_bounded_by_pcie() -> None:
    two_a100 = Links(pcie=25.0, node_nics=25.0, staged=True)
    assert bounds.bound("allreduce", nodes(2, 1), two_a100) == bounds.Bound(25.0, "best algorithm over the NICs")
    shared = Links(pcie=25.0, node_nics=25.0, staged=True, shared_uplink=True)
    assert bounds.bound("allreduce", nodes(2, 1), shared) == bounds.Bound(12.5, "host memory over PCIe")
    shm = Links(pcie=25.0, ring=240.0, shm=True, node_nics=200.0)
    assert bounds.bound("allreduce", nodes(2, 4), shm) == bounds.Bound(25.0, "host memory over PCIe")
    assert bounds.bound("allreduce", nodes(1, 2), shm) == bounds.Bound(25.0, "host memory over PCIe")


def test_a_group_of_one_rank_per_node_has_its_share_of_the_nics() -> None:
    links = Links(node_nics=400.0, nic=50.0, node_ranks=8)
    assert bounds.bound("allreduce", nodes(4, 1), links, "Ring") == bounds.Bound(50.0, "ring over the NICs")
    few_nics = Links(node_nics=50.0, nic=12.5, node_ranks=8)
    assert bounds.bound("allreduce", nodes(4, 1), few_nics, "Ring") == bounds.Bound(12.5, "ring over the NICs")


def test_sharp_counts_the_message_once() -> None:
    limit = bounds.bound("allreduce", nodes(4, 8), Links(node_nics=400.0, ring=370.8, nvlink=900), "CollNetDirect")
    assert limit is not None and limit.gbs == pytest.approx(400 * 2 * 31 / 32)


def test_nothing_known_gives_no_bound() -> None:
    assert bounds.bound("allreduce", nodes(2, 8), H100_NODE) is None  # NICs unknown
    assert bounds.bound("allreduce", nodes(1, 8), Links()) is None
    assert bounds.bound("allreduce", nodes(1, 1), H100_NODE) is None
    assert bounds.bound("barrier", nodes(1, 8), H100_NODE) is None


@given(
    kind=st.sampled_from(["allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast", "reduce", "sendrecv"]),
    count=st.integers(2, 64),
    local=st.integers(1, 16),
    nics=st.floats(1, 1000),
    size=st.integers(1, 1 << 34),
)
def test_at_the_bound_the_nics_are_full_and_never_more(
    kind: str, count: int, local: int, nics: float, size: int
) -> None:
    """The bound and the NIC load are two ways to say one thing."""
    layout = nodes(count, local)
    limit = bounds.bound(kind, layout, Links(node_nics=nics))
    factor = bounds.bus_factor(kind, layout.ranks)
    out = bounds.nic_bytes(kind, size, layout)
    assert limit is not None and factor is not None and out is not None
    load = out / size * limit.gbs / factor
    assert load <= nics * (1 + 1e-9)
    if kind != "sendrecv":
        assert load == pytest.approx(nics)
