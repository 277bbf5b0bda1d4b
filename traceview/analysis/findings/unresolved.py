"""Communication whose waiting cannot be told from its transfer, or that nobody can be blamed for: no sure peers."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import matters, of_step, per_step, unblamed, worst
from traceview.config import Config
from traceview.result import Finding, Result


def find(result: Result, config: Config) -> list[Finding]:
    """No saving is claimed: this part of the step is unknown."""
    unsure, waits = per_step(result, "comm_unresolved"), unblamed(result)
    ns = unsure + waits
    if not matters(result, ns, config.finding_min_share):
        return []
    why, advice = _why(result)
    title = f"{of_step(result, unsure)} of the step is communication that may be waiting or transfer"
    if waits > unsure:
        title = f"ranks wait {of_step(result, waits)} of the step, and for whom cannot be told"
    return [
        Finding(
            id="unresolved-communication",
            title=title,
            saving_ns_per_step=None,
            basis="communication kernels that could not be matched with all members of their group",
            confidence="proved",
            evidence=[
                f"{units.time(ns)} a step",
                why,
                *_interval(result),
                *[m.note for m in result.matching if m.note][:3],
            ],
            advice=advice,
            where=worst(result, "comm_unresolved"),
            owner="capture",
            section="communication",
        )
    ]


def _why(result: Result) -> tuple[str, str]:
    """What is missing, and what to do about it."""
    ns = result.budget.leaves_ns["comm_unresolved"]
    cut = [r.rank for r in result.rank_rows if r.truncated]
    missing = result.run.missing_ranks
    if missing:
        return (
            f"rank {missing[0]} is missing"
            if len(missing) == 1
            else f"ranks {units.ranks(missing)[:80]} are missing",
            "Give the traces of all ranks of a group, recorded with PyTorch 2.4 or later.",
        )
    if cut:
        who = f"rank{'s' * (len(cut) > 1)} {units.ranks(cut)[:80]}"
        return (
            f"the trace of {who} is cut short",
            f"Give the whole trace of {who}: the copy, or the writing of it, was stopped.",
        )
    bare = sum(m.unmatched + m.ambiguous for m in result.matching if not m.group)
    if 2 * bare > sum(m.unmatched + m.ambiguous for m in result.matching):
        return (
            f"no file tells the groups of {bare:,} collectives, and taken for those of all ranks they do not fit for "
            "sure: a rank that is late there stays unnamed",
            "Record with PyTorch 2.4 or later (Nsight: --include-blobs=true): it tells the process groups.",
        )
    more = len(result.clock.apart) - 1
    if result.clock.apart and 2 * result.budget.sub_ns.get("comm_unresolved.p2p", 0) > ns:
        return (
            result.clock.apart[0] + (f"; {more} more like it" if more else ""),
            "Record a collective over all stages in every step (a barrier or a small all-reduce is enough): "
            "it ties the clocks of their hosts.",
        )
    return (
        "the peers of these collectives were not found",
        "Record all ranks of a group over the same steps, with PyTorch 2.4 or later (Nsight: --include-blobs=true).",
    )


def _interval(result: Result) -> list[str]:
    """From the ranks that are there: between which shares of the step the waiting lies."""
    found = [result.metrics.get(f"{name}_wait_at_least") for name in ("straggler", "pipeline")]
    known = [m for m in found if m is not None and m.value is not None]
    if not any(m.quality == "lower_bound" for m in known):
        return []
    waits, n = sum(m.value or 0 for m in known), sum(m.n for m in known if m.quality == "lower_bound")
    most = result.budget.leaves_ns["comm_wait"] + result.budget.leaves_ns["comm_unresolved"]
    return [
        f"an estimate: between {units.share(waits)} and {units.share(most / result.budget.wall_ns)} of the step"
        f" is waiting ({n} collectives against the fastest of their class)"
    ]
