"""GPUs that wait for data on every rank (a single late loader is a straggler)."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import matters, of_step, per_step, ranks_with, worst
from traceview.config import Config
from traceview.result import Finding, Result


def find(result: Result, config: Config) -> list[Finding]:
    """Idle time in which the launching thread was fetching data."""
    saving = per_step(result, "idle_data")
    if not matters(result, saving, config.finding_min_share):
        return []
    names = [n for row in result.idle if row.cause == "idle_data" for n in row.names][:2]
    ranks = ranks_with(result, config.finding_min_share, "idle_data")
    return [
        Finding(
            id="data-loading",
            title=f"the GPUs wait for input {of_step(result, saving)} of the step",
            saving_ns_per_step=saving,
            basis="idle GPU time while the launching thread was inside the data loader",
            confidence="proved",
            evidence=[
                f"{units.named_ranks(ranks)}: {units.time(saving)} a step",
                *(f"inside {n[:100]}" for n in names),
            ],
            advice="More loader workers, prefetch_factor, persistent_workers; pin memory; decode ahead of time.",
            where=worst(result, "idle_data"),
            owner="input pipeline",
            section="host",
        )
    ]
