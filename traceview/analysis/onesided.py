"""Bounds on clocks from sends and receives (METHODS d.3): a receive cannot end before its send begins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.causal import FAR
from traceview.analysis.groups import Columns
from traceview.analysis.p2p import partners
from traceview.analysis.types import Ints, Matches

CELLS = 200_000  # messages kept
PIECES = 128  # of the record, for each of which a pair of clocks keeps its tightest message


@dataclass(frozen=True)
class Pairs:
    """Matched send and receive on two clocks: ranks, begin of the send, end of the receive, each as stamped."""

    sender: Ints
    receiver: Ints
    begin: Ints
    end: Ints


def one_sided(c: Columns, m: Matches, unit: Ints) -> Pairs:
    """The messages between ranks of different units that bound their clocks best.

    ``unit``: clock by rank. Of each direction between two units one message per piece of the record is kept: the
    one that was under way for the shortest time. The others of the piece bound less.
    """
    sender = partners(c, m.instance).sender
    receiver = np.flatnonzero((sender >= 0) & ~np.append(m.ambiguous, True)[m.instance])
    sender = sender[receiver]
    crossing = unit[c.rank[sender]] != unit[c.rank[receiver]]
    sender, receiver = sender[crossing], receiver[crossing]
    begin, end = c.start[sender], c.end[receiver]
    units = int(unit.max(initial=0)) + 1
    pair = np.unique(unit[c.rank[sender]] * units + unit[c.rank[receiver]], return_inverse=True)[1]
    count = int(pair.max(initial=-1)) + 1
    cell = _piece(pair, begin, count, max(4, min(PIECES, CELLS // max(count, 1))))
    lead = begin - end
    best = np.full(int(cell.max(initial=-1)) + 1, -FAR)
    np.maximum.at(best, cell, lead)
    tight = np.flatnonzero(lead == best[cell])
    tight = tight[np.unique(cell[tight], return_index=True)[1]]
    return Pairs(c.rank[sender[tight]], c.rank[receiver[tight]], begin[tight], end[tight])


def _piece(pair: Ints, begin: Ints, count: int, pieces: int) -> Ints:
    """Number of (pair, piece of the pair's record) per message."""
    first, last = np.full(count, FAR), np.full(count, -FAR)
    np.minimum.at(first, pair, begin)
    np.maximum.at(last, pair, begin)
    span = np.maximum(last - first, 1).astype(np.float64)
    share = (begin - first[pair]) / span[pair]
    out: Ints = pair * pieces + np.minimum((share * pieces).astype(np.int64), pieces - 1)
    return out
