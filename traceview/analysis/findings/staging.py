"""Copies over PCIe that nothing hides (METHODS f.4)."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import matters, of_step, per_step, step_ns, worst
from traceview.config import Config
from traceview.result import Finding, Result

PAGEABLE = ("pcie_h2d.pageable", "pcie_d2h.pageable")


def find(result: Result, config: Config) -> list[Finding]:
    """Exposed host copies: pageable memory, a low rate, or sheer volume."""
    saving = per_step(result, "pcie_h2d", "pcie_d2h")
    if not matters(result, saving, config.finding_min_share):
        return []
    pageable = per_step(result, *PAGEABLE)
    evidence = [f"{units.time(saving)} a step, of it {units.time(pageable)} pageable"]
    if saving >= config.staging_bound_share * step_ns(result):
        evidence.append(f"the step is staging-bound: at least {units.share(config.staging_bound_share)} of it")
    evidence += [
        f"{c.direction} {c.mem}: {c.count} copies, {units.size(c.bytes)}"
        + (f", {c.rate:.3g} GB/s" if c.rate is not None else "")
        for c in sorted(result.copies, key=lambda c: -c.exposed_ns)[:3]
        if c.exposed_ns
    ]
    if pageable * 2 >= saving:
        title, advice = (
            "from pageable memory",
            "Use pin_memory=True and non_blocking=True: pageable copies block the host.",
        )
    else:
        title, advice = (
            "that nothing hides",
            "Prefetch on a copy stream, move less, or check PCIe width and generation.",
        )
    return [
        Finding(
            id="staging",
            title=f"{of_step(result, saving)} of the step is copies between host and GPU {title}",
            saving_ns_per_step=saving,
            basis="exposed copy time per step",
            confidence="proved",
            evidence=evidence,
            advice=advice,
            where=worst(result, "pcie_h2d", "pcie_d2h"),
            owner="model code",
            section="copies",
        )
    ]
