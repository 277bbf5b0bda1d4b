"""A result against a baseline: how much slower, and of what, where the run itself shows no cause."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from traceview import units
from traceview.analysis.findings import in_order
from traceview.compare import SHOWN, compare
from traceview.config import Config
from traceview.errors import NotComparableError
from traceview.gate import decide
from traceview.result import Against, Finding, Result
from traceview.result.versus import Comparison, Decision, class_name

SHARE_EXPLAINED = 0.5  # of the slowdown; a finding that saves as much is its cause


def against(result: Result, baseline: Sequence[Result], config: Config) -> str:
    """The words for the first line of the verdict; sets ``against``, adds a finding, or warns where the runs differ.

    What slows all ranks alike (lower clocks, a slower kernel, a smaller batch) leaves no trace inside one run.
    """
    try:
        changed = compare(baseline, [result])
    except NotComparableError as error:
        result.quality.warnings.append(f"baseline {baseline[0].run.name}: {error}")
        result.against = Against(baseline[0].run.name, refused=str(error))
        return ""
    decision = decide(baseline, [result], config=config)
    result.against = Against(
        changed.baseline,
        comparison=changed,
        decision=decision,
        metrics=_metrics(result, baseline),
        busbw=_busbw(result, baseline),
    )
    slower = changed.candidate_mean_ns - changed.baseline_mean_ns
    known = max((f.saving_ns_per_step or 0 for f in result.findings), default=0)
    if decision.outcome == "FAIL" and known < SHARE_EXPLAINED * slower:
        result.findings = in_order([*result.findings, _finding(changed, decision)])
    way = "as fast as" if decision.outcome == "PASS" and not decision.improved else f"{_percent(decision.change)}"
    return f"{way} the baseline {changed.baseline} ({units.time(changed.baseline_step_ns)})"


def _metrics(result: Result, baseline: Sequence[Result]) -> dict[str, float]:
    """Median over the baseline's runs of each metric that the result has in the same unit."""
    found: dict[str, list[float]] = {}
    for run in baseline:
        for name, old in run.metrics.items():
            new = result.metrics.get(name)
            if new and new.value is not None and old.value is not None and new.unit == old.unit:
                found.setdefault(name, []).append(old.value)
    return {name: median(values) for name, values in found.items()}


def _busbw(result: Result, baseline: Sequence[Result]) -> dict[str, float]:
    """The same of the bus bandwidth of the classes with the most transfer."""
    rows = sorted(result.collective_rows, key=lambda r: -r.transfer_ns)
    classes = [class_name(r) for r in rows if r.busbw is not None][:SHOWN]
    found: dict[str, list[float]] = {}
    for row in (r for run in baseline for r in run.collective_rows):
        if row.busbw is not None:
            found.setdefault(class_name(row), []).append(row.busbw)
    return {name: median(found[name]) for name in classes if name in found}


def _percent(change: float) -> str:
    return f"{abs(change) * 100:.1f} % {'over' if change > 0 else 'under'}"


def _finding(changed: Comparison, decision: Decision) -> Finding:
    grown = [g for g in changed.groups if g.delta_ns > 0]
    first = grown[0]
    kernels = [k for k in changed.kernels if k.delta_ns > 0][:3]
    evidence = [decision.reason, *(f"{g.name} {units.change(g.delta_ns)} a step" for g in grown[:3])]
    evidence += [
        f"{k.name}: {units.change(k.longer_ns)} by taking longer, {units.change(k.more_ns)} by running more often"
        for k in kernels
    ]
    longer = sum(k.longer_ns for k in kernels) > sum(k.more_ns for k in kernels)
    advice = (
        "All ranks alike take longer for the same kernels: compare clocks, power cap, temperature, driver and "
        "library versions with the baseline."
        if first.name == "compute" and longer
        else "Look for what changed since the baseline: code, configuration, libraries, machines."
    )
    return Finding(
        id="baseline",
        title=f"{first.name} takes {units.time(first.delta_ns)} a step more than in {changed.baseline}",
        saving_ns_per_step=changed.candidate_mean_ns - changed.baseline_mean_ns,
        basis="mean step minus that of the baseline",
        confidence="likely",
        evidence=evidence,
        advice=advice,
        owner="hardware" if first.name == "compute" and longer else "model code",
        section="kernels",
    )
