"""Two sides of runs side by side: what changed of a step, exact to the nanosecond (METHODS i.4).

Times are per rank and step: means over the used windows. The leaves of a side sum to its mean step, so their changes
sum to the change of the mean step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from traceview import units
from traceview.analysis.rollup import means
from traceview.errors import NotComparableError, TraceviewError
from traceview.result import Result, group_ns
from traceview.result.check import run_facts
from traceview.result.versus import Change, Comparison, WorkChange, class_name
from traceview.schema import LEAVES

SHOWN = 20  # kernels and collectives, the largest changes first
OPTIONS = ("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules", "graph_mode")


def compare(baseline: Sequence[Result], candidate: Sequence[Result], *, allow_different: bool = False) -> Comparison:
    """Compare the runs of two sides. NotComparableError if they differ in kind, unless ``allow_different``."""
    different = differences([*baseline, *candidate])
    if different and not allow_different:
        raise NotComparableError(f"not comparable: {'; '.join(different)} (--allow-different compares them anyway)")
    base, other = _Mean(baseline), _Mean(candidate)
    titles = [{f.id: f.title for r in side for f in r.findings} for side in (baseline, candidate)]
    return Comparison(
        baseline=_name(baseline),
        candidate=_name(candidate),
        baseline_step_ns=_median(baseline),
        candidate_step_ns=_median(candidate),
        baseline_mean_ns=sum(base.leaves.values()),
        candidate_mean_ns=sum(other.leaves.values()),
        leaves=_changes(base.leaves, other.leaves),
        groups=_changes(base.groups, other.groups),
        kernels=_work(base.kernels, other.kernels),
        collectives=_work(base.collectives, other.collectives),
        found=[title for key, title in titles[1].items() if key not in titles[0]],
        gone=[title for key, title in titles[0].items() if key not in titles[1]],
        different=different,
        notes=_same(baseline, candidate) + _notes([*baseline, *candidate]),
    )


def differences(results: Sequence[Result]) -> list[str]:
    """What the runs differ in that changes a step by itself: world, GPUs, and how they were recorded."""
    facts: tuple[tuple[str, Callable[[Result], Any]], ...] = (
        ("world size", lambda r: r.run.world_size),
        ("ranks read", lambda r: len(r.run.ranks)),
        ("GPU", lambda r: ", ".join(r.run.device_names)),
        ("trace format", lambda r: ", ".join(sorted({s.format for s in r.run.sources if s.rank is not None}))),
        ("steps found by", lambda r: r.run.steps.source),
        *((option, lambda r, o=option: _option(r, o)) for option in OPTIONS),
    )
    out = []
    for name, of in facts:
        values = list(dict.fromkeys(of(r) for r in results))
        if len(values) > 1:
            out.append(f"{name}: {' and '.join(units.one_line(v or 'not told')[:100] for v in values)}")
    return out


def _option(result: Result, name: str) -> str:
    return ", ".join(sorted({s.facts.get(name, "") for s in result.run.sources if s.rank is not None}))


class _Mean:
    """Means of one side per rank and step: integers that add up."""

    def __init__(self, results: Sequence[Result]) -> None:
        windows = sum(len(r.window_rows) for r in results)
        if not windows:
            raise TraceviewError(f"{_name(results)}: no step could be measured, so there is nothing to compare")
        both: dict[str, int] = {}
        for r in results:
            for leaf, ns in (r.budget.leaves_ns | {f"/{k}": v for k, v in r.budget.sub_ns.items()}).items():
                both[leaf] = both.get(leaf, 0) + ns
        self.leaves = means({k: both.get(k, 0) for k in LEAVES}, windows)
        self.groups = means(
            group_ns({k: both.get(k, 0) for k in LEAVES}, {k[1:]: v for k, v in both.items() if k[0] == "/"}), windows
        )
        self.kernels = _per_window(
            ((k.name, k.count, k.total_ns) for r in results for k in r.kernels if k.cls != "comm"), windows
        )
        self.collectives = _per_window(
            ((class_name(c), c.n * (c.group_size or 1), c.transfer_ns) for r in results for c in r.collective_rows),
            windows,
        )


def _per_window(rows: Iterable[tuple[str, int, int]], windows: int) -> dict[str, tuple[float, float]]:
    """name -> (count, ns) per window."""
    out: dict[str, tuple[float, float]] = {}
    for name, count, ns in rows:
        before = out.get(name, (0.0, 0.0))
        out[name] = (before[0] + count / windows, before[1] + ns / windows)
    return out


def _changes(base: dict[str, int], other: dict[str, int]) -> list[Change]:
    changes = [Change(name, base[name], other[name], other[name] - base[name]) for name in base]
    return sorted(changes, key=lambda c: -abs(c.delta_ns))


def _work(base: dict[str, tuple[float, float]], other: dict[str, tuple[float, float]]) -> list[WorkChange]:
    """The largest changes: count x old time each is more work, new count x change of time each is longer work."""
    out = []
    for name in dict.fromkeys([*base, *other]):
        (n0, ns0), (n1, ns1) = base.get(name, (0.0, 0.0)), other.get(name, (0.0, 0.0))
        delta = round(ns1 - ns0)
        more = round((n1 - n0) * ns0 / n0) if n0 and n1 else delta
        each = tuple(round(ns / n) if n else None for n, ns in ((n0, ns0), (n1, ns1)))
        out.append(WorkChange(name, delta, more, delta - more, n0, n1, *each))
    return sorted((w for w in out if w.delta_ns), key=lambda w: -abs(w.delta_ns))[:SHOWN]


def _median(results: Sequence[Result]) -> int:
    return round(float(np.median([s.wall_ns for r in results for s in r.step_rows])))


def _name(results: Sequence[Result]) -> str:
    first = results[0].run.name
    return first if len(results) == 1 else f"{first} and {len(results) - 1} more"


def _same(baseline: Sequence[Result], candidate: Sequence[Result]) -> list[str]:
    known = [run_facts(r) for r in baseline]
    same = [r.run.name for r in candidate if run_facts(r) in known]
    return [f"both sides hold the same run, {same[0]}"] if same else []


def _notes(results: Sequence[Result]) -> list[str]:
    out = []
    for r in results:
        cut = sorted({s.rank for s in r.run.sources if s.truncated and s.rank is not None})
        if cut:
            out.append(f"{r.run.name}: cut short: {units.named_ranks(cut)}")
        if r.run.missing_ranks:
            out.append(f"{r.run.name}: {units.ranks_are(r.run.missing_ranks)} missing")
    return out
