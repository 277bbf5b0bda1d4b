"""Sets of hosts that share only sends and receives: where each stands, by proof (METHODS d.2 and d.3).

A set is what common collectives tie together. Messages bound the clock of one set against that of another: those
that go there from one side, those that come back from the other. No estimate is made: both sides are constraints on
a straight line (offset and drift), and only what they leave open counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from traceview.analysis.causal import FAR, Bounds, bounds
from traceview.analysis.instances import by_value
from traceview.analysis.onesided import Pairs
from traceview.analysis.p2p import components
from traceview.analysis.timebase import TimeBase
from traceview.analysis.types import Bools, Floats, Ints
from traceview.config import Config


@dataclass(frozen=True)
class Track:
    """What the messages between sets ``first`` and ``second`` leave of ``offset(t) = middle + line(t)``.

    ``offset`` is what to add to the clock of ``second`` to read that of ``first``; t is a time of ``first``. Lines
    run above the points ``low`` and below the points ``high`` (t, ns) with a slope in ``slope``; none if ``empty``.
    """

    first: int
    second: int
    middle: int
    low: tuple[Floats, Floats]
    high: tuple[Floats, Floats]
    slope: tuple[float, float]
    origin: int
    """where the times of the points count from"""

    @property
    def empty(self) -> bool:
        """No clock of constant drift within the limit fits: a wrong match, or a clock that was stepped."""
        return self.slope[0] > self.slope[1]

    def loose(self, ns: int, limit: float) -> Track:
        """The same with every bound ``ns`` wider."""
        low, high = (self.low[0], self.low[1] - ns), (self.high[0], self.high[1] + ns)
        return replace(self, low=low, high=high, slope=_slopes(low, high, limit))

    def at(self, t: int) -> tuple[int, int]:
        """Lowest and highest offset at a time before or after all points; ``FAR`` = not bounded."""
        when = float(t - self.origin)
        gentle, steep = self.slope
        (t_low, low), (t_high, high) = self.low, self.high
        least = np.max(low - np.maximum(gentle * (t_low - when), steep * (t_low - when)), initial=-np.inf)
        most = np.min(high - np.minimum(gentle * (t_high - when), steep * (t_high - when)), initial=np.inf)
        return (
            -int(FAR) if least == -np.inf else self.middle + int(np.floor(least)),
            int(FAR) if most == np.inf else self.middle + int(np.ceil(most)),
        )


def track(pair: tuple[int, int], lower: tuple[Ints, Ints], upper: tuple[Ints, Ints], limit: float) -> Track:
    """The track of the bounds (time, offset at least) and (time, offset at most); ``limit``: largest |drift|."""
    inner = [int(tightest(v)) for (_, v), tightest in ((lower, np.max), (upper, np.min)) if len(v)]
    middle = inner[0] + (inner[-1] - inner[0]) // 2
    origin = int(min(side[0].min() for side in (lower, upper) if len(side[0])))
    # a clock may drift while a message is under way; for the tight ones that is below a nanosecond
    low, high = (
        ((t - origin).astype(np.float64), (v - middle) + sign * np.ceil(limit * np.abs(v - middle)))
        for (t, v), sign in ((lower, -1.0), (upper, 1.0))
    )
    return Track(*pair, middle, low, high, _slopes(low, high, limit), origin)


def _slopes(low: tuple[Floats, Floats], high: tuple[Floats, Floats], limit: float) -> tuple[float, float]:
    """Slopes of the lines above all ``low`` and below all ``high``: every pair of points bounds them."""
    run = high[0][None, :] - low[0][:, None]
    rise = high[1][None, :] - low[1][:, None]
    if ((run == 0) & (rise < 0)).any():
        return 1.0, -1.0
    slope = np.divide(rise, run, out=np.zeros_like(rise), where=run != 0)
    return (
        float(np.max(slope, where=run < 0, initial=-limit)),
        float(np.min(slope, where=run > 0, initial=limit)),
    )


@dataclass(frozen=True)
class Records:
    """Sets, numbered by their lowest rank: the unit that names each, and its record on its own axis, ns."""

    unit: Ints
    first: Ints
    last: Ints


@dataclass(frozen=True)
class Joined:
    """Where the sets stand. Arrays over sets unless said; a set that is not placed is alone in its ``label``."""

    label: Ints
    shift: Ints
    """to add to the axis of the set, at ``pivot`` (a time on that axis)"""
    drift: Floats
    pivot: Ints
    bound: Ints
    """proved error of the place against the lowest set of the label; 0 for that set itself"""
    links: list[tuple[int, int, int]] = field(default_factory=list)
    """(set, set, proved error of their difference, ns) of sets that exchange messages and may be compared"""
    wide: list[tuple[int, int, int]] = field(default_factory=list)
    """the same of sets that may not: the error is too large, ``FAR`` = not bounded"""
    empty: list[tuple[int, int]] = field(default_factory=list)
    """sets whose messages contradict each other"""

    @property
    def placed(self) -> Bools:
        """Sets that can be compared with another."""
        out: Bools = np.bincount(self.label, minlength=len(self.label))[self.label] > 1
        return out


def tracks(base: TimeBase, part: Ints, pairs: Pairs, limit: float) -> list[Track]:
    """A track per two sets that exchange messages. ``part``: set by rank, -1 = its clock is not known."""
    source, sink = part[pairs.sender], part[pairs.receiver]
    take = (source >= 0) & (sink >= 0) & (source != sink)
    source, sink = source[take], sink[take]
    sender, receiver = pairs.sender[take], pairs.receiver[take]
    sent, got = base.to_true(sender, pairs.begin[take]), base.to_true(receiver, pairs.end[take])
    got = got + np.ceil(2 * (base.sigma[sender] + base.sigma[receiver])).astype(np.int64)  # error inside the sets
    first, second = np.minimum(source, sink), np.maximum(source, sink)
    out = []
    for _, rows in by_value(first * (len(part) + 1) + second):
        back = source[rows] != first[rows]
        there, home = rows[~back], rows[back]
        # first -> second: sent <= got + offset; second -> first: sent + offset <= got
        lower, upper = (sent[there], sent[there] - got[there]), (got[home], got[home] - sent[home])
        out.append(track((int(first[rows[0]]), int(second[rows[0]])), lower, upper, limit))
    return out


def join(found: list[Track], records: Records, config: Config) -> Joined:
    """Place every set that messages bound from both sides closely enough; leave the others where they are.

    A contradiction counts beyond the error of the stamps themselves: bounds that exclude each other by less than
    ``eps_min_ns`` on either side are widened by it.
    """
    count, limit = len(records.unit), config.drift_assumed_ppm * 1e-6
    whole, still = np.zeros(count, np.int64), np.arange(count)
    found = [t.loose(config.eps_min_ns, limit) if t.empty else t for t in found]
    sound = [t for t in found if not t.empty]
    broken = [(t.first, t.second) for t in found if t.empty]
    family = cycles(count, _arrows(sound))
    inner = [t for t in sound if family[t.first] == family[t.second]]
    outer = [(t.first, t.second, int(FAR)) for t in sound if family[t.first] != family[t.second]]
    out = Joined(still, whole, np.zeros(count), records.first, whole.copy(), [], outer, broken)
    if not inner:
        return out
    ends = _ends(inner, records, family)
    if ends.bad.any():
        inner = [t.loose(config.eps_min_ns, limit) if ends.bad[t.first] else t for t in inner]
        ends = _ends(inner, records, family)
    out.empty.extend((int(family[s]), int(s)) for s in np.flatnonzero(ends.bad & (family != still)).tolist())
    inner = [t for t in inner if not ends.bad[t.first]]
    return _settle(out, inner, _lines(ends, config), config) if inner else out


@dataclass(frozen=True)
class _Ends:
    """What is proved of every set at the begin and at the end of the record of its family."""

    times: tuple[Ints, Ints]
    """on the set's own axis"""
    sides: tuple[Bounds, Bounds]
    bad: Bools
    """sets of families whose bounds contradict each other"""


def _ends(inner: list[Track], records: Records, family: Ints) -> _Ends:
    gauge = family == np.arange(len(family))
    rough = _solve(inner, gauge, [_hull(t, records) for t in inner])
    places = np.where(rough.empty, 0, rough.low + (rough.high - rough.low) // 2)
    begin, end = (x - places for x in _spans(records, places, family))
    first, last = (_solve(inner, gauge, [t.at(int(x[t.first])) for t in inner]) for x in (begin, end))
    return _Ends((begin, end), (first, last), np.isin(family, family[rough.empty | first.empty | last.empty]))


@dataclass(frozen=True)
class _Lines:
    """Offsets of all sets at the begin and at the end of the record, and what is proved of them; ns."""

    times: tuple[Ints, Ints]
    """on the set's own axis"""
    value: tuple[Ints, Ints]
    low: tuple[Ints, Ints]
    high: tuple[Ints, Ints]
    blur: int
    """second order: a drift while a clock that drifts itself reads the time"""

    def error(self, t: Track) -> int:
        """Proved error of the difference of two sets: the same line fits both ends, so the worse end counts."""
        worst = 0
        for times, value, low, high in zip(self.times, self.value, self.low, self.high, strict=True):
            least, most = t.at(int(times[t.first]))
            least = max(least, int(low[t.second] - high[t.first]))
            most = min(most, int(high[t.second] - low[t.first]))
            have = int(value[t.second] - value[t.first])
            worst = max(worst, most - have, have - least)
        return worst + self.blur

    def bound(self, lead: Ints) -> Ints:
        """Proved error of every set against the set ``lead`` of its own."""
        worst = np.zeros(len(lead), np.int64)
        for value, low, high in zip(self.value, self.low, self.high, strict=True):
            have = value - value[lead]
            worst = np.maximum(worst, np.maximum(high - low[lead] - have, have - (low - high[lead])))
        return np.where(lead == np.arange(len(lead)), 0, worst + self.blur)


def _lines(ends: _Ends, config: Config) -> _Lines:
    """The middle at both ends; one offset for all where no drift could matter (METHODS d.2)."""
    a, b = ends.sides
    value = (a.low + (a.high - a.low) // 2, b.low + (b.high - b.low) // 2)
    limit = config.drift_assumed_ppm * 1e-6
    span = ends.times[1] - ends.times[0]
    short = span * limit <= config.drift_min_effect_ns
    low, high = np.minimum(a.low, b.low), np.maximum(a.high, b.high)
    middle = low + (high - low) // 2
    return _Lines(
        ends.times,
        (np.where(short, middle, value[0]), np.where(short, middle, value[1])),
        (a.low, b.low),
        (a.high, b.high),
        1 + int(np.ceil(2 * limit * limit * float(span.max(initial=0)))),
    )


def _settle(out: Joined, inner: list[Track], lines: _Lines, config: Config) -> Joined:
    """Keep the differences that are proved well enough; sets that these connect share an axis."""
    errors = [(t.first, t.second, lines.error(t)) for t in inner]
    links = [x for x in errors if x[2] <= config.join_max_bound_ns]
    first, second = (np.array([x[i] for x in links], np.int64) for i in (0, 1))
    label = components(len(out.label), first, second)
    shift, other = (value - value[label] for value in lines.value)
    start, stop = lines.times
    return Joined(
        label=label,
        shift=shift,
        drift=(other - shift) / np.maximum(stop - start, 1),
        pivot=start,
        bound=lines.bound(label),
        links=links,
        wide=out.wide + [x for x in errors if x[2] > config.join_max_bound_ns],
        empty=out.empty,
    )


def _arrows(found: list[Track]) -> list[tuple[int, int]]:
    """(from, to) of the messages."""
    there = [(t.first, t.second) for t in found if len(t.low[0])]
    return there + [(t.second, t.first) for t in found if len(t.high[0])]


def _hull(t: Track, records: Records) -> tuple[int, int]:
    """What the offset can be at any time of the record."""
    ends = [t.at(int(x[t.first])) for x in (records.first, records.last)]
    return min(e[0] for e in ends), max(e[1] for e in ends)


def _solve(inner: list[Track], gauge: Bools, limits: list[tuple[int, int]]) -> Bounds:
    """Bounds of every set against its gauge from those of pairs (shortest paths)."""
    first, second = np.array([t.first for t in inner]), np.array([t.second for t in inner])
    low, high = np.array(limits, np.int64).T
    number, zero = np.arange(2 * len(inner)), np.zeros(len(inner), np.int64)
    far = np.full(len(inner), FAR)
    # offset(first) + low <= offset(second), and offset(second) - high <= offset(first)
    unit = np.concatenate((first, second, second, first))
    begin = np.concatenate((np.maximum(low, -far), -far, np.maximum(-high, -far), -far))
    end = np.concatenate((far, zero, far, zero))
    pair = np.concatenate((number[: len(inner)], number[: len(inner)], number[len(inner) :], number[len(inner) :]))
    return bounds(pair, unit, begin, end, gauge)


def _spans(records: Records, places: Ints, family: Ints) -> tuple[Ints, Ints]:
    """First and last record of the family of every set, on the common axis."""
    begin, end = np.full(len(family), FAR), np.full(len(family), -FAR)
    np.minimum.at(begin, family, records.first + places)
    np.maximum.at(end, family, records.last + places)
    return begin[family], end[family]


def cycles(count: int, arrows: list[tuple[int, int]]) -> Ints:
    """Strongly connected nodes: the least node of each, per node (messages there and, by whatever way, back)."""
    label = np.arange(count)
    ahead: list[list[int]] = [[] for _ in range(count)]
    behind: list[list[int]] = [[] for _ in range(count)]
    for a, b in arrows:
        ahead[a].append(b)
        behind[b].append(a)
    done: set[int] = set()
    for node in range(count):
        if node in done:
            continue
        both = _reach(node, ahead, done) & _reach(node, behind, done)
        label[sorted(both)] = node
        done |= both
    return label


def _reach(node: int, edges: list[list[int]], barred: set[int]) -> set[int]:
    seen, todo = {node}, [node]
    while todo:
        for other in edges[todo.pop()]:
            if other not in seen and other not in barred:
                seen.add(other)
                todo.append(other)
    return seen
