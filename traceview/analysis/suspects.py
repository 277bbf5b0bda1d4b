"""Whom to name: late beyond chance, and at a cost to the others that is worth a name (METHODS e.7).

Departures from the letter of e.7, all to keep it "never a wrong name":
* a step counts as late only if the others lost something to the rank in it: lateness that computing hides costs
  nobody, and overlapped collectives count the same delay many times;
* who is late now and then must be so more often than the ranks beside it: heavy tails hit everybody;
* blame that sends handed on from a meeting of pipeline stages is the schedule of that pipeline (e.6);
* ranks that are late together share their blame, so the floor is for what they cost together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import comb

import numpy as np

from traceview.analysis.blame import Ledger
from traceview.analysis.lateshare import Lateness, step_lengths
from traceview.analysis.origin import Facts, Origin
from traceview.analysis.types import Bools, Floats, Ints
from traceview.config import Config

ROWS = 512  # suspects that are compared with all others at once
BIG_GROUP = 64  # members of bigger groups are counted, not listed


@dataclass(frozen=True)
class Suspects:
    """Ranks, ascending, and what they are judged by."""

    listed: Ints
    doubtful: Ints
    """late and costly, but it may be chance"""
    late: Lateness
    """``late`` only where it cost the others something"""


def suspects(
    facts: Facts, ledger: Ledger, origin: Origin, late: Lateness, used: list[int], config: Config
) -> Suspects:
    """Ranks to name. ``origin``: with what partly observed collectives are owed at least."""
    steps = np.array(sorted(used), np.int64)
    lost = _at(origin.by_step, steps - origin.first_step)
    worst = lost.max(axis=1, initial=0.0, keepdims=True)
    late = replace(late, late=late.late & (lost > config.late_cost_share * worst))
    count = late.late.sum(axis=1)
    own = origin.by_rank - origin.by_schedule
    fit = (count >= (2 if len(used) >= 3 else 1)) & (own > 0) & (late.clear > 0)
    fit &= own >= config.min_own_share * (ledger.direct + ledger.at_least)
    sure = late.real & _no_chance(late.late, late.seen, fit & late.real, config)
    together = _together(late.late, np.where(fit, own, 0), config)
    fit &= together >= config.min_blame_share * _waiter_time(facts, ledger, steps)
    return Suspects(np.flatnonzero(fit & sure), np.flatnonzero(fit & ~sure), late)


def _at(by_step: Floats, steps: Ints) -> Floats:
    """Some columns, 0 where there is none."""
    there = (steps >= 0) & (steps < by_step.shape[1])
    out: Floats = np.where(there, by_step[:, np.where(there, steps, 0)], 0.0)
    return out


def _no_chance(late: Bools, seen: Ints, candidates: Bools, config: Config) -> Bools:
    """By rank: late in most steps that it is ``seen`` in, or in more than if it were late as often as the others."""
    ranks, steps = late.shape
    others = late[~candidates]
    often = (others.sum() + 0.5) / (others.size + 1)  # Jeffreys' estimate of a rate: never 0
    tail = np.cumsum([comb(steps, k) * often**k * (1 - often) ** (steps - k) for k in range(steps, -1, -1)])[::-1]
    count = late.sum(axis=1)
    out: Bools = (count >= config.persistent_share * np.maximum(seen, 1)) | (
        ranks * tail[count] <= config.late_significance
    )
    return out


def _together(late: Bools, own: Floats | Ints, config: Config) -> Floats:
    """By rank: its blame and that of the ranks late in the same steps, none counted higher than its own.

    Beside a rank that is late then and costs far more it counts alone: it may only have waited for that one.
    """
    some = np.flatnonzero(own > 0)
    out, all_of_them = np.zeros(len(own)), own[some]
    steps = late[some].astype(np.float64)
    for low in range(0, len(some), ROWS):
        mine, at = all_of_them[low : low + ROWS], steps[low : low + ROWS]
        company = at @ steps.T >= config.persistent_share * np.maximum(at.sum(axis=1), 1)[:, None]
        beside = np.where(company, all_of_them, 0).max(axis=1, initial=0)
        shared = (np.minimum(mine[:, None], all_of_them) * company).sum(axis=1)
        out[some[low : low + ROWS]] = np.where(mine >= config.together_share * beside, shared, mine)
    return out


def _waiter_time(facts: Facts, ledger: Ledger, steps: Ints) -> Floats:
    """Per rank: time in the used steps of the ranks that waited and share a group with it."""
    c = facts.c
    ranks = len(ledger.direct)
    total = float(step_lengths(facts, steps).sum())
    waiting = np.zeros(ranks, np.bool_)
    waiting[: len(ledger.waited)] = ledger.waited > 0
    peers: list[set[int]] = [set() for _ in range(ranks)]
    for g in c.groups:
        seen = {r for r in g.members if r < ranks}
        if len(seen) <= BIG_GROUP:
            for r in seen:
                peers[r] |= seen
    out = np.zeros(ranks)
    for r, others in enumerate(peers):
        out[r] = sum(waiting[o] for o in others if o != r)
    for g in c.groups:
        seen_array = np.array([r for r in g.members if r < ranks], np.int64)
        if len(seen_array) > BIG_GROUP:
            out[seen_array] = np.maximum(out[seen_array], waiting[seen_array].sum() - waiting[seen_array])
    none = out == 0  # no group facts, or only missing peers: all who wait
    out[none] = waiting.sum() - waiting[none]
    return np.maximum(out, 1) * total
