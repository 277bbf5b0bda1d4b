"""What a replayed step is made of: the chain of what held what, from its end back to its begin (METHODS e.8)."""

from __future__ import annotations

import numpy as np

from traceview.analysis import maxplus
from traceview.analysis.replay.answer import warm_up
from traceview.analysis.replay.graph import Graph
from traceview.analysis.replay.ops import COMM, COPY, KERNEL
from traceview.analysis.replay.play import Played
from traceview.analysis.types import Bools, Ints

COMPUTE, COMMUNICATION, STAGING, IDLE = "compute", "communication", "PCIe staging", "idle"


def made_of(g: Graph, played: Played) -> dict[str, float]:
    """What -> ns a step, of the measured steps; they sum to the mean step of the rank that ends last.

    There is no waiting in it: where a rank waits, the chain goes on at the one that it waits for.
    """
    first = warm_up(g.bounds.shape[1] - 1)
    rank, steps = int(np.argmax(played.bounds[:, -1])), g.bounds.shape[1] - 1 - first
    begin = float(played.bounds[rank, first])
    edge, source, target = _chain(g, played, rank, begin)
    spent = np.maximum(played.when[target] - np.maximum(played.when[source], begin), 0.0)
    block, transfer = _blocks_of(g, edge)
    kind = np.where(block >= 0, g.blocks.kind[block], -1)
    work = np.minimum(np.where(block >= 0, played.busy[block], 0.0), spent)
    comm = transfer | ((kind == COMM) & (g.blocks.row[block] < 0))
    out = {name: float(work[kind == which].sum()) / steps for name, which in ((COMPUTE, KERNEL), (STAGING, COPY))}
    moved = float(spent[comm].sum()) / steps
    rest = float(spent.sum()) / steps - moved - sum(out.values())
    return {COMPUTE: out[COMPUTE], COMMUNICATION: moved, STAGING: out[STAGING], IDLE: rest}


def _chain(g: Graph, played: Played, rank: int, begin: float) -> tuple[Ints, Ints, Ints]:
    """(edge, source, target) from the last end of the rank back to ``begin``."""
    edges, sources = maxplus.holding(g.plan, played.when, played.lag)
    edge_of, source_of, when = edges.tolist(), sources.tolist(), played.when.tolist()
    node = g.first_bound + (rank + 1) * (g.bounds.shape[1] - 1) - 1
    nodes = [node]
    while node and when[node] > begin:
        node = source_of[node]
        nodes.append(node)
    target, source = np.array(nodes[:-1], np.int64), np.array(nodes[1:], np.int64)
    return np.array([edge_of[n] for n in nodes[:-1]], np.int64), source, target


def _blocks_of(g: Graph, edge: Ints) -> tuple[Ints, Bools]:
    """(The block whose end an edge leads to, -1 = none; it is a transfer)."""
    term, blocks = g.term[edge].astype(np.int64), len(g.blocks.row)
    block = np.where((term > 0) & (term <= 2 * blocks), (term - 1) % blocks, -1)
    return block, (term > 2 * blocks) & (term <= 2 * blocks + len(g.row))
