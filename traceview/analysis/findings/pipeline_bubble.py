"""Waiting on pipeline neighbours: mostly schedule, so never part of the straggler total (METHODS e.6)."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import matters, of_step, per_step, worst
from traceview.config import Config
from traceview.result import Finding, Result


def find(result: Result, config: Config) -> list[Finding]:
    """Exposed point-to-point waiting."""
    saving = per_step(result, "comm_wait.p2p")
    if not matters(result, saving, config.finding_min_share):
        return []
    return [
        Finding(
            id="pipeline-wait",
            title=f"pipeline stages wait for each other {of_step(result, saving)} of the step",
            saving_ns_per_step=saving,
            basis="exposed send/recv waiting; the ideal 1F1B schedule keeps (p-1)/(m+p-1) of the step",
            confidence="possible",
            evidence=[f"{units.time(saving)} a step and rank"],
            advice="More micro-batches or an interleaved schedule; balance the stages if one of them is always late.",
            where=worst(result, "comm_wait.p2p"),
            owner="model code",
            section="critical-path",
        )
    ]
