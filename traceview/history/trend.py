"""When the step time of a job changed: change points in the medians of its runs (METHODS i.4)."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from typing import Annotated, Any

import msgspec
import numpy as np

from traceview import units
from traceview.analysis.statistics import t_tail
from traceview.config import DEFAULT, Config

Floats = np.ndarray[Any, np.dtype[np.float64]]
LEAST = 3  # runs on each side of a change
MOST = 500  # runs looked at, the latest
ROUNDS = 5  # of moving changes to their best places


class Entry(msgspec.Struct):
    """What is kept of a run. ``parts_ns``: mean per rank and step by group; they sum to ``mean_ns``."""

    digest: str
    job: str
    name: str
    label: str
    started_ns: int | None
    world_size: int | None
    gpu: str
    steps: int
    step_ns: Annotated[int, msgspec.Meta(gt=0)]
    mean_ns: int
    status: str
    headline: str
    tool_version: str
    parts_ns: dict[str, int] = {}
    culprits: list[str] = []
    """hosts, or ranks where no host is told, that made the others wait"""
    redacted: str = ""
    """as in the result: its names are pseudonyms"""


class Changed(msgspec.Struct):
    """A change point: from this run on the step time is another one."""

    run: str
    label: str
    index: int
    """of the first run after it"""
    before_ns: int
    after_ns: int
    change: float
    p_value: float
    parts_ns: dict[str, int]
    """what changed of the mean step, by group, the largest first"""


class Trend(msgspec.Struct):
    """The runs of one job on one kind of machine, in order of time."""

    job: str
    world_size: int | None
    gpu: str
    runs: list[Entry]
    changes: list[Changed]
    culprits: dict[str, int]
    """culprit -> in how many runs; only those of several runs"""
    notes: list[str]


def trends(entries: Sequence[Entry], config: Config = DEFAULT) -> list[Trend]:
    """One trend per (job, world size, GPU): runs that differ in these are never compared."""
    series: dict[tuple[str, int | None, str], list[Entry]] = {}
    for e in sorted(entries, key=lambda e: (e.started_ns or 0, e.name)):
        series.setdefault((e.job, e.world_size, e.gpu), []).append(e)
    return [_trend(*key, runs, config) for key, runs in series.items()]


def _trend(job: str, world: int | None, gpu: str, runs: list[Entry], config: Config) -> Trend:
    notes = []
    if len(runs) > MOST:
        notes.append(f"changes are looked for in the last {MOST} of {len(runs)} runs")
    if len(runs) < config.history_min_runs:
        notes.append(f"{units.count(len(runs), 'run')}: changes are looked for from {config.history_min_runs} on")
    seen: dict[str, int] = {}
    for run in runs:
        for who in run.culprits:
            seen[who] = seen.get(who, 0) + 1
    often = {who: n for who, n in sorted(seen.items(), key=lambda x: (-x[1], x[0])) if n > 1}
    return Trend(job, world, gpu, runs, changes(runs, config), often, notes)


def changes(runs: Sequence[Entry], config: Config = DEFAULT) -> list[Changed]:
    """Change points of the log median step time, in order of time; none with too few runs."""
    if len(runs) < config.history_min_runs:
        return []
    skip = max(len(runs) - MOST, 0)
    values = np.log([max(r.step_ns, 1) for r in runs[skip:]])
    cuts = _cuts(values, config)
    edges = [0, *(at for at, _ in cuts), len(values)]
    return [
        _changed(runs, skip + a, skip + at, skip + b, p)
        for (at, p), a, b in zip(cuts, edges[:-2], edges[2:], strict=True)
    ]


def _cuts(values: Floats, config: Config) -> list[tuple[int, float]]:
    """(first index after it, p) of each change point, in order.

    All splits that lead anywhere are made first, then the least certain is taken back until all that are left are
    certain: cutting in two again and again would miss a change that was undone later.
    """
    cuts = [0, *sorted(_splits(values, 0, len(values))), len(values)]
    for _ in range(ROUNDS):
        chances = _take_back(values, cuts, config)
        before = cuts.copy()
        for i in range(1, len(cuts) - 1):  # between fewer neighbours the best place may be another
            low, high = cuts[i - 1], cuts[i + 1]
            cuts[i] = low + LEAST + int(np.argmax(_energy(values[low:high])))
        if cuts == before:
            break
    chances = _take_back(values, cuts, config)
    return list(zip(cuts[1:-1], chances, strict=True))


def _take_back(values: Floats, cuts: list[int], config: Config) -> list[float]:
    """Remove the least certain of the inner ``cuts`` until all are certain; the chance of each that is left."""
    chances = [_chance(values, cuts[i - 1 : i + 2], config) for i in range(1, len(cuts) - 1)]
    while chances and max(chances) >= config.history_p:
        worst = int(np.argmax(chances))
        del cuts[worst + 1], chances[worst]
        for i in (worst - 1, worst):
            if 0 <= i < len(chances):
                chances[i] = _chance(values, cuts[i : i + 3], config)
    return chances


def _splits(values: Floats, low: int, high: int) -> list[int]:
    """The best split of a stretch, and those of its sides."""
    if high - low < 2 * LEAST:
        return []
    at = low + LEAST + int(np.argmax(_energy(values[low:high])))
    return [at, *_splits(values, low, at), *_splits(values, at, high)]


def _chance(values: Floats, edges: list[int], config: Config) -> float:
    """Chance that the middle one of three cuts is none; 1 if the change is too small to matter."""
    low, at, high = edges
    before, after = values[low:at], values[at:high]
    if abs(float(np.median(after) - np.median(before))) < log(1 + config.history_min_change):
        return 1.0
    return min(_welch(before, after) * len(values), 1.0)  # it is the best of so many


def _energy(x: Floats) -> Floats:
    """E-divisive statistic of each split: how far apart the two sides are, beyond how far each is spread."""
    n = len(x)
    apart = np.abs(x[:, None] - x[None, :])
    upto = np.zeros((n + 1, n + 1))
    upto[1:, 1:] = apart.cumsum(axis=0).cumsum(axis=1)
    at = np.arange(LEAST, n - LEAST + 1)
    left, right = upto[at, at], upto[n, n] - 2 * upto[at, n] + upto[at, at]
    across = upto[at, n] - upto[at, at]
    m, k = at, n - at
    out: Floats = m * k / n * (2 * across / (m * k) - left / (m * m) - right / (k * k))
    return out


def _welch(a: Floats, b: Floats) -> float:
    """Two-sided p of Welch's test on sides whose outliers are drawn in; 0 where neither is spread and they differ."""
    a, b = _drawn_in(a, b)
    parts = [float(x.var(ddof=1)) / len(x) for x in (a, b)]
    error = sqrt(sum(parts))
    gap = abs(float(b.mean() - a.mean()))
    if not error:
        return float(gap == 0)
    df = sum(parts) ** 2 / sum(p**2 / (len(x) - 1) for p, x in zip(parts, (a, b), strict=True))
    return 2 * t_tail(gap / error, df)


def _drawn_in(*sides: Floats) -> list[Floats]:
    """Values no further from the median of their side than three times the usual distance over all sides."""
    far = [np.abs(x - np.median(x)) for x in sides]
    limit = 3 * 1.4826 * float(np.median(np.concatenate(far)))
    return [np.clip(x, np.median(x) - limit, np.median(x) + limit) for x in sides]


def _changed(runs: Sequence[Entry], low: int, at: int, high: int, p: float) -> Changed:
    """The change at run ``at`` between the stretches [low, at) and [at, high)."""
    before, after = (round(float(np.median([r.step_ns for r in runs[a:b]]))) for a, b in ((low, at), (at, high)))
    groups = dict.fromkeys(g for r in runs[low:high] for g in r.parts_ns)
    delta = {
        g: round(float(np.mean([r.parts_ns.get(g, 0) for r in runs[at:high]])
                       - np.mean([r.parts_ns.get(g, 0) for r in runs[low:at]])))
        for g in groups
    }  # fmt: skip
    parts = dict(sorted(((g, ns) for g, ns in delta.items() if ns), key=lambda x: -abs(x[1])))
    return Changed(runs[at].name, runs[at].label, at, before, after, after / before - 1, p, parts)
