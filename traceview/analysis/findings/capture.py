"""What the capture lacks for a full verdict, and how to record it."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import has_gpu, matters, of_step, per_step, record_again, recorded_by, worst
from traceview.config import Config
from traceview.result import Finding, Result

WAITS_FOR_START = (
    "Look at what kept the launched work from starting: an event of another stream, the first load of a module or "
    "graph, another process on this GPU. Record longer, past the warm-up."
)


def find(result: Result, config: Config) -> list[Finding]:
    """Idle time without a cause, and heavy kernels that no rule names."""
    return _unknown_idle(result, config) + _unclassified(result, config)


def _unknown_idle(result: Result, config: Config) -> list[Finding]:
    ns = per_step(result, "idle_unknown", "uncovered")
    if not has_gpu(result) or not matters(result, ns, config.finding_min_share):
        return []
    queued = sum(r.ns for r in result.idle if r.cause == "idle_unknown" and r.tag.startswith("queued"))
    queued //= len(result.window_rows)
    parts = (
        (queued, "of work that was launched and did not start"),
        (per_step(result, "idle_unknown") - queued, "without any host activity on record"),
        (per_step(result, "uncovered"), "outside the record"),
    )
    told = [f"{units.time(part)} {what}" for part, what in parts if part]
    lost = per_step(result, "uncovered")
    title = f"the GPU is idle {of_step(result, ns)} of the step for a reason the trace does not hold"
    advice = WAITS_FOR_START if 2 * queued > ns else _how_to_record(result)
    if 2 * lost > ns:  # not idle: nobody knows
        title = f"{of_step(result, lost)} of the step is missing from the record: a file was cut or records were lost"
        advice = f"Record it again ({record_again(result)}); let the profiler finish before the process ends."
    return [
        Finding(
            id="unknown-idle",
            title=title,
            saving_ns_per_step=None,
            basis="idle time without host activity on the launching thread, or outside the recorded range",
            confidence="possible",
            evidence=[f"{units.time(ns)} a step: {', '.join(told)}"],
            advice=advice,
            where=worst(result, "idle_unknown", "uncovered"),
            owner="capture",
            section="host",
        )
    ]


def _how_to_record(result: Result) -> str:
    if not per_step(result, "idle_host", "idle_sync", "idle_data"):
        return f"Record CPU activity too ({record_again(result)}) and start the record before the step."
    ranges = "NVTX ranges" if recorded_by(result, "nsight") else "record_function, or record with_stack=True"
    advice = f"The launching thread shows nothing in these gaps: mark what it does there with {ranges}."
    if any(s.facts.get("osrt") == "no" for s in result.run.sources):
        advice = advice[:-1] + ", and record its waits too (nsys profile -t cuda,nvtx,osrt)."
    return advice


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
