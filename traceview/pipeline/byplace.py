"""The ledger by host, stage, replica, rail and class of collectives: rows, and why a kind of place has none."""

from __future__ import annotations

from traceview.analysis import blameby, roles
from traceview.analysis.roles import Places
from traceview.pipeline.values import Across, Blamed
from traceview.result import BlamePlaceRow
from traceview.run import Run


def blame_by(run: Run, across: Across, blamed: Blamed, rail: Places) -> tuple[list[BlamePlaceRow], dict[str, str]]:
    """(rows of every kind of place that is told, kind -> why it is not). ``rail``: what ``wire`` found."""
    c, book = across.columns, blamed.found.blame
    if not book:
        return [], {}
    hosts = {r: run.host(r) for r in run.ranks}
    described = roles.descriptions(c)
    groups = roles.axes_of(c, described)
    places = (blameby.host_places(hosts), roles.stages(groups), roles.replicas(groups, hosts), rail)
    sure = blameby.sure_ranks(hosts, blamed.found.rows)
    low = blamed.ledger.at_least
    rows = [row for place in places for row in blameby.by_place(place, book, run.ranks, sure, low)]
    one_clock = len(set(hosts.values())) == 1
    rows += blameby.by_class(blamed.ledger.classes, c, described, sure=one_clock)
    return rows, {place.by: place.why for place in places if not place.labels}
