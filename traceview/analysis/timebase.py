"""The common time axis: a map from each rank's stamps to it and back, with its uncertainty (METHODS d.1)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from traceview.analysis.types import Bools, Codes, Floats, Ints

GRADE_A, GRADE_B, GRADE_C = 0, 1, 2
GRADES = "ABC"


@dataclass(frozen=True)
class TimeBase:
    """``true = local + shift + drift * (local - pivot)`` per rank; arrays are indexed by rank.

    ``sigma``: standard error of the rank's axis in ns, 0 for the gauge and its host. ``unit``: ranks of one unit
    share a system clock and compare exactly. ``component``: ranks of different components are never compared.
    ``jumps``: rank -> (local times, shift added from each on), for clocks that were stepped.
    """

    shift: Ints
    drift: Floats
    pivot: Ints
    sigma: Floats
    unit: Ints
    component: Ints
    grade: Codes
    jumps: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)

    @classmethod
    def identity(cls, ranks: int, grade: int = GRADE_A) -> TimeBase:
        """All ranks on one clock that is taken as it is."""
        zero = np.zeros(ranks, np.int64)
        real = np.zeros(ranks)
        return cls(zero, real, zero, real, zero, zero, np.full(ranks, grade, np.int8))

    @property
    def is_identity(self) -> bool:
        """No stamp changes."""
        return not (self.shift.any() or self.drift.any() or self.jumps)

    def to_true(self, rank: Ints, ns: Ints) -> Ints:
        """Stamps ``ns`` of ``rank`` on the common axis, rounded to ns; unchanged bit for bit for an identity."""
        if self.is_identity:
            return ns
        out: Ints = ns + self.shift[rank]
        if self.drift.any():
            out += np.rint(self.drift[rank] * (ns - self.pivot[rank])).astype(np.int64)
        for r, (start, extra) in self.jumps.items():
            own = rank == r
            out[own] += np.append(0, extra)[np.searchsorted(start, ns[own], side="right")]
        return out

    def to_local(self, rank: Ints, ns: Ints) -> Ints:
        """The inverse of ``to_true``, to the rounding; inside a backward jump the later branch is taken."""
        if self.is_identity:
            return ns
        flat = ns - self.shift[rank]
        for r, (start, extra) in self.jumps.items():
            own = rank == r
            flat[own] -= np.append(0, extra)[np.searchsorted(start + extra, flat[own], side="right")]
        if not self.drift.any():
            return flat
        drift = self.drift[rank]
        out: Ints = flat - np.rint((flat - self.pivot[rank]) * (drift / (1 + drift))).astype(np.int64)
        return out

    def pair_sigma(self, first: Ints, second: Ints) -> Floats:
        """Standard error of the difference of two ranks' axes, ns; 0 within a unit."""
        out: Floats = np.hypot(self.sigma[first], self.sigma[second])
        return np.where(self.unit[first] == self.unit[second], 0.0, out)

    def weak(self, rank: Ints) -> Bools:
        """Grade C: times of this rank must not be compared with another unit's."""
        out: Bools = self.grade[rank] == GRADE_C
        return out
