"""A rank, or a node, that the others wait for (METHODS e)."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import (
    blame_ns,
    culprits,
    has_uneven_experts,
    metric,
    on_host,
    recorded_by,
    step_ns,
    stragglers_beside_experts,
    uneven_experts_ns,
    waits_of_ranks,
    worst_of_rank,
)
from traceview.analysis.savings import typical_wait
from traceview.config import Config
from traceview.result import Finding, Result, StragglerRow

BY_TORCH = "PyTorch 2.4 or later and record_shapes=True"
BY_NSYS = "NCCL 2.25 or newer, and nsys export --include-blobs=true"
ADVICE = {
    "compute_slower": (
        "Same kernels, slower: check clocks, temperature, power cap and ECC of that GPU; drain it and restart.",
        "hardware",
    ),
    "compute_more_work": (
        "It runs more work than its peers: balance the batch, the sequence lengths or the layer split.",
        "model code",
    ),
    "data": (
        "Its data loader is late: more workers, a faster or local file system, smaller per-sample work.",
        "input pipeline",
    ),
    "host": (
        "Its host thread is late: look for CPU contention, NUMA binding, garbage collection or extra syncs there.",
        "hardware",
    ),
    "copies": ("Its copies are slow: check PCIe width and generation, NUMA placement and pinned memory.", "hardware"),
    "tokens uneven": (
        "Balance the routing: load-balancing loss, a capacity factor, or other places for experts.",
        "model code",
    ),
    "tokens untold": (
        "Look at the tokens of its experts before its hardware: read the router's load, or record the sizes of the "
        "all-to-alls with {sizes}.",
        "capture",
    ),
    "communication": ("It is held by an earlier communication: look at the links of that group.", "network"),
    "unknown": ("Its own trace does not say why: record it with CPU activity and shapes.", "capture"),
}


def find(result: Result, config: Config) -> list[Finding]:
    """One finding per node, or per rank that is not a whole slow node."""
    total = blame_ns(result) or 1
    wait = typical_wait(waits_of_ranks(result))
    return [
        _finding(result, who, rows, wait * sum(r.origin_blame_ns for r in rows) // total, config)
        for who, rows in culprits(stragglers_beside_experts(result, config)).items()
    ]


def _finding(result: Result, who: str, rows: list[StragglerRow], saving: int, config: Config) -> Finding:
    even = _counted_with_experts(result, rows, config)
    first = rows[0]
    advice, owner = ADVICE.get(f"tokens {first.tokens}", ADVICE[first.cause])
    sizes = BY_NSYS if recorded_by(result, "nsight") else BY_TORCH
    ranks = units.ranks([r.rank for r in rows])
    name = f"{who} (ranks {ranks})" if who.startswith("node") else who + on_host(first.host)
    what = f"computes {first.slowdown:.2f}x slower than its peers" if first.slowdown else _what(first)
    others = len(result.run.ranks) - len(rows)
    last = f", last in {first.last_count} of {first.collectives} collectives" if first.collectives else ""
    evidence = [
        f"late in {first.late_steps} of {first.steps} steps{last}",
        *(part for part in first.explanation.split("; ") if part),
    ]
    evidence += [row.explanation for row in result.hidden if row.behind in {r.rank for r in rows}]
    played = None if even else _replayed(result, first)
    if played is not None:
        evidence.append(_both(result, (min(saving, step_ns(result)), played), config))
    clear = first.slowdown is None or first.slowdown >= 1 + config.slower_share
    window = worst_of_rank(result, first.rank)
    return Finding(
        id=f"straggler-{first.rank}",
        title=f"{name} {what}; {others} other{'s' * (others != 1)} wait{'s' * (others == 1)}",
        saving_ns_per_step=max(min(saving, step_ns(result)) - even, 0),
        basis="the median rank's exposed wait that goes back to it: the gain if it becomes typical"
        + (", less what the finding on its tokens counts" if even else ""),
        confidence="proved" if first.quality == "proved" and clear else "likely",
        evidence=evidence,
        advice=advice.replace("{sizes}", sizes),
        where=window,
        owner=owner,
        section="stragglers",
        replay_ns_per_step=played,
    )


def _counted_with_experts(result: Result, rows: list[StragglerRow], config: Config) -> int:
    """What even tokens would gain on these ranks, ns a step, if that is a finding of its own."""
    if not has_uneven_experts(result, config):
        return 0
    return uneven_experts_ns(result) - uneven_experts_ns(result, {r.rank for r in rows})


def _what(row: StragglerRow) -> str:
    """The cause in the words of a title."""
    if row.tokens == "untold":
        return "computes longer between its all-to-alls, on more tokens or slower: the trace does not tell"
    if row.tokens == "uneven":
        return f"gets {row.load:.2f}x the mean tokens of its expert group"
    return CAUSE_WORDS[row.cause]


def _replayed(result: Result, row: StragglerRow) -> int | None:
    """Saving a step by the replay; None = it cannot tell."""
    step = metric(result, "step_time")
    if step is None or row.replay_step_ns is None:
        return None
    return max(0, round(step) - row.replay_step_ns)


def _both(result: Result, savings: tuple[int, int], config: Config) -> str:
    """Step time if fixed: the simple bound, then the replay; and why they differ, where they do."""
    (bound, played), step = savings, round(result.metrics["step_time"].value or 0)
    off = metric(result, "replay_error")
    told = "" if off is None else f" (base replay off by {units.share(off)})"
    by_bound, by_replay = units.time(step - bound), units.time(step - played)
    text = f"if fixed: {by_bound} a step by the simple bound, {by_replay} by replay{told}"
    if abs(played - bound) <= config.replay_differs * max(played, bound):
        return text
    if played < bound:
        return f"{text}: in the replay another rank, its own communication or the schedule then holds the step"
    return f"{text}: in the replay waiting in send/recv, and work that hides on other streams, gets shorter too"


CAUSE_WORDS = {
    "compute_slower": "computes slower than its peers",
    "compute_more_work": "has more work than its peers",
    "data": "waits for its input",
    "host": "has a late host thread",
    "copies": "waits for its own copies",
    "communication": "is held by an earlier communication",
    "unknown": "arrives late, its own trace does not say why",
}
