"""The stages of an analysis in order; each is a pure function of the ones before it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from traceview.analysis import formats, kernels, launches, memory, steps, windows
from traceview.analysis.decompose import RankRecord, decompose, exposed_host, op_phases
from traceview.analysis.intervals import Spans, union
from traceview.analysis.ops import NONE, Ops
from traceview.analysis.steplink import OWN_NUMBERS, shifts
from traceview.analysis.types import Decomposition, Ints, Marks
from traceview.pipeline import rows
from traceview.pipeline.values import Across, Frame, Lanes, StudyOptions
from traceview.run import Run
from traceview.schema import COLLECTIVES, COUNTERS, GPU_OPS, HOST_RANGES, STEP_MARKS
from traceview.schema.arrays import to_numpy


def frame(run: Run, how: StudyOptions, shift: dict[int, int] | None = None) -> Frame:
    """Find the steps, cut the windows, give every collective its step (where it was launched, METHODS b.1).

    ``shift``: what to add to the numbers of a rank's steps.
    """
    found = steps.StepInputs(
        step_marks=run.tables(STEP_MARKS),
        cover={r: _cover(run, r) for r in run.ranks},
        gpu_ops=lambda r: run.table(GPU_OPS, r),
        host_ranges=lambda r: run.table(HOST_RANGES, r),
        collectives=lambda r: run.table(COLLECTIVES, r),
    )
    marks = steps.choose_marks(found, pattern=how.step_range, shift=shift, config=how.config)
    parts, axes = [], {}
    for rank in run.ranks:
        ops = Ops.of(run.table(GPU_OPS, rank))
        axes[rank] = launches.launch_axis(ops, how.config)
        parts.append(windows.device_windows(marks, rank, ops, axes[rank].host_shift))
    collectives, notes = formats.unify(
        run.tables(COLLECTIVES), {r: run.parts[r].meta.source.format for r in run.ranks}
    )
    marks.notes.extend(notes)
    counts = [run.parts[r].meta.rows.get("collectives", 0) for r in run.ranks]
    first = dict(zip(run.ranks, np.cumsum([0, *counts]).tolist(), strict=False))
    step = _step_of_rows(collectives, marks, first)
    return Frame(marks, windows.concat(parts), axes, collectives, first, step, ~np.isin(step, [-1, *marks.excluded]))


def linked(run: Run, base: Frame, across: Across, how: StudyOptions) -> Frame:
    """Steps that every rank counts for itself under one numbering, by the collectives that ranks share."""
    if base.marks.source in OWN_NUMBERS:
        shift = shifts(across.columns.rank, base.step_of_row, across.matches)
        if any(shift.values()):
            base = replace(frame(run, how, shift), collectives=base.collectives)
    across.matches.notes.extend(steps.disagreement(base.step_of_row, across.matches.instance))
    return base


def _cover(run: Run, rank: int) -> tuple[int, int]:
    """The recorded range of a rank: what its file says, else from the first to the last record."""
    meta = run.parts[rank].meta
    if meta.cover is not None:
        return meta.cover
    tables = [t for t in (run.table(GPU_OPS, rank), run.table(HOST_RANGES, rank)) if t.num_rows]
    starts = [int(to_numpy(t["start"]).min()) for t in tables]
    ends = [int(to_numpy(t["end"]).max()) for t in tables]
    return min(starts, default=0), max(ends, default=0)


def _step_of_rows(collectives: Any, marks: Marks, first: dict[int, int]) -> Ints:
    """Step of the host mark that holds the launch of a collective (its start if the launch is unknown)."""
    start = to_numpy(collectives["start"])
    launch = collectives["launch_start"]
    when = np.where(to_numpy(launch.is_null()), start, to_numpy(launch, 0))
    ends = [*list(first.values())[1:], len(start)]
    parts = [steps.step_of(marks, r, when[a:b]) for (r, a), b in zip(first.items(), ends, strict=True)]
    step = np.concatenate([np.empty(0, np.int64), *parts])
    return np.where(step == NONE, -1, step)


def decompose_all(run: Run, base: Frame, across: Across, how: StudyOptions) -> Lanes:
    """Decompose every rank and sum what the report needs; one rank's tables are in memory at a time."""
    out = Lanes(exposed_of_row=np.zeros(len(base.step_of_row), np.int64), copies=rows.Copies(how.config))
    for rank in run.ranks:
        _rank(run, rank, base, across, how, out)
    return out


def _rank(run: Run, rank: int, base: Frame, across: Across, how: StudyOptions, out: Lanes) -> None:
    meta = run.parts[rank].meta
    gpu, own = run.table(GPU_OPS, rank), run.table(COLLECTIVES, rank)
    first = base.first_row[rank]
    record = RankRecord(
        rank=rank,
        gpu_ops=gpu,
        host_ranges=run.table(HOST_RANGES, rank),
        phases=op_phases(gpu.num_rows, own, across.waits.phases, first),
        cover=meta.cover,
        holes=meta.holes,
        thread=_mark_thread(base.marks, rank),
    )
    lanes, _ = decompose(record, base.windows, how.config)
    op = to_numpy(own["op"], -1)
    starts = to_numpy(gpu["start"])
    for lane in lanes:
        out.lanes.append(lane)
        out.windows += rows.windows_of(lane, base.windows)
        out.pieces.append(lane.waits)
        used = lane.window[base.windows.used[lane.window]]
        begin, end = base.windows.start[used], base.windows.end[used]
        out.exposed_of_row[first : first + len(op)] += _exposed_rows(lane, own, op, union(begin, end))
        step = kernels.step_of(starts, begin, end, base.windows.step[used])
        step[to_numpy(gpu["device"]) != lane.device] = -1
        out.kernels.append(kernels.sums(gpu, step, rank))
        flops, covered = kernels.executed(gpu, step)
        out.flops, out.flops_ns = out.flops + flops, out.flops_ns + covered
        out.launchers.add(gpu, record.host_ranges, step, rank)
        out.copies.add(gpu, lane.exposed, step >= 0)
        keep = base.windows.used[lane.window]
        for name, ns in lane.companions.items():
            out.companions[name] = out.companions.get(name, 0) + int(ns[keep].sum())
    out.memory += memory.rows(run.table(COUNTERS, rank), rank)


def _exposed_rows(lane: Decomposition, own: Any, op: Ints, used: Spans) -> Ints:
    """Exposed ns of each collective of a rank: of its GPU operation, or of its time on the host."""
    exposed = np.where(op >= 0, lane.exposed[op], 0) if len(lane.exposed) else np.zeros(len(op), np.int64)
    host = np.flatnonzero(op < 0)
    start, end = (to_numpy(own[c])[host] for c in ("start", "end"))
    exposed[host] = exposed_host(lane.segments, used, start, end)
    return exposed


def _mark_thread(marks: Marks, rank: int) -> int:
    mine = marks.thread[marks.rank == rank]
    return int(mine[0]) if len(mine) else NONE
