"""Baseline against candidate, as values: what changed of a step, what the gate says of it (METHODS i)."""

from __future__ import annotations

from typing import Literal

import msgspec

from traceview.result.rows import CollectiveRow

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE"]


class Change(msgspec.Struct):
    """A part of a step on both sides, ns; ``delta_ns`` is candidate - baseline."""

    name: str
    baseline_ns: int
    candidate_ns: int
    delta_ns: int


class WorkChange(msgspec.Struct):
    """Kernels or collectives of one name. ``more_ns``: other count; ``longer_ns``: other time each; they sum."""

    name: str
    delta_ns: int
    more_ns: int
    longer_ns: int
    baseline_count: float
    """per rank and step"""
    candidate_count: float
    baseline_each_ns: int | None
    candidate_each_ns: int | None


class Comparison(msgspec.Struct):
    """What changed from the baseline to the candidate."""

    baseline: str
    candidate: str
    baseline_step_ns: int
    """median over the used steps of all runs"""
    candidate_step_ns: int
    baseline_mean_ns: int
    """mean over ranks and used steps: what the parts sum to"""
    candidate_mean_ns: int
    leaves: list[Change]
    """all leaves; their changes sum to the change of the mean"""
    groups: list[Change]
    """the same by group"""
    kernels: list[WorkChange]
    """GPU work that is no communication"""
    collectives: list[WorkChange]
    """transfer times: waiting is a group of its own"""
    found: list[str]
    """findings that only the candidate has"""
    gone: list[str]
    """findings that only the baseline has"""
    different: list[str]
    """what makes the sides hard to compare"""
    notes: list[str] = []
    schema: str = "traceview.comparison/1"


class Side(msgspec.Struct):
    """The runs of one side. Times are ns; a run's time is the median of its step times."""

    names: list[str]
    steps: list[int]
    """used steps per run"""
    median_ns: list[int]
    step_ns: list[list[int]] = []
    """per run the times of its used steps, in their order"""


class Decision(msgspec.Struct):
    """What the gate says, and from what. Changes are fractions of the baseline's step time: 0.05 = 5 % slower."""

    outcome: Outcome
    reason: str
    change: float
    threshold: float
    """a larger change fails"""
    minimum: float
    """a smaller change passes"""
    improved: bool
    rule: str
    """steps | paired steps | runs | run against runs"""
    run_noise: float
    """spread of a run's median step time from run to run that was assumed or seen"""
    baseline: Side
    candidate: Side
    low: float | None = None
    """one-sided 95 % lower bound of the change, where the rule has one"""
    p_value: float | None = None
    schema: str = "traceview.gate/1"


class Against(msgspec.Struct):
    """A run beside the baseline that was given, or why they are not compared."""

    baseline: str
    refused: str = ""
    """what makes them incomparable; then nothing else is told"""
    comparison: Comparison | None = None
    decision: Decision | None = None
    metrics: dict[str, float] = {}
    """the baseline's value of each metric that both have"""
    busbw: dict[str, float] = {}
    """the baseline's bus bandwidth of classes of collectives that both have, GB/s"""


def class_name(row: CollectiveRow) -> str:
    """The class of collectives as both sides call it."""
    return f"{row.kind} of {row.group or 'all'}, {row.size_class}"
