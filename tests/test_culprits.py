"""Jobs whose culprit is known, written as files and analysed: the right rank and cause, or nobody at all."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

import traceview as tv
from simulator.job import (
    AllocatorStorm,
    AxisShift,
    ClockDrift,
    ClockOffset,
    CudaGraphs,
    ExpertImbalance,
    HostPauses,
    Job,
    LateStart,
    MissingFirstCollectives,
    MissingRanks,
    SlowLoader,
    SlowNode,
    SlowRank,
)
from simulator.kineto import write_kineto
from simulator.simulate import simulate
from traceview.result import Result

MS = 1_000_000
SLOW = SlowRank(5, 1.3)
BACK = (ClockOffset(1, -2 * MS), ClockDrift(1, -20_000))
FAR = (ClockOffset(1, 10_000 * MS), ClockDrift(1, 20_000))
NEAR = (ClockOffset(1, 2 * MS), ClockDrift(1, 20_000))


def analyse(style: str, faults: tuple[Any, ...], **job: Any) -> Result:
    """Eight ranks on two hosts; ``style``: D2 has sequence numbers and groups, B3 neither."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"ranks": 8, "hosts": 2, "steps": 6} | job
        write_kineto(simulate(Job(faults=faults, **settings)), Path(folder), style)
        return tv.analyze(tv.open(folder, cache=False, workers=1))


CULPRITS: dict[str, tuple[tuple[Any, ...], dict[str, Any], dict[int, str]]] = {
    "one of eight": ((SLOW,), {}, {5: "compute_slower"}),
    "a node": ((SlowNode(1, 1.3),), {}, dict.fromkeys((4, 5, 6, 7), "compute_slower")),
    "two equal ones": ((SlowRank(1, 1.3), SlowRank(6, 1.3)), {}, {1: "compute_slower", 6: "compute_slower"}),
    "two unequal ones": ((SlowRank(1, 1.2), SlowRank(6, 1.4)), {}, {1: "compute_slower", 6: "compute_slower"}),
    "clocks 2 ms apart": ((SLOW, *NEAR), {}, {5: "compute_slower"}),
    "clocks that fall behind": ((SLOW, *BACK), {}, {5: "compute_slower"}),
    "clocks 10 s apart": ((SLOW, *FAR), {}, {5: "compute_slower"}),
    "a first collective is missing": ((SLOW, MissingFirstCollectives(2, 1)), {}, {5: "compute_slower"}),
    "three ranks are missing": ((SLOW, MissingRanks((0, 1, 2))), {}, {5: "compute_slower"}),
    "a capture starts later": ((SLOW, LateStart(3, 2)), {}, {5: "compute_slower"}),
    "three steps": ((SLOW,), {"steps": 3}, {5: "compute_slower"}),
    "a shifted host axis": ((SLOW, AxisShift(3, -40_000)), {}, {5: "compute_slower"}),
    "replayed graphs": ((SLOW, CudaGraphs()), {}, {5: "compute_slower"}),
    "a slow loader": ((SlowLoader(90 * MS, (4,)),), {}, {4: "data"}),
    "an allocator storm": ((AllocatorStorm(2, 2 * MS),), {}, {2: "host"}),
    "nobody": ((), {}, {}),
    "nobody, clocks 10 s apart": (FAR, {}, {}),
    "nobody, a first collective is missing": ((MissingFirstCollectives(2, 1),), {}, {}),
    "nobody, three steps": ((), {"steps": 3}, {}),
    "pauses that go round": ((HostPauses(90 * MS, 3),), {"steps": 10}, {}),
}


@pytest.mark.parametrize("style", ["D2", "B3"])
@pytest.mark.parametrize("name", CULPRITS)
def test_the_culprit_is_named_with_its_cause_and_nobody_else(name: str, style: str) -> None:
    faults, job, expected = CULPRITS[name]
    result = analyse(style, faults, **job)
    assert {s.rank: s.cause for s in result.straggler_rows} == expected
    assert {s.kind for s in result.straggler_rows} <= {"persistent", "too_few_steps"}
    blamed, waited = sum(b.blame_ns for b in result.blame), result.budget.sub_ns.get("comm_wait.nxn", 0)
    assert blamed <= waited
    if not any(row.partial or row.ambiguous for row in result.matching):
        assert blamed == waited  # to the nanosecond, whatever the drift of the clocks


LAYOUTS: dict[str, dict[str, Any]] = {"fsdp": {}, "tp": {"tp": 4}, "pp": {"pp": 4}, "ep": {}}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_every_layout_the_origin_is_named_not_those_who_pass_it_on(layout: str) -> None:
    result = analyse("D2", (SLOW,), layout=layout, **LAYOUTS[layout])
    assert [(s.rank, s.cause) for s in result.straggler_rows] == [(5, "compute_slower")]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_every_layout_a_healthy_job_has_nobody(layout: str) -> None:
    result = analyse("D2", (), layout=layout, **LAYOUTS[layout])
    assert result.straggler_rows == [], [s.explanation for s in result.straggler_rows]


def test_unbalanced_experts_are_more_work() -> None:
    result = analyse("D2", (ExpertImbalance((1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0)),), layout="ep")
    assert [(s.rank, s.cause) for s in result.straggler_rows] == [(2, "compute_more_work")]


def test_a_culprit_whose_trace_is_missing_is_nobody_and_the_verdict_cannot_tell() -> None:
    result = analyse("D2", (SLOW, MissingRanks((5,))))
    assert result.straggler_rows == [] and result.verdict.status == "cannot_tell"


def test_an_idle_gpu_whose_host_was_not_recorded_has_no_cause(tmp_path: Path) -> None:
    """Without CPU activity nobody can tell a slow loader from a slow host."""
    for path in write_kineto(simulate(Job(ranks=8, hosts=2, steps=6, faults=(SlowLoader(90 * MS, (4,)),))), tmp_path):
        trace = json.loads(path.read_text())
        host = ("cpu_op", "user_annotation", "python_function")
        trace["traceEvents"] = [e for e in trace["traceEvents"] if e.get("cat") not in host]
        path.write_text(json.dumps(trace))
    (row,) = tv.analyze(tv.open(tmp_path, cache=False, workers=1)).straggler_rows
    assert (row.rank, row.cause) == (4, "unknown")
    assert "what its host did was not recorded" in row.explanation


def test_a_job_that_does_not_communicate_has_a_verdict(tmp_path: Path) -> None:
    for path in write_kineto(simulate(Job(ranks=2, hosts=1, steps=3)), tmp_path, "D2"):
        trace = json.loads(path.read_text())
        trace["traceEvents"] = [e for e in trace["traceEvents"] if "nccl" not in e["name"]]
        path.write_text(json.dumps(trace))
    result = tv.analyze(tv.open(tmp_path, cache=False, workers=1))
    assert result.straggler_rows == [] and result.verdict.headline
