"""Ranks that are late in most steps and cost nobody anything, as a named culprit is later still (METHODS e.7).

They are the next limit once the culprit is mended, not culprits: nothing of the waiting goes back to them today.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traceview import units
from traceview.analysis.cause import Owing, explain, late_arrivals, passes_on, sentence
from traceview.analysis.groups import N_X_N
from traceview.analysis.lateshare import Lateness, step_lengths
from traceview.analysis.origin import Facts
from traceview.analysis.types import Ints
from traceview.config import Config
from traceview.result import HiddenRow

MOST = 8  # ranks looked at, the latest first


def hidden(
    facts: Facts,
    late: Lateness,
    who: tuple[set[int], set[int]],
    hosts: Mapping[int, str],
    used: list[int],
    config: Config,
) -> list[HiddenRow]:
    """The latest first. ``late``: whatever it cost; ``who``: (culprits and relays, culprits)."""
    suspected, named = who
    owing = {r: _behind(facts, r, named, used) for r in _candidates(late, suspected, config)} if named else {}
    arrivals = late_arrivals(facts, owing, config)
    rows = []
    for r, own in arrivals.items():
        cause = explain(facts, own, config)
        step, ns = _by_step(facts, owing[r])
        matters = ns >= config.late_share * step_lengths(facts, step)
        if cause.cause == "unknown" or passes_on(cause.terms_ns) or not late.mostly(int(matters.sum()), r, config):
            continue
        last = facts.c.rank[facts.waited.instances.last[facts.matches.instance[owing[r].row]]]
        behind, typical = int(np.bincount(last, owing[r].ns).argmax()), int(np.median(ns[matters]))
        text = (
            f"rank {r} is late too, by {units.time(typical)} in {matters.sum()} of {late.seen[r]} steps, and costs "
        )
        text += f"nothing while rank {behind} is later: the next limit; {sentence(cause)}"
        row = HiddenRow(
            r, hosts.get(r, ""), behind, typical, int(matters.sum()), int(late.seen[r]), cause.cause, text
        )
        rows.append(row)
    return sorted(rows, key=lambda row: -row.late_ns)


def _candidates(late: Lateness, suspected: set[int], config: Config) -> list[int]:
    """Late in most steps, beyond chance: the latest first."""
    count = late.late.sum(axis=1)
    fit = [
        r
        for r in np.flatnonzero(late.real & (late.clear > 0) & (count > 1)).tolist()
        if r not in suspected and late.mostly(int(count[r]), r, config)
    ]
    return sorted(fit, key=lambda r: -late.clear_ns[r])[:MOST]


def _behind(facts: Facts, rank: int, named: set[int], used: list[int]) -> Owing:
    """Rows of a rank that arrive after the median member and before a named one; ``ns``: how long after."""
    c, m, found = facts.c, facts.matches, facts.waited.instances
    rows = np.arange(*c.head[rank : rank + 2])
    rows = rows[(m.instance[rows] >= 0) & np.isin(facts.step_of_row[rows], used)]
    at = m.instance[rows]
    median = found.median[at]
    ns = found.ahead[median] - found.ahead[rows]
    fit = N_X_N[found.kind[at]] & m.full[at] & ~m.ambiguous[at] & ~found.dark[at] & (found.violations[at] == 0)
    fit &= ~facts.meetings[found.group[at]] & (ns > 0) & np.isin(c.rank[found.last[at]], sorted(named))
    return Owing(rows[fit], median[fit], ns[fit].astype(np.float64))


def _by_step(facts: Facts, owing: Owing) -> tuple[Ints, Ints]:
    """(steps, largest lateness in each): overlapped collectives show one delay several times."""
    step, inverse = np.unique(facts.step_of_row[owing.row], return_inverse=True)
    out = np.zeros(len(step), np.int64)
    np.maximum.at(out, inverse, owing.ns.astype(np.int64))
    return step, out
