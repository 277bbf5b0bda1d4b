"""Simple bounds of a scenario in closed form (METHODS h.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.findings.common import blame_ns, metric, waits_of_ranks
from traceview.analysis.savings import no_straggler, typical_wait
from traceview.analysis.types import Floats, Ints
from traceview.analysis.whatif.asked import Asked
from traceview.analysis.whatif.facts import Facts, remaining
from traceview.result import Result, Window
from traceview.schema import GROUPS


@dataclass(frozen=True)
class Bound:
    """Step time between ``low`` and ``high``, ns."""

    low: float
    high: float

    def shifted(self, ns: float) -> Bound:
        """Both less ``ns``, never below 0."""
        return Bound(max(self.low - ns, 0.0), max(self.high - ns, 0.0))


def step_of(windows: list[Window], walls: Floats, *, upper: bool = False) -> float:
    """T_k of METHODS b.1: median over ranks, then over steps; ``upper``: the higher of two ranks."""
    step = np.array([w.step for w in windows])
    middle = []
    for k in np.unique(step):
        own = np.sort(walls[step == k])
        middle.append(own[len(own) // 2] if upper else own[(len(own) - 1) // 2])
    return float(np.sort(middle)[(len(middle) - 1) // 2])


def bound(f: Facts, asked: Asked) -> Bound:
    """The step time if the exposed time of what goes were gone: W - x, waits by ``savings``.

    Savings of disjoint leaves add up. A network between two ends: all of the exposed time scales, or only as much
    goes as the operations themselves get shorter.
    """
    windows = f.result.window_rows
    walls = np.array([w.end_ns - w.start_ns for w in windows], np.float64)
    ends = []
    for saved, upper in zip(_saved(f, asked), (False, True), strict=True):
        gain = step_of(windows, walls, upper=upper) - step_of(windows, walls - saved, upper=upper)
        ends.append(step_of(windows, walls) - gain)
    return Bound(min(ends), max(ends)).shifted(_waits(f.result, asked))


def _saved(f: Facts, asked: Asked) -> tuple[Floats, Floats]:
    """(Most, least) that goes from every window, ns."""
    most, least, left = _communication(f, asked)
    rest = np.zeros(len(most))
    for gone, leaves in (
        (not asked.staging, ("pcie_h2d", "pcie_d2h")),
        (not asked.data_wait, ("idle_data",)),
        (not asked.launch_gaps, ("idle_launch", "idle_host")),
    ):
        rest += leaf(f.result, *leaves) if gone else 0
    exposed = leaf(f.result, "comm_transfer")
    if not asked.communication:
        free = exposed + leaf(f.result, "comm_unresolved")
        return rest + free, rest + free
    if asked.overlap:  # the step is the longer of compute and transfer, and all that is neither
        compute = leaf(f.result, *GROUPS["compute"])
        hidden = compute + exposed - np.maximum(compute, transfer_busy(f.result) * left)
        return rest + hidden, rest + hidden
    return rest + most, rest + least


def _communication(f: Facts, asked: Asked) -> tuple[Floats, Floats, Floats]:
    """(Most, least saved by faster communication, share of the transfer time left), per window."""
    m, n = f.moved, len(f.result.window_rows)
    rows = np.flatnonzero(m.window >= 0)
    window, exposed, transfer = (x[rows] for x in (m.window, m.exposed, m.transfer))
    gone = 1.0 - remaining(m, asked, rows, transfer)
    ends = exposed * gone, np.minimum(exposed, transfer * gone)
    most, least = (np.bincount(window, x(*ends), n) for x in (np.maximum, np.minimum))
    whole, after = np.bincount(window, transfer, n), np.bincount(window, transfer * (1.0 - gone), n)
    left: Floats = np.divide(after, whole, out=np.ones(n), where=whole > 0)
    return most.astype(np.float64), least.astype(np.float64), left


def transfer_floor(f: Facts, asked: Asked) -> float:
    """A step is at least its transfers, however they are hidden, ns."""
    _, _, left = _communication(f, asked)
    return step_of(f.result.window_rows, transfer_busy(f.result) * left)


def leaf(result: Result, *names: str) -> Floats:
    """ns of some leaves, per window."""
    return np.array([sum(w.leaves_ns.get(name, 0) for name in names) for w in result.window_rows], np.float64)


def transfer_busy(result: Result) -> Floats:
    """|TRANSFER| of METHODS a.4, per window."""
    return np.array(
        [sum(ns for active, ns in w.coactivity_ns.items() if "comm_transfer" in active) for w in result.window_rows],
        np.float64,
    )


def _waits(result: Result, asked: Asked) -> float:
    """Saving of typical ranks, an even spread of work, and even tokens: what they explain of the waiting."""
    waits: Ints = waits_of_ranks(result)
    even, saved = no_straggler(0, waits), 0.0
    if asked.balance and even is not None:
        saved = -even.rebalance
    if asked.replace:
        owed = sum(r.origin_blame_ns for r in result.straggler_rows if r.rank in asked.replace)
        saved = max(saved, typical_wait(waits) * owed / max(blame_ns(result), 1))
    if asked.even_tokens:
        saved = max(saved, metric(result, "even_tokens_gain") or 0.0)
    return saved
