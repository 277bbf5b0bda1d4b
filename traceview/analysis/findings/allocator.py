"""cudaMalloc and cudaFree in steady state."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import matters, of_step
from traceview.config import Config
from traceview.result import Finding, Result


def find(result: Result, config: Config) -> list[Finding]:
    """Idle time tagged as allocator work."""
    ns = sum(row.ns for row in result.idle if row.tag == "alloc")
    saving = ns // len(result.window_rows) if result.window_rows else 0
    if not matters(result, saving, config.finding_min_share):
        return []
    calls = sum(m.allocator_calls for m in result.memory)
    return [
        Finding(
            id="allocator",
            title=f"memory allocation stalls the GPU {of_step(result, saving)} of the step",
            saving_ns_per_step=saving,
            basis="idle GPU time inside device allocator calls",
            confidence="proved",
            evidence=[f"{calls} allocator calls in the record, {units.time(saving)} a step"],
            advice="Set expandable_segments:True, keep shapes constant, leave some memory free: the cache thrashes.",
            owner="model code",
            section="memory",
        )
    ]
