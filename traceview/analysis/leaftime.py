"""Exclusive time of a rank by leaf between any two moments (METHODS e.4 reads it for a culprit and its reference)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from traceview.analysis.phases import LEAF_OF
from traceview.analysis.types import Codes, Ints, Segments
from traceview.schema import LEAVES

SegmentSource = Callable[[int], Segments | None]
"""rank -> the segments of its busiest device (``Decomposition.segments``); None = it has none"""


@dataclass(frozen=True)
class LeafTime:
    """Stretch i of the record is ``[bounds[i], bounds[i + 1])`` and belongs to leaf ``leaf[i]``."""

    bounds: Ints
    leaf: Codes

    @classmethod
    def of(cls, segments: Segments) -> LeafTime:
        """From the phases of a decomposition."""
        return cls(segments.bounds, LEAF_OF[segments.phase])

    def between(self, start: Ints, end: Ints, leaves: Sequence[int] = range(len(LEAVES))) -> Ints:
        """[queries, len(LEAVES)] ns of ``[start, end)``; time outside the record is in no leaf. Rows sum exactly.

        ``leaves``: those that are asked for; the others are 0.
        """
        out = np.zeros((len(start), len(LEAVES)), np.int64)
        if not len(self.leaf):
            return out
        low, high = self.bounds[0], self.bounds[-1]
        ends = [np.clip(x, low, high) for x in (start, np.maximum(start, end))]
        at = [np.clip(np.searchsorted(self.bounds, x, side="right") - 1, 0, len(self.leaf) - 1) for x in ends]
        part = [x - self.bounds[i] for x, i in zip(ends, at, strict=True)]
        length = np.diff(self.bounds)
        for k in np.intersect1d(self.leaf, leaves).tolist():
            own = self.leaf == k
            total = np.append(0, np.cumsum(np.where(own, length, 0)))
            until = [total[i] + np.where(own[i], p, 0) for i, p in zip(at, part, strict=True)]
            out[:, k] = until[1] - until[0]
        return out
