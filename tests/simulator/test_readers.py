"""The readers give of the simulator's files what a perfect parser would: the run's own tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simulator import CudaGraphs, HostReads, Job, PageableCopies, Sim, capture, simulate, write_kineto
from simulator.tables import tables
from traceview.run import Part
from traceview.schema import COLLECTIVES, GPU_OPS, STEP_MARKS
from traceview_parsers import ReadOptions, kineto

JOBS = {
    "dp": Job(steps=2, tick=1000, faults=(HostReads(1), PageableCopies())),
    "fsdp": Job(layout="fsdp", hosts=2, steps=2, tick=1000),
    "tp": Job(layout="tp", tp=2, steps=2, tick=1000),
    "pp": Job(layout="pp", pp=2, steps=2, tick=1000),
    "ep": Job(layout="ep", steps=2, tick=1000),
    "graph": Job(steps=2, tick=1000, faults=(CudaGraphs("node"),)),
}
GPU_COLUMNS = (
    "device", "stream", "start", "end", "cls", "name", "correlation", "launch_start", "launch_end", "launch_thread",
    "bytes", "mem",
)  # fmt: skip
CALL_COLUMNS = (
    "op", "device", "stream", "start", "end", "launch_start", "kind", "group", "group_desc", "members", "group_size",
    "seq", "p2p", "dtype", "elems_in", "elems_out", "bytes",
)  # fmt: skip


def column(table: Any, name: str) -> list[Any]:
    """Values of a column."""
    return table[name].to_pylist()


def parts(sim: Sim, folder: Path, schema: str, **style: bool) -> list[Part]:
    """Every file of the run, read."""
    out = []
    for number, path in enumerate(write_kineto(sim, folder / "files", schema, **style)):
        target = folder / f"part{number}"
        target.mkdir()
        out += kineto.read(path, target, ReadOptions(), None)
    return out


@pytest.mark.parametrize("schema", ["D2", "D1", "D0", "B3"])
@pytest.mark.parametrize("job", sorted(JOBS))
def test_kineto(job: str, schema: str, tmp_path: Path) -> None:
    sim = simulate(JOBS[job])
    for part, cap in zip(parts(sim, tmp_path, schema, gz=True), capture(sim), strict=True):
        want = tables(sim, cap)
        have = part.table(GPU_OPS)
        for name in GPU_COLUMNS:
            assert column(have, name) == column(want["gpu_ops"], name), name
        marks = part.table(STEP_MARKS).to_pylist()
        assert [m for m in marks if m["source"] == "profiler_step"] == want["step_marks"].to_pylist()
        calls = part.table(COLLECTIVES)
        assert calls.num_rows == want["collectives"].num_rows
        facts = CALL_COLUMNS if schema >= "D" else ("op", "start", "end", "launch_start")
        for name in facts:
            if name == "seq" and (schema == "D0" or JOBS[job].layout == "pp"):
                continue  # not written; or counted by each rank for itself
            assert column(calls, name) == column(want["collectives"], name), name
        assert part.meta.rank == cap.rank
        assert part.meta.world_size == sim.job.ranks
        assert part.meta.host == cap.host_name
        assert (part.meta.cover_start, part.meta.cover_end) == (cap.start, cap.end)
