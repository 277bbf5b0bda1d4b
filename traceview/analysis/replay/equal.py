"""Equalised op times of a replay (METHODS e.6, h.2): which stretches of work compare, and what each should take.

Two ranks have one role in a step if they make the same communication calls in the same order. A stretch, from one
call to the next, compares with the same stretch of the ranks of its role; between two sends or receives also with
those of the other micro-batches. Stages of a pipeline have different roles: they are made equal by their whole work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.groups import KIND
from traceview.analysis.p2p import Partners, components
from traceview.analysis.replay.graph import Graph
from traceview.analysis.replay.meet import Met
from traceview.analysis.replay.ops import COPY, KERNEL
from traceview.analysis.replay.play import Scenario
from traceview.analysis.types import P2P, Bools, Floats, Ints

AS_RECORDED = Scenario()


@dataclass(frozen=True)
class Roles:
    """What the stretches of a graph compare with; one element per stretch."""

    place: Ints
    """the same for the same stretch of the ranks of one role"""
    kind: Ints
    """the same, and for the micro-batches of a step"""
    cell: Ints
    """number of its (rank, step)"""
    pipeline: Ints
    """per cell: the least of those that it passes messages to in that step, however far"""
    peers: Ints
    """ranks of its role in that step"""


def roles(g: Graph, met: Met, step_of_row: Ints) -> Roles:
    """Compare the communication calls of the ranks."""
    row, lane = g.stretches.row, g.lane_of_stretch
    head = row < 0
    call = np.where(head, np.append(row[1:], -1), row)  # the first stretch belongs to the step of the first call
    step = np.where(call >= 0, step_of_row[call], -1)
    step[head & (np.append(lane[1:], -1) != lane)] = -1
    what = np.where(head, 0, 1 + _calls(met, np.where(head, 0, row)))
    _, what = np.unique(what, return_inverse=True)
    begins = np.ones(len(row), np.bool_)
    begins[1:] = (lane[1:] != lane[:-1]) | (step[1:] != step[:-1])
    cell = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    calls = first + head[first]  # what was done before the first call is in the step, but is no call of it
    ends = np.append(first[1:], len(row))
    role = _sequences([what[a:b] for a, b in zip(calls.tolist(), ends.tolist(), strict=True)], step[first])
    number = np.arange(len(row)) - calls[cell]
    place = _dense(role[cell], number)
    point = ~head & (met.waited.phases.sub[np.where(head, 0, row)] == P2P)
    inner = np.zeros(len(row), np.bool_)
    inner[:-1] = point[:-1] & point[1:] & (cell[:-1] == cell[1:])
    pair = np.where(inner, 1 + _dense(what, np.append(what[1:], 0)), 0)
    kind = _dense(_dense(role[cell], pair), np.where(inner, 0, 1 + number))
    pipeline = _pipelines(row, cell, len(first), met.waited.instances.partners)
    return Roles(place, kind, cell, pipeline, np.bincount(role)[role][cell])


def _calls(met: Met, rows: Ints) -> Ints:
    """What a call is, whoever makes it: kind, size of group and message, and the direction of a message."""
    c = met.c
    size = np.array([*(g.size for g in c.groups), 0], np.int64)[c.group[rows]]
    point = met.waited.phases.sub[rows] == P2P
    out, back = (
        np.where(point & (peer >= 0), np.sign(peer - c.rank[rows]), 0) + 1 for peer in (c.dst[rows], c.src[rows])
    )
    routed = c.kind[rows] == KIND["alltoallv"]  # its sizes are data, not program
    return _dense(_dense(c.kind[rows] * 9 + out * 3 + back, size), np.where(routed, 0, c.elems()[0][rows]))


def _dense(first: Ints, second: Ints) -> Ints:
    """A number per distinct pair."""
    _, b = np.unique(second, return_inverse=True)
    _, out = np.unique(first.astype(np.int64) * (int(b.max(initial=0)) + 1) + b, return_inverse=True)
    numbers: Ints = out
    return numbers


def _sequences(parts: list[Ints], step: Ints) -> Ints:
    """A number per distinct (step, sequence of calls)."""
    known: dict[tuple[int, bytes], int] = {}
    keys = [(k, part.tobytes()) for k, part in zip(step.tolist(), parts, strict=True)]
    return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)


def _pipelines(row: Ints, cell: Ints, cells: int, partners: Partners) -> Ints:
    """Cells that pass messages to each other, by their least."""
    mine = np.flatnonzero(row >= 0)
    by = mine[np.argsort(row[mine])]
    pairs: list[tuple[Ints, Ints]] = []
    for peer in (partners.sender[row[by]], partners.receiver[row[by]]):
        at = np.minimum(np.searchsorted(row[by], peer), max(len(by) - 1, 0))
        known = np.flatnonzero((peer >= 0) & (row[by][at] == peer)) if len(by) else by
        pairs.append((cell[by[known]], cell[by[at[known]]]))
    return components(cells, *(np.concatenate(side) for side in zip(*pairs, strict=True)))


def balanced(g: Graph, r: Roles, how: Scenario = AS_RECORDED) -> Scenario:
    """The same work, evenly spread: means over a role and its micro-batches, then over the stages of a pipeline.

    The host is never slowed down: where it takes longer than is typical, it becomes typical. ``how``: what the
    steps took before; its other changes stay.
    """
    work, busy = _spent(g, how)
    kernels = _mean(work[:, KERNEL], r.kind)
    host = np.minimum(busy, _lower_median(busy, r.kind))
    whole, hosts = (np.bincount(r.cell, x).astype(np.float64) for x in (kernels, host))
    kernels = kernels * _ratio(_mean(whole, r.pipeline), whole)[r.cell]
    host = host * np.minimum(1.0, _ratio(_lower_median(hosts, r.pipeline), hosts))[r.cell]
    return how.scaled(
        kernels=_ratio(kernels, work[:, KERNEL]),
        copies=_ratio(_mean(work[:, COPY], r.kind), work[:, COPY]),
        host=_ratio(host, busy),
    )


def typical(g: Graph, r: Roles) -> Scenario:
    """Every rank is as the typical one of its role: lower medians, micro-batches together; stages stay unequal."""
    work, busy = _spent(g)
    kernels, copies = (_ratio(_lower_median(work[:, k], r.kind), work[:, k]) for k in (KERNEL, COPY))
    return Scenario(kernels, copies, np.minimum(1.0, _ratio(_lower_median(busy, r.kind), busy)))


def _spent(g: Graph, how: Scenario = AS_RECORDED) -> tuple[Floats, Floats]:
    """(GPU work [stretches, kinds], host time) of the stretches."""
    work, busy = g.stretches.work.astype(np.float64), g.stretches.busy.astype(np.float64)
    for kind, factor in ((KERNEL, how.kernels), (COPY, how.copies)):
        if factor is not None:
            work[:, kind] *= factor
    return work, busy if how.host is None else busy * how.host


def replaced(g: Graph, r: Roles, ranks: set[int], how: Scenario = AS_RECORDED) -> Scenario:
    """The ranks become typical: the lower median over their role, in every stretch, on the GPU and its host.

    ``how``: what the steps took before; its other changes stay.
    """
    named = np.isin(g.ranks, sorted(ranks))[g.lane_of_stretch]
    work, busy = _spent(g, how)
    kernels, copies, host = (
        np.where(named, _ratio(_lower_median(x, r.place), x), 1.0) for x in (work[:, KERNEL], work[:, COPY], busy)
    )
    return how.scaled(kernels, copies, np.minimum(1.0, host))


def comparable(g: Graph, r: Roles, ranks: set[int]) -> bool:
    """Whether most of the work of these ranks has a peer to compare with."""
    named = np.isin(g.ranks, sorted(ranks))[g.lane_of_stretch]
    alone: Bools = r.peers < 2
    cost = g.stretches.work.sum(axis=1) + g.stretches.busy
    return bool(named.any() and 2 * cost[named & alone].sum() < cost[named].sum())


def _ratio(target: Floats, own: Floats) -> Floats:
    return np.divide(target, own, out=np.ones(len(own)), where=own > 0)


def _mean(values: Floats, key: Ints) -> Floats:
    count = np.bincount(key)
    total = np.bincount(key, values)
    out: Floats = (total / np.maximum(count, 1))[key]
    return out


def _lower_median(values: Floats, key: Ints) -> Floats:
    order = np.lexsort((values, key))
    count = np.bincount(key)
    first = np.cumsum(count) - count
    out: Floats = values[order[np.minimum(first + (np.maximum(count, 1) - 1) // 2, len(values) - 1)]][key]
    return out
