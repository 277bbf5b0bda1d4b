"""Collectives slower than the same ones of other groups, or far below the bound of their wire (METHODS f.3)."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import matters
from traceview.config import Config
from traceview.result import CollectiveRow, Finding, Result


def find(result: Result, config: Config) -> list[Finding]:
    """One finding per degraded or suspect class whose gap matters. Peers are the stronger evidence."""
    out = []
    for row in result.collective_rows:
        if row.host_staged or row.verdict not in ("degraded", "suspect") or not result.window_rows:
            continue  # a staged path has a finding of its own
        peers = _slow_against_peers(row, config)
        share = row.peers_ratio if peers else (row.efficiency or config.attained_share) / config.attained_share
        saving = int(row.exposed_ns * (1 - min(1.0, share or 1.0))) // len(result.window_rows)
        if matters(result, saving, config.finding_min_share):
            out.append(_finding(row, saving, config, peers=peers))
    return out


def _slow_against_peers(row: CollectiveRow, config: Config) -> bool:
    return row.peers_ratio is not None and row.peers_ratio * config.class_transfer_ratio <= 1


def _finding(row: CollectiveRow, saving: int, config: Config, *, peers: bool) -> Finding:
    what = f"{row.kind} of group {row.group}"
    if peers:
        title = f"{what} reaches {units.share(row.peers_ratio)} of the rate of its peers"
        basis = "exposed time of the class, if it ran like the same collectives of other groups"
    else:
        title = f"{what} reaches {row.busbw or 0:.3g} of {row.peak or 0:.3g} GB/s"
        basis = f"exposed time of the class at {units.share(config.attained_share)} of its bound"
    bound = f", bound {row.peak:.3g} GB/s" if row.peak is not None else ""
    return Finding(
        id=f"slow-{row.kind}-{row.group}-{row.size_class}",
        title=title,
        saving_ns_per_step=saving,
        basis=basis,
        confidence="likely" if peers or row.transport else "possible",
        evidence=[
            f"{row.n} of {row.size_class}: busbw {row.busbw or 0:.3g} GB/s{bound} ({row.tier})",
            *(f"{k}: {v}" for k, v in row.facts.items()),
            f"exposed {units.time(row.exposed_ns)} in all ranks and steps",
        ],
        advice=_advice(row, peers=peers),
        owner="network",
        section="communication",
    )


def _advice(row: CollectiveRow, *, peers: bool) -> str:
    if peers:
        return "Look for what this group has and its peers have not: a link, NIC or switch port at fault."
    if row.facts.get("gpudirect") == "yes":
        return "GPUDirect is on and the rate is low: check ACS, IOMMU (iommu=pt), PCIe width, and the fabric itself."
    if row.transport:
        return "Compare with nccl-tests on these hosts: if it is as slow there, the network is at fault."
    return "Give the NCCL log with the traces (NCCL_DEBUG=INFO): it names the wire of this group."
