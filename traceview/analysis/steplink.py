"""One numbering for steps that every rank counts for itself: one collective is in one step (METHODS b.2).

A record that begins later counts from its own first step; the collectives that it shares tell how many came before.
"""

from __future__ import annotations

import numpy as np

from traceview.analysis.instances import begins
from traceview.analysis.types import Ints, Matches

OWN_NUMBERS = ("optimizer", "period")
"""sources whose numbers begin with the record"""
MOST_ROWS = 1 << 20  # of the run: more tell no better


def shifts(rank: Ints, step: Ints, m: Matches) -> dict[int, int]:
    """Rank -> what to add to its numbers. ``rank``, ``step``: per collectives row; a step below 0 = none.

    Most collectives of two ranks tell how far their numbers are apart; that goes on from rank to rank. No number gets
    lower, and of ranks that are linked the numbers of one stay.
    """
    members, numbers = _sample(step, m)
    links: dict[int, dict[int, int]] = {}
    for one, other, apart in _links(rank[members], step[members], numbers):
        links.setdefault(one, {})[other] = -apart
        links.setdefault(other, {})[one] = apart
    out: dict[int, int] = {}
    for first in sorted(links):
        if first in out:
            continue
        part, ahead = {first: 0}, [first]
        while ahead:
            here = ahead.pop()
            for there, more in links[here].items():
                if there not in part:
                    part[there] = part[here] + more
                    ahead.append(there)
        out |= {r: x - min(part.values()) for r, x in part.items()}
    return out


def _sample(step: Ints, m: Matches) -> tuple[Ints, Ints]:
    """(rows of some sure instances, by instance; their instance numbers)."""
    every = -(-len(step) // MOST_ROWS)
    rows = np.flatnonzero((step >= 0) & (m.instance >= 0) & (m.instance % max(every, 1) == 0))
    rows = rows[~m.ambiguous[m.instance[rows]]]
    rows = rows[np.argsort(m.instance[rows], kind="stable")]
    return rows, m.instance[rows]


def _links(rank: Ints, step: Ints, instance: Ints) -> list[tuple[int, int, int]]:
    """(first rank of an instance, another one, how many steps its number is higher in most instances of the two)."""
    if not len(rank):
        return []
    first = np.flatnonzero(np.diff(instance, prepend=-1))
    lead = np.repeat(first, np.diff(np.append(first, len(rank))))
    other = rank != rank[lead]
    trio = np.column_stack((rank[lead], rank, step - step[lead]))[other]
    found, count = np.unique(trio, axis=0, return_counts=True)
    order = np.lexsort((-count, found[:, 1], found[:, 0]))  # the most frequent first
    found = found[order]
    fresh = begins(found[:, 0], found[:, 1])
    out: list[tuple[int, int, int]] = [tuple(row) for row in found[fresh].tolist()]
    return out
