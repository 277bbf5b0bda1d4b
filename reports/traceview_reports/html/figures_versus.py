"""Baseline against candidate as figures: every step of both sides, and the way from one mean step to the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from markupsafe import Markup

from traceview import units
from traceview.result.versus import Change, Comparison, Decision, Side
from traceview_reports.html.figures import Lane, Lanes, Scale, beyond_note, dots, path, rect, scale_of, upright
from traceview_reports.names import clean
from traceview_reports.tables import GROUP_KEYS
from traceview_reports.verdict import TONES

_RUNS = 12  # rows of a side; further runs share one
_HIGH = 26  # pixels of a row
_BAR = (6, 14)  # y and height of a bar in it


def waterfall(c: Comparison) -> Lanes:
    """Baseline, the change of each group, candidate: each bar begins where the one above ends."""
    changed = [g for g in c.groups if g.delta_ns]
    at = [c.baseline_mean_ns]
    for group in changed:
        at.append(at[-1] + group.delta_ns)
    scale = _cut_scale(at)
    lanes = [_end("baseline", c.baseline_mean_ns, scale, below=True)]
    lanes += [_step(g, begin, scale) for g, begin in zip(changed, at, strict=False)]
    lanes.append(_end("candidate", c.candidate_mean_ns, scale, below=False))
    cut = f"the axis begins at {units.time(scale.low)}" if scale.low else ""
    told = [f"{g.name} {units.change(g.delta_ns)}" for g in changed]
    ends = (units.time(c.baseline_mean_ns), units.time(c.candidate_mean_ns))
    return Lanes(
        "waterfall",
        "From the baseline's mean step to the candidate's",
        f"Waterfall from {ends[0]} to {ends[1]}: {', '.join(told) or 'no group changed'}.",
        lanes,
        _ticks(scale),
        cut,
    )


def _cut_scale(at: Sequence[int]) -> Scale:
    """From 0 where the changes show so; else from below the lowest."""
    low, high = min(at), max(at)
    span = high - low
    return Scale(0.0 if span >= high / 4 or not span else max(low - span, 0), high or 1)


def _step(group: Change, begin: int, scale: Scale) -> Lane:
    """A change, with hairs to the rows above and below."""
    key = GROUP_KEYS[group.name][0]
    x0, x1 = scale.at(begin), scale.at(begin + group.delta_ns)
    y, high = _BAR
    hairs = path((upright(x0, 0, y), upright(x1, y + high, _HIGH)), "hair")
    tone = "bad" if group.delta_ns > 0 else "good"
    return Lane(group.name, rect(x0, x1, y, high, f"g-{key}") + hairs, units.change(group.delta_ns), key, tone)


def _end(label: str, ns: int, scale: Scale, *, below: bool) -> Lane:
    """A whole mean step."""
    x, (y, high) = scale.at(ns), _BAR
    hair = path([upright(x, y + high, _HIGH) if below else upright(x, 0, y)], "hair")
    cut = path((f"M{k * 14 + 6} {y}l-6 {high}" for k in range(3)), "tear") if scale.low else Markup()
    return Lane(label, rect(0, x, y, high, "whole") + cut + hair, units.time(ns))


def strip(c: Comparison, d: Decision) -> Lanes:
    """A row of dots a run: step times, their median, what passes, what is judged."""
    rows = [*_runs("baseline", d.baseline), *_runs("candidate", d.candidate)]
    base = c.baseline_step_ns
    limits = [base * (1 + x) for x in (0, d.minimum, d.threshold)]
    seen = [float(ns) for _, times in rows for ns in times]
    medians = [float(median(times)) for _, times in rows]
    scale, beyond = scale_of(seen or limits, must=[*limits, *medians, base * (1 + d.change)])
    zones = _zones(limits, scale)
    lanes = [_dots(label, times, scale, zones) for label, times in rows]
    lanes.append(_judged(base, d, scale, zones))
    unsure = f", then to {d.threshold * 100:.1f} % chance may explain it" if d.threshold > d.minimum else ""
    note = f"band: up to {d.minimum * 100:.1f} % over the baseline's median passes{unsure}"
    return Lanes(
        "strip",
        "Every used step",
        f"Step times: {len(rows)} rows of dots, one a run; baseline median {units.time(base)}, candidate median "
        f"{units.time(c.candidate_step_ns)}; judged change {units.change_share(d.change)}.",
        lanes,
        _ticks(scale),
        "; ".join(
            filter(
                None,
                (
                    note,
                    "dots of a row: its steps from the top down; line: their median",
                    beyond_note(beyond, "step", scale),
                ),
            )
        ),
    )


def _runs(word: str, side: Side) -> Iterator[tuple[str, list[int]]]:
    """(label, step times) of the first runs and of all further ones together; nothing of a document without times."""
    many = len(side.names) > 1
    shown = _RUNS if len(side.step_ns) > _RUNS + 1 else len(side.step_ns)
    for n, times in enumerate(side.step_ns[:shown], 1):
        yield f"{word} {n}" if many else word, times
    rest = [ns for times in side.step_ns[shown:] for ns in times]
    if rest:
        yield f"{word}, {len(side.step_ns) - shown} more", rest


def _zones(limits: Sequence[float], scale: Scale) -> Markup:
    base, least, threshold = (scale.at(x) for x in limits)
    unsure = rect(least, threshold, 0, _HIGH, "unsure") if threshold > least else Markup()
    return rect(base, least, 0, _HIGH, "allowed") + unsure + path([upright(base, 0, _HIGH)], "hair")


def _dots(label: str, times: Sequence[int], scale: Scale, zones: Markup) -> Lane:
    gap = (_HIGH - 10) / max(len(times) - 1, 1)
    places = ((scale.at(ns), 5 + round(i * gap) if len(times) > 1 else _HIGH / 2) for i, ns in enumerate(times))
    middle = median(times)
    side = label.partition(" ")[0].rstrip(",")
    shapes = zones + dots(places, f"dots {side}") + path([upright(scale.at(middle), 2, _HIGH - 2)], "median")
    return Lane(clean(label, 40), shapes, units.time(middle))


def _judged(base: int, d: Decision, scale: Scale, zones: Markup) -> Lane:
    """The change that is held against the limits, with its lower bound where the rule has one."""
    y, high = _BAR
    x0, x1 = scale.at(base), scale.at(base * (1 + d.change))
    bar = rect(x0, x1, y + 4, high - 8, TONES[d.outcome])
    low = Markup() if d.low is None else path([upright(scale.at(base * (1 + d.low)), y, y + high)], "bound")
    return Lane("change, as judged", zones + bar + low, units.change_share(d.change), tone=TONES[d.outcome])


def _ticks(scale: Scale) -> list[tuple[float, str]]:
    return [(scale.at(ns) / 10, text) for ns, text in scale.ticks()]
