"""Collectives that run far below the bound of their wire, or over the wrong wire."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import matters
from traceview.config import Config
from traceview.result import CollectiveRow, Finding, Result


def find(result: Result, config: Config) -> list[Finding]:
    """One finding per degraded or suspect class whose gap to its bound matters."""
    out = []
    for row in result.collective_rows:
        if row.host_staged or row.verdict not in ("degraded", "suspect"):
            continue  # a staged path has a finding of its own
        if not row.efficiency or not result.window_rows:
            continue
        saving = int(row.exposed_ns * (1 - min(1.0, row.efficiency))) // len(result.window_rows)
        if matters(result, saving, config.finding_min_share):
            out.append(_finding(row, saving))
    return out


def _finding(row: CollectiveRow, saving: int) -> Finding:
    return Finding(
        id=f"slow-{row.kind}-{row.group}-{row.size_class}",
        title=f"{row.kind} of {row.group} reaches {row.busbw:.3g} of {row.peak:.3g} GB/s",
        saving_ns_per_step=saving,
        basis="exposed time of the class times its distance from the bound",
        confidence="likely" if row.transport else "possible",
        evidence=[
            f"{row.n} of {row.size_class}: busbw {row.busbw:.3g} GB/s, bound {row.peak:.3g} GB/s ({row.tier})",
            *(f"{k}: {v}" for k, v in row.facts.items()),
            f"exposed {units.time(row.exposed_ns)} in all ranks and steps",
        ],
        advice=_advice(row),
        owner="network",
        section="communication",
    )


def _advice(row: CollectiveRow) -> str:
    if row.facts.get("gpudirect") == "yes":
        return "GPUDirect is on and the rate is low: check ACS, IOMMU (iommu=pt), PCIe width, and the fabric itself."
    if row.transport:
        return "Compare with the peers of the same class and with nccl-tests on these hosts."
    return "Compare with the peers of the same class; check the transport in the NCCL log (NCCL_DEBUG=INFO)."
