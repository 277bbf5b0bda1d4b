"""CUDA graphs recorded as one interval (METHODS a.6)."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import matters, of_step, per_step, worst
from traceview.config import Config
from traceview.result import Finding, Result


def find(result: Result, config: Config) -> list[Finding]:
    """Time inside opaque graph records: communication in there is invisible."""
    ns = per_step(result, "gpu_opaque")
    if not matters(result, ns, config.finding_min_share):
        return []
    return [
        Finding(
            id="opaque-graph",
            title=f"{of_step(result, ns)} of the step is inside CUDA graphs that hide their kernels",
            saving_ns_per_step=None,
            basis="graph-level records",
            confidence="proved",
            evidence=[f"{units.time(ns)} a step; compute, communication and waiting in there cannot be told apart"],
            advice="Record again with --cuda-graph-trace=node.",
            where=worst(result, "gpu_opaque"),
            owner="capture",
            section="quality",
        )
    ]
