"""Single steps that are far slower than the median (METHODS i.4), and what is different in them."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import matters
from traceview.config import Config
from traceview.result import Finding, Result, StepRow, Where, group_ns


def find(result: Result, config: Config) -> list[Finding]:
    """One finding for all outlier steps: mean excess per step, explained by the group that grew most."""
    slow = [s for s in result.step_rows if s.outlier]
    normal = [s for s in result.step_rows if not s.outlier]
    if not slow or not normal:
        return []
    middle = sorted(normal, key=lambda s: s.wall_ns)[(len(normal) - 1) // 2]
    saving = sum(s.wall_ns - middle.wall_ns for s in slow) // len(result.step_rows)
    if not matters(result, saving, config.finding_min_share):
        return []
    worst = max(slow, key=lambda s: s.wall_ns)
    many = f"{units.count(len(slow), 'outlier')} among {len(result.step_rows)} steps"
    excess = units.time(worst.wall_ns - middle.wall_ns)
    group, extra = _grown(worst, middle, len(result.run.ranks))
    return [
        Finding(
            id="slow-steps",
            title=f"{many}, step {worst.step} by {excess}",
            saving_ns_per_step=saving,
            basis="excess of the outlier steps over the median step, averaged over all used steps",
            confidence="likely",
            evidence=[
                f"step{'s' * (len(slow) > 1)} {', '.join(str(s.step) for s in slow[:8])}",
                f"against step {middle.step} it has {units.time(extra)} more {group} per rank",
            ],
            advice=f"Look at step {worst.step}: checkpoint, evaluation, garbage collection, or a noisy neighbour.",
            where=Where(rank=worst.slowest_rank, step=worst.step),
            owner="model code",
            section="steps",
        )
    ]


def _grown(slow: StepRow, normal: StepRow, ranks: int) -> tuple[str, int]:
    a, b = group_ns(slow.leaves_ns, slow.sub_ns), group_ns(normal.leaves_ns, normal.sub_ns)
    group = max(a, key=lambda g: a[g] - b[g])
    return group, (a[group] - b[group]) // max(1, ranks)
