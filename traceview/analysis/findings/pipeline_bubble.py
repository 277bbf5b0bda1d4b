"""Waiting on pipeline neighbours beyond what the schedule costs, never part of the straggler total (METHODS e.6)."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import matters, of_step, per_step, step_ns, worst
from traceview.config import Config
from traceview.result import Finding, Result


def ideal_bubble(result: Result) -> float:
    """Share of the step that an even 1F1B schedule leaves idle, (p-1)/(m+p-1); 0 if there is no pipeline.

    A group of p stages passes 2 m (p - 1) messages a step, so m, micro-batches times interleaved chunks, follows
    from their number. The mean over groups.
    """
    steps = len(result.run.steps.used)
    shares = []
    for row in result.collective_rows:
        stages = row.group_size or 0
        if row.kind in ("recv", "sendrecv") and stages > 1 and row.n and steps:
            micro = row.n / (steps * 2 * (stages - 1))
            shares.append((stages - 1) / (micro + stages - 1))
    return sum(shares) / len(shares) if shares else 0.0


def find(result: Result, config: Config) -> list[Finding]:
    """Exposed point-to-point waiting that an even schedule would not have."""
    waits, ideal = per_step(result, "comm_wait.p2p"), ideal_bubble(result)
    saving = waits - round(ideal * step_ns(result))
    if not matters(result, saving, config.finding_min_share):
        return []
    return [
        Finding(
            id="pipeline-wait",
            title=f"pipeline stages wait for each other {of_step(result, waits)} of the step",
            saving_ns_per_step=saving,
            basis="exposed send/recv waiting beyond the bubble of an even 1F1B schedule, (p-1)/(m+p-1) of the step",
            confidence="possible",
            evidence=[
                f"{units.time(waits)} a step and rank",
                f"{units.share(ideal)} of the step is the bubble of an even schedule",
            ],
            advice="Balance the stages; more micro-batches or an interleaved schedule shrink the bubble itself.",
            where=worst(result, "comm_wait.p2p"),
            owner="model code",
            section="critical-path",
        )
    ]
