"""Waiting on pipeline neighbours beyond what the schedule costs, never part of the straggler total (METHODS e.6)."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import matters, metric, of_step, per_step, step_ns, worst
from traceview.config import Config
from traceview.result import Finding, Result

_EVEN = (
    "exposed waiting for messages, or for ranks that waited for them, beyond the bubble of an even 1F1B schedule, "
    "(p-1)/(m+p-1) of the step"
)
_REPLAY = "exposed send/recv waiting that a replay of the steps with equal op times does not have"


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


def bubble(result: Result) -> int:
    """Mean ns per rank and step: waiting on messages, and on ranks that only the schedule of a pipeline made late."""
    schedule = sum(b.by_schedule_ns for b in result.blame) // max(len(result.window_rows), 1)
    return per_step(result, "comm_wait.p2p") + schedule


def find(result: Result, config: Config) -> list[Finding]:
    """Exposed point-to-point waiting that an even schedule would not have.

    The replay tells it apart; where it cannot, or finds too little, the formula of an even schedule does.
    """
    ideal, straggler = ideal_bubble(result), _metric(result, "pipeline_straggler")
    by_replay = matters(result, straggler, config.finding_min_share)
    waits = per_step(result, "comm_wait.p2p") if by_replay else bubble(result)
    saving = straggler if by_replay and straggler else waits - round(ideal * step_ns(result))
    if not matters(result, saving, config.finding_min_share):
        return []
    return [
        Finding(
            id="pipeline-wait",
            title=f"pipeline stages wait for each other {of_step(result, waits)} of the step",
            saving_ns_per_step=saving,
            basis=_REPLAY if by_replay else _EVEN,
            confidence="likely" if by_replay else "possible",
            evidence=[
                *_split(result, waits),
                f"{units.share(ideal)} of the step is the bubble of an even schedule",
            ],
            advice=_advice(result, by_replay),
            where=worst(result, "comm_wait.p2p"),
            owner="model code",
            section="critical-path",
            replay_ns_per_step=_even_saving(result) if by_replay else None,
        )
    ]


def _metric(result: Result, name: str) -> int | None:
    value = metric(result, name)
    return None if value is None else round(value)


def _even_saving(result: Result) -> int | None:
    """What equal op times save of the step, by replay."""
    step, even = _metric(result, "step_time"), _metric(result, "step_time_if_balanced_replay")
    return None if step is None or even is None else max(0, step - even)


def _split(result: Result, waits: int) -> list[str]:
    """What of the waiting a slow stage or rank makes, and what the schedule; or why nobody can tell."""
    straggler, uneven = _metric(result, "pipeline_straggler"), _metric(result, "pipeline_uneven") or 0
    whole = f"{units.time(waits)} a step and rank"
    if straggler is None:
        known = result.metrics.get("pipeline_straggler")
        return [whole, known.basis] if known else [whole]
    parts = f"{units.time(straggler)} of it by a slow stage or rank, {units.time(waits - straggler)} by the schedule"
    why = (
        f"{units.time(uneven)} of the former by stages of uneven work, the rest by ranks or micro-batches slower "
        "than the others of their stage"
    )
    even = _metric(result, "step_time_if_balanced_replay")
    told = [f"{units.time(even)} a step with equal op times, by replay"] if straggler and even is not None else []
    basis = result.metrics["pipeline_straggler"].basis
    return [f"{whole}: {parts}", *([why] if straggler else []), *told, basis]


def _advice(result: Result, by_replay: bool) -> str:
    straggler, uneven = _metric(result, "pipeline_straggler") or 0, _metric(result, "pipeline_uneven") or 0
    if by_replay and 2 * uneven < straggler:
        return (
            "Look for the rank that is slower than the others of its stage; equal ranks wait for the schedule only."
        )
    return "Balance the stages; more micro-batches or an interleaved schedule shrink the bubble itself."
