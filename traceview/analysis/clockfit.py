"""Robust fit of clock offsets and drifts to the ends of collectives (METHODS d.2).

Observation o of instance i by node u: ``y_o + theta_u + rho_u * s_o = T_i + noise``. The T_i are eliminated; the
rest is solved by conjugate gradients inside iteratively reweighted least squares (towards least absolute
deviations), so it is near-linear in the observations whatever the number of hosts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from traceview.analysis.types import Bools, Floats, Ints

ROUNDS = 12  # of reweighting
MAD_SIGMA = 1.4826


@dataclass(frozen=True)
class Problem:
    """Observations (one element each) and which unknowns are free (one element per node)."""

    node: Ints
    instance: Ints
    """dense numbers"""
    y: Floats
    s: Floats
    """time since the pivot of the node, as a share of its span"""
    weight: Floats
    free_theta: Bools
    free_rho: Bools

    def centred(self, value: Floats, w: Floats) -> Floats:
        """``value`` minus its weighted mean over the instance, times the weight."""
        total = np.bincount(self.instance, w)
        mean = np.bincount(self.instance, w * value) / np.where(total > 0, total, 1.0)
        out: Floats = w * (value - mean[self.instance])
        return out

    def model(self, x: Floats) -> Floats:
        """theta + rho * s per observation."""
        n = len(self.free_theta)
        out: Floats = x[:n][self.node] + x[n:][self.node] * self.s
        return out

    def gather(self, r: Floats) -> Floats:
        """The transpose of ``model``, for free unknowns only."""
        n = len(self.free_theta)
        theta = np.bincount(self.node, r, n) * self.free_theta
        rho = np.bincount(self.node, r * self.s, n) * self.free_rho
        return np.concatenate((theta, rho))


def solve(p: Problem) -> tuple[Floats, Floats]:
    """(theta, rho per span) per node; nodes that are not free are 0."""
    n = len(p.free_theta)
    x = np.zeros(2 * n)
    w = p.weight
    for _ in range(ROUNDS):
        new = _gradients(p, w, x)
        value = p.y + p.model(new)
        residual = p.centred(value, w) / w
        scale = max(1.0, float(np.median(np.abs(residual))) / 2)
        w = p.weight / np.maximum(np.abs(residual), scale)
        done = np.max(np.abs(new - x), initial=0.0) < 0.05
        x = new
        if done:
            break
    return x[:n], x[n:]


def residuals(instance: Ints, value: Floats) -> Floats:
    """Mean of the other members of the instance minus ``value``: the own deviation counts in full, also of two."""
    count = np.bincount(instance)[instance]
    mean = (np.bincount(instance, value) / np.maximum(np.bincount(instance), 1))[instance]
    out: Floats = (mean - value) * count / np.maximum(count - 1, 1)
    return out


def median_of(group: Ints, value: Floats) -> Floats:
    """Lower median of ``value`` per group (dense numbers)."""
    order = np.lexsort((value, group))
    count = np.bincount(group)
    head = np.cumsum(count) - count
    out: Floats = value[order[head + (np.maximum(count, 1) - 1) // 2]]
    return out


def _gradients(p: Problem, w: Floats, x: Floats) -> Floats:
    """Weighted least squares by Jacobi-preconditioned conjugate gradients, started at ``x``."""

    def apply(v: Floats) -> Floats:
        return p.gather(p.centred(p.model(v), w))

    scale = p.gather(w * np.maximum(np.abs(p.s), 0.1))
    scale = np.where(scale > 0, scale, 1.0)
    r = -p.gather(p.centred(p.y, w)) - apply(x)
    z = r / scale
    d, rz = z, float(r @ z)
    limit = rz * 1e-18  # a second pass starts from the rounded solution of the first
    for _ in range(min(2 * len(x) + 10, 400)):
        if rz <= limit or rz == 0.0:
            break
        ad = apply(d)
        step = rz / float(d @ ad)
        x = x + step * d
        r = r - step * ad
        z = r / scale
        rz, old = float(r @ z), rz
        d = z + (rz / old) * d
    return x


def spread(value: Floats) -> float:
    """1.4826 x median absolute deviation from the median; 0 for fewer than 2 values."""
    if len(value) < 2:
        return 0.0
    return MAD_SIGMA * float(np.median(np.abs(value - np.median(value))))


def find_jump(time: Ints, residual: Floats, least: float) -> tuple[int, float] | None:
    """(index of the first observation after it, height) of the one step that explains most of ``residual``.

    None unless the medians on both sides (>= 5 observations each) differ by more than 5 sigma and ``least`` ns.
    """
    n = len(residual)
    if n < 10:
        return None
    order = np.argsort(time, kind="stable")
    value = residual[order]
    limit = 5 * spread(value) + least
    tame = np.clip(value, np.median(value) - limit, np.median(value) + limit)
    left = np.cumsum(tame)[:-1]
    k = np.arange(1, n)
    gain = (left / k - (left[-1] + tame[-1] - left) / (n - k)) ** 2 * k * (n - k)
    gain[:4] = gain[n - 5 :] = -1.0
    at = int(np.argmax(gain)) + 1
    before, after = value[:at], value[at:]
    height = float(np.median(after) - np.median(before))
    noise = spread(np.concatenate((before - np.median(before), after - np.median(after))))
    if abs(height) <= max(5 * noise, least):
        return None
    return at, height


def keep(p: Problem, take: Bools) -> Problem:
    """The problem of some observations, instances renumbered."""
    dense = np.unique(p.instance[take], return_inverse=True)[1]
    return replace(p, node=p.node[take], instance=dense, y=p.y[take], s=p.s[take], weight=p.weight[take])
