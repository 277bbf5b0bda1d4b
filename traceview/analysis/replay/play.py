"""A scenario of a replay, and the graph played under it."""

from __future__ import annotations

from dataclasses import dataclass

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
    transfer: float = 1.0
    """communication is this many times as fast after the last arrival; infinite = free"""


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


def play(g: Graph, how: Scenario) -> Played:
    """Replay: when everything would happen. Near-linear in edges, one pass per level."""
    factor = np.ones(len(g.blocks.row))
    for kind, given in ((KERNEL, how.kernels), (COPY, how.copies)):
        if given is not None:
            factor = np.where(g.blocks.kind == kind, given[g.blocks.stretch], factor)
    own = g.blocks.fixed + factor * g.blocks.work
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
    )


def _terms(g: Graph, how: Scenario, factor: Floats, own: Floats, transfer: Floats) -> Floats:
    b, warp = g.blocks, _Warp(g, how.host)
    called = np.append(g.calls.end, 0)
    lane = g.lane_of_stretch[b.stretch]
    back = np.where(b.host >= 0, warp(called[b.host], lane), 0.0)
    held = np.full(len(own), -np.inf)
    for k in range(b.launch.shape[1]):
        held = np.maximum(held, warp(b.launch[:, k], lane) + b.after[:, k] + factor * b.load[:, k])
    before = np.where(g.calls.before >= 0, warp(called[g.calls.before], g.calls.lane), 0.0)
    calls = warp(g.calls.start, g.calls.lane) - before + g.calls.rest
    return np.concatenate(([0.0], own, held - back, transfer, calls))


class _Warp:
    """Host time of a scenario: each stretch of a rank's host runs by its factor."""

    def __init__(self, g: Graph, factor: Floats | None) -> None:
        self._lanes: list[tuple[int, Ints, Floats, float]] = []
        if factor is None:
            return
        for i in np.unique(g.lane_of_stretch[factor != 1.0]).tolist():
            a, b = np.searchsorted(g.lane_of_stretch, (i, i + 1))
            begin = g.stretches.begin[a:b]
            passed = np.append(0.0, np.cumsum(np.diff(begin) * factor[a : b - 1]))
            self._lanes.append((i, begin, begin[0] + passed, float(factor[b - 1])))

    def __call__(self, time: Ints, lane: Ints) -> Floats:
        """Times of the host in the scenario; ``lane`` is ascending."""
        out = time.astype(np.float64)
        for i, begin, warped, last in self._lanes:
            low, high = np.searchsorted(lane, (i, i + 1))
            own = time[low:high]
            inside = np.interp(own, begin, warped)
            late = np.where(own > begin[-1], warped[-1] + last * (own - begin[-1]), inside)
            out[low:high] = np.where(own > begin[0], late, own)
        return out
