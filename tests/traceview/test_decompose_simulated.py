"""Windows and leaves of simulated jobs equal the truth of the model, to the nanosecond.

Hosts share one clock here: what a clock fit leaves over is the business of the clock tests.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from simulator import (
    AllocatorStorm,
    AxisShift,
    CudaGraphs,
    DroppedStart,
    HostPauses,
    HostReads,
    Job,
    LateStart,
    MissingFirstCollectives,
    MissingRanks,
    OverflowedDurations,
    SlowLoader,
    SlowRank,
    simulate,
)
from simulator.draw import jobs
from simulator.tables import as_run
from simulator.truth import truth
from traceview.pipeline import across, flow
from traceview.schema import LEAVES

MS = 1_000_000
Leaves = dict[tuple[int, int], tuple[int, int, dict[str, int]]]


def found(job: Job) -> tuple[Leaves, Leaves]:
    """(ours, the truth): (rank, step) -> start, end and leaves of the window."""
    sim = simulate(job)
    how = flow.StudyOptions()
    with TemporaryDirectory() as folder:
        run = as_run(sim, Path(folder))
        base = flow.frame(run, how)
        lanes = flow.decompose_all(run, base, across.align(run, base, how), how).lanes
    w = base.windows
    ours = {
        (lane.rank, int(w.step[row])): (
            int(w.start[row]),
            int(w.end[row]),
            {leaf: int(ns) for leaf, ns in zip(LEAVES, lane.leaves[i], strict=True) if ns},
        )
        for lane in lanes
        for i, row in enumerate(lane.window)
    }
    known = truth(sim)
    want = {(x.rank, x.step): (x.start, x.end, {k: v for k, v in x.leaves.items() if v}) for x in known.windows}
    return ours, want


SMALL = {"ranks": 2, "steps": 4, "layers": 3, "kernels": 2}
JOBS = {
    "straggler": Job(**SMALL, faults=(SlowRank(1, 1.5),)),
    "fsdp with gradient accumulation": Job(**SMALL, layout="fsdp", accumulate=2),
    "host stamps 40 us late": Job(**SMALL, faults=(AxisShift(0, 40_000),)),
    "graph nodes": Job(**SMALL, faults=(CudaGraphs("node"),)),
    "graph as one record": Job(**SMALL, faults=(CudaGraphs("graph"),)),
    "profiler starts late": Job(**SMALL, faults=(LateStart(1, 1, 3 * MS),)),
    "records lost at the start": Job(**SMALL, faults=(DroppedStart(0, 5),)),
    "collectives lost at the start": Job(**SMALL, faults=(MissingFirstCollectives(1, 2),)),
    "impossible durations": Job(**SMALL, faults=(OverflowedDurations(0, 3),)),
    "host causes": Job(
        **SMALL, faults=(AllocatorStorm(0, 2 * MS), HostReads(2), SlowLoader(40 * MS), HostPauses(5 * MS))
    ),
    "rank missing": Job(**SMALL | {"ranks": 4}, faults=(MissingRanks((2,)),)),
    "pipeline": Job(**SMALL | {"ranks": 4}, layout="pp", pp=2),
}


@pytest.mark.parametrize("name", sorted(JOBS))
def test_every_window_of_a_job(name: str) -> None:
    ours, want = found(JOBS[name])
    assert want
    assert ours == want


@settings(max_examples=6, deadline=None)
@given(jobs())
def test_every_window_of_a_random_job(job: Job) -> None:
    ours, want = found(job)
    assert ours == want
