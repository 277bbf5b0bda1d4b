"""How late every rank is, step by step, and what is beyond chance (METHODS e.7).

Departure from the letter of e.7, to keep it "never a wrong name": the noise scale is taken from the *signed*
lateness (the positive part of a healthy rank is zero half of the time, so its scatter tells nothing), and the sum
over the steps must be beyond what that noise gives by chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.groups import KIND
from traceview.analysis.origin import Facts
from traceview.analysis.tally import Tally
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

    @property
    def seen(self) -> Ints:
        """Per rank: steps in which it has a collective to be judged by."""
        out: Ints = np.sum(~np.isnan(self.share), axis=1)
        return out

    def mostly(self, count: int, rank: int, config: Config) -> bool:
        """Whether ``count`` steps are most of those in which the rank is seen."""
        return count >= config.persistent_share * int(self.seen[rank])


def lateness(facts: Facts, arrived: Tally, used: list[int], config: Config) -> Lateness:
    """How much later than the median member every rank arrives, per used step, and whether that is ``late``."""
    ranks, steps = arrived.shape
    whole = step_lengths(facts, np.array(sorted(used), np.int64))
    there, length = arrived.grid(arrived.judged) > 0, np.maximum(whole, 1)
    beyond_error = np.where(there, arrived.grid(arrived.clear_late), np.nan)
    x = np.where(there, _beside_peers(arrived, arrived.step), np.nan) / length
    signed = np.where(there, arrived.grid(arrived.signed) / length, np.nan)
    few = _within(arrived, length) if steps < config.min_steps_for_kind else 0.0
    threshold = max(config.late_share, config.late_mads * max(_mad(signed), few))
    chance = config.late_chance_errors * np.sqrt(max(steps, 1)) * max(_std(signed), few)
    beyond = (_beside_peers(arrived, np.zeros(len(arrived.step), np.int64)) / length).sum(axis=1)
    unclear = np.bincount(arrived.rank, arrived.judged_late - arrived.clear_late, ranks)
    matters = unclear > config.late_share * float(whole.sum())
    return Lateness(
        share=x,
        late=np.nan_to_num(x, nan=0.0) > threshold,
        threshold=threshold,
        real=(beyond > chance) & (arrived.grid(arrived.judged).sum(axis=1) >= config.late_min_collectives),
        clear_ns=np.bincount(arrived.rank, arrived.clear_late, ranks).astype(np.int64),
        clear=np.bincount(arrived.rank, arrived.clear, ranks).astype(np.int64),
        unclear_ns=np.where(matters, unclear, 0).astype(np.int64),
        worst=np.argmax(np.nan_to_num(x, nan=-1.0), axis=0) if ranks and steps else np.zeros(0, np.int64),
        ns=beyond_error,
    )


def lower_median(x: Floats) -> Floats:
    """Lower median of every column, nan left out."""
    if not x.size:
        return np.zeros(x.shape[1])
    ordered = np.sort(x, axis=0)  # nan last
    count = np.sum(~np.isnan(x), axis=0)
    out: Floats = ordered[np.maximum(count - 1, 0) // 2, np.arange(x.shape[1])]
    return out


def _beside_peers(arrived: Tally, time: Ints) -> Floats:
    """Per rank and step: lateness beyond that of its peers, the lower median of each group over its members.

    The level of a group is its noise; ranks of other groups may be late for reasons of their own. ``time``: of what
    the level is, per element; one number for all steps subtracts the mean step of the median member.
    """
    seen = np.flatnonzero(arrived.judged > 0)
    group, rank, late = arrived.family[seen] // len(KIND), arrived.rank[seen], arrived.clear_late[seen]
    ranks, steps = arrived.shape
    cells, at = np.unique((group * max(steps, 1) + time[seen]) * max(ranks, 1) + rank, return_inverse=True)
    total = np.bincount(at, late, len(cells))  # over the kinds of collectives, and the time
    place = cells // max(ranks, 1)
    order = np.lexsort((total, place))
    first = np.flatnonzero(np.diff(place[order], prepend=-1))
    count = np.diff(np.append(first, len(order)))
    level = np.repeat(total[order[first + (count - 1) // 2]], count)
    beyond = np.zeros(len(cells))
    beyond[order] = total[order] - level
    # an element has its part of what its rank is beyond the level there
    part = np.bincount(at, minlength=len(cells))
    return arrived.grid(_spread(seen, beyond[at] / part[at], len(arrived.judged)))


def _spread(at: Ints, values: Floats, count: int) -> Floats:
    out = np.zeros(count)
    out[at] = values
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


def _within(arrived: Tally, length: Floats) -> float:
    """Scatter of a step's lateness as its own collectives show it, median over ranks and steps.

    Few steps cannot show a rank's scatter over steps; the collectives of one step are many. Those of one group and
    kind are compared with each other: that a rank is late in one group and not in another is no scatter.
    """
    n = np.maximum(arrived.judged, 2)
    variance = np.maximum(arrived.square - arrived.signed**2 / n, 0) * n / (n - 1)
    several = arrived.judged > 1
    there = arrived.grid(several) > 0
    return _middle((np.sqrt(arrived.grid(variance * several)) / length)[there])


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
