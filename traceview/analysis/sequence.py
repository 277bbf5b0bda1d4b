"""Alignment of two ranks' sequences of collectives: by signature (METHODS c, K3) and by time (V2, index slip)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.types import Bools, Ints

BAND = 16  # how far K3 looks beyond the difference of the two lengths


@dataclass(frozen=True)
class Run:
    """The collectives of one rank in one cell, in order: signature, begin and end (ns) each."""

    sig: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.sig)


def align(ref: Ints, own: Ints) -> tuple[Ints, Bools]:
    """Longest common subsequence of two signature sequences, within a band.

    Returns, per element of ``own``, its position in ``ref`` (-1 = unmatched) and whether that is the only position
    it has in any best alignment (the earliest and the latest best alignment agree).
    """
    if not len(ref) or not len(own):
        return np.full(len(own), -1), np.ones(len(own), np.bool_)
    earliest = _trace(ref, own)
    back = _trace(ref[::-1], own[::-1])[::-1]
    latest = np.where(back >= 0, len(ref) - 1 - back, -1)
    return earliest, latest == earliest


def _trace(ref: Ints, own: Ints) -> Ints:
    """One best alignment, with matches as early in ``ref`` as possible. O(len(own) * band)."""
    n, m = len(own), len(ref)
    low = min(0, m - n) - BAND
    width = abs(m - n) + 2 * BAND + 1
    table = np.zeros((n + 1, width + 1), np.int32)  # table[i, k] = best of own[:i] and ref[:i + low + k]
    columns = np.arange(width)
    equal = np.zeros((n + 1, width), np.bool_)
    for i in range(1, n + 1):
        j = i + low + columns
        inside = (j >= 1) & (j <= m)
        equal[i] = inside & (ref[np.clip(j - 1, 0, m - 1)] == own[i - 1])
        best = np.where(inside, np.maximum(table[i - 1, 1:], table[i - 1, :-1] + equal[i]), 0)
        table[i, :-1] = np.where(j > m, 0, np.maximum.accumulate(best))
    out = np.full(n, -1)
    i, k = n, min(m - n - low, width - 1)
    while i > 0 and i + low + k > 0:
        if equal[i, k] and table[i, k] == table[i - 1, k] + 1 and (k == 0 or table[i, k] > table[i, k - 1]):
            out[i - 1] = i + low + k - 1
            i -= 1
        elif k > 0 and table[i, k] == table[i, k - 1]:
            k -= 1
        else:
            i, k = i - 1, k + 1
        if k >= width:
            break
    return out


def overlap_share(ref: Run, own: Run, position: Ints, offset: int = 0) -> float:
    """Share of the placed elements whose interval shares a point with that of ``ref`` (0 if none is placed)."""
    placed = position >= 0
    if not placed.any():
        return 0.0
    at = position[placed]
    late = np.maximum(ref.start[at], own.start[placed] + offset)
    return float(np.mean(late < np.minimum(ref.end[at], own.end[placed] + offset)))


def by_time(ref: Run, own: Run, offset: int = 0) -> Ints:
    """Positions by the nearest end on one clock (``own`` + ``offset``).

    -1 unless the two are equal in signature, overlap in time, and nothing else is as near to the same place.
    """
    if not len(ref):
        return np.full(len(own), -1)
    end = own.end + offset
    order = np.argsort(ref.end, kind="stable")
    ends = ref.end[order]
    right = np.clip(np.searchsorted(ends, end), 1, max(len(ends) - 1, 1))
    right = np.minimum(right, len(ends) - 1)
    left = np.maximum(right - 1, 0)
    near = order[np.where(np.abs(ends[right] - end) < np.abs(ends[left] - end), right, left)]
    ok = ref.sig[near] == own.sig
    ok &= np.maximum(ref.start[near], own.start + offset) < np.minimum(ref.end[near], end)
    ok &= np.bincount(near[ok], minlength=len(ref))[near] <= 1
    return np.where(ok, near, -1)


def shifted(ref: Run, own: Run, shift: int) -> Ints:
    """Positions ``index + shift``, -1 outside ``ref``."""
    position = np.arange(len(own)) + shift
    return np.where((position >= 0) & (position < len(ref)), position, -1)


@dataclass(frozen=True)
class Slip:
    """A choice of shift. ``offset``: what to add to the own clock (0 on one host)."""

    shift: int
    certain: bool
    share: float
    offset: int = 0


def slip(ref: Run, own: Run, *, same_clock: bool, reach: int) -> Slip:
    """The index shift of ``own`` against ``ref`` (METHODS V2, fixture M1: 1).

    On one clock: the shift under which the intervals overlap. Across hosts the clock absorbs a slip, so it is the
    shift with the smallest mean |residual| of the ends; uncertain when the runner-up is within a factor of 2.
    Candidates lie within ``reach`` of no shift, of a common end, and (one clock) of the nearest ends.
    """
    around = {0, len(ref) - len(own)}
    if same_clock and len(own) and len(ref):
        nearest = by_time(ref, own)
        found = nearest >= 0
        if found.any():
            around.add(int(np.median((nearest - np.arange(len(own)))[found])))
    shifts = sorted({a + d for a in around for d in range(-reach, reach + 1)}, key=lambda s: (abs(s), s))
    if same_clock:
        shares = [overlap_share(ref, own, shifted(ref, own, s)) for s in shifts]
        best = int(np.argmax(shares))
        return Slip(shifts[best], True, shares[best])
    return _slip_by_residual(ref, own, shifts)


def _slip_by_residual(ref: Run, own: Run, shifts: list[int]) -> Slip:
    need = max(1, min(len(ref), len(own)) // 2)
    scored = []
    for s in shifts:
        position = shifted(ref, own, s)
        placed = position >= 0
        if placed.sum() < need or not np.array_equal(ref.sig[position[placed]], own.sig[placed]):
            continue
        gap = ref.end[position[placed]] - own.end[placed]
        offset = int(np.median(gap))
        scored.append((float(np.mean(np.abs(gap - offset))), abs(s), s, offset))
    if not scored:
        return Slip(0, False, 0.0)
    scored.sort()
    residual, _, shift, offset = scored[0]
    certain = len(scored) == 1 or scored[1][0] > 2 * residual
    share = overlap_share(ref, own, shifted(ref, own, shift), offset)
    return Slip(shift, certain, share, offset)
