"""NVLink domain before host, host before what a topology file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from traceview.analysis.tiers import Place, Placement, load_places
from traceview.errors import TraceviewError

HOSTS = {r: f"h{r // 4}" for r in range(16)}


@pytest.mark.parametrize(
    ("members", "tier"), [([0], "self"), ([0, 1], "intra-host"), ([0, 4], "inter-host"), ([0, 99], "unknown")]
)
def test_by_host(members: list[int], tier: str) -> None:
    assert Placement(HOSTS).tier(members) == tier


def test_an_nvlink_domain_spans_hosts() -> None:
    placement = Placement(HOSTS, domains={r: "rack0" if r < 8 else "rack1" for r in range(16)})
    assert placement.tier(range(8)) == "nvlink"
    assert placement.tier(range(16)) == "inter-host"
    assert placement.layout(range(16)).per_node == (8, 8)
    assert Placement(HOSTS).layout(range(16)).per_node == (4, 4, 4, 4)


def test_pcie_where_a_log_says_so() -> None:
    assert Placement(HOSTS, pcie_hosts=frozenset({"h0"})).tier([0, 1]) == "pcie"


def test_unknown_hosts_stay_unknown() -> None:
    assert Placement({0: "?rank0", 1: "?rank1"}).tier([0, 1]) == "unknown"


def test_topology_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts.csv"
    path.write_text("host, rack, pod, site\nh0,r0,p0,s0\nh1,r0,p0,s0\nh2,r1,p0,s0\nh3,r2,p1,s1\n")
    places = load_places(path)
    placement = Placement(HOSTS, places=places)
    assert places["h0"] == Place(rack="r0", pod="p0", site="s0")
    assert [placement.tier([0, r]) for r in (4, 8, 12)] == ["rack", "pod", "inter-site"]


@pytest.mark.parametrize(
    ("text", "reason"), [("name\nh0\n", "no column 'host'"), ("host,rack\nh0,a\nh0,b\n", "names host 'h0' again")]
)
def test_topology_file_errors(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "hosts.csv"
    path.write_text(text)
    with pytest.raises(TraceviewError, match=reason):
        load_places(path)
