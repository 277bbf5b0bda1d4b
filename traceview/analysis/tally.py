"""Arrivals of every rank counted by class of collective and step (METHODS e.7): what lateness is judged from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.groups import KIND, N_X_N
from traceview.analysis.instances import Block
from traceview.analysis.origin import Facts
from traceview.analysis.timebase import TimeBase
from traceview.analysis.types import Bools, Floats, Ints
from traceview.config import Config

SUMS = ("count", "late", "last", "judged", "judged_late", "clear", "clear_late", "signed", "square")


@dataclass(frozen=True)
class Tally:
    """One element per (family, rank, step) with an arrival in an n x n collective of a used step; times in ns."""

    family: Ints
    """(group + 1) * number of kinds + kind"""
    rank: Ints
    step: Ints
    """index into the used steps"""
    shape: tuple[int, int]
    """ranks, used steps"""
    count: Floats
    late: Floats
    """lateness after the median member"""
    last: Floats
    """times last of all"""
    judged: Floats
    """arrivals without a clock violation in the instance, in groups inside one stage; what follows is of these

    Where stages of a pipeline meet the order of arrival is its schedule (METHODS e.6)."""
    judged_late: Floats
    clear: Floats
    """arrivals that are late beyond the clock error"""
    clear_late: Floats
    """lateness of these"""
    signed: Floats
    """lateness, negative for the early, as far as it is beyond the clock error; of two members against the other"""
    square: Floats
    """sum of squares of ``signed``"""

    @property
    def cell(self) -> Ints:
        """Rank x step."""
        return self.rank * max(self.shape[1], 1) + self.step

    def grid(self, weight: Floats | Bools) -> Floats:
        """Sum per rank and step."""
        ranks, steps = self.shape
        return np.bincount(self.cell, weight, ranks * steps).astype(np.float64).reshape(self.shape)


def tally(facts: Facts, base: TimeBase, steps: Ints, config: Config) -> Tally:
    """Count the arrivals of the used ``steps`` (ascending), a block of instances at a time."""
    c, found, m = facts.c, facts.waited.instances, facts.matches
    ranks = int(c.rank.max(initial=-1)) + 1
    sure = N_X_N[found.kind] & ~m.ambiguous & ~found.dark
    keys, sums = [np.zeros(0, np.int64)], [np.zeros((len(SUMS), 0))]
    for some in found.blocks():
        line = some.line(found.ahead)
        step = np.searchsorted(steps, facts.step_of_row[line.row])
        take = sure[some.instances][line.instance] & (np.append(steps, -2)[step] == facts.step_of_row[line.row])
        row, local, step = line.row[take], line.instance[take], step[take]
        values = _values(facts, base, some, (row, local), config)
        key = (((c.group[row] + 1) * len(KIND) + c.kind[row]) * ranks + c.rank[row]) * max(len(steps), 1) + step
        there, inverse = np.unique(key, return_inverse=True)
        keys.append(there)
        sums.append(np.array([np.bincount(inverse, v, len(there)) for v in values]).reshape(len(SUMS), len(there)))
    there, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    total = [np.bincount(inverse, v, len(there)).astype(np.float64) for v in np.concatenate(sums, axis=1)]
    at, step = np.divmod(there, max(len(steps), 1))
    family, rank = np.divmod(at, max(ranks, 1))
    return Tally(family, rank, step, (ranks, len(steps)), *total)


def _values(
    facts: Facts, base: TimeBase, some: Block, arrival: tuple[Ints, Ints], config: Config
) -> tuple[Floats | Bools | None, ...]:
    """What is summed, per arrival (row, number in the block), in the order of ``SUMS``."""
    c, found = facts.c, facts.waited.instances
    row, local = arrival
    number = some.instances[local]
    median = found.median[number]
    after = found.ahead[median] - found.ahead[row]
    members = np.bincount(some.local, some.member, len(some.instances))
    both = np.bincount(some.local, np.where(some.member, found.ahead[some.rows], 0), len(some.instances))
    pair = members[local] == 2  # of two, the median is one of them: compare with the other
    signed = np.where(pair, both[local] - 2.0 * found.ahead[row], after)
    floor = 2 * base.pair_sigma(c.rank[row], c.rank[median]) * ~found.clock_free[number] + 2 * config.tau_sys_ns
    judged = (found.violations[number] == 0) & ~facts.meetings[found.group[number]]
    late = np.maximum(after, 0)
    clear = judged & (late > floor)
    signed = np.where(judged & (np.abs(signed) > floor), signed, 0.0)
    last = (found.last[number] == row) & (found.waited[number] > 0)
    return None, late, last, judged, late * judged, clear, late * clear, signed, signed**2
