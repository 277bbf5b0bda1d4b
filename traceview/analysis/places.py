"""Where culprits sit: one GPU, a node, a pipeline stage, a data-parallel replica, a network rail (METHODS e.7)."""

from __future__ import annotations

import numpy as np

from traceview.analysis.groups import POINT, Columns
from traceview.config import Config


def places(late: set[int], hosts: dict[int, str], c: Columns, config: Config) -> dict[int, str]:
    """Place of every rank in ``late``: gpu | node | stage | replica | rail. ``hosts``: host by rank present."""
    out = dict.fromkeys(late, "gpu")
    by_host: dict[str, list[int]] = {}
    for rank in sorted(hosts):
        by_host.setdefault(hosts[rank], []).append(rank)
    for members in by_host.values():
        hit = late.intersection(members)
        if len(members) > 1 and len(by_host) > 1 and len(hit) >= config.node_share * len(members):
            out |= dict.fromkeys(hit, "node")
    rest = {r for r, place in out.items() if place == "gpu"}
    if len(rest) > 1:
        shape = _shape(rest, c, len(hosts)) or _rail(rest, by_host)
        if shape:
            out |= dict.fromkeys(rest, shape)
    return out


def _shape(late: set[int], c: Columns, world: int) -> str:
    """A set that every group contains, misses, or crosses once: a stage if p2p groups cross it, else a replica."""
    point = np.zeros(len(c.groups) + 1, np.bool_)
    point[c.group[c.p2p | POINT[c.kind]]] = True
    whole, crossed_point, crossed_group = False, False, False
    for i, g in enumerate(c.groups):
        members = set(g.members)
        hit = len(members & late)
        if hit == 0 or len(members) >= world:
            continue
        if hit == len(members):
            whole = True
        elif hit == 1 and point[i]:
            crossed_point = True
        elif hit == 1:
            crossed_group = True
        else:
            return ""
    if crossed_point and not crossed_group:
        return "stage"
    return "replica" if whole and crossed_group and not crossed_point else ""


def _rail(late: set[int], by_host: dict[str, list[int]]) -> str:
    """The same local index on every host of several: they share a NIC rail or a leaf switch."""
    spots = [[i for i, r in enumerate(members) if r in late] for members in by_host.values()]
    same = len(spots) > 2 and all(len(s) == 1 and s == spots[0] for s in spots)
    return "rail" if same and all(len(m) > 1 for m in by_host.values()) else ""
