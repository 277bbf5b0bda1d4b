"""Bus bandwidth and its upper bounds (METHODS f.1 and f.3, BUSBW sections 1 and 2). GB/s = bytes/ns, decimal."""

from __future__ import annotations

from dataclasses import dataclass

from traceview.analysis.tiers import Layout

IN_NETWORK = ("NVLS", "NVLSTree", "CollNet", "CollNetDirect", "CollNetChain", "SHARP")
_SPREAD = ("allgather", "reduce_scatter", "alltoall", "alltoallv", "gather", "scatter")
_POINT = ("send", "recv", "sendrecv")
_NVLS_KINDS = ("allreduce", "allgather", "reduce_scatter")
_TESTS = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "alltoall",
    "alltoallv": "alltoallv",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "sendrecv": "sendrecv",
    "hypercube": "broadcast",  # factor 1
}


def bus_factor(kind: str, n: int) -> float | None:
    """f of METHODS f.1: busbw = algbw x f. None for a group of one and for kinds that move no payload."""
    if n < 2 or kind in ("barrier", "unknown"):
        return None
    if kind == "allreduce":
        return 2 * (n - 1) / n
    return (n - 1) / n if kind in _SPREAD else 1.0


def algbw(size: int | None, ns: int | None) -> float | None:
    """S / T in GB/s; None if either is unknown or zero."""
    return size / ns if size and ns and ns > 0 else None


def test_kind(test: str) -> str | None:
    """Kind that a program of nccl-tests measures: 'all_reduce_perf' -> 'allreduce'."""
    return _TESTS.get(test.removesuffix("_perf"))


@dataclass(frozen=True)
class Links:
    """What the ranks of a group have, GB/s, one direction; None = unknown."""

    ring: float | None = None
    """best ring over the NVLinks of one GPU"""
    nvlink: float | None = None
    """NVLink of one GPU, data sheet"""
    pcie: float | None = None
    """what a copy over the GPU's PCIe slot reaches"""
    node_nics: float | None = None
    """all NICs of a node (the poorest node)"""
    nic: float | None = None
    """one NIC"""
    node_ranks: int = 0
    """ranks of the run on a node; 0 = those of the group"""
    staged: bool = False
    """data to or from the network passes host memory"""
    shm: bool = False
    """data between the GPUs of a host passes host memory"""
    shared_uplink: bool = False
    """GPU and NIC share one PCIe uplink"""
    nvls_over_ring: float = 1.3
    basis: str = "assumed"


@dataclass(frozen=True)
class Bound:
    """An upper bound of busbw: value in GB/s, and in words what it is the bound of."""

    gbs: float
    what: str


def bound(kind: str, layout: Layout, links: Links, algorithm: str = "") -> Bound | None:
    """The largest busbw that these links allow; None where a link that matters is unknown.

    An unknown algorithm gets the bound of the best one, so that no healthy run reads above it.
    """
    if bus_factor(kind, layout.ranks) is None:
        return None
    if layout.nodes < 2:
        return _inside(kind, links, algorithm)
    return _across(kind, layout, links, algorithm)


def _inside(kind: str, links: Links, algorithm: str) -> Bound | None:
    """Within a node or NVLink domain."""
    if links.shm and links.pcie is not None:
        return Bound(links.pcie, "host memory over PCIe")
    if links.ring is None:
        return None if links.pcie is None else Bound(links.pcie, "PCIe between GPUs")
    if algorithm in IN_NETWORK and kind in _NVLS_KINDS:
        return Bound(links.ring * links.nvls_over_ring, "NVLink SHARP")
    return Bound(links.ring, "NVLink ring")


def _across(kind: str, layout: Layout, links: Links, algorithm: str) -> Bound | None:
    """Between nodes: the NICs, then what lies before them."""
    nics = _nics(layout, links)
    if nics is None:
        return None
    n, nodes, local = layout.ranks, layout.nodes, layout.local
    spread = ((n - 1) / n) / ((nodes - 1) / nodes)
    if kind in ("alltoall", "alltoallv"):
        out = Bound(nics / local * (n - 1) / (n - local), "all-to-all over the NICs")
    elif kind in _POINT:
        out = Bound(nics / local, "NIC share of a rank")
    elif kind == "allreduce" and algorithm.startswith(("CollNet", "SHARP")):
        out = Bound(nics * 2 * (n - 1) / n, "SHARP over the NICs")
    elif algorithm == "Ring" or kind in ("broadcast", "reduce"):
        out = Bound(nics, "ring over the NICs")
    else:
        out = Bound(nics * spread, "tree over the NICs" if algorithm else "best algorithm over the NICs")
    return _before_the_nics(out, layout, links)


def _nics(layout: Layout, links: Links) -> float | None:
    """NIC bandwidth that a group can use on a node: its ranks' share, but at least a whole NIC for each."""
    if links.node_nics is None:
        return None
    share = links.node_nics / max(links.node_ranks, layout.local)
    return min(links.node_nics, layout.local * max(share, links.nic or 0.0))


def _before_the_nics(out: Bound, layout: Layout, links: Links) -> Bound:
    if links.staged and links.pcie is not None:
        staged = layout.local * links.pcie * (0.5 if links.shared_uplink else 1.0)
        if staged < out.gbs:
            return Bound(staged, "host memory over PCIe")
    if layout.local > 1:
        over_pcie = links.shm or links.ring is None
        inner = links.pcie if over_pcie else links.nvlink
        if inner is not None and inner < out.gbs:
            return Bound(inner, "host memory over PCIe" if links.shm else "links between the GPUs of a node")
    return out


def nic_bytes(kind: str, size: int, layout: Layout, algorithm: str = "") -> float | None:
    """Bytes that leave the fullest node of a group for a message of size S, at best; None within one node."""
    n, nodes, local = layout.ranks, layout.nodes, layout.local
    if nodes < 2 or bus_factor(kind, n) is None:
        return None
    if kind in ("alltoall", "alltoallv"):
        return local * size * (n - local) / n
    if kind in _POINT or kind in ("broadcast", "reduce"):
        return float(size)
    if kind == "allreduce" and algorithm.startswith(("CollNet", "SHARP")):
        return float(size)
    share = (n - 1) / n if algorithm == "Ring" else (nodes - 1) / nodes
    return (2 if kind == "allreduce" else 1) * size * share
