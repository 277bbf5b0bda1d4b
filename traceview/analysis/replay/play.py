"""A scenario of a replay, and the graph played under it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from traceview.analysis import maxplus
from traceview.analysis.replay.graph import Graph
from traceview.analysis.replay.ops import COPY, KERNEL
from traceview.analysis.types import Floats, Ints


@dataclass(frozen=True)
class Scenario:
    """What a replay changes; None = as recorded. Factors are per stretch of ``Graph.stretches``."""

    kernels: Floats | None = None
    copies: Floats | None = None
    host: Floats | None = None
    """host time between communication calls"""
    transfer: Floats | float = 1.0
    """communication is this many times as fast after the last arrival, per ``Graph.row``; infinite = free"""
    data: float = 1.0
    """factor of the host's time in which it waits for input"""
    busy: float = 1.0
    """factor of the host's time in operators and runtime calls that do not block"""
    gaps: float = 1.0
    """factor of launch latency"""

    def scaled(self, kernels: Floats, copies: Floats, host: Floats) -> Scenario:
        """The same, with these factors on top of its own."""
        return replace(
            self,
            kernels=kernels if self.kernels is None else self.kernels * kernels,
            copies=copies if self.copies is None else self.copies * copies,
            host=host if self.host is None else self.host * host,
        )


@dataclass(frozen=True)
class Played:
    """One scenario, played."""

    bounds: Floats
    """[ranks, steps + 1]"""
    begin: Floats
    """of every communication operation (``Graph.row``)"""
    waited: Floats
    """L of it"""
    end: Floats
    block_end: Floats
    busy: Floats
    """per block: how long it is busy at its end"""
    when: Floats
    """of every node"""
    lag: Floats
    """of every edge"""


def play(g: Graph, how: Scenario) -> Played:
    """Replay: when everything would happen. Near-linear in edges, one pass per level."""
    factor = np.ones(len(g.blocks.row))
    for kind, given in ((KERNEL, how.kernels), (COPY, how.copies)):
        if given is not None:
            factor = np.where(g.blocks.kind == kind, given[g.blocks.stretch], factor)
    own = g.blocks.fixed - (1 - how.gaps) * g.blocks.gaps + factor * g.blocks.work
    transfer = np.where(g.joint & (g.transfer > 0), g.transfer / how.transfer, g.transfer)
    lag = g.constant + _terms(g, how, factor, own, transfer)[g.term]
    when = maxplus.evaluate(g.plan, lag)
    blocks, ends = len(g.blocks.row), len(g.row)
    end = when[1 + blocks : 1 + blocks + ends]
    ranks, steps = g.bounds.shape[0], g.bounds.shape[1] - 1
    last = when[g.first_bound :].reshape(ranks, steps)
    return Played(
        bounds=np.column_stack((g.bounds[:, 0], last)),
        begin=when[1 : 1 + blocks][g.block_of_row],
        waited=end - transfer,
        end=end,
        block_end=when[1 : 1 + blocks],
        busy=factor * g.blocks.work,
        when=when,
        lag=lag,
    )


def _terms(g: Graph, how: Scenario, factor: Floats, own: Floats, transfer: Floats) -> Floats:
    b, warp = g.blocks, _Warp(g, how)
    called = np.append(g.calls.end, 0)
    lane = g.lane_of_stretch[b.stretch]
    back = np.where(b.host >= 0, warp(called[b.host], lane), 0.0)
    held = np.full(len(own), -np.inf)
    after = b.after - (1 - how.gaps) * b.gaps_after
    for k in range(b.launch.shape[1]):
        held = np.maximum(held, warp(b.launch[:, k], lane) + after[:, k] + factor * b.load[:, k])
    before = np.where(g.calls.before >= 0, warp(called[g.calls.before], g.calls.lane), 0.0)
    calls = warp(g.calls.start, g.calls.lane) - before + g.calls.rest
    return np.concatenate(([0.0], own, held - back, transfer, calls))


class _Warp:
    """Host time of a scenario: each stretch of a rank's host runs by its factor, its waits for input by theirs."""

    def __init__(self, g: Graph, how: Scenario) -> None:
        self._lanes: list[tuple[int, Ints, Floats, float]] = []
        alike = how.data == how.busy == 1.0
        if how.host is None and alike:
            return
        factor = np.ones(len(g.lane_of_stretch)) if how.host is None else how.host
        some = g.lane_of_stretch[factor != 1.0] if alike else g.lane_of_stretch
        for i in np.unique(some).tolist():
            a, b = np.searchsorted(g.lane_of_stretch, (i, i + 1))
            self._lanes.append((i, *_warped(g, how, slice(a, b), factor[a:b])))

    def __call__(self, time: Ints, lane: Ints) -> Floats:
        """Times of the host in the scenario; ``lane`` is ascending."""
        out = time.astype(np.float64)
        for i, knots, warped, last in self._lanes:
            low, high = np.searchsorted(lane, (i, i + 1))
            own = time[low:high]
            inside = np.interp(own, knots, warped)
            late = np.where(own > knots[-1], warped[-1] + last * (own - knots[-1]), inside)
            out[low:high] = np.where(own > knots[0], late, own)
        return out


def _warped(g: Graph, how: Scenario, own: slice, factor: Floats) -> tuple[Ints, Floats, float]:
    """(Times at which the pace of a host changes, those in the scenario, the pace after the last)."""
    begin, lane = g.stretches.begin[own], int(g.lane_of_stretch[own.start])
    changed = [(spans[lane], pace) for spans, pace in ((g.data, how.data), (g.work, how.busy)) if pace != 1.0]
    edges = [edge[edge > begin[0]] for spans, _ in changed for edge in (spans.start, spans.end)]
    knots = np.unique(np.concatenate((begin, *edges))) if edges else begin
    pace = factor[np.searchsorted(begin, knots, "right") - 1]
    for spans, times in changed:
        pace = np.where(spans.covers(knots), times * pace, pace)
    warped = knots[0] + np.append(0.0, np.cumsum(np.diff(knots) * pace[:-1]))
    return knots, warped, float(pace[-1])
