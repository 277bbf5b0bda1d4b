"""Which stretch of a log's calls a trace covers: sequences of (kind, bytes) laid over each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceview.analysis.types import Ints

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Signature = tuple[str, int]  # kind, message bytes
RUN = 20
"""So many consecutive calls must agree before an offset is believed (all of them in a shorter trace)."""
_PRIME = np.uint64(0x100000001B3)


@dataclass(frozen=True)
class Alignment:
    """``trace[i]`` is ``log[offset + i]`` for a share ``agree`` of the calls that both have."""

    offset: int
    agree: float
    equal_offsets: int
    """offsets that agree as well: steps repeat, so the place in the log is often not unique"""


def align(log: Sequence[Signature], trace: Sequence[Signature]) -> Alignment | None:
    """Lay the calls of one rank in a trace over those of its log; None if no 20 consecutive calls agree.

    The trace may begin before or after the log, and each may lack calls: the offset that most runs vote for wins.
    """
    code = {s: i + 1 for i, s in enumerate(dict.fromkeys([*log, *trace]))}
    a = np.array([code[s] for s in log], np.int64)
    b = np.array([code[s] for s in trace], np.int64)
    run = min(RUN, len(a), len(b))
    if not run:
        return None
    offsets, votes = _votes(_grams(a, run), _grams(b, run))
    if not len(offsets):
        return None
    best = offsets[votes == votes.max()]
    return Alignment(int(best[0]), _agreement(a, b, int(best[0])), len(best))


def _grams(codes: Ints, run: int) -> Hashes:
    """A hash of every ``run`` consecutive codes."""
    out = np.zeros(len(codes) - run + 1, np.uint64)
    for i in range(run):
        out = out * _PRIME + codes[i : len(codes) - run + 1 + i].astype(np.uint64)
    return out


def _votes(log: Hashes, trace: Hashes) -> tuple[Ints, Ints]:
    """Offsets at which runs agree, and how many do. Of a run that the log repeats, every place votes."""
    order = np.argsort(log, kind="stable")
    ranked = log[order]
    first, last = np.searchsorted(ranked, trace, "left"), np.searchsorted(ranked, trace, "right")
    count = last - first
    place = np.repeat(first, count) + np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    found = order[place] - np.repeat(np.arange(len(trace)), count)
    offsets, votes = np.unique(found, return_counts=True)
    return offsets.astype(np.int64), votes.astype(np.int64)


def _agreement(log: Ints, trace: Ints, offset: int) -> float:
    start, end = max(0, -offset), min(len(trace), len(log) - offset)
    return float((log[start + offset : end + offset] == trace[start:end]).mean()) if end > start else 0.0
