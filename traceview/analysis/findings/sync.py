"""Host reads that drain the GPU queue: .item(), .cpu(), synchronize()."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import has_gpu, matters, of_step, per_step, worst
from traceview.config import Config
from traceview.result import Finding, Result


def find(result: Result, config: Config) -> list[Finding]:
    """Idle time inside, or right after, a blocking call."""
    saving = per_step(result, "idle_sync")
    if not has_gpu(result) or not matters(result, saving, config.finding_min_share):
        return []
    names = [n for row in result.idle if row.cause == "idle_sync" for n in row.names][:3]
    return [
        Finding(
            id="sync",
            title=f"blocking calls leave the GPU empty {of_step(result, saving)} of the step",
            saving_ns_per_step=saving,
            basis="idle GPU time inside a synchronising call and until the launch after it",
            confidence="proved",
            evidence=[f"{units.time(saving)} a step"] + [f"in {n[:100]}" for n in names],
            advice="Read values less often, keep them on the GPU, or copy without blocking and read a step later.",
            where=worst(result, "idle_sync"),
            owner="model code",
            section="host",
        )
    ]
