"""What a profiler sees of a run: local stamps of each rank, with the capture faults applied."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from simulator import job as faults
from simulator.program import COMPUTE, GpuRecord, HostRecord
from simulator.simulate import Sim

MARGIN = 100_000


@dataclass
class Gpu:
    """A GPU record as stamped: absolute local ns. ``row`` is the true record."""

    row: GpuRecord
    start: int
    end: int
    stamped_end: int


@dataclass
class Host:
    """A host interval as stamped: absolute local ns."""

    row: HostRecord
    number: int
    start: int
    end: int


@dataclass
class Capture:
    """The record of one rank. ``calls`` maps a row of the program's host records to its stamp."""

    rank: int
    host_name: str
    pid: int
    start: int
    end: int
    gpu: list[Gpu] = field(default_factory=list)
    host: list[Host] = field(default_factory=list)
    marks: list[tuple[int, Host]] = field(default_factory=list)
    calls: dict[int, Host] = field(default_factory=dict)


def capture(sim: Sim) -> list[Capture]:
    """The captures of all ranks that are present, in rank order."""
    missing = {r for f in sim.job.find(faults.MissingRanks) for r in f.ranks}
    return [_of_rank(sim, rank) for rank in range(sim.job.ranks) if rank not in missing]


def _of_rank(sim: Sim, rank: int) -> Capture:
    job, program = sim.job, sim.programs[rank]
    shift = sum(f.ns for f in job.find(faults.AxisShift) if f.rank == rank)
    begin = 0
    for f in job.find(faults.LateStart):
        if f.rank == rank:
            begin = program.marks[f.steps][1].start + f.ns
    out = Capture(rank, job.host_name(rank), 1234 + rank, 0, 0)
    for number, row in enumerate(program.host):
        if row.start >= begin:
            host = Host(row, number, sim.local(rank, row.start) + shift, sim.local(rank, row.end) + shift)
            out.host.append(host)
            out.calls[number] = host
    numbers = {id(h.row): h for h in out.host}
    out.marks = [(step, numbers[id(row)]) for step, row in program.marks if id(row) in numbers]
    for row in _kept(sim, rank, [g for g in program.gpu if g.start >= begin]):
        start, end = sim.local(rank, row.start), sim.local(rank, row.end)
        out.gpu.append(Gpu(row, start, end, end))
    _overflow(sim, out)
    last = max([h.end for h in out.host] + [g.end for g in out.gpu])
    out.start = sim.local(rank, begin) + shift - (0 if begin else MARGIN)
    out.end = last + MARGIN
    return out


def _kept(sim: Sim, rank: int, rows: list[GpuRecord]) -> list[GpuRecord]:
    """The GPU records that survive the capture, opaque graphs merged into one."""
    for f in sim.job.find(faults.DroppedStart):
        if f.rank == rank:
            rows = sorted(rows, key=lambda g: g.start)[f.count :]
    for f in sim.job.find(faults.MissingFirstCollectives):
        if f.rank == rank:
            lost = {id(g) for g in sorted((g for g in rows if g.instance), key=lambda g: g.start)[: f.count]}
            rows = [g for g in rows if id(g) not in lost]
    if any(f.mode == "graph" for f in sim.job.find(faults.CudaGraphs)):
        rows = _opaque(rows)
    return rows


def _opaque(rows: list[GpuRecord]) -> list[GpuRecord]:
    merged: dict[int, GpuRecord] = {}
    out = []
    for row in rows:
        if not row.graph:
            out.append(row)
        elif row.correlation in merged:
            merged[row.correlation].end = max(merged[row.correlation].end, row.end)
        else:
            one = GpuRecord(row.node, row.stream, "gpu_opaque", "CUDA graph", row.call, row.correlation)
            one.start, one.end, one.graph = row.start, row.end, 1
            merged[row.correlation] = one
            out.append(one)
    return out


def _overflow(sim: Sim, out: Capture) -> None:
    """Impossible ends; what is left to know is that a kernel ended before the next one of its stream began."""
    for f in sim.job.find(faults.OverflowedDurations):
        if f.rank == out.rank:
            stream = [g for g in out.gpu if g.row.stream == COMPUTE]
            following = {id(a): b.start for a, b in pairwise(stream)}
            kernels = [g for g in stream[:-1] if g.row.cls == "compute"]
            for gpu in kernels[-f.count :]:
                gpu.stamped_end, gpu.end = gpu.start + f.ns, following[id(gpu)]
