"""Sets of hosts that common collectives tie together, brought onto one axis where messages prove it (METHODS d.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import units
from traceview.analysis.causal import FAR
from traceview.analysis.clockjoin import Joined, Records, join, tracks
from traceview.analysis.clockunits import Fit
from traceview.analysis.groups import Columns
from traceview.analysis.onesided import Pairs
from traceview.analysis.timebase import Links, TimeBase
from traceview.analysis.types import Bools, Ints
from traceview.config import Config

SAID = 3  # pairs of sets named in a note


@dataclass(frozen=True)
class Sets:
    """The sets of a run, numbered by their lowest rank, and where messages place them."""

    of_unit: Ints
    """set by unit"""
    records: Records
    joined: Joined
    slippery: bool
    """no common steps: a slip of both directions of a channel would look like a clock error, so nothing is placed"""

    def links(self, unit: Ints) -> Links:
        """The proved errors for the time base; ``unit`` by rank."""
        if not self.joined.links:
            return Links()
        span = len(self.records.unit)
        a, b, bound = (np.array([x[i] for x in self.joined.links], np.int64) for i in range(3))
        key = a * span + b
        order = np.argsort(key)
        return Links(self.of_unit[unit], span, key[order], bound[order])

    def bound(self, unit: int) -> int | None:
        """Proved error of the place of the unit's set; None = it was not moved."""
        own = self.of_unit[unit]
        return int(self.joined.bound[own]) if self.joined.label[own] != own else None


def place_sets(
    fit: Fit, base: TimeBase, usable: Bools, pairs: Pairs, run: tuple[Columns, Ints, bool], config: Config
) -> Sets:
    """Find the sets, their records and their places.

    ``usable``: by unit. ``run``: columns, ranks present, and whether common steps anchor the order of messages.
    """
    c, present, anchored = run
    unit = fit.unit[present]
    labels, where = np.unique(fit.component[unit], return_inverse=True)
    lowest = np.full(len(labels), FAR)
    np.minimum.at(lowest, where, present)
    number = np.zeros(len(fit.component), np.int64)
    number[labels[np.argsort(lowest)]] = np.arange(len(labels))
    of_unit = number[fit.component]
    records = Records(*_records(base, c, of_unit[fit.unit], fit.unit[np.sort(lowest)]))
    part = np.where(usable[fit.unit], of_unit[fit.unit], -1)
    found = tracks(base, part, pairs, config.drift_assumed_ppm * 1e-6)
    return Sets(of_unit, records, join(found if anchored else [], records, config), bool(found) and not anchored)


def _records(base: TimeBase, c: Columns, part: Ints, lead: Ints) -> tuple[Ints, Ints, Ints]:
    """(unit of the lowest rank, first start, last end) by set, on the axis of the set."""
    first, last = np.full(len(lead), FAR), np.full(len(lead), -FAR)
    head = np.flatnonzero(np.diff(c.rank, prepend=-1))
    rank = c.rank[head]
    if len(head):
        np.minimum.at(first, part[rank], base.to_true(rank, np.minimum.reduceat(c.start, head)))
        np.maximum.at(last, part[rank], base.to_true(rank, np.maximum.reduceat(c.end, head)))
    silent = first > last
    return lead, np.where(silent, 0, first), np.where(silent, 0, last)


def move_sets(fit: Fit, sets: Sets) -> None:
    """Bring all units onto the axis of the lowest set that theirs is joined to; sets move as a whole."""
    own, j = sets.of_unit, sets.joined
    if not j.links:
        return
    at = fit.pivot + fit.shift
    slope = j.drift[own]
    fit.shift += j.shift[own] + np.rint(slope * (at - j.pivot[own])).astype(np.int64)
    fit.drift = (1 + fit.drift) * (1 + slope) - 1
    for u, (times, heights) in fit.jumps.items():
        fit.jumps[u] = times, np.rint(heights * (1 + slope[u])).astype(np.int64)


@dataclass(frozen=True)
class Said:
    """Sentences about the sets: what was done, which could not be placed and why, and proofs of a mismatch."""

    notes: list[str]
    apart: list[str]
    mismatches: list[str]


def sentences(sets: Sets, names: list[str], config: Config) -> Said:
    """What to say of the sets. ``names`` by unit."""
    j, lead = sets.joined, sets.records.unit
    notes, alone = [], len(np.unique(j.label))

    def who(a: int, b: int) -> str:
        return f"{names[lead[a]]} and {names[lead[b]]}"

    if j.links:
        worst = max(bound for _, _, bound in j.links)
        notes.append(
            f"{int(j.placed.sum())} sets of ranks share only sends and receives: aligned by what these prove, "
            f"neighbours to ± {units.time(worst)} or better"
        )
    if alone > 1:
        what = "nothing that ties their clocks" if j.links else "no collective"
        notes.append(f"{alone} sets of ranks share {what}: their times are never compared")
    limit = units.time(config.join_max_bound_ns)
    apart = []
    if sets.slippery:
        apart.append(
            "without steps that all ranks mark alike the order of sends and receives may slip: "
            "they prove nothing about the clocks of their hosts"
        )
    for a, b, bound in sorted(j.wide, key=lambda x: x[2])[:SAID]:
        why = (
            "messages bound their clocks from one side only"
            if bound >= FAR
            else f"messages prove their clocks to ± {units.time(bound)} only, ± {limit} is needed"
        )
        apart.append(f"{who(a, b)}: {why}; waits between them cannot be told")
    if len(j.wide) > SAID:
        apart.append(f"so it is for {len(j.wide) - SAID} more pairs of hosts that share only sends and receives")
    drift = f"no offset and no drift up to {config.drift_assumed_ppm:.0f} ppm"
    proofs = [f"{who(a, b)}: {drift} fits their sends and receives: a wrong match or a bad clock" for a, b in j.empty]
    return Said(notes, apart, proofs)
