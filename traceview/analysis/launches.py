"""Launches against executions of one rank: negative latencies and the shift of its host axis, METHODS a.5."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.ops import Ops
from traceview.config import Config


@dataclass(frozen=True)
class LaunchAxis:
    """What the launches of a rank tell of its clocks."""

    launches: int
    """GPU records with a known launch"""
    unmatched: int
    """GPU records without one"""
    negative: int
    """records which start before their launch call, as stamped"""
    host_shift: int
    """ns to add to every host stamp of the rank; 0 unless too many launches are negative"""


def launch_axis(ops: Ops, config: Config) -> LaunchAxis:
    """Count negative launches; if more than 1 % are, move the host axis by the 1st percentile of the latencies.

    The percentile is a latency that occurs, the lower one: at most 1 % stay negative, and those are clamped.
    """
    known = ops.launched
    latency = ops.start[known] - ops.launch[known]
    negative = int((latency < 0).sum())
    shift = 0
    if negative > config.negative_launch_share * len(latency):
        rank = int(config.negative_launch_share * (len(latency) - 1))
        shift = min(int(np.partition(latency, rank)[rank]), 0)
    return LaunchAxis(len(latency), len(ops) - len(latency), negative, shift)
