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


def typical_wait(waits_ns: Ints) -> int:
    """Median exposed wait of the ranks, of two that of the one that waits: the gain if the sick rank is typical."""
    return int(np.sort(waits_ns)[len(waits_ns) // 2]) if len(waits_ns) else 0


def no_straggler(step_ns: int, waits_ns: Ints) -> NoStraggler | None:
    """From the step time and the exposed straggler wait of every rank; None without ranks."""
    if not len(waits_ns):
        return None
    return NoStraggler(
        replace=float(step_ns - typical_wait(waits_ns)),
        rebalance=float(step_ns - waits_ns.mean()),
        best=float(step_ns - waits_ns.max()),
    )
