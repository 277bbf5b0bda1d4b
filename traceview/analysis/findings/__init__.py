"""Findings: one file per rule, each a pure function Result -> findings. Savings of findings never add up."""

from __future__ import annotations

from collections.abc import Callable

from traceview.analysis.findings import (
    allocator,
    bandwidth,
    capture,
    experts,
    exposed_comm,
    grey_failure,
    host,
    host_staged,
    imbalance,
    input_pipeline,
    opaque,
    pipeline_bubble,
    settings,
    slow_steps,
    staging,
    straggler,
    sync,
    unresolved,
)
from traceview.config import Config
from traceview.result import Finding, Result

Rule = Callable[[Result, Config], list[Finding]]

RULES: tuple[Rule, ...] = (
    straggler.find,
    experts.find,
    imbalance.find,
    host_staged.find,
    exposed_comm.find,
    bandwidth.find,
    grey_failure.find,
    input_pipeline.find,
    staging.find,
    sync.find,
    host.find,
    allocator.find,
    pipeline_bubble.find,
    slow_steps.find,
    unresolved.find,
    opaque.find,
    settings.find,
    capture.find,
)


def find_all(result: Result, config: Config) -> list[Finding]:
    """Every finding of every rule, the largest saving first; those without a saving come last."""
    return in_order([finding for rule in RULES for finding in rule(result, config)])


def in_order(found: list[Finding]) -> list[Finding]:
    """The largest saving first; those without a saving come last."""
    return sorted(found, key=lambda f: -(f.saving_ns_per_step or -1))
