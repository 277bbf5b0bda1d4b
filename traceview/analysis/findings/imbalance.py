"""Unequal compute on all ranks without one persistent culprit: what balancing would give (METHODS h.1)."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import matters, of_step, per_step, worst
from traceview.config import Config
from traceview.result import Finding, Result


def find(result: Result, config: Config) -> list[Finding]:
    """Straggler wait that no listed straggler explains: lateness moves from rank to rank."""
    total = sum(b.origin_blame_ns for b in result.blame)
    named = sum(s.origin_blame_ns for s in result.straggler_rows)
    if not total or not result.window_rows:
        return []
    saving = per_step(result, "comm_wait.nxn") * (total - named) // total
    if not matters(result, saving, config.finding_min_share):
        return []
    top = sorted(result.blame, key=lambda b: -b.origin_blame_ns)[:3]
    return [
        Finding(
            id="imbalance",
            title=f"ranks wait {of_step(result, saving)} of the step for late peers, none of them persistently late",
            saving_ns_per_step=saving,
            basis="mean exposed wait that no persistent straggler explains; balancing could save all of it at best",
            confidence="likely",
            evidence=[f"rank {b.rank}: {units.share(b.origin_blame_ns / total)} of the blame" for b in top],
            advice="Balance the work per rank and step (sequence lengths, experts), and look for random host pauses.",
            where=worst(result, "comm_wait.nxn"),
            owner="model code",
            section="stragglers",
        )
    ]
