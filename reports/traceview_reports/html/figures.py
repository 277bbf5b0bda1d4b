"""Figures as inline SVG: small, static, coloured by the variables of the page, readable without script and on paper.

Shapes live on an axis of 1,000 units that is stretched to the width of the page; words stand beside them as text, so
that they keep their size. A figure is never the only place of a number: a table below holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from markupsafe import Markup

from traceview import units

WIDTH = 1000
FAR = 1.25  # times the 95th percentile, or over the 5th: what lies beyond stands at the edge


@dataclass(frozen=True)
class Lane:
    """A row of a figure: what it is, its shapes, its value. ``key``: the colour of its group."""

    label: str
    shapes: Markup
    value: str
    key: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Lanes:
    """A figure of rows over one axis. ``ticks``: (percent of the width, words)."""

    id: str
    caption: str
    label: str
    """the figure in words"""
    lanes: Sequence[Lane]
    ticks: Sequence[tuple[float, str]]
    note: str = ""


@dataclass(frozen=True)
class Words:
    """Text in a plot: x in percent, y in pixels."""

    x: float
    y: float
    text: str
    anchor: str = "start"


@dataclass(frozen=True)
class Plot:
    """A figure with two axes; ``values`` stand left of it."""

    id: str
    caption: str
    label: str
    height: int
    shapes: Markup
    words: Sequence[Words]
    values: Sequence[Words]
    legend: Sequence[tuple[str, str]] = ()
    """(word, colour key)"""
    note: str = ""


@dataclass(frozen=True)
class Scale:
    """Values in ns to units of the axis; ``size`` units from ``low`` to ``high``."""

    low: float
    high: float
    size: float = WIDTH

    def at(self, ns: float) -> float:
        """Place of a value, at the edge if it lies beyond."""
        share = (ns - self.low) / (self.high - self.low or 1)
        return round(self.size * min(max(share, 0.0), 1.0), 2)

    def holds(self, ns: float) -> bool:
        """Whether a value lies on it, not beyond."""
        return self.low <= ns <= self.high

    def ticks(self, most: int = 5) -> list[tuple[float, str]]:
        """(value in ns, words) of round values, all in one unit."""
        step = _round_up((self.high - self.low) / most)
        scale, unit = next(((s, u) for s, u in units.TIME if self.high >= s), units.TIME[-1])
        first, last = ceil(self.low / step), floor(self.high / step)
        return [(i * step, f"{i * step / scale:.6g} {unit}") for i in range(first, last + 1)]


def scale_of(
    values: Sequence[float], *, must: Sequence[float] = (), zero: bool = False, size: float = WIDTH
) -> tuple[Scale, int]:
    """A scale for these values, and how many lie beyond it: single ones far off do not flatten the rest.

    What ``must`` be seen never lies beyond; ``zero``: the scale begins there.
    """
    ordered = sorted(values)
    n = len(ordered)
    usual = [ordered[n // 20], ordered[n - 1 - n // 20]]
    high = min(max([ordered[-1], *must]), max([usual[1] * FAR, *must]))
    low = 0.0 if zero else max(min([ordered[0], *must]), min([usual[0] / FAR, *must]))
    pad = 0.04 * (high - low) or 0.02 * abs(high) or 1.0
    scale = Scale(low if zero else max(low - pad, 0.0), high + pad, size)
    return scale, sum(not scale.holds(v) for v in ordered)


def _round_up(step: float) -> float:
    """The next of 1, 2, 5, 10, 20, ..."""
    power = 10.0 ** floor(log10(step)) if step > 0 else 1.0
    return next(m * power for m in (1, 2, 5, 10) if m * power >= step * (1 - 1e-9))


def rect(x0: float, x1: float, y: float, height: float, css: str) -> Markup:
    """A bar between two places; at least a hair wide."""
    left, wide = min(x0, x1), max(abs(x1 - x0), 1.0)
    return Markup('<rect x="{}" y="{}" width="{}" height="{}" class="{}"/>').format(
        number(left), number(y), number(wide), number(height), css
    )


def path(commands: Iterable[str], css: str) -> Markup:
    """A path of these commands; none without any."""
    text = "".join(commands)
    return Markup('<path d="{}" class="{}"/>').format(text, css) if text else Markup()


def dots(places: Iterable[tuple[float, float]], css: str = "dots") -> Markup:
    """A dot at each place, equal ones once."""
    return path((f"M{number(x, 1)} {number(y, 1)}h0" for x, y in dict.fromkeys(places)), css)


def upright(x: float, y0: float, y1: float) -> str:
    """Command of a vertical line."""
    return f"M{number(x)} {number(y0)}V{number(y1)}"


def number(value: float, digits: int = 2) -> str:
    """A number without needless digits."""
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


def beyond_note(count: int, what: str, scale: Scale) -> str:
    """What stands at the edge because it lies beyond it."""
    span = f"{units.time(scale.low)} to {units.time(scale.high)}"
    return f"{units.count(count, what)} outside {span}, drawn at the edge" if count else ""
