"""How much of a late rank's extra compute the tokens of its experts explain, against its reference (METHODS e.6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.instances import by_value
from traceview.analysis.intervals import NOTHING, Spans, union
from traceview.analysis.lateness import Arrivals
from traceview.analysis.origin import Facts
from traceview.analysis.types import Floats, Ints, Tokens
from traceview.config import Config


@dataclass(frozen=True)
class Uneven:
    """What experts did before late arrivals, since the last common sync, summed; ns more than the reference rank."""

    told: bool
    """the trace tells the tokens"""
    load: float
    """received over the mean of the group, mean over the layers of these arrivals"""
    pace: float
    """time per token over that of a typical rank"""
    experts_ns: int
    """compute between dispatch and combine"""
    tokens_ns: int
    """the part of it that more tokens explain; never more than it"""


def uneven(facts: Facts, late: Arrivals, config: Config) -> Uneven | None:
    """None if no experts were at work before the late arrivals, or with the same tokens on both ranks."""
    t = facts.tokens
    if t is None:
        return None
    own = _before(facts, t, late.row, late.start)
    other = _before(facts, t, late.reference, late.reference_start)
    both = (own[:, COUNT] > 0) & (other[:, COUNT] > 0)
    own, other = own[both], other[both]
    if not len(own):
        return None
    told = bool((own[:, TOLD] == own[:, COUNT]).all() and (other[:, TOLD] == other[:, COUNT]).all())
    apart = np.abs(own[:, LOAD] / own[:, COUNT] - other[:, LOAD] / other[:, COUNT])
    if told and apart.mean() <= config.expert_uneven:
        return None
    gap = (own - other).sum(axis=0)
    experts, explained, count = round(gap[WORK]), round(gap[DELAY]), own[:, COUNT].sum()
    return Uneven(
        told,
        float(own[:, LOAD].sum() / count),
        float(own[:, PACE].sum() / count),
        experts,
        min(max(explained, 0), max(experts, 0)) if told else 0,
    )


COUNT, TOLD, LOAD, PACE, WORK, DELAY = range(6)


def _before(facts: Facts, t: Tokens, rows: Ints, start: Ints) -> Floats:
    """Sums over the combines of each row's rank that begin after ``start``, at the row's own begin at the latest."""
    c = facts.c
    out = np.zeros((len(rows), 6))
    for r, mine in by_value(c.rank[rows]):
        at = _of_rank(facts, t, r)
        at = at[np.argsort(c.start[t.rows[at]], kind="stable")]
        begin = c.start[t.rows[at]]
        values = [np.ones(len(at)), *(x[at] for x in (t.told, t.load, t.pace, t.work, t.delay))]
        total: Floats = np.vstack((np.zeros(6), np.cumsum(np.column_stack(values), axis=0)))
        ends = (np.searchsorted(begin, x[mine], side="right") for x in (c.start[rows], start))
        high, low = (total[x] for x in ends)
        out[mine] = high - low
    return out


def _of_rank(facts: Facts, t: Tokens, rank: int) -> Ints:
    """Positions in ``t`` of a rank: rows are in rank order."""
    return np.arange(*np.searchsorted(t.rows, np.searchsorted(facts.c.rank, (rank, rank + 1))))


def sections(facts: Facts, rank: int) -> Spans:
    """When the experts of a rank are at work: from the end of each dispatch to the arrival at its combine."""
    t = facts.tokens
    if t is None:
        return NOTHING
    mine = _of_rank(facts, t, rank)
    return union(t.dispatched[mine], facts.c.start[t.rows[mine]])
