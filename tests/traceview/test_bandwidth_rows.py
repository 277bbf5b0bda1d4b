"""Rows of the collectives table: medians of matched instances, bounds, verdicts, peers, fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from traceview.analysis.bandwidth import Fabric, Logged, Timing, collective_rows, fit
from traceview.analysis.bounds import Links
from traceview.analysis.tiers import Placement
from traceview.analysis.types import Matches
from traceview.result import CollectiveRow
from traceview.schema import COLLECTIVES
from traceview.units import ranks as ranges

MB = 1_000_000
Op = tuple[str, Sequence[int], str, int, int]  # group, members, kind, bytes, T in ns (-1 = not fully observed)


def rows_of(ops: Sequence[Op], fabric: Fabric, exposed: int = 5) -> list[CollectiveRow]:
    """Every op as one instance with one row per member."""
    flat = [(i, r, *op) for i, op in enumerate(ops) for r in op[1]]
    count = len(flat)
    column: dict[str, Any] = {
        "rank": [r for _, r, *_ in flat],
        "group": [g for *_, g, _, _, _, _ in flat],
        "members": [ranges(list(m)) for *_, m, _, _, _ in flat],
        "group_size": [len(m) for *_, m, _, _, _ in flat],
        "kind": [k for *_, k, _, _ in flat],
        "bytes": [s for *_, s, _ in flat],
        "start": [0] * count,
        "end": [1] * count,
        "device": [0] * count,
        "stream": [0] * count,
        "p2p": [False] * count,
        "coalesced": [1] * count,
        "facts": ["kernel_args"] * count,
        "name": ["k"] * count,
    }
    n = len(ops)
    matches = Matches(
        instance=np.array([i for i, *_ in flat], np.int64),
        level=np.ones(n, np.int8),
        size=np.array([len(op[1]) for op in ops], np.int64),
        seen=np.array([len(op[1]) for op in ops], np.int64),
        full=np.array([op[4] >= 0 for op in ops]),
        ambiguous=np.zeros(n, np.bool_),
    )
    each = np.ones(count, np.int64)
    timing = Timing(np.array([op[4] for op in ops], np.int64), 2 * each, 3 * each, exposed * each)
    return collective_rows(COLLECTIVES.build(column), matches, timing, fabric)


def fabric_of(per_host: int, world: int, links: Links, **logged: Any) -> Fabric:
    hosts = {r: f"h{r // per_host}" for r in range(world)}
    members = tuple(range(world))
    known = {members: Logged(**logged)} if logged else {}
    return Fabric(Placement(hosts), dict.fromkeys(range(world), links), known)


H100 = Links(ring=370.8, nvlink=450.0, pcie=52.0, basis="assumed from the device name")


def test_the_median_of_the_instances_without_waiting() -> None:
    ops: list[Op] = [("dp", range(8), "allreduce", 1 << 30, ns) for ns in (5_000_000, 6_000_000, 90_000_000)]
    (row,) = rows_of(ops, fabric_of(8, 8, H100))
    assert (row.n, row.matched, row.size_class) == (3, 3, "1-2 GiB")
    assert row.algbw == pytest.approx((1 << 30) / 6e6)
    assert row.busbw == pytest.approx((1 << 30) / 6e6 * 14 / 8)
    assert (row.wait_ns, row.transfer_ns, row.exposed_ns) == (48, 72, 120)
    assert (row.tier, row.peak, row.verdict) == ("intra-host", 370.8, "healthy")
    assert row.efficiency == pytest.approx(row.busbw / 370.8)


def test_not_fully_observed_gives_no_bandwidth() -> None:
    (row,) = rows_of([("dp", range(8), "allreduce", 1 << 30, -1)], fabric_of(8, 8, H100))
    assert (row.matched, row.busbw, row.verdict) == (0, None, "not fully observed")


@pytest.mark.parametrize(("busbw", "verdict"), [(300, "healthy"), (200, "degraded"), (100, "suspect")])
def test_verdict_by_efficiency(busbw: float, verdict: str) -> None:
    size = 256 * MB
    (row,) = rows_of([("dp", range(8), "allreduce", size, round(size * 1.75 / busbw))], fabric_of(8, 8, H100))
    assert row.verdict == verdict


def test_small_messages_and_unknown_nics_get_no_verdict() -> None:
    (small,) = rows_of([("tp", range(8), "allreduce", 3 * MB, 100_000)], fabric_of(8, 8, H100))
    assert small.verdict == "small message: latency"
    (far,) = rows_of([("dp", range(16), "allreduce", 100 * MB, 2_000_000)], fabric_of(8, 16, H100))
    assert (far.tier, far.peak, far.verdict) == ("inter-host", None, "no peak known")
    (barrier,) = rows_of([("dp", range(8), "barrier", 0, 1000)], fabric_of(8, 8, H100))
    assert (barrier.busbw, barrier.verdict) == (None, "no payload")


def test_faster_than_a_ring_is_in_network_reduction() -> None:
    size = 1 << 30
    (row,) = rows_of([("dp", range(8), "allreduce", size, round(size * 1.75 / 470))], fabric_of(8, 8, H100))
    assert row.efficiency is not None and 0.9 < row.efficiency <= 1.02
    assert row.facts["algorithm_basis"].startswith("NVLS")


def test_a_slow_group_stands_out_among_its_peers() -> None:
    groups = [(f"dp{i}", (i, i + 8), 2_000_000 if i != 2 else 4_000_000) for i in range(4)]
    ops: list[Op] = [(name, members, "allreduce", 64 * MB, ns) for name, members, ns in groups]
    rows = {r.group: r for r in rows_of(ops, Fabric(Placement({r: f"h{r // 8}" for r in range(16)})))}
    assert {g: r.verdict for g, r in rows.items()} == {
        "dp0": "no peak known",
        "dp1": "no peak known",
        "dp2": "degraded",
        "dp3": "no peak known",
    }
    assert rows["dp2"].peers_ratio == pytest.approx(0.5)


def test_the_log_names_transport_and_algorithm() -> None:
    links = Links(pcie=25.0, node_nics=50.0, node_ranks=1)
    ops: list[Op] = [("default_pg", range(2), "allreduce", 1 << 30, 80_000_000)]
    known = {
        "transport": "NET/IB",
        "staged": True,
        "gdr": False,
        "choices": {("allreduce", 1 << 30): ("Ring", "Simple", 2)},
    }
    (row,) = rows_of(ops, fabric_of(1, 2, links, **known))
    assert (row.transport, row.algorithm, row.facts["protocol"]) == ("NET/IB", "Ring", "Simple")
    assert (row.host_staged, row.facts["gpudirect"], row.facts["channels"]) == (True, "no", "2")
    assert (row.peak, row.facts["bound"]) == (25.0, "host memory over PCIe")
    assert (row.unstaged_peak, row.pcie) == (50.0, 25.0)
    assert row.facts["nic_gbs"] == "13.4" and row.facts["nic_share"] == "0.268"
    assert row.verdict == "degraded"


def test_a_measured_rate_is_the_peak_where_no_bound_is_known() -> None:
    ops: list[Op] = [("dp", range(16), "allreduce", 100 * MB, 1_000_000)]
    fabric = Fabric(fabric_of(8, 16, Links()).placement, measured={("allreduce", 16): 250.0})
    (row,) = rows_of(ops, fabric)
    assert (row.peak, row.verdict, row.facts["bound"]) == (250.0, "healthy", "best row of nccl-tests")
    assert row.efficiency == pytest.approx(187.5 / 250)


def test_latency_and_bandwidth_from_several_sizes() -> None:
    sizes = np.array([1, 2, 4, 8, 16], np.int64) * MB
    ns = np.rint(20_000 + sizes * 1.75 / 100).astype(np.int64)
    ns[2] += 1_000_000  # one outlier does not move the fit
    found = fit(sizes, ns, 1.75)
    assert found is not None
    assert found[0] == pytest.approx(20_000, rel=0.01) and found[1] == pytest.approx(100, rel=0.01)
    assert fit(sizes[:2], ns[:2], 1.75) is None
    assert fit(np.array([10, 11, 12]), np.array([1, 2, 3]), 1.75) is None  # they span too little
    ops: list[Op] = [("dp", range(8), "allreduce", int(s), int(t)) for s, t in zip(sizes, ns, strict=True)]
    assert {r.facts["fit_gbs"] for r in rows_of(ops, fabric_of(8, 8, H100))} == {"100.0"}


def test_no_rows() -> None:
    assert rows_of([], fabric_of(8, 8, H100)) == []
