"""The blame ledger summed by host, stage, replica, rail and class of collectives (METHODS e.3, places of e.7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from traceview import units
from traceview.analysis.blame import ByClass
from traceview.analysis.groups import Columns
from traceview.analysis.roles import Places
from traceview.analysis.types import Ints
from traceview.result import BlamePlaceRow, BlameRow, Quality, StragglerRow
from traceview.schema import COLL_KINDS

UNTOLD = "(not told)"


def host_places(hosts: Mapping[int, str]) -> Places:
    """Hosts by rank, as far as the traces name them (an unknown one begins with '?')."""
    labels = {r: h for r, h in hosts.items() if not h.startswith("?")}
    return Places("host", labels, "the traces", why="" if labels else "no trace names its host")


def sure_ranks(hosts: Mapping[int, str], stragglers: Sequence[StragglerRow]) -> set[int]:
    """Ranks whose blame no clock can explain: proved culprits, and on one host all who are not doubtful ones."""
    proved = {s.rank for s in stragglers if s.quality == "proved"}
    return proved | (set(hosts) - {s.rank for s in stragglers} if len(set(hosts.values())) == 1 else set())


def by_place(
    place: Places, ledger: Iterable[BlameRow], ranks: Iterable[int], sure: set[int], at_least: Ints
) -> list[BlamePlaceRow]:
    """Rows of one kind of place, the most blamed first; they sum to the ledger. None if no rank has a label.

    ``ranks``: ranks of the run; those without a label are one row, ``UNTOLD``. ``sure``: see ``sure_ranks``.
    ``at_least``: of the ledger, by rank.
    """
    if not place.labels:
        return []
    members: dict[str | None, list[int]] = {}
    for rank in sorted(ranks):
        members.setdefault(place.labels.get(rank), []).append(rank)
    book = {row.rank: row for row in ledger}
    low = {r: int(at_least[r]) for r in np.flatnonzero(at_least).tolist()}
    return sorted((_row(place, name, m, book, (sure, low)) for name, m in members.items()), key=_order)


def _row(
    place: Places,
    name: str | None,
    ranks: list[int],
    book: Mapping[int, BlameRow],
    known: tuple[set[int], Mapping[int, int]],
) -> BlamePlaceRow:
    sure, low = known
    rows = [book[r] for r in ranks if r in book]
    blamed, proved = sum(b.blame_ns for b in rows), sum(b.blame_ns for b in rows if b.rank in sure)
    clear = sure.issuperset(ranks) or 0 < blamed <= 2 * proved
    quality: Quality = "proved" if clear and not place.assumed else "estimated"
    return BlamePlaceRow(
        by=place.by,
        name=UNTOLD if name is None else name,
        ranks=units.ranks(ranks),
        blame_ns=blamed,
        origin_blame_ns=sum(b.origin_blame_ns for b in rows),
        inclusive_ns=sum(b.blame_inclusive_ns for b in rows),
        waited_ns=sum(b.waited_ns for b in rows),
        at_least_ns=sum(low.get(r, 0) for r in ranks),
        quality="lower_bound" if low.keys() & ranks else quality,
        basis="" if name is None else place.basis,
    )


def by_class(classes: ByClass, c: Columns, described: Sequence[set[str]], *, sure: bool) -> list[BlamePlaceRow]:
    """Rows per (group, kind), the most blamed first: what was waited for in it. They sum to the ledger.

    ``described``: descriptions of each group. ``sure``: all ranks share one clock. A class has no origin blame: where
    a delay began is a property of ranks.
    """
    columns = (classes.group, classes.kind, classes.direct, classes.inclusive, classes.waited, classes.at_least)
    rows = []
    for group, kind, direct, inclusive, waited, low in zip(*(x.tolist() for x in columns), strict=True):
        exact: Quality = "proved" if sure else "estimated"
        rows.append(
            BlamePlaceRow(
                by="collective",
                name=_class_name(c, described, group, kind),
                ranks=c.groups[group].label if group >= 0 else "",
                blame_ns=direct,
                origin_blame_ns=None,
                inclusive_ns=inclusive,
                waited_ns=waited,
                at_least_ns=low,
                quality="lower_bound" if waited > direct else exact,
                basis="the traces",
            )
        )
    return sorted(rows, key=_order)


def _class_name(c: Columns, described: Sequence[set[str]], group: int, kind: int) -> str:
    """'3 (mesh_dp) allreduce'"""
    what = COLL_KINDS[kind] if kind >= 0 else "unknown"
    if group < 0:
        return f"(no group) {what}"
    name = c.groups[group].name
    told = " / ".join(sorted(described[group] - {"", "undefined", name}))
    return f"{name} ({told}) {what}" if told else f"{name} {what}"


def _order(row: BlamePlaceRow) -> tuple[int, int, str, str]:
    first = row.blame_ns if row.origin_blame_ns is None else row.origin_blame_ns
    return -first - row.at_least_ns, -row.blame_ns, row.name, row.ranks
