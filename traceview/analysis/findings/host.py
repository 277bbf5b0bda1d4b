"""A host that cannot launch as fast as the GPU works."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import has_gpu, matters, of_step, per_step, worst
from traceview.config import Config
from traceview.result import Finding, Result


def find(result: Result, config: Config) -> list[Finding]:
    """Idle time spent in host work before a launch, and in launch latency."""
    saving = per_step(result, "idle_host", "idle_launch")
    if not has_gpu(result) or not matters(result, saving, config.finding_min_share):
        return []
    latency = per_step(result, "idle_launch")
    tags = [f"{r.tag}: {units.time(r.ns)}" for r in result.idle if r.cause == "idle_host" and r.tag][:3]
    return [
        Finding(
            id="host-bound",
            title=f"the host launches too slowly: the GPU is empty {of_step(result, saving)} of the step",
            saving_ns_per_step=saving,
            basis="idle GPU time while the launching thread was doing other work, plus launch latency",
            confidence="proved",
            evidence=[f"{units.time(saving)} a step, of it launch latency {units.time(latency)}", *tags],
            advice="CUDA graphs (over more of the step, if there are some already) or torch.compile, "
            "fewer and larger kernels, fused optimizer, less Python per step.",
            where=worst(result, "idle_host", "idle_launch"),
            owner="model code",
            section="host",
        )
    ]
