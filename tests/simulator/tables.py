"""A run as traceview's declared tables, made without any file format: what a perfect parser would give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simulator.capture import Capture, Gpu, capture
from simulator.simulate import Sim
from traceview.run import Part, PartMeta, Run, SourceMeta, write_part
from traceview.schema import COLLECTIVES, GPU_OPS, HOST_RANGES, STEP_MARKS
from traceview.units import ranks as as_ranges


def as_run(sim: Sim, folder: Path) -> Run:
    """A ``Run`` of the captures, its parts written under ``folder``."""
    parts: dict[int, Part] = {}
    for cap in capture(sim):
        meta = PartMeta(
            source=SourceMeta(path=f"rank{cap.rank}", format="simulator"),
            rank=cap.rank,
            rank_source="metadata",
            world_size=sim.job.ranks,
            host=cap.host_name,
            pid=cap.pid,
            devices=[device(sim, cap.rank)],
            cover_start=cap.start,
            cover_end=cap.end,
            groups={g.name: as_ranges(list(g.members)) for g in sim.groups[cap.rank].values()},
        )
        parts[cap.rank] = write_part(folder / f"rank{cap.rank}", meta, tables(sim, cap))
    return Run("simulated", parts, world_size=sim.job.ranks)


def device(sim: Sim, rank: int) -> int:
    """Device ordinal of a rank."""
    return rank % (sim.job.ranks // sim.job.hosts)


def tables(sim: Sim, cap: Capture) -> dict[str, Any]:
    """The stored tables of one rank."""
    gpu = sorted(cap.gpu, key=lambda g: (g.start, g.end))
    return {
        "gpu_ops": _gpu_ops(sim, cap, gpu),
        "host_ranges": _host_ranges(cap),
        "collectives": _collectives(sim, cap, gpu),
        "step_marks": _marks(cap),
    }


def _build(table: Any, rows: list[dict[str, Any]]) -> Any:
    names = [c.name for c in table.columns if c.name != "rank"]
    return (
        table.build({n: [r.get(n) for r in rows] for n in names}, stored=True) if rows else table.empty(stored=True)
    )


def _gpu_ops(sim: Sim, cap: Capture, gpu: list[Gpu]) -> Any:
    rows = []
    for g in gpu:
        call = cap.calls.get(g.row.call)
        row: dict[str, Any] = {
            "device": device(sim, cap.rank), "stream": g.row.stream, "start": g.start, "end": g.end,
            "cls": g.row.cls, "fused_comm": False, "name": g.row.name, "correlation": g.row.correlation,
            "config": f"{g.row.grid} {g.row.block}", "mem": g.row.mem,
            "bytes": None if g.row.instance else g.row.size,
        }  # fmt: skip
        if call:
            row |= {"launch_start": call.start, "launch_end": call.end, "launch_thread": call.row.thread}
        rows.append(row)
    return _build(GPU_OPS, rows)


def _host_ranges(cap: Capture) -> Any:
    order = sorted((h for h in cap.host if h.row.kind != "python"), key=lambda h: (h.row.thread, h.start, -h.end))
    return _build(
        HOST_RANGES,
        [
            {"thread": h.row.thread, "start": h.start, "end": h.end, "kind": h.row.kind, "name": h.row.name}
            for h in order
        ],
    )


def _collectives(sim: Sim, cap: Capture, gpu: list[Gpu]) -> Any:
    rows = []
    for number, g in enumerate(gpu):
        found = g.row.instance
        if found is None:
            continue
        members, call = found.group.members, cap.calls.get(g.row.call)
        into, out = found.elements(cap.rank)
        rows.append(
            {
                "op": number, "device": device(sim, cap.rank), "stream": g.row.stream, "start": g.start, "end": g.end,
                "launch_start": call.start if call else None, "kind": g.row.role or found.kind,
                "group": found.group.name, "group_desc": found.group.desc, "members": as_ranges(list(members)),
                "group_size": len(members), "seq": None if found.p2p else found.seq, "p2p": found.p2p,
                "src": found.src, "dst": found.dst, "dtype": found.dtype, "elems_in": into, "elems_out": out,
                "bytes": max(into, out) * 2 if found.splits else found.size, "coalesced": 1, "facts": "kernel_args",
                "name": g.row.name,
            }
        )  # fmt: skip
    return _build(COLLECTIVES, rows)


def _marks(cap: Capture) -> Any:
    return _build(
        STEP_MARKS,
        [
            {
                "source": "profiler_step", "series": "ProfilerStep", "step": step, "start": m.start, "end": m.end,
                "thread": m.row.thread,
            }
            for step, m in cap.marks
        ],
    )  # fmt: skip
