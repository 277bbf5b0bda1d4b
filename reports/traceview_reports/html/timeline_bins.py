"""Utilisation of every rank, always embedded: the share of each bin of the run that is in each group."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceview.analysis.types import Ints
from traceview_reports.html.timeline_data import GROUP_NAMES, GROUP_OF_PHASE, Detail, RankDetail

_MAX_BINS, _MIN_BINS = 2_000, 60
_CELLS = 3_000_000  # bytes before compression, all ranks and groups

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def bin_count(ranks: int) -> int:
    """Bins a rank: fine for few ranks, coarser for many, so that the page stays small."""
    return int(np.clip(_CELLS // max(1, ranks * len(GROUP_NAMES)), _MIN_BINS, _MAX_BINS))


def busy_at(start: Ints, end: Ints, edges: Ints) -> Ints:
    """Time covered by disjoint intervals before each edge (ns, exact)."""
    if not len(start):
        return np.zeros(len(edges), np.int64)
    total = np.concatenate(([0], np.cumsum(end - start)))
    at = np.searchsorted(start, edges, "right") - 1
    inside = np.minimum(edges - start[at], end[at] - start[at])
    out: Ints = np.where(at >= 0, total[at] + np.maximum(inside, 0), 0)
    return out


def bins_of(detail: RankDetail, origin: int, edges: Ints) -> Bytes:
    """(groups, bins) shares in 255ths of one rank."""
    start, end, phase = detail.pieces(origin)
    group = GROUP_OF_PHASE[phase]
    width = np.diff(edges)
    rows = [np.diff(busy_at(start[group == g], end[group == g], edges)) / width for g in range(len(GROUP_NAMES))]
    out: Bytes = np.rint(np.array(rows) * 255).astype(np.uint8)
    return out


def all_bins(detail: Detail, ranks: list[int], span: int) -> tuple[bytes, int]:
    """Bytes of (rank, group, bin) and the number of bins; bins divide [0, span) evenly."""
    count = bin_count(len(ranks))
    edges: Ints = np.linspace(0, max(span, count), count + 1).astype(np.int64)
    return b"".join(bins_of(detail.ranks[r], detail.origin_ns, edges).tobytes() for r in ranks), count
