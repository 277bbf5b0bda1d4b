"""Straggler wait without a listed straggler: lateness that moves between ranks, or too little evidence for a name."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import (
    has_uneven_experts,
    matters,
    metric,
    of_step,
    per_step,
    stragglers_beside_experts,
    uneven_experts_ns,
    worst,
)
from traceview.config import Config
from traceview.result import BlamePlaceRow, BlameRow, Finding, Result
from traceview.run import parse_members


def find(result: Result, config: Config) -> list[Finding]:
    """What balancing would give at best (METHODS h.1), beside the listed stragglers."""
    total = sum(b.origin_blame_ns for b in result.blame)
    named = {s.rank for s in result.straggler_rows}
    rest = sorted((b for b in result.blame if b.rank not in named), key=lambda b: -own_ns(b))
    left = sum(own_ns(b) for b in rest)
    if not left or not result.window_rows:
        return []
    saving = per_step(result, "comm_wait.nxn") * left // total
    unexplained = metric(result, "straggler_wait_left")
    if unexplained is not None:
        saving = min(saving, round(unexplained))  # late ranks may be late for a named one, over a pipeline
    if has_uneven_experts(result, config):
        saving = min(saving, _beside_experts(result, total, config))
    if not matters(result, saving, config.finding_min_share):
        return []
    title, advice = _words(result, rest, left, config)
    return [
        Finding(
            id="imbalance",
            title=f"ranks wait {of_step(result, saving)} of the step {title}",
            saving_ns_per_step=saving,
            basis="mean exposed wait that no listed straggler and no uneven experts explain; balancing could save "
            "all of it at best",
            confidence="possible" if result.run.missing_ranks else "likely",
            evidence=[f"rank {b.rank}: {units.share(own_ns(b) / total)} of the blame" for b in rest[:3]],
            advice=advice,
            where=worst(result, "comm_wait.nxn"),
            owner="capture" if result.run.missing_ranks else "model code",
            section="stragglers",
        )
    ]


def own_ns(row: BlameRow) -> int:
    """Origin blame without what the schedule of a pipeline explains."""
    return row.origin_blame_ns - row.by_schedule_ns


def _beside_experts(result: Result, total: int, config: Config) -> int:
    """Mean exposed wait, ns a step, that neither the finding on uneven experts counts nor one on a straggler."""
    wait = per_step(result, "comm_wait.nxn")
    named = stragglers_beside_experts(result, config)
    in_experts = uneven_experts_ns(result, {s.rank for s in named})
    return max(wait - in_experts - wait * sum(s.origin_blame_ns for s in named) // total, 0)


def _words(result: Result, rest: list[BlameRow], left: int, config: Config) -> tuple[str, str]:
    first, missing = rest[0], result.run.missing_ranks
    if missing:
        unseen = units.named_ranks(missing)
        return (
            f"for peers, and {unseen} without a trace may be the reason",
            f"Add the trace{'s' * (len(missing) > 1)} of {unseen}: the late ranks may have waited for them.",
        )
    if own_ns(first) > config.one_rank_share * left:
        return (
            f"mostly for rank {first.rank}, on too little evidence to call it a straggler",
            f"Capture more steps (here {len(result.run.steps.used)}): chance and clock error cannot be excluded yet.",
        )
    stage = _stage(result, rest, left, config)
    if stage is not None:
        return (
            f"mostly for {stage.name} (ranks {stage.ranks}) of the pipeline, whose ranks are late together",
            "Compare that stage with the others: its layers, its host, its input. Where stages meet the order of "
            "arrival is their schedule, and proves nothing against a rank.",
        )
    return (
        "for peers that take turns being late",
        "Balance the work per rank and step (sequence lengths, experts), and look for random host pauses.",
    )


def _stage(result: Result, rest: list[BlameRow], left: int, config: Config) -> BlamePlaceRow | None:
    """The pipeline stage that most of the blame is on, if there is one."""
    own = {b.rank: own_ns(b) for b in rest}
    for place in result.blame_by:
        if place.by != "stage" or place.name.startswith("("):
            continue
        if sum(own.get(r, 0) for r in parse_members(place.ranks)) > config.one_rank_share * left:
            return place
    return None
