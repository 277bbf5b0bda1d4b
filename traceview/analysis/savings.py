"""What removing waits would save, in closed form (METHODS h.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.types import Ints


@dataclass(frozen=True)
class NoStraggler:
    """Step time if the waits went, ns. Removing waits without their cause is meaningless: the last rank has none."""

    replace: float
    """the sick rank becomes typical: W - median of the waits, of two ranks that of the one that waits"""
    rebalance: float
    """the work is conserved: W - mean of the waits"""
    best: float
    """W - the longest wait"""


def no_straggler(step_ns: int, waits_ns: Ints) -> NoStraggler | None:
    """From the step time and the exposed straggler wait of every rank; None without ranks."""
    if not len(waits_ns):
        return None
    ordered = np.sort(waits_ns)
    return NoStraggler(
        replace=float(step_ns - ordered[len(ordered) // 2]),
        rebalance=float(step_ns - ordered.mean()),
        best=float(step_ns - ordered[-1]),
    )
