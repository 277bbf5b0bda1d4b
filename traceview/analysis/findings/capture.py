"""What the capture lacks for a full verdict, and how to record it."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import matters, of_step, per_step, record_again, worst
from traceview.config import Config
from traceview.result import Finding, Result


def find(result: Result, config: Config) -> list[Finding]:
    """Idle time without a cause, and heavy kernels that no rule names."""
    return _unknown_idle(result, config) + _unclassified(result, config)


def _unknown_idle(result: Result, config: Config) -> list[Finding]:
    ns = per_step(result, "idle_unknown", "uncovered")
    if not matters(result, ns, config.finding_min_share):
        return []
    tags = [f"{r.tag or 'no tag'}: {units.time(r.ns)}" for r in result.idle if r.cause == "idle_unknown"][:3]
    return [
        Finding(
            id="unknown-idle",
            title=f"the GPU is idle {of_step(result, ns)} of the step for a reason the trace does not hold",
            saving_ns_per_step=None,
            basis="idle time without host activity on the launching thread, or outside the recorded range",
            confidence="possible",
            evidence=[f"{units.time(ns)} a step", *tags],
            advice=f"Record CPU activity too ({record_again(result)}) and start the record before the step.",
            where=worst(result, "idle_unknown", "uncovered"),
            owner="capture",
            section="host",
        )
    ]


def _unclassified(result: Result, config: Config) -> list[Finding]:
    heavy = [
        u for u in result.quality.unclassified if u.ns >= config.heavy_unclassified_share * result.budget.wall_ns
    ]
    if not heavy:
        return []
    return [
        Finding(
            id="unclassified-kernels",
            title=f"{len(heavy)} heavy kernels may be communication but match no known name",
            saving_ns_per_step=None,
            basis="kernels counted as compute whose name hints at communication",
            confidence="possible",
            evidence=[f"{u.name[:100]}: {units.time(u.ns)}" for u in heavy[:5]],
            advice="Tell us the name: it is one line in the kernel table.",
            owner="capture",
            section="quality",
        )
    ]
