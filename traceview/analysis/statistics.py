"""Rank statistics and Student's t, as METHODS i needs them: exact for the samples that step times are."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, lgamma, log, sqrt
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]

EXACT_PAIRS = 10_000  # above, the normal approximation is exact enough: 100 steps a side
MOST_STEPS = 2_000  # of one side; more are thinned to as many evenly spaced order statistics
ALPHA, Z95 = 0.05, 1.645


@dataclass(frozen=True)
class Shift:
    """How much larger a second sample is than a first: a Hodges-Lehmann estimate and its lower bound, log scale."""

    estimate: float
    low: float | None
    """one-sided 95 % bound; None = the samples are too small for one"""

    @property
    def error(self) -> float | None:
        """Standard error that the bound stands for."""
        return None if self.low is None else (self.estimate - self.low) / Z95


def unpaired(base: Floats, candidate: Floats) -> Shift:
    """Median of all ``candidate - base``; the bound is that of the exact rank-sum test (METHODS i.2)."""
    base, candidate = _thin(base), _thin(candidate)
    n, m = len(base), len(candidate)
    pairs = np.sort((candidate[:, None] - base[None, :]).ravel())
    if n * m <= EXACT_PAIRS:
        k = _allowed(rank_sum_cdf(n, m))
    else:
        k = _allowed_normal(n * m / 2, n * m * (n + m + 1) / 12)
    return Shift(float(np.median(pairs)), float(pairs[k - 1]) if k else None)


def paired(difference: Floats) -> Shift:
    """Median of all averages of two differences; the bound is that of the exact signed-rank test (METHODS i.4)."""
    difference = _thin(difference)
    n = len(difference)
    first, second = np.triu_indices(n)
    averages = np.sort((difference[first] + difference[second]) / 2)
    if len(averages) <= EXACT_PAIRS:
        k = _allowed(signed_rank_cdf(n))
    else:
        k = _allowed_normal(n * (n + 1) / 4, n * (n + 1) * (2 * n + 1) / 24)
    return Shift(float(np.median(averages)), float(averages[k - 1]) if k else None)


def _thin(sample: Floats) -> Floats:
    if len(sample) <= MOST_STEPS:
        return sample
    out: Floats = np.quantile(sample, (np.arange(MOST_STEPS) + 0.5) / MOST_STEPS)
    return out


def _allowed(cdf: Floats) -> int:
    """The largest k with P(statistic < k) <= 5 %."""
    return int(np.searchsorted(cdf, ALPHA, side="right"))


def _allowed_normal(mean: float, variance: float) -> int:
    return max(int(mean - Z95 * sqrt(variance) + 0.5), 0)


def rank_sum_cdf(n: int, m: int) -> Floats:
    """P(U <= u) for u = 0 .. n*m: the Mann-Whitney statistic of two samples from one distribution."""
    # ways[c][u]: choices of c ranks with the sum u over the smallest sum possible
    ways = np.zeros((n + 1, n * m + 1))
    ways[0, 0] = 1.0
    for rank in range(n + m):
        for c in range(min(n, rank + 1), 0, -1):
            up = rank - (c - 1)  # how far this rank lies above the lowest place of the c-th
            if up <= m:
                ways[c, up:] += ways[c - 1, : n * m + 1 - up]
    total = np.cumsum(ways[n])
    out: Floats = total / total[-1]
    return out


def signed_rank_cdf(n: int) -> Floats:
    """P(W <= w) for w = 0 .. n*(n+1)/2: the Wilcoxon signed-rank statistic of symmetric differences."""
    most = n * (n + 1) // 2
    chance = np.zeros(most + 1)
    chance[0] = 1.0
    for rank in range(1, n + 1):
        chance[rank:] = (chance[rank:] + chance[: most + 1 - rank]) / 2
        chance[:rank] /= 2
    return np.cumsum(chance)


def t_tail(t: float, df: float) -> float:
    """P(T > t) of Student's t with ``df`` degrees of freedom."""
    half = 0.5 * _beta_share(df / (df + t * t), t * t / (df + t * t), df / 2, 0.5)
    return half if t >= 0 else 1 - half


def t_quantile(p: float, df: float) -> float:
    """The t with P(T <= t) = p, for p >= 0.5; by bisection."""
    low, high = 0.0, 1.0
    while t_tail(high, df) > 1 - p:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, df) > 1 - p else (low, middle)
    return (low + high) / 2


def _beta_share(x: float, rest: float, a: float, b: float) -> float:
    """The regularized incomplete beta function I_x(a, b) by its continued fraction; ``rest`` = 1 - x, exactly."""
    if x <= 0 or rest <= 0:
        return float(rest <= 0)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(rest))
    if x > (a + 1) / (a + b + 2):
        return 1 - front * _beta_fraction(rest, b, a) / b
    return front * _beta_fraction(x, a, b) / a


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Lentz's evaluation of the continued fraction of the incomplete beta function."""
    tiny = 1e-300
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1), tiny)
    out = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 / _away(1 + term * d, tiny), _away(1 + term / c, tiny)
            out *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return out


def _away(value: float, tiny: float) -> float:
    """``value``, but never zero."""
    return value if abs(value) > tiny else tiny
