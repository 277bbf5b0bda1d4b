"""What a run holds and what it lacks: the facts behind ``traceview inspect``."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from traceview import units
from traceview.analysis import topology
from traceview.analysis.findings.common import on_host
from traceview.run import Run, SourceMeta
from traceview.schema import COLL_FACTS, COLLECTIVES, COUNTERS, GPU_OPS, HOST_RANGES, LOG_TABLES, STEP_MARKS, codes
from traceview.units import one_line


class RankContent(msgspec.Struct):
    """What one rank's file holds."""

    rank: int
    rank_source: str
    host: str
    device_name: str
    format: str
    schema_class: str
    path: str
    seconds: float
    gpu_ops: int
    launched: int
    """GPU records whose launch call was found"""
    collectives: int
    collectives_with_args: int
    host_ranges: int
    marks: dict[str, int]
    counters: int
    truncated: bool
    repaired: int
    quarantined: int


class Lack(msgspec.Struct):
    """Something a full verdict lacks: what it would tell and how to record it."""

    what: str
    costs: str
    recipe: str


class Inventory(msgspec.Struct):
    """The whole answer of ``inspect``."""

    name: str
    world_size: int | None
    missing_ranks: list[int]
    ranks: list[RankContent]
    logs: list[SourceMeta]
    unread: list[SourceMeta]
    problems: list[str]
    lacks: list[Lack]
    story: list[str] = []

    def to_json(self) -> bytes:
        """UTF-8 JSON."""
        return msgspec.json.encode(self)

    def text(self) -> str:
        """For the terminal."""
        return "\n".join(map(one_line, _lines(self))) + "\n"


def take(run: Run) -> Inventory:
    """Look into every part of a run (counts only; nothing is analysed)."""
    ranks = [_content(run, r) for r in run.ranks]
    return Inventory(
        name=run.name,
        world_size=run.world_size,
        missing_ranks=run.missing_ranks,
        ranks=ranks,
        logs=[p.meta.source for p in run.logs],
        unread=run.unread,
        problems=run.problems,
        lacks=_lacks(run, ranks) if ranks else [NO_TRACES],
        story=topology.story({t.name: run.log_tables(t) for t in LOG_TABLES}) if run.logs else [],
    )


def _content(run: Run, rank: int) -> RankContent:
    part = run.parts[rank]
    meta = part.meta
    gpu, coll = part.table(GPU_OPS), part.table(COLLECTIVES)
    facts = codes(coll["facts"], COLL_FACTS)
    marks = part.table(STEP_MARKS)["source"].combine_chunks().to_pylist()
    span = (meta.cover_end or 0) - (meta.cover_start or 0)
    return RankContent(
        rank=rank,
        rank_source=meta.rank_source,
        host=run.host(rank),
        device_name=meta.device_name or "",
        format=meta.source.format,
        schema_class=meta.source.schema_class,
        path=meta.source.path,
        seconds=span / 1e9,
        gpu_ops=gpu.num_rows,
        launched=gpu.num_rows - gpu["launch_start"].null_count,
        collectives=coll.num_rows,
        collectives_with_args=int(np.count_nonzero(facts != COLL_FACTS.index("name"))),
        host_ranges=part.table(HOST_RANGES).num_rows,
        marks={s: marks.count(s) for s in sorted(set(marks))},
        counters=part.table(COUNTERS).num_rows,
        truncated=meta.source.truncated,
        repaired=meta.source.repaired,
        quarantined=meta.source.quarantined,
    )


Test = Callable[[Run, list[RankContent]], bool]
NO_TRACES = Lack(
    "traces",
    "where the time went",
    "profile every rank with torch.profiler or nsys, and pass traces and log together",
)
RECORD_BOTH = "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]), or nsys profile -t cuda,nvtx,osrt"
LACKS: tuple[tuple[Test, Lack], ...] = (
    (
        lambda run, ranks: not any(r.gpu_ops for r in ranks),
        Lack("GPU activity", "what the GPUs did", RECORD_BOTH),
    ),
    (
        lambda run, ranks: not any(r.host_ranges for r in ranks),
        Lack("CPU activity", "why a GPU is idle", RECORD_BOTH),
    ),
    (
        lambda run, ranks: not any(r.marks for r in ranks),
        Lack(
            "steps",
            "per-step numbers",
            "call prof.step() in the loop, or wrap it in record_function('step N') or an NVTX range 'step N'",
        ),
    ),
    (
        lambda run, ranks: any(p.meta.source.facts.get("osrt") == "no" for p in run.parts.values()),
        Lack(
            "calls of the operating system",
            "what a thread waits for that launches nothing (reads, locks, polls)",
            "nsys profile -t cuda,nvtx,osrt",
        ),
    ),
    (
        lambda run, ranks: bool(run.missing_ranks),
        Lack("ranks", "what is waiting and what is transfer", "give the traces of all ranks of the job"),
    ),
    (
        lambda run, ranks: any(r.collectives > r.collectives_with_args for r in ranks),
        Lack(
            "arguments of collectives (group, sizes)",
            "which collectives belong together for certain, their bandwidth, and the tokens of experts",
            "record with PyTorch 2.4 or later and record_shapes=True; with nsys: export --include-blobs=true",
        ),
    ),
    (
        lambda run, ranks: len(ranks) > 1 and any(r.host.startswith("?") for r in ranks),
        Lack(
            "host names",
            "which ranks share a clock",
            "keep the names of tensorboard_trace_handler: '<host>_<pid>.'",
        ),
    ),
    (
        lambda run, ranks: any(r.collectives for r in ranks) and not run.logs,
        Lack(
            "the NCCL log",
            "which wire each group used",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET,ENV,TUNING",
        ),
    ),
)


# What to do where every rank was recorded by nsys: recipes of PyTorch would mislead.
BY_NSYS = {
    "GPU activity": "nsys profile -t cuda,nvtx,osrt",
    "CPU activity": "nsys profile -t cuda,nvtx,osrt",
    "steps": 'torch.cuda.nvtx.range_push(f"step {n}") and range_pop() around each, and -t cuda,nvtx; '
    "--step-range REGEX takes ranges that are there",
    "arguments of collectives (group, sizes)": "nsys export --include-blobs=true (NCCL 2.25 or newer)",
}


def _lacks(run: Run, ranks: list[RankContent]) -> list[Lack]:
    found = [lack for test, lack in LACKS if test(run, ranks)]
    if any(r.format != "nsight" for r in ranks):
        return found
    return [msgspec.structs.replace(lack, recipe=BY_NSYS.get(lack.what, lack.recipe)) for lack in found]


def _lines(found: Inventory) -> list[str]:
    total = found.world_size if found.world_size is not None else "?"
    lines = [f"{found.name}: {len(found.ranks)} of {total} ranks" if found.ranks else f"{found.name}: no traces"]
    if found.missing_ranks:
        lines.append(f"missing ranks: {units.ranks(found.missing_ranks)}")
    lines += [""] if found.ranks else []
    for r in found.ranks:
        marks = ", ".join(f"{n} {source} marks" for source, n in r.marks.items()) or "no step marks"
        model = f" {r.device_name}" * bool(r.device_name)
        lines.append(
            f"rank {r.rank} ({r.rank_source}){on_host(r.host)}{model}: {r.format} {r.schema_class}, "
            f"{r.seconds:.3g} s, {r.gpu_ops:,} GPU records ({r.launched:,} with launch), "
            f"{r.collectives:,} collectives ({r.collectives_with_args:,} with arguments), "
            f"{r.host_ranges:,} host ranges, {marks}"
        )
        damage = [f"{r.repaired} repaired"] * bool(r.repaired) + [f"{r.quarantined} lost"] * bool(r.quarantined)
        damage += ["truncated"] * r.truncated
        lines += [f"    {r.path}" + (f"  ({', '.join(damage)})" if damage else "")]
    lines += [f"log {m.path}: {m.format} {m.schema_class}" for m in found.logs]
    lines += ["", *found.story] if found.story else []
    lines += [f"not read: {'; '.join(m.warnings)}" for m in found.unread]
    lines += [f"note: {p}" for p in found.problems]
    lines += (
        ["", "For a full verdict this run lacks"] if found.lacks else ["", "Nothing is missing for a full verdict."]
    )
    lines += [f"  {x.what}: it would tell {x.costs}.  Record: {x.recipe}" for x in found.lacks]
    return lines
