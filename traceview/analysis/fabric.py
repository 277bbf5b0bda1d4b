"""The fabric of a run: places, links and logged facts of its ranks and groups, for ``bandwidth.collective_rows``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc

from traceview import units
from traceview.analysis.bandwidth import Fabric
from traceview.analysis.bounds import Links
from traceview.analysis.callalign import Signature
from traceview.analysis.join import Comm, Joined, Members, Trace, join, logged
from traceview.analysis.peaks import Peaks
from traceview.analysis.tiers import Place, Placement
from traceview.run import Run, parse_members

_PCIE_PATHS = ("PIX", "PXB", "PHB", "SYS", "NODE")


def fabric(
    run: Run, collectives: Any, peaks: Peaks, places: Mapping[str, Place] | None = None
) -> tuple[Fabric, Joined | None]:
    """Fabric of a run with what its NCCL logs add; the second value is the join, for the topology story.

    ``collectives``: the run's concatenated collectives table.
    """
    joined = join(run, _trace(run, collectives))
    hosts = {r: _host(run, r, joined) for r in run.ranks}
    placement = Placement(hosts, _domains(joined, hosts), _pcie_hosts(joined, hosts), places or {})
    per_host: dict[str, int] = defaultdict(int)
    for host in hosts.values():
        per_host[host] += 1
    links = {r: _links(run, r, peaks, joined, per_host[hosts[r]]) for r in run.ranks}
    return Fabric(placement, links, logged(joined) if joined else {}), joined


def _host(run: Run, rank: int, joined: Joined | None) -> str:
    """Host of a rank by its trace, else by the log."""
    host = run.host(rank)
    procs = joined.procs_of.get(rank, []) if joined is not None else []
    return str(procs[0]["host"]) if host.startswith("?") and procs else host


def _trace(run: Run, collectives: Any) -> Trace:
    texts = [t for t in pc.unique(collectives["members"]).to_pylist() if t]
    named: dict[Members, set[str]] = defaultdict(set)
    pairs = collectives.group_by(["members", "comm_id"]).aggregate([]).to_pylist() if len(collectives) else []
    for pair in pairs:
        if pair["members"] and pair["comm_id"]:
            named[parse_members(pair["members"])].add(pair["comm_id"].lower())
    return Trace(
        hosts={r: run.host(r) for r in run.ranks},
        pids={r: pid for r in run.ranks if (pid := run.parts[r].meta.pid) is not None},
        world_size=run.world_size,
        groups=tuple(parse_members(t) for t in texts),
        comm_ids={m: frozenset(ids) for m, ids in named.items()},
        calls=lambda members, rank: _calls(collectives, members, rank),
    )


def _calls(collectives: Any, members: Members, rank: int) -> list[Signature]:
    """Calls of one rank in one group, in order."""
    own = collectives.filter(pc.equal(collectives["rank"], rank))
    own = own.filter(pc.equal(own["members"].cast("string"), units.ranks(list(members))))
    return [(k, b or 0) for k, b in zip(own["kind"].to_pylist(), own["bytes"].to_pylist(), strict=True)]


def _domains(joined: Joined | None, hosts: Mapping[int, str]) -> dict[int, str]:
    """NVLink domain of the ranks of which the log tells it: across hosts by NVLink edges, else the host itself."""
    if joined is None:
        return {}
    domain: dict[int, str] = {}
    for comm in joined.comms.values():
        if any(e.via == "P2P/MNNVL" for e in comm.edges):
            for i, part in enumerate(_components(comm)):
                clique = next((r["clique"] for r in comm.rows if r["clique"]), None)
                domain |= dict.fromkeys(part, f"{clique or comm.name}.{i}")
    for comm in joined.comms.values():
        staged = {e.src for e in comm.edges if e.via == "SHM"}
        for row in comm.rows:
            rank = joined.rank_of.get(row["instance"])
            nvlink = row["intra"] in ("NVL", "NVB") or row["nvls"]
            if rank is not None and nvlink and rank not in staged:
                domain.setdefault(rank, hosts.get(rank) or row["proc"].rsplit(":", 1)[0])
    return domain


def _components(comm: Comm) -> list[list[int]]:
    """Ranks of a communicator that are connected without a network."""
    parent: dict[int, int] = {}

    def root(rank: int) -> int:
        while parent.setdefault(rank, rank) != rank:
            rank = parent[rank]
        return rank

    for edge in comm.edges:
        if edge.via.startswith("P2P/"):
            parent[root(edge.src)] = root(edge.dst)
    groups: dict[int, list[int]] = defaultdict(list)
    for rank in sorted(parent):
        groups[root(rank)].append(rank)
    return sorted(groups.values())


def _pcie_hosts(joined: Joined | None, hosts: Mapping[int, str]) -> frozenset[str]:
    """Hosts whose GPUs talk over PCIe or host memory, as the log says."""
    if joined is None:
        return frozenset()
    out: set[str] = set()
    for comm in joined.comms.values():
        out |= {hosts[e.src] for e in comm.edges if e.via == "SHM" and e.src in hosts}
        for row in comm.rows:
            rank = joined.rank_of.get(row["instance"])
            if rank is not None and rank in hosts and row["intra"] in _PCIE_PATHS:
                out.add(hosts[rank])
    return frozenset(out)


def _links(run: Run, rank: int, peaks: Peaks, joined: Joined | None, on_host: int) -> Links:
    """Links of one rank: from the log where it tells them, else from the device name."""
    device = peaks.device(run.parts[rank].meta.device_name)
    procs = joined.procs_of.get(rank, []) if joined is not None else []
    given = peaks.nics_of(run.host(rank))
    told = next((p["nic_gbs"] for p in procs if p["nic_gbs"]), None)
    nics = given if given is not None else told
    count = max((len((p["nics"] or "").split(";")) for p in procs if p["nics"]), default=0)
    slot = peaks.pcie_of(device.pcie_gen) if device else None
    pcie = next((p["pcie_gbs"] for p in procs if p["pcie_gbs"]), None)
    no_nvlink = any(p["nvlink"] is False for p in procs)
    basis = [f"{run.parts[rank].meta.device_name}: data sheet" if device else "device unknown"]
    if nics is not None:
        basis.append("NICs: " + ("given" if given is not None else "logged"))
    return Links(
        ring=device.ring_gbs if device and not no_nvlink else None,
        nvlink=device.nvlink_gbs if device and not no_nvlink else None,
        pcie=pcie if pcie is not None else (slot.practical_gbs if slot else None),
        node_nics=nics,
        nic=nics / count if nics and count else None,
        node_ranks=on_host,
        nvls_over_ring=peaks.nvls_over_ring,
        basis=", ".join(basis),
    )
