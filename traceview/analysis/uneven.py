"""How much of a late rank's extra compute the tokens of its experts explain, against its reference (METHODS e.6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.intervals import NOTHING, Spans, union
from traceview.analysis.lateness import Arrivals
from traceview.analysis.origin import Facts
from traceview.config import Config


@dataclass(frozen=True)
class Uneven:
    """Arrivals at a combine of which both ranks are known, summed; ns more than the reference rank."""

    told: bool
    """the trace tells the tokens"""
    load: float
    """received over the mean of the group, mean over these arrivals"""
    pace: float
    """time per token over that of a typical rank"""
    experts_ns: int
    """compute between dispatch and combine"""
    tokens_ns: int
    """the part of it that more tokens explain; never more than it"""


def uneven(facts: Facts, late: Arrivals, config: Config) -> Uneven | None:
    """None if the late arrivals have no experts behind them, or the tokens of both ranks are the same."""
    t = facts.tokens
    if t is None:
        return None
    own, other = t.at(late.row), t.at(late.reference)
    both = (own >= 0) & (other >= 0)
    own, other = own[both], other[both]
    if not len(own):
        return None
    told = bool((t.told[own] & t.told[other]).all())
    if told and np.abs(t.load[own] - t.load[other]).mean() <= config.expert_uneven:
        return None
    experts = int((t.work[own] - t.work[other]).sum())
    explained = int((t.delay[own] - t.delay[other]).sum())
    return Uneven(
        told,
        float(t.load[own].mean()),
        float(t.pace[own].mean()),
        experts,
        min(max(explained, 0), max(experts, 0)) if told else 0,
    )


def sections(facts: Facts, rank: int) -> Spans:
    """When the experts of a rank are at work: from the end of each dispatch to the arrival at its combine."""
    t = facts.tokens
    if t is None:
        return NOTHING
    mine = facts.c.rank[t.rows] == rank
    return union(t.dispatched[mine], facts.c.start[t.rows[mine]])
