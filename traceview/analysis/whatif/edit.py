"""A scenario as a change of the replay (METHODS h.2): durations change, the order stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceview.analysis.replay import equal
from traceview.analysis.replay.equal import Roles
from traceview.analysis.replay.graph import Graph
from traceview.analysis.replay.ops import KERNEL
from traceview.analysis.replay.play import Scenario
from traceview.analysis.types import Floats, Tokens
from traceview.analysis.whatif.asked import Asked
from traceview.analysis.whatif.facts import Facts, remaining


def edited(g: Graph, r: Roles | None, f: Facts, asked: Asked) -> Scenario:
    """The change of ``g`` that ``asked`` means. Perfect overlap: nothing waits for a transfer.

    ``r``: roles of the ranks, which replacing and balancing need.
    """
    how = Scenario(data=float(asked.data_wait), busy=float(asked.launch_gaps), gaps=float(asked.launch_gaps))
    if asked.even_tokens and f.tokens is not None:
        how = replace(how, kernels=_even(g, f.tokens))
    if not asked.staging:
        how = replace(how, copies=np.zeros(len(g.lane_of_stretch)))
    if asked.overlap or not asked.communication:
        how = replace(how, transfer=np.inf)
    elif asked.network or not asked.staging:
        left = remaining(f.moved, asked, g.row, g.transfer)
        how = replace(how, transfer=np.divide(1.0, left, out=np.full(len(left), np.inf), where=left > 0))
    if r is None:
        return how
    if asked.replace:
        how = equal.replaced(g, r, set(asked.replace), how)
    return equal.balanced(g, r, how) if asked.balance else how


def _even(g: Graph, tokens: Tokens) -> Floats:
    """Factors of the kernels of every stretch: the one before a combine loses what uneven tokens added."""
    at = tokens.at(g.stretches.row)
    combine = np.flatnonzero((at >= 0) & (g.stretches.row >= 0))
    before = combine[combine > 0] - 1
    work = g.stretches.work[:, KERNEL].astype(np.float64)
    target = np.maximum(work[before] - tokens.delay[at[before + 1]], 0.0)
    out = np.ones(len(work))
    out[before] = np.divide(target, work[before], out=np.ones(len(before)), where=work[before] > 0)
    return out
