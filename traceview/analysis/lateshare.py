"""How late every rank is, step by step, and what is beyond chance (METHODS e.7).

Departure from the letter of e.7, to keep it "never a wrong name": the noise scale is taken from the *signed*
lateness (the positive part of a healthy rank is zero half of the time, so its scatter tells nothing), and the sum
over the steps must be beyond what that noise gives by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from traceview.analysis.groups import KIND, N_X_N
from traceview.analysis.origin import Facts
from traceview.analysis.shares import Axis
from traceview.analysis.timebase import TimeBase
from traceview.analysis.types import Bools, Floats, Ints
from traceview.config import Config

FEW_MAD = {2: 1.2, 3: 1.5, 4: 1.36, 5: 1.21, 6: 1.2, 7: 1.14, 8: 1.13, 9: 1.11, 10: 1.09}
FEW_STD = {2: 1.48, 3: 1.2, 4: 1.13, 5: 1.09, 6: 1.07}
"""by number of steps: what a median of so small samples' scatters falls short of"""


@dataclass(frozen=True)
class Lateness:
    """Per rank (row) and used step (column) unless said."""

    share: Floats
    """x: lateness / step time, minus the lower median over ranks"""
    late: Bools
    threshold: float
    real: Bools
    """per rank: the sum over the steps is beyond chance"""
    clear_ns: Ints
    """per rank: lateness in collectives where it is beyond the clock error"""
    clear: Ints
    """per rank: how many such collectives"""
    unclear_ns: Ints
    """per rank: lateness within the clock error, if it would matter"""
    worst: Ints
    """per step: the rank with the largest lateness"""
    ns: Floats
    """lateness beyond the clock error, ns; nan where the rank has no collective"""


@dataclass(frozen=True)
class _Cells:
    """Arrivals of used steps: their cell (rank x step), lateness ns, and signed lateness ns (0 if not clear)."""

    shape: tuple[int, int]
    rank: Ints
    cell: Ints
    ns: Ints
    clear: Bools
    signed: Floats
    family: Ints
    """group and kind"""
    length: Floats
    """step time, per step"""

    def grid(self, weight: Any = None) -> Floats:
        """Sum per rank and step."""
        out: Floats = (
            np.bincount(self.cell, weight, self.shape[0] * self.shape[1]).astype(np.float64).reshape(self.shape)
        )
        return out


def lateness(facts: Facts, line: Axis, medians: Ints, base: TimeBase, used: list[int], config: Config) -> Lateness:
    """How much later than the median member every rank arrives, per used step, and whether that is ``late``."""
    cells = _cells(facts, line, medians, base, np.array(sorted(used), np.int64), config)
    ranks, steps = cells.shape
    there = cells.grid() > 0
    length = np.maximum(cells.length, 1)
    beyond_error = np.where(there, cells.grid(np.where(cells.clear, cells.ns, 0)), np.nan)
    x = beyond_error / length
    x = x - lower_median(x)
    signed = np.where(there, cells.grid(cells.signed) / length, np.nan)
    few = _within(cells) if steps < config.min_steps_for_kind else 0.0
    threshold = max(config.late_share, config.late_mads * max(_mad(signed), few))
    total = np.nansum(x, axis=1)
    chance = config.late_chance_errors * np.sqrt(max(steps, 1)) * max(_std(signed), few)
    beyond = total - float(lower_median(total[there.any(axis=1)][:, None])[0]) if there.any() else total
    unclear = np.bincount(cells.rank, np.where(cells.clear, 0, cells.ns), ranks)
    matters = unclear > config.late_share * float(cells.length.sum())
    return Lateness(
        share=x,
        late=np.nan_to_num(x, nan=0.0) > threshold,
        threshold=threshold,
        real=(beyond > chance) & (cells.grid().sum(axis=1) >= config.late_min_collectives),
        clear_ns=np.bincount(cells.rank, np.where(cells.clear, cells.ns, 0), ranks).astype(np.int64),
        clear=np.bincount(cells.rank, cells.clear, ranks).astype(np.int64),
        unclear_ns=np.where(matters, unclear, 0).astype(np.int64),
        worst=np.argmax(np.nan_to_num(x, nan=-1.0), axis=0) if ranks and steps else np.zeros(0, np.int64),
        ns=beyond_error,
    )


def _cells(facts: Facts, line: Axis, medians: Ints, base: TimeBase, steps: Ints, config: Config) -> _Cells:
    c, found, m = facts.c, facts.waited.instances, facts.matches
    sure = N_X_N[found.kind] & ~m.ambiguous & ~found.dark & (found.violations == 0)
    step = np.searchsorted(steps, facts.step_of_row[line.row])
    take = sure[line.instance] & (np.append(steps, -2)[step] == facts.step_of_row[line.row])
    row, median, number = line.row[take], medians[take], line.instance[take]
    signed = (found.ahead[median] - found.ahead[row]).astype(np.float64)
    members = np.bincount(line.instance, minlength=len(found))
    pair = members[number] == 2  # of two, the median is one of them: compare with the other
    both = np.bincount(line.instance, found.ahead[line.row], len(found))
    signed = np.where(pair, both[number] - 2.0 * found.ahead[row], signed)
    ns = np.maximum(found.ahead[median] - found.ahead[row], 0)
    floor = 2 * base.pair_sigma(c.rank[row], c.rank[median]) * ~found.clock_free[number] + 2 * config.tau_sys_ns
    return _Cells(
        shape=(int(c.rank.max(initial=-1)) + 1, len(steps)),
        rank=c.rank[row],
        cell=c.rank[row] * max(len(steps), 1) + step[take],
        ns=ns,
        clear=ns > floor,
        signed=np.where(np.abs(signed) > floor, signed, 0.0),
        family=(c.group[row] + 1) * len(KIND) + c.kind[row],
        length=step_lengths(facts, steps),
    )


def lower_median(x: Floats) -> Floats:
    """Lower median of every column, nan left out."""
    if not x.size:
        return np.zeros(x.shape[1])
    ordered = np.sort(x, axis=0)  # nan last
    count = np.sum(~np.isnan(x), axis=0)
    out: Floats = ordered[np.maximum(count - 1, 0) // 2, np.arange(x.shape[1])]
    return out


def _middle(scatter: Floats) -> float:
    return float(np.sort(scatter)[(len(scatter) - 1) // 2]) if len(scatter) else 0.0


def _complete(x: Floats) -> Floats:
    """Ranks that are there in all steps, if there are two steps at least."""
    return x[~np.isnan(x).any(axis=1)] if x.size and x.shape[1] > 1 else np.zeros((0, 1))


def _mad(x: Floats) -> float:
    """Scatter of a rank over the steps from its median absolute deviation, lower median over ranks."""
    whole = _complete(x)
    middle = np.median(whole, axis=1, keepdims=True) if len(whole) else whole
    scatter = np.median(np.abs(whole - middle), axis=1) if len(whole) else np.zeros(0)
    return 1.4826 * FEW_MAD.get(x.shape[1], 1.0) * _middle(scatter)


def _std(x: Floats) -> float:
    """The same from its standard deviation."""
    whole = _complete(x)
    return FEW_STD.get(x.shape[1], 1.0) * _middle(whole.std(axis=1, ddof=1) if len(whole) else np.zeros(0))


def _within(cells: _Cells) -> float:
    """Scatter of a step's lateness as its own collectives show it, median over ranks and steps.

    Few steps cannot show a rank's scatter over steps; the collectives of one step are many. Those of one group and
    kind are compared with each other: that a rank is late in one group and not in another is no scatter.
    """
    span = int(cells.family.max(initial=0)) + 1
    key, inverse, count = np.unique(cells.cell * span + cells.family, return_inverse=True, return_counts=True)
    total, square = np.bincount(inverse, cells.signed, len(key)), np.bincount(inverse, cells.signed**2, len(key))
    several = count > 1
    n = count[several]
    variance = np.maximum(square[several] - total[several] ** 2 / n, 0) * n / (n - 1)
    at = key[several] // span
    size = cells.shape[0] * cells.shape[1]
    there = np.bincount(at, minlength=size) > 0
    share = np.sqrt(np.bincount(at, variance, size)) / np.tile(np.maximum(cells.length, 1), cells.shape[0])
    return _middle(share[there])


def step_lengths(facts: Facts, steps: Ints) -> Floats:
    """T_k: lower median window over ranks; without windows the span of the step's collectives on one rank."""
    w, c = facts.windows, facts.c
    out = np.zeros(len(steps))
    for i, k in enumerate(steps.tolist()):
        own = w.step == k
        if own.any():
            out[i] = _middle((w.end[own] - w.start[own]).astype(np.float64))
            continue
        rows = np.flatnonzero(facts.step_of_row == k)
        if len(rows):
            mine = rows[c.rank[rows] == c.rank[rows[0]]]
            out[i] = c.end[mine].max() - c.start[mine].min()
    return out
