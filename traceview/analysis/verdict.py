"""The first screen: slow against what, cause, cost, what to do, what it is not, the next limit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from traceview import units
from traceview.analysis.findings.common import has_gpu, on_host, per_step, record_again, step_ns, unblamed
from traceview.analysis.findings.pipeline_bubble import bubble
from traceview.analysis.findings.straggler import CAUSE_WORDS
from traceview.config import Config
from traceview.result import Finding, Result, Verdict
from traceview.run import ABSOLUTE_NS


@dataclass(frozen=True)
class RuleOut:
    """A suspect: the leaves (or sub-leaves) that show it, those it may hide in, the findings that claim it."""

    name: str
    shown_in: tuple[str, ...]
    hidden_in: tuple[str, ...]
    claims: tuple[str, ...]


RULE_OUTS = (
    RuleOut("straggler", ("comm_wait.nxn",), ("comm_unresolved",), ("straggler", "imbalance", "expert-imbalance")),
    RuleOut(
        "network",
        ("comm_transfer", "comm_host"),
        ("comm_unresolved",),
        ("exposed-communication", "slow-", "host-staged"),
    ),
    RuleOut("input", ("idle_data",), ("idle_unknown", "uncovered"), ("data-loading",)),
    RuleOut("copies", ("pcie_h2d", "pcie_d2h"), ("uncovered",), ("staging",)),
    RuleOut(
        "host",
        ("idle_host", "idle_launch", "idle_sync"),
        ("idle_unknown", "uncovered"),
        ("host-bound", "sync", "allocator"),
    ),
)
BLIND = ("comm_unresolved", "uncovered", "idle_unknown", "gpu_opaque")


def judge(result: Result, config: Config, against: str = "") -> Verdict:
    """The verdict of a result whose findings are in order; lines that are not known stay empty.

    ``against``: how the step time compares with a baseline, in words.
    """
    verdict = _judge(result, config)
    if against and verdict.slow:
        verdict.slow += f", {against}"
    return verdict


def _judge(result: Result, config: Config) -> Verdict:
    coverage = _coverage(result)
    if not result.budget.wall_ns:  # no window, or only windows of length 0
        return Verdict(
            headline="Cannot tell: no step could be measured",
            confidence="cannot tell",
            status="cannot_tell",
            coverage=coverage,
            do=_first_remedy(result),
        )
    with_saving = [f for f in result.findings if f.saving_ns_per_step]
    step = max(1, step_ns(result))
    blind = (per_step(result, *BLIND) + unblamed(result)) / step
    if not has_gpu(result):
        return _cpu_only(result, coverage)
    largest = with_saving[0].saving_ns_per_step or 0 if with_saving else 0
    if blind > config.blind_share and largest < blind * step:
        return _cannot_tell(result, coverage, config, blind)
    if not with_saving and blind > config.healthy_max_unknown:
        return _cannot_tell(result, coverage, config, blind)
    if _hides(result) > max(largest, config.healthy_max_unknown * step):
        return _cannot_tell(result, coverage, config, blind)
    if not with_saving:
        return _healthy(result, coverage, config, blind)
    return _slow(result, with_saving, coverage, config)


def _hides(result: Result) -> int:
    """What a late rank may hide in where all ranks are given, ns per rank and step."""
    if result.run.missing_ranks or len(result.run.ranks) < 2:
        return 0
    return per_step(result, "comm_unresolved") + unblamed(result)


def _coverage(result: Result) -> str:
    run = result.run
    total = run.world_size or "?"
    used, steps = len(run.steps.used), len(run.steps.used) + len(run.steps.excluded)
    told = "no steps" if run.steps.source == "all" else f"steps {used} of {steps}"
    clocks = f"  clocks {result.clock.grade}{_clock_error(result)}" if len(run.ranks) > 1 else ""
    cut = len({s.rank for s in run.sources if s.truncated and s.rank is not None})
    return f"ranks {len(run.ranks)}/{total}{f' ({cut} cut short)' if cut else ''}  {told}{clocks}"


def _clock_error(result: Result) -> str:
    """' (error 1.20 µs)': the largest of any host; nothing where all ranks share a clock.

    Of a chain of hosts that only messages align it is that between neighbours, not that of the whole chain.
    """
    fitted = [(h.sigma_ns or 0) - (h.join_bound_ns or 0) for h in result.clock.hosts]
    worst = max(fitted, default=0) + (result.clock.neighbours_ns or 0)
    return f" (error {units.time(worst)})" if worst and len(result.clock.hosts) > 1 else ""


def _slow_line(result: Result, saved: float = 0.0) -> str:
    """The step time and what to hold it against; ``saved``: share of the step that the first fix saves."""
    walls = sorted(s.wall_ns for s in result.step_rows)
    if not walls:
        return ""
    middle, best = walls[(len(walls) - 1) // 2], walls[len(walls) // 10]
    if result.run.steps.source == "all":
        return f"{units.time(middle)} recorded, no steps found"
    line = f"{units.time(middle)} a step"
    mean = step_ns(result)
    if abs(mean - middle) > 0.02 * middle:  # every share and saving is of the mean step
        line += f" in the median, {units.time(mean)} in the mean"
    if best and middle > 1.02 * best:
        line += f", {(middle / best - 1) * 100:.0f} % over this run's own best ({units.time(best)})"
    elif saved:
        line += f", {units.share(saved)} of it lost to one cause"
    return line


def _slow(result: Result, found: list[Finding], coverage: str, config: Config) -> Verdict:
    first = found[0]
    saving = first.saving_ns_per_step or 0
    step = step_ns(result)
    ranks, per = len(result.run.ranks), result.run.steps.per
    share = saving / step
    gpu_hours = share * ranks * 24
    replay = first.replay_ns_per_step
    played = f", {units.time(step - replay)} by replay" if replay is not None else ""
    return Verdict(
        headline=first.title[0].upper() + first.title[1:],
        confidence=first.confidence,
        status="slow",
        slow=_slow_line(result, share),
        coverage=coverage,
        cause=f"{first.title}: {first.evidence[0]}",
        cost=f"{units.time(saving)} {per} = {gpu_hours:,.3g} GPU-h a day on {ranks} GPU{'s' * (ranks != 1)}; "
        f"at best {units.time(step - saving)} {per} when fixed{played}",
        do=first.advice,
        owner=first.owner,
        rule_outs=_rule_outs(result, config, first),
        next=_next(result, found),
        ticket=_ticket(result, first),
    )


def _next(result: Result, found: list[Finding]) -> str:
    """What limits the step once the first finding is mended: a rank that hides behind it, or the next finding."""
    first = found[0]
    behind = next((row for row in result.hidden if first.id == f"straggler-{row.behind}"), None)
    if behind is not None:
        who = f"rank {behind.rank}{on_host(behind.host)} {CAUSE_WORDS[behind.cause]}"
        return f"{who}, {units.time(behind.late_ns)} late, hidden behind rank {behind.behind}"
    if len(found) < 2:
        return ""
    return f"{found[1].title}: {units.change(-(found[1].saving_ns_per_step or 0))} {result.run.steps.per}"


def _rule_outs(result: Result, config: Config, first: Finding | None = None) -> str:
    """What is small and cannot be larger: the unknown parts of the step leave no room for more."""
    parts = []
    for suspect in RULE_OUTS:
        if first is not None and first.id.startswith(suspect.claims):
            continue
        if suspect.name == "straggler" and len(result.run.ranks) < 2:
            continue
        shown, most = (
            per_step(result, *leaves) / step_ns(result)
            for leaves in (suspect.shown_in, suspect.shown_in + suspect.hidden_in)
        )
        if most <= config.rule_out_max_share:
            parts.append(f"{suspect.name} {'≤ ' if most >= shown + 0.001 else ''}{units.share(most)}")
    return " | ".join(parts)


def _healthy(result: Result, coverage: str, config: Config, blind: float) -> Verdict:
    compute = per_step(result, "compute", "gpu_opaque") / step_ns(result)
    limit = units.share(config.finding_min_share)
    share = bubble(result) / step_ns(result)
    schedule = f", {units.share(share)} the bubble of its pipeline" if share > config.finding_min_share else ""
    return Verdict(
        headline=f"Healthy: {units.share(compute)} of the captured steps is compute{schedule}, "
        f"nothing else costs over {limit}",
        confidence="proved" if blind < config.finding_min_share else "likely",
        status="healthy",
        slow=_slow_line(result),
        coverage=coverage,
        rule_outs=_rule_outs(result, config),
    )


def _cannot_tell(result: Result, coverage: str, config: Config, blind: float) -> Verdict:
    causes = [f for f in result.findings if f.owner == "capture"]
    why = causes[0].title if causes else f"{units.share(blind)} of the step is not explained by the trace"
    return Verdict(
        headline=f"Cannot tell: {why}",
        confidence="cannot tell",
        status="cannot_tell",
        slow=_slow_line(result),
        coverage=coverage,
        cause="; ".join(causes[0].evidence) if causes else "",
        do=_first_remedy(result),
        owner="capture",
        rule_outs=_rule_outs(result, config),
    )


def _cpu_only(result: Result, coverage: str) -> Verdict:
    comm = per_step(result, "comm_host") / step_ns(result)
    told = f"host communication is in flight {units.share(comm)} of the time" if comm else "no communication was seen"
    why, do = "no GPU activity was recorded", f"If the job used GPUs, record with {record_again(result)}."
    if result.run.gpu_ranks:
        ranks = units.named_ranks(result.run.gpu_ranks)
        why = f"the GPU activity on record ({ranks}) is outside of the used steps"
        do = "Mark the steps where the GPU works (profiler.step() in the training loop), or name their range by hand."
    return Verdict(
        headline=f"Cannot tell: {why}; {told}",
        confidence="cannot tell",
        status="cannot_tell",
        slow=_slow_line(result),
        coverage=coverage,
        do=do,
        owner="capture",
    )


def _first_remedy(result: Result) -> str:
    return next(
        (f.advice for f in result.findings if f.owner == "capture"),
        "Record at least three steps with the profiler's schedule, CPU and GPU activity, on all ranks.",
    )


def _ticket(result: Result, first: Finding) -> str:
    where = first.where
    lines = [
        first.title,
        f"owner: {first.owner}",
        f"run: {result.run.name}, {len(result.run.ranks)} ranks, traceview {result.tool_version}",
        f"cost: {units.time(first.saving_ns_per_step)} of {units.time(step_ns(result))} {result.run.steps.per}",
    ]
    if where.rank is not None:
        row = next((r for r in result.rank_rows if r.rank == where.rank), None)
        if row:
            lines.append(f"host {row.host.lstrip('?')}, rank {row.rank}, GPU {row.device} {row.device_name}".rstrip())
    if where.start_ns and where.start_ns > ABSOLUTE_NS and where.end_ns:
        lines.append(f"UTC {_utc(where.start_ns)} to {_utc(where.end_ns)}, step {where.step}")
    lines += [f"- {e}" for e in first.evidence]
    lines.append(f"do: {first.advice}")
    return "\n".join(lines)


def _utc(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
