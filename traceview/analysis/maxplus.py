"""A max-plus graph: a node happens when the last of its edges allows it (METHODS h.2)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from traceview.analysis.types import Floats, Ints, Rows


@dataclass(frozen=True)
class Order:
    """Nodes and edges in the order of evaluation. Node 0 is the origin of time."""

    number: Ints
    """node -> its place in the order"""
    edge: Ints
    """edges by place of their target"""
    source: Rows
    """place of the source, per edge in that order"""
    first: Ints
    """per place but the first: its first edge"""
    level: Ints
    """bounds of the levels, in places; level 0 is the origin alone"""


def order(nodes: int, source: Ints | Rows, target: Ints | Rows) -> Order | None:
    """The order of a graph in which every node but 0 has an edge; None if edges form a cycle."""
    depth = _depths(nodes, source, target)
    if depth is None:
        return None
    by = np.argsort(depth, kind="stable")
    number = np.empty(nodes, np.int64)
    number[by] = np.arange(nodes)
    place = number[target]
    edge = np.argsort(place, kind="stable")
    first = np.searchsorted(place[edge], np.arange(1, nodes))
    level = np.searchsorted(depth[by], np.arange(int(depth.max()) + 2))
    return Order(number, edge, number[source][edge].astype(np.int32), first, level)


def _depths(nodes: int, source: Ints | Rows, target: Ints | Rows) -> Ints | None:
    """Longest number of edges from the origin, per node; None if some node is on a cycle."""
    by = np.argsort(source, kind="stable")
    out = target[by]
    bounds = np.searchsorted(source[by], np.arange(nodes + 1))
    low, count = bounds[:-1], np.diff(bounds)
    left = np.bincount(target, minlength=nodes)
    depth, mark = np.full(nodes, -1, np.int64), np.zeros(nodes, np.int64)
    front, at = np.flatnonzero(left == 0), 0
    while len(front):
        depth[front] = at
        sizes = count[front]
        edges = (low[front] - sizes.cumsum() + sizes).repeat(sizes)  # as intervals.expand, for many small ones
        reached = out[edges + np.arange(len(edges))]
        np.subtract.at(left, reached, 1)
        free = reached[left[reached] == 0]
        places = np.arange(len(free))
        mark[free] = places
        front, at = free[mark[free] == places], at + 1  # each once
    return None if depth.min() < 0 else depth


def evaluate(plan: Order, lag: Floats) -> Floats:
    """When every node happens: the latest of source + lag over its edges, 0 for the origin. By node.

    One pass per level, near-linear in the edges.
    """
    lags, source, first = lag[plan.edge], plan.source, plan.first
    when = np.zeros(len(plan.number))
    bounds = plan.level.tolist()
    edges = [*first.tolist(), len(source)]
    for a, b in pairwise(bounds[1:]):
        low, high = edges[a - 1], edges[b - 1]
        ready = when[source[low:high]] + lags[low:high]
        when[a:b] = np.maximum.reduceat(ready, first[a - 1 : b - 1] - low)
    out: Floats = when[plan.number]
    return out


def holding(plan: Order, when: Floats, lag: Floats) -> tuple[Ints, Ints]:
    """By node: (the edge that it happened by, the first of equals, the source of that); the origin has itself."""
    by_place = np.empty(len(when))
    by_place[plan.number] = when
    count = np.diff(np.append(plan.first, len(plan.source)))
    held = by_place[plan.source] + lag[plan.edge] >= np.repeat(by_place[1:], count)
    hits = np.flatnonzero(held)[::-1]
    chosen = np.zeros(len(when), np.int64)
    chosen[np.repeat(np.arange(1, len(when)), count)[hits]] = hits
    node_at = np.argsort(plan.number)
    edge, source = plan.edge[chosen], node_at[plan.source[chosen]]
    source[plan.number[0]] = 0
    return edge[plan.number], source[plan.number]
