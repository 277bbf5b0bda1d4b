"""The course of a job as figures: the step time of every run, and what the step was made of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

from markupsafe import Markup

from traceview import units
from traceview.history import Changed, Entry, Trend
from traceview.history.trend import MOST
from traceview.schema import GROUPS
from traceview_reports.html.figures import (
    WIDTH,
    Plot,
    Scale,
    Words,
    beyond_note,
    dots,
    number,
    path,
    scale_of,
    upright,
)
from traceview_reports.names import clean
from traceview_reports.tables import GROUP_KEYS

_TOP, _HIGH, _LOW = 34, 200, 22  # pixels: labels of changes, the plot, numbers of runs
_BARS = 400  # most bars of the parts; more runs share a bar
_LABELS = 8  # more changes are told by number only


def step_times(trend: Trend, name: str) -> Plot:
    """A dot a run, the median of each stretch, a line where it changed."""
    times = [r.step_ns for r in trend.runs]
    levels = [ns for c in trend.changes for ns in (c.before_ns, c.after_ns)]
    scale, beyond = scale_of(times, must=[*levels, times[-1]], size=_HIGH)
    places = [(_x(i, len(times)), _y(ns, scale)) for i, ns in enumerate(times)]
    near, far = ([p for p, ns in zip(places, times, strict=True) if scale.holds(ns) is on] for on in (True, False))
    shapes = _grid(scale) + _changes(trend) + dots(near) + dots(far, "dots far") + _medians(trend, scale)
    told = [f"change {n} at run {c.index + 1}: {_change(c)}" for n, c in enumerate(trend.changes, 1)]
    return Plot(
        name,
        "Step time of each run",
        f"Step time of {len(times)} runs in order of time, the latest {units.time(times[-1])}; "
        f"{'; '.join(told) or 'no change found'}.",
        _TOP + _HIGH + _LOW,
        shapes,
        [*_labels(trend), *_numbers(len(times))],
        _values(scale),
        note="; ".join(filter(None, ("lines: medians between changes", beyond_note(beyond, "run", scale)))),
    )


def parts(trend: Trend, name: str) -> Plot:
    """What the mean step of each run was made of, from the ground up in the order of the groups."""
    bars = _bars(trend.runs)
    scale, beyond = scale_of([sum(b.values()) for b in bars], zero=True, size=_HIGH)
    gap = 1.0 if len(bars) < 60 else 0.0
    edges = [WIDTH * i / len(bars) for i in range(len(bars) + 1)]
    commands: dict[str, list[str]] = {g: [] for g in GROUPS}
    for bar, (x0, x1) in zip(bars, pairwise(edges), strict=True):
        ground = 0.0
        for group, ns in bar.items():
            low, top = _y(ground, scale), _y(ground + ns, scale)
            commands[group].append(
                f"M{number(x0 + gap, 1)} {number(low)}V{number(top)}H{number(x1 - gap, 1)}V{number(low)}z"
            )
            ground += ns
    shown = [g for g in GROUPS if commands[g]]
    stacks = (path(commands[g], f"g-{GROUP_KEYS[g][0]}") for g in shown)
    shared = f"a bar is the mean of {-(-len(trend.runs) // len(bars))} runs" if len(bars) < len(trend.runs) else ""
    return Plot(
        name,
        "What the mean step was made of",
        f"Stacked bars of the mean step of {len(trend.runs)} runs by group: {', '.join(shown)}.",
        _TOP + _HIGH + _LOW,
        _grid(scale) + Markup().join(stacks) + _changes(trend),
        [*_labels(trend), *_numbers(len(trend.runs))],
        _values(scale),
        [(g, GROUP_KEYS[g][0]) for g in shown],
        "; ".join(filter(None, (shared, beyond_note(beyond, "bar", scale)))),
    )


def _bars(runs: Sequence[Entry]) -> list[dict[str, float]]:
    """Mean parts of each run, or of as many neighbours as it takes for few enough bars; without empty groups."""
    share = -(-len(runs) // _BARS)
    out = []
    for i in range(0, len(runs), share):
        some = runs[i : i + share]
        means = {g: fmean(r.parts_ns.get(g, 0) for r in some) for g in GROUPS}
        out.append({g: ns for g, ns in means.items() if ns})
    return out


def _x(index: float, count: int) -> float:
    return WIDTH * (index + 0.5) / count


def _y(ns: float, scale: Scale) -> float:
    return _TOP + _HIGH - scale.at(ns)


def _grid(scale: Scale) -> Markup:
    return path((f"M0 {number(_y(ns, scale))}H{WIDTH}" for ns, _ in scale.ticks(4)), "grid")


def _values(scale: Scale) -> list[Words]:
    return [Words(100, _y(ns, scale) + 4, text, "end") for ns, text in scale.ticks(4)]


def _changes(trend: Trend) -> Markup:
    """A line before the first run of each stretch."""
    n = len(trend.runs)
    return path((upright(WIDTH * c.index / n, _TOP - 2, _TOP + _HIGH) for c in trend.changes), "change")


def _medians(trend: Trend, scale: Scale) -> Markup:
    """The median of each stretch that was looked at."""
    n = len(trend.runs)
    edges = [max(n - MOST, 0), *(c.index for c in trend.changes), n]
    levels = [float(c.before_ns) for c in trend.changes[:1]] + [float(c.after_ns) for c in trend.changes]
    levels = levels or [float(median(r.step_ns for r in trend.runs[edges[0] :]))]
    return path(
        (
            f"M{number(WIDTH * a / n)} {number(_y(level, scale))}H{number(WIDTH * b / n)}"
            for level, (a, b) in zip(levels, pairwise(edges), strict=True)
        ),
        "median",
    )


def _labels(trend: Trend) -> list[Words]:
    """The number of each change, with its label and size where there is room, in two rows."""
    out = []
    for n, c in enumerate(trend.changes, 1):
        x = 100 * c.index / len(trend.runs)
        text = f"{n} {_change(c)}" if len(trend.changes) <= _LABELS else str(n)
        out.append(Words(x, 11 + 14 * (n % 2 == 0), text, "start" if x < 60 else "end"))
    return out


def _change(c: Changed) -> str:
    return f"{clean(c.label or c.run, 16)} {units.change_share(c.change)}"


def _numbers(count: int) -> list[Words]:
    """Numbers of runs below their dots: the first, the last, some between; at the edges inside them."""
    most = min(count, 6)
    shown = sorted({round(i * (count - 1) / max(most - 1, 1)) for i in range(most)})
    out = []
    for i in shown:
        x = _x(i, count) / 10
        anchor = "start" if x < 2 else "end" if x > 98 else "middle"
        out.append(Words(x, _TOP + _HIGH + 15, str(i + 1) if i else "run 1", anchor))
    return out
