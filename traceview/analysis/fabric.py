"""The fabric of a run: places, links and logged facts of its ranks and groups, for ``bandwidth.collective_rows``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow.compute as pc

from traceview import units
from traceview.analysis import bounds
from traceview.analysis.bandwidth import Fabric
from traceview.analysis.bounds import Links
from traceview.analysis.callalign import Signature
from traceview.analysis.join import Joined, Members, Trace, join, logged
from traceview.analysis.p2p import connected
from traceview.analysis.peaks import Peaks
from traceview.analysis.tiers import Place, Placement
from traceview.config import DEFAULT, Config
from traceview.run import Run, parse_members
from traceview.schema.nccl import NCCL_BENCH, NCCL_LINKS

_PCIE_PATHS = ("PIX", "PXB", "PHB", "SYS", "NODE")


def fabric(
    run: Run,
    collectives: Any,
    peaks: Peaks,
    places: Mapping[str, Place] | None = None,
    config: Config = DEFAULT,
) -> tuple[Fabric, Joined | None]:
    """Fabric of a run with what its NCCL logs add; the second value is the join, for the topology story.

    ``collectives``: the run's concatenated collectives table.
    """
    joined = join(run, _trace(run, collectives), config)
    hosts = {r: _host(run, r, joined) for r in run.ranks}
    placement = Placement(hosts, _domains(joined, hosts), _pcie_hosts(joined, hosts), places or {})
    per_host: dict[str, int] = defaultdict(int)
    for host in hosts.values():
        per_host[host] += 1
    by_rank, by_ordinal = _slots(run, config.pcie_attained_share)
    links = {}
    for r in run.ranks:
        ordinal = str(run.parts[r].meta.devices[0]) if run.parts[r].meta.devices else ""
        slot = by_rank.get(r) or by_ordinal.get(ordinal)
        links[r] = _links(run, r, peaks, joined, slot, per_host[hosts[r]])
    return Fabric(placement, links, logged(joined) if joined else {}, _measured(run)), joined


def _measured(run: Run) -> dict[tuple[str, int], float]:
    """Best busbw of the nccl-tests tables beside the traces; the mean that the program prints says nothing."""
    best: dict[tuple[str, int], float] = {}
    for row in run.log_tables(NCCL_BENCH).to_pylist():
        kind = bounds.test_kind(row["test"])
        if kind is not None and row["ranks"]:
            best[kind, row["ranks"]] = max(row["busbw"], best.get((kind, row["ranks"]), 0.0))
    return best


def _host(run: Run, rank: int, joined: Joined | None) -> str:
    """Host of a rank by its trace, else by the log."""
    host = run.host(rank)
    procs = joined.procs_of.get(rank, []) if joined is not None else []
    return str(procs[0]["host"]) if host.startswith("?") and procs else host


def _trace(run: Run, collectives: Any) -> Trace:
    texts = [t for t in pc.unique(collectives["members"]).to_pylist() if t]
    named: dict[Members, set[str]] = defaultdict(set)
    pairs = pl.DataFrame(pl.from_arrow(collectives.select(["members", "comm_id"]))).unique()
    for members, comm_id in pairs.iter_rows():
        if members and comm_id:
            named[parse_members(members)].add(comm_id.lower())
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
            wired = connected((e.src, e.dst) for e in comm.edges if e.via.startswith("P2P/"))  # without a network
            for i, part in enumerate(wired):
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


@dataclass(frozen=True)
class _Slot:
    """What a topology file says of one GPU. GB/s, one direction."""

    pcie: float | None
    nvlinks: int
    shared_uplink: bool
    """a NIC hangs under the same first bridge"""
    node_nics: float | None
    nic: float | None


def _usual_nics(joined: Joined) -> float | None:
    """The NIC bandwidth that most processes log: hosts of a job are alike more often than not."""
    told = Counter(p["nic_gbs"] for rows in joined.procs_of.values() for p in rows if p["nic_gbs"])
    return told.most_common(1)[0][0] if told else None


def _slots(run: Run, attained: float) -> tuple[dict[int, _Slot], dict[str, _Slot]]:
    """GPUs of the topology files by rank and by CUDA ordinal; with several files only by rank."""
    files = [t for p in run.logs if len(t := p.table(NCCL_LINKS))]
    by_rank: dict[int, _Slot] = {}
    by_ordinal: dict[str, _Slot] = {}
    for table in files:
        rows = table.to_pylist()
        nics = [r for r in rows if r["device"] == "nic"]
        speeds = [n["gbs"] for n in nics if n["gbs"]]
        roots = {(n["switches"] or "").split(",")[0] for n in nics} - {""}
        links = Counter[str]()
        for r in rows:
            links[r["name"]] += (r["links"] or 0) if r["device"] == "nvlink" else 0
        for r in (r for r in rows if r["device"] == "gpu"):
            pcie = r["pcie_gts"] * r["pcie_width"] / 8 * attained if r["pcie_gts"] and r["pcie_width"] else None
            shared = (r["switches"] or "").split(",")[0] in roots
            slot = _Slot(pcie, links[r["name"]], shared, sum(speeds) or None, min(speeds, default=None))
            by_ordinal[r["name"]] = slot
            if r["rank"] is not None:
                by_rank[r["rank"]] = slot
    return by_rank, by_ordinal if len(files) == 1 else {}


def _links(run: Run, rank: int, peaks: Peaks, joined: Joined | None, slot: _Slot | None, on_host: int) -> Links:
    """Links of one rank: from a topology file, else from the log, else from the device name."""
    device = peaks.device(run.parts[rank].meta.device_name)
    procs = joined.procs_of.get(rank, []) if joined is not None else []
    elsewhere = _usual_nics(joined) if joined is not None else None
    given = peaks.nics_of(run.host(rank))
    told = next((p["nic_gbs"] for p in procs if p["nic_gbs"]), slot.node_nics if slot else None)
    nics = next((n for n in (given, told, elsewhere) if n is not None), None)
    count = max((len((p["nics"] or "").split(";")) for p in procs if p["nics"]), default=0)
    data_sheet = peaks.pcie_of(device.pcie_gen) if device else None
    logged_pcie = next((p["pcie_gbs"] for p in procs if p["pcie_gbs"]), None)
    no_nvlink = any(p["nvlink"] is False for p in procs) or (slot is not None and not slot.nvlinks)
    basis = [f"{run.parts[rank].meta.device_name}: data sheet" if device else "device unknown"]
    basis += ["topology file"] if slot else []
    if nics is not None:
        source = "given" if given is not None else "logged" if told is not None else "as logged on other hosts"
        basis.append(f"NICs: {source}")
    pcie = (slot.pcie if slot else None) or logged_pcie or (data_sheet.practical_gbs if data_sheet else None)
    return Links(
        ring=device.ring_gbs if device and not no_nvlink else None,
        nvlink=device.nvlink_gbs if device and not no_nvlink else None,
        pcie=pcie,
        node_nics=nics,
        nic=nics / count if nics and count else (slot.nic if slot else None),
        node_ranks=on_host,
        shared_uplink=slot.shared_uplink if slot else False,
        nvls_over_ring=peaks.nvls_over_ring,
        basis=", ".join(basis),
    )
