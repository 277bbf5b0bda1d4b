"""Communication that no compute hides (METHODS a.3, h.1 'perfect overlap')."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings import host_staged
from traceview.analysis.findings.common import matters, metric, of_step, per_step, step_ns, worst
from traceview.config import Config
from traceview.result import CollectiveRow, Finding, Result

LEAVES = ("comm_transfer", "comm_host")


def find(result: Result, config: Config) -> list[Finding]:
    """One finding when exposed transfer matters; its largest classes are the evidence."""
    exposed = per_step(result, *LEAVES)
    by_wire = host_staged.saving(result, config)
    saving = max(0, exposed - by_wire)
    if not matters(result, saving, config.finding_min_share):
        return []
    top = sorted(result.collective_rows, key=lambda c: -c.exposed_ns)[:3]
    overlap = metric(result, "overlap_transfer")
    evidence = [f"exposed {units.time(exposed)} of {units.time(step_ns(result))} a step"]
    if by_wire:
        evidence.append(f"{units.time(by_wire)} of it is the price of host memory on the way, a finding of its own")
    evidence += [_line(result, row) for row in top if row.exposed_ns]
    if overlap is not None:
        evidence.append(f"{units.share(overlap)} of the transfer time is hidden by compute")
    what = _name(top[0]) if top and top[0].exposed_ns else "host communication"
    return [
        Finding(
            id="exposed-communication",
            title=f"{of_step(result, exposed)} of the step is exposed communication, most of it {what}",
            saving_ns_per_step=saving,
            basis="exposed transfer per step, less what host staging costs; all of it could be hidden at best",
            confidence="likely",
            evidence=evidence,
            advice=_advice(top),
            where=worst(result, *LEAVES),
            owner="model code",
            section="communication",
        )
    ]


def _name(row: CollectiveRow) -> str:
    ranks = f" ({row.group_size} ranks)" if row.group_size else ""
    return f"{row.kind} of group {row.group}{ranks}" if row.group else f"{row.kind} (group not told)"


def _line(result: Result, row: CollectiveRow) -> str:
    each = row.exposed_ns // max(1, len(result.window_rows))
    rate = f", busbw {row.busbw:.3g} GB/s" if row.busbw is not None else ""
    return f"{_name(row)}, {row.size_class}: {units.time(each)} a step exposed{rate}"


def _advice(top: list[CollectiveRow]) -> str:
    """What hides the kind with most exposed time that has advice of its own."""
    own = (ADVICE[row.kind] for row in top if row.exposed_ns and row.kind in ADVICE)
    return next(own, "Start the transfer earlier or give it independent compute to hide behind.")


_FSDP = "FSDP: prefetch the next layer's all-gather (forward and backward), or wrap fewer layers per unit."
_MOE = "MoE: overlap dispatch and combine with the shared expert or with another micro-batch."
ADVICE = {
    "allgather": _FSDP,
    "reduce_scatter": _FSDP,
    "allreduce": "DDP: start buckets earlier (smaller first bucket, static graph), or accumulate over more steps.",
    "alltoall": _MOE,
    "alltoallv": _MOE,
}
