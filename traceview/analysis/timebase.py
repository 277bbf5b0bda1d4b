"""The common time axis: a map from each rank's stamps to it and back, with its uncertainty (METHODS d.1)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from traceview.analysis.types import Bools, Codes, Floats, Ints

GRADE_A, GRADE_B, GRADE_C = 0, 1, 2
GRADES = "ABC"


def _none() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class Links:
    """Sets of ranks that stand where their sends and receives prove them to, and the proved errors (METHODS d.3).

    ``part``: set by rank; empty = there are no such sets. ``key``: ascending, lower set x ``span`` + higher set.
    ``bound``: proved error of the difference of the two, ns.
    """

    part: Ints = field(default_factory=_none)
    span: int = 0
    key: Ints = field(default_factory=_none)
    bound: Ints = field(default_factory=_none)

    def between(self, first: Ints, second: Ints) -> Floats:
        """Proved error between ranks, ns: 0 within a set, infinite where nothing is proved."""
        if not len(self.part):
            return np.zeros(len(first))
        a, b = self.part[first], self.part[second]
        key = np.minimum(a, b) * self.span + np.maximum(a, b)
        if not len(self.key):
            return np.where(a == b, 0.0, np.inf)
        at = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        out: Floats = np.where(self.key[at] == key, self.bound[at].astype(np.float64), np.inf)
        return np.where(a == b, 0.0, out)


@dataclass(frozen=True)
class TimeBase:
    """``true = local + shift + drift * (local - pivot)`` per rank; arrays are indexed by rank.

    ``sigma``: standard error of the rank's axis in ns, 0 for the gauge and its host. ``unit``: ranks of one unit
    share a system clock and compare exactly. ``component``: ranks of different components are never compared.
    ``jumps``: rank -> (local times, shift added from each on), for clocks that were stepped. ``links``: sets of one
    component that only sends and receives tie together.
    """

    shift: Ints
    drift: Floats
    pivot: Ints
    sigma: Floats
    unit: Ints
    component: Ints
    grade: Codes
    jumps: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)
    links: Links = field(default_factory=Links)

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

    @property
    def part(self) -> Ints:
        """By rank: the set that common collectives tie together, with one error for all it compares."""
        return self.links.part if len(self.links.part) else self.component

    def pair_sigma(self, first: Ints, second: Ints) -> Floats:
        """Error of the difference of two ranks' axes, ns; 0 within a unit.

        The standard error within a set; between sets the proved bound comes on top, infinite where there is none.
        """
        out: Floats = np.hypot(self.sigma[first], self.sigma[second])
        if len(self.links.part):
            out += self.links.between(first, second)
        return np.where(self.unit[first] == self.unit[second], 0.0, out)

    def comparable(self, first: Ints, second: Ints) -> Bools:
        """Times of the two ranks can be compared: one unit, or both well aligned on one axis."""
        same: Bools = self.unit[first] == self.unit[second]
        if same.all():
            return same
        aligned = ~(self.weak(first) | self.weak(second)) & (self.component[first] == self.component[second])
        out: Bools = same | (aligned & np.isfinite(self.links.between(first, second)))
        return out

    def weak(self, rank: Ints) -> Bools:
        """Grade C: times of this rank must not be compared with another unit's."""
        out: Bools = self.grade[rank] == GRADE_C
        return out
