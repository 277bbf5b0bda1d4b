"""A slow class of collectives becomes a finding, by its peers or by its bound."""

from __future__ import annotations

import pytest

from traceview.analysis.findings.bandwidth import find
from traceview.config import DEFAULT
from traceview.result import CollectiveRow, Finding

from .results import MS, result, window


def findings(**facts: object) -> list[Finding]:
    """Of one class that exposes 40 ms a window; two ranks, two steps of 100 ms."""
    value = result([window(r, k, compute=60, comm_transfer__nxn=40) for r in (0, 1) for k in (0, 1)])
    row = CollectiveRow("dp", "allreduce", "64-128 MiB", 4, 4, 0, 0, 160 * MS, busbw=20.0, **facts)  # type: ignore[arg-type]
    value.collective_rows = [row]
    return find(value, DEFAULT)


def test_against_the_bound() -> None:
    (found,) = findings(verdict="degraded", peak=50.0, efficiency=0.4)
    assert found.saving_ns_per_step == 20 * MS  # at 80 % of 50 GB/s it takes half the time
    assert found.title == "allreduce of group dp reaches 20 of 50 GB/s" and found.confidence == "possible"


def test_peers_are_the_stronger_evidence_and_need_no_peak() -> None:
    (found,) = findings(verdict="degraded", peers_ratio=0.5)
    assert found.saving_ns_per_step == 20 * MS
    assert found.title == "allreduce of group dp reaches 50.0 % of the rate of its peers"
    assert found.confidence == "likely"


@pytest.mark.parametrize(
    "facts",
    [
        {"verdict": "healthy", "peak": 25.0, "efficiency": 0.8},
        {"verdict": "no peak known"},
        {"verdict": "suspect", "peak": 200.0, "efficiency": 0.1, "host_staged": True},
        {"verdict": "degraded", "peak": 25.5, "efficiency": 0.79},
    ],
)
def test_no_finding(facts: dict[str, object]) -> None:
    assert findings(**facts) == []
