"""Where culprits sit: one GPU, a node, a pipeline stage, a data-parallel replica, a network rail (METHODS e.7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from traceview.analysis import roles
from traceview.analysis.groups import Columns
from traceview.config import Config


def places(late: set[int], hosts: dict[int, str], c: Columns, config: Config) -> dict[int, str]:
    """Place of every rank in ``late``: gpu | node | stage | replica | rail. ``hosts``: host by rank present."""
    out = dict.fromkeys(late, "gpu")
    by_host = _members(hosts)
    for members in by_host.values():
        hit = late.intersection(members)
        if len(members) > 1 and len(by_host) > 1 and len(hit) >= config.node_share * len(members):
            out |= dict.fromkeys(hit, "node")
    rest = {r for r, place in out.items() if place == "gpu"}
    if len(rest) > 1:
        shape = _shape(rest, c, hosts) or _rail(rest, by_host.values())
        if shape:
            out |= dict.fromkeys(rest, shape)
    return out


def _members(label: Mapping[int, str]) -> dict[str, list[int]]:
    """Label -> its ranks, ascending."""
    out: dict[str, list[int]] = {}
    for rank in sorted(label):
        out.setdefault(label[rank], []).append(rank)
    return out


def _shape(late: set[int], c: Columns, hosts: dict[int, str]) -> str:
    """'stage' or 'replica' if the late ranks are exactly one of several."""
    axes = roles.axes_of(c, roles.descriptions(c))
    for place in (roles.stages(axes), roles.replicas(axes, hosts)):
        sets = _members(place.labels)
        if len(sets) > 1 and any(late == set(ranks) for ranks in sets.values()):
            return place.by
    return ""


def _rail(late: set[int], hosts: Iterable[list[int]]) -> str:
    """The same local index on every host of several: they share a NIC rail or a leaf switch."""
    members = list(hosts)
    spots = [[i for i, r in enumerate(ranks) if r in late] for ranks in members]
    same = len(spots) > 2 and all(len(s) == 1 and s == spots[0] for s in spots)
    return "rail" if same and all(len(m) > 1 for m in members) else ""
