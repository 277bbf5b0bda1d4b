"""Where the ranks of a replay meet: for whom every communication operation waits (METHODS e.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.groups import N_TO_ONE, N_X_N, ONE_TO_N, Columns
from traceview.analysis.timebase import TimeBase
from traceview.analysis.types import P2P, TRANSFER, Bools, Ints, Matches
from traceview.analysis.waits import Waits


@dataclass(frozen=True)
class Met:
    """The cross-rank facts that the graph needs."""

    c: Columns
    matches: Matches
    waited: Waits
    base: TimeBase
    begin: int
    """origin of the chain on the common axis, ns"""

    def starts(self, rows: Ints) -> Ints:
        """Begin of rows on the graph's axis."""
        return self.base.to_true(self.c.rank[rows], self.c.start[rows]) - self.begin

    def ends(self, rows: Ints) -> Ints:
        """End of rows on the graph's axis."""
        return self.base.to_true(self.c.rank[rows], self.c.end[rows]) - self.begin


def find(rows: Ints, wanted: Ints) -> tuple[Ints, Bools]:
    """Place of each wanted row among ``rows``, and whether it is there."""
    by = np.argsort(rows, kind="stable")
    at = by[np.minimum(np.searchsorted(rows[by], wanted), len(rows) - 1)]
    return at, rows[at] == wanted


def dependencies(met: Met, rows: Ints, number: Ints) -> tuple[Bools, Ints, list[tuple[Ints, Ints]]]:
    """(Waiting is known, rows that wait for all, [(row of a peer, those that wait for it)]), as places in ``rows``.

    What is not fully observed, or contradicts the clocks, waits for nobody: it keeps its duration.
    """
    found, phases, m = met.waited.instances, met.waited.phases, met.matches
    sure = (number >= 0) & (phases.second[rows] == TRANSFER) & ~phases.violated[rows]
    sure[sure] &= ~(found.clock_free | found.dark | m.ambiguous)[number[sure]]
    kind = np.where(sure, met.c.kind[rows], -1)
    point = sure & (phases.sub[rows] == P2P)
    stayed = np.zeros(len(rows), np.bool_)
    stayed[sure] = met.ends(rows[sure]) + met.begin >= found.arrived[number[sure]]
    root = np.where(sure, found.root[number], -1) if len(found.root) else number
    scatter, reduce_ = sure & ONE_TO_N[kind] & (root >= 0), sure & N_TO_ONE[kind] & (root >= 0)
    full = np.zeros(len(rows), np.bool_)
    full[sure] = m.full[number[sure]]
    own = root == rows
    everyone = sure & ~point & N_X_N[kind] & full
    everyone |= (scatter & own | reduce_ & (own | full)) & stayed
    leaf = np.flatnonzero(scatter & ~own)
    sender, receiver = (p[rows].astype(np.int64) for p in (found.partners.sender, found.partners.receiver))
    receives = np.flatnonzero(point & (sender >= 0))
    sends = np.flatnonzero(point & (receiver >= 0))
    sends = sends[met.ends(rows[sends]) >= met.starts(receiver[sends])]
    peers = [(root[leaf].astype(np.int64), leaf), (sender[receives], receives), (receiver[sends], sends)]
    return sure, np.flatnonzero(everyone), peers
