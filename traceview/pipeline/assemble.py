"""Everything the stages found, as one Result."""

from __future__ import annotations

from collections import Counter

import numpy as np

from traceview import __version__
from traceview.analysis import bandwidth, estimate, kernels, rollup, savings
from traceview.analysis.findings import find_all
from traceview.analysis.findings.common import waits_of_ranks
from traceview.analysis.types import NXN, P2P
from traceview.analysis.verdict import judge
from traceview.config import Config
from traceview.pipeline import rows, utilisation, whatif
from traceview.pipeline.against import against
from traceview.pipeline.byplace import blame_by
from traceview.pipeline.values import Across, Blamed, Frame, Lanes, StudyOptions
from traceview.pipeline.wiring import wire
from traceview.result import (
    Budget,
    CollectiveRow,
    Excluded,
    KernelRow,
    Metric,
    Quality,
    QualityInfo,
    Result,
    RunInfo,
    Source,
    StepRow,
    Steps,
    Unclassified,
    Verdict,
)
from traceview.run import PartMeta, Run, SourceMeta
from traceview.schema.arrays import to_numpy
from traceview_parsers.kernels import unclassified

KERNELS_SHOWN, KERNELS_LOOKED_AT = 300, 10_000
"""names in the result, and names searched for unknown communication"""


def assemble(run: Run, base: Frame, across: Across, lanes: Lanes, blamed: Blamed, how: StudyOptions) -> Result:
    """The result of a run: rows, metrics, findings, verdict. InternalError if a sum does not hold."""
    config = how.config
    rollup.check(lanes.windows)
    budget = rollup.budget(lanes.windows)
    last = int(base.marks.step.max()) if len(base.marks.step) else None
    steps = rollup.steps(lanes.windows, config, last)
    metas = {r: run.parts[r].meta for r in run.ranks}
    hosts = {r: run.host(r) for r in run.ranks}
    used = [(lane, base.windows.used[lane.window]) for lane in lanes.lanes]
    fabric, rail, notes = wire(run, base.collectives, how)
    by_place, untold = blame_by(run, across, blamed, rail)
    heavy = kernels.table(lanes.kernels, KERNELS_LOOKED_AT)
    result = Result(
        verdict=Verdict("", ""),
        run=_run_info(run, base, metas),
        budget=budget,
        window_rows=lanes.windows,
        metrics=_metrics(lanes, steps, budget.wall_ns, budget.leaves_ns, estimated=base.marks.estimated),
        collective_rows=_collectives(base, across, lanes, fabric, config),
        straggler_rows=blamed.found.rows,
        hidden=blamed.found.hidden,
        clock=across.alignment.clock,
        findings=[],
        quality=_quality(run, base, across, heavy, [*notes, *blamed.found.notes]),
        step_rows=steps,
        rank_rows=rollup.ranks(
            lanes.windows,
            hosts,
            {r: m.device_name or "" for r, m in metas.items()},
            {r for r, m in metas.items() if m.source.truncated},
        ),
        blame=blamed.found.blame,
        blame_by=by_place,
        blame_by_untold=untold,
        experts=blamed.experts,
        arrivals=blamed.found.arrivals,
        critical_path=blamed.path,
        kernels=heavy[:KERNELS_SHOWN],
        ranges=lanes.launchers.rows(),
        copies=lanes.copies.rows(),
        idle=rows.idle(used),
        memory=lanes.memory,
        matching=across.matches.groups,
        thresholds=config.as_dict(),
        tool_version=__version__,
    )
    lanes.launchers.name(result.kernels)
    utilisation.fill(result, lanes, how)
    result.metrics |= _without_waits(result) | _even_tokens(blamed)
    for whose, name in ((NXN, "straggler"), (P2P, "pipeline")):
        result.metrics[f"{name}_wait_at_least"] = _wait_at_least(base, across, lanes, result.budget, whose, config)
    _lateness(result, blamed.found.late_ns)
    whatif.fill(result, blamed.replay, config)
    result.findings = find_all(result, config)
    beside = against(result, how.baseline, config) if how.baseline and result.step_rows else ""
    result.verdict = judge(result, config, beside)
    return result


def _even_tokens(blamed: Blamed) -> dict[str, Metric]:
    """What even tokens would save (METHODS e.6); none without experts whose tokens are told."""
    if blamed.even_tokens is None:
        return {}
    n = sum(row.pairs for row in blamed.experts if row.told)
    basis = "largest minus mean of the compute that follows the tokens, exposed, of the group that holds the step"
    return {"even_tokens_gain": Metric(blamed.even_tokens, "ns", n, basis, "estimated")}


def _without_waits(result: Result) -> dict[str, Metric]:
    """Step time without straggler waits, in the three senses of METHODS h.1; none without a step time."""
    step, waits = result.metrics["step_time"], waits_of_ranks(result)
    found = savings.no_straggler(round(step.value), waits) if step.value else None
    if found is None:
        return {}
    ends = (
        (
            "step_time_if_replaced",
            found.replace,
            "the late rank becomes typical: minus the median exposed wait",
        ),
        ("step_time_if_balanced", found.rebalance, "the same work, evenly spread: minus the mean exposed wait"),
        ("step_time_if_no_wait", found.best, "best case: minus the longest exposed wait"),
    )
    return {name: Metric(value, "ns", len(waits), basis, "estimated") for name, value, basis in ends}


def _lateness(result: Result, late_ns: dict[tuple[int, int], int]) -> None:
    """Lateness of METHODS e.7 by (rank, step), to the windows and, over the used steps, to the ranks."""
    whole: Counter[int] = Counter()
    for (rank, _), ns in late_ns.items():
        whole[rank] += ns
    for window in result.window_rows:
        window.late_ns = late_ns.get((window.rank, window.step))
    for row in result.rank_rows:
        row.late_ns = whole[row.rank]


def _run_info(run: Run, base: Frame, metas: dict[int, PartMeta]) -> RunInfo:
    marks = base.marks
    sources = [_source(m.source, r) for r, m in metas.items()]
    sources += [_source(p.meta.source, None) for p in run.logs] + [_source(m, None) for m in run.unread]
    return RunInfo(
        name=run.name,
        world_size=run.world_size,
        ranks=run.ranks,
        missing_ranks=run.missing_ranks,
        hosts=rows.hosts_of(run),
        sources=sources,
        steps=Steps(marks.source, marks.used, [Excluded(k, why) for k, why in sorted(marks.excluded.items())]),
        device_names=sorted({m.device_name for m in metas.values() if m.device_name}),
        gpu_ranks=[r for r, m in metas.items() if m.rows.get("gpu_ops")],
        start_ns=min((m.cover_start for m in metas.values() if m.cover_start is not None), default=None),
        end_ns=max((m.cover_end for m in metas.values() if m.cover_end is not None), default=None),
    )


def _source(meta: SourceMeta, rank: int | None) -> Source:
    return Source(
        path=meta.path,
        format=meta.format,
        schema_class=meta.schema_class,
        rank=rank,
        bytes=meta.bytes,
        events=meta.events,
        repaired=meta.repaired,
        quarantined=meta.quarantined,
        dropped=meta.dropped,
        truncated=meta.truncated,
        warnings=meta.warnings,
        facts=meta.facts,
    )


def _metrics(
    lanes: Lanes, steps: list[StepRow], wall: int, leaves: dict[str, int], *, estimated: bool
) -> dict[str, Metric]:
    """METHODS a.4, b.1, g by name."""
    n = len(lanes.windows)
    quality: Quality = "estimated" if estimated else "proved"
    walls = sorted(s.wall_ns for s in steps)
    out: dict[str, Metric] = {}
    for name, q in (("step_time", 0.5), ("step_time_p95", 0.95), ("step_time_max", 1.0)):
        value = float(np.quantile(walls, q, method="inverted_cdf")) if walls else None
        basis = "median over ranks of the device-step window, used steps"
        out[name] = Metric(value, "ns", len(walls), basis, quality if walls else "unavailable")
    busy = dict.fromkeys(
        ("hidden_transfer", "transfer_busy", "hidden_comm", "comm_busy", "hidden_staging", "staging_busy", "busy",
         "busy_no_wait"), 0
    ) | lanes.companions  # fmt: skip
    out |= rows.companion_metrics(busy, wall, n)
    exposed = leaves["comm_transfer"] + leaves["comm_unresolved"] + leaves["comm_host"]
    out["exposed_share"] = rows.ratio(exposed, wall, "exposed communication / wall", n)
    compute = leaves["compute"] + leaves["gpu_opaque"]
    out["compute_share"] = rows.ratio(compute, wall, "compute / wall", n)
    out["goodput"] = (
        _goodput(lanes, compute, leaves["gpu_opaque"], wall)
        if busy["busy"]
        else Metric(None, "fraction", n, "no GPU activity in the used steps", "unavailable")
    )
    return out


def _goodput(lanes: Lanes, compute: int, opaque: int, wall: int) -> Metric:
    """METHODS g: compute time without the excess over the median peer, as a share of the rank-time."""
    excess, compared = kernels.excess_ns(lanes.kernels)
    basis = "captured steps: (compute - excess over the median peer's time for the same kernel) / wall"
    if not compared:
        basis = "captured steps: compute / wall; uniform slowness is invisible without a baseline"
    metric = rows.ratio(max(0, compute - excess), wall, basis, len(lanes.windows))
    fused = any(w.sub_ns.get("compute.fused_comm") for w in lanes.windows)
    if metric.value is not None and (opaque or fused):
        metric.quality = "upper_bound"
    return metric


def _wait_at_least(base: Frame, across: Across, lanes: Lanes, budget: Budget, whose: int, config: Config) -> Metric:
    """The lower end of a wait when peers are missing; at most all that is unresolved comes on top.

    ``whose``: NXN (straggler wait) or P2P (pipeline wait), which never mix (METHODS e.6).
    """
    phases = across.waits.phases
    on_gpu = to_numpy(base.collectives["op"].is_valid())  # communication of the host is never split
    exposed = np.where(on_gpu, lanes.exposed_of_row, 0)
    some = base.used_row & (phases.sub == whose)
    above, n = estimate.waiting_at_least(base.collectives, phases, exposed, some, config)
    name, leaf = ("pipeline", "comm_wait.p2p") if whose == P2P else ("straggler", "comm_wait.nxn")
    basis = f"{name} wait, plus what unresolved collectives expose beyond the fastest of their class, / wall"
    metric = rows.ratio(budget.sub_ns.get(leaf, 0) + above, budget.wall_ns, basis, n)
    if metric.value is not None and n:
        metric.quality = "lower_bound"
    return metric


def _collectives(
    base: Frame, across: Across, lanes: Lanes, fabric: bandwidth.Fabric, config: Config
) -> list[CollectiveRow]:
    table = base.collectives
    start, end = to_numpy(table["start"]), to_numpy(table["end"])
    wait_end = across.waits.phases.wait_end
    timing = bandwidth.Timing(
        transfer=across.waits.instances.transfer,
        waited_row=wait_end - start,
        transfer_row=end - wait_end,
        exposed_row=lanes.exposed_of_row,
        used_row=base.used_row,
    )
    return bandwidth.collective_rows(table, across.matches, timing, fabric, config)


def _of_files(metas: list[SourceMeta]) -> list[str]:
    """Warnings of the files: each said once, with the file where there are several."""
    files: dict[str, dict[str, None]] = {}  # a file may hold several ranks
    for meta in metas:
        for warning in meta.warnings:
            files.setdefault(warning, {})[meta.path] = None
    if len({m.path for m in metas}) == 1:
        return [*files]
    return [
        f"{next(iter(paths))}: {warning}" if len(paths) == 1 else f"{len(paths)} files, as {min(paths)}: {warning}"
        for warning, paths in files.items()
    ]


def _quality(run: Run, base: Frame, across: Across, heavy: list[KernelRow], notes: list[str]) -> QualityInfo:
    metas = [run.parts[r].meta.source for r in run.ranks] + [p.meta.source for p in run.logs]
    warnings = [*run.problems, *notes]
    warnings += [f"not read: {'; '.join(m.warnings)}" for m in run.unread]
    warnings += _of_files(metas)
    warnings += [*base.marks.notes, *across.matches.notes, *across.alignment.notes, *across.alignment.mismatches]
    doubtful: Counter[str] = Counter()
    for row in heavy:
        if row.cls == "compute" and unclassified(row.name):
            doubtful[row.name] += row.total_ns
    return QualityInfo(
        repaired=sum(m.repaired for m in metas),
        quarantined=sum(m.quarantined for m in metas),
        dropped=sum(m.dropped for m in metas),
        unmatched_kernels=sum(a.unmatched for a in base.axes.values()),
        unclassified=[Unclassified(name, ns) for name, ns in doubtful.most_common(20)],
        negative_launches=sum(a.negative for a in base.axes.values()),
        warnings=warnings,
        clipped_overflows=sum(int(m.facts.get("clipped_overflows", 0)) for m in metas),
        violations=int(across.waits.phases.violated.sum()),
    )
