"""Small training jobs as ``collectives`` tables with a known truth: fast, and without any file format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceview.analysis.blame import Ledger, blame
from traceview.analysis.clock import Alignment, align
from traceview.analysis.groups import columns
from traceview.analysis.match import match
from traceview.analysis.origin import Facts, origin
from traceview.analysis.phases import CODE
from traceview.analysis.stragglers import Clocks, Stragglers, find
from traceview.analysis.types import P2P, UNRESOLVED, Segments, WaitPieces, Windows
from traceview.analysis.waits import waits
from traceview.schema import COLLECTIVES, GPU_OPS
from traceview.units import ranks as as_ranges

US = 1_000
MS = 1_000_000


@dataclass
class Job:
    """Rows of collectives under construction; ``table()`` gives them in rank order, with the step of each row."""

    columns: dict[str, list[Any]] = field(default_factory=dict)
    world: int = 0

    def add(
        self,
        step: int,
        starts: dict[int, int],
        end: int | dict[int, int],
        *,
        members: Iterable[int] | None = None,
        **facts: Any,
    ) -> None:
        """One instance: begin by rank, one end for all or by rank; ``facts`` fill columns (a dict = by rank)."""
        told = tuple(starts if members is None else members)
        base: dict[str, Any] = {
            "kind": "allreduce",
            "group": "world",
            "members": as_ranges(list(told)),
            "group_size": len(told),
            "seq": None,
            "launch_start": None,
            "p2p": False,
            "src": None,
            "dst": None,
            "dtype": "Float",
            "elems_in": 1000,
            "elems_out": 1000,
            "bytes": 4000,
            "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        }
        for rank, start in starts.items():
            row = base | facts
            row = {k: (v[rank] if isinstance(v, dict) else v) for k, v in row.items()}
            row |= {"rank": rank, "start": start, "end": end[rank] if isinstance(end, dict) else end, "step": step}
            for key, value in row.items():
                self.columns.setdefault(key, []).append(value)

    def drop(self, keep: Any) -> None:
        """Keep only the rows for which ``keep(row as dict)`` is true."""
        rows = [dict(zip(self.columns, values, strict=True)) for values in zip(*self.columns.values(), strict=True)]
        kept = [r for r in rows if keep(r)]
        self.columns = {k: [r[k] for r in kept] for k in self.columns}

    def table(self) -> tuple[Any, Any]:
        """(collectives table, step per row), in rank order and by start."""
        start, rank = np.array(self.columns["start"]), np.array(self.columns["rank"])
        by = np.lexsort((start, rank))
        data = {k: [v[i] for i in by] for k, v in self.columns.items() if k != "step"}
        n = len(by)
        data |= {
            "op": list(range(n)),
            "device": [0] * n,
            "stream": [20] * n,
            "coalesced": [1] * n,
            "facts": ["kernel_args"] * n,
        }
        return COLLECTIVES.build(data), np.array(self.columns["step"], np.int64)[by]

    def skew(self, offset: dict[int, float], drift: dict[int, float] | None = None, pivot: int = 0) -> None:
        """Stamp every rank's rows with its own clock: local = true + offset + drift * (true - pivot)."""
        for i, rank in enumerate(self.columns["rank"]):
            for key in ("start", "end"):
                true = self.columns[key][i]
                extra = offset.get(rank, 0) + (drift or {}).get(rank, 0.0) * (true - pivot)
                self.columns[key][i] = true + round(extra)


def exposed(table: Any, phases: Any, hide: int = 0) -> WaitPieces:
    """Every wait as an exposed piece; ``hide``: ns at its begin in which other work runs beside it."""
    start = table["start"].to_numpy() + hide
    rows = np.flatnonzero(phases.wait_end > start)
    return WaitPieces(
        start=start[rows],
        end=phases.wait_end[rows],
        row=rows.astype(np.int32),
    )


def training(
    ranks: int,
    steps: int,
    collectives: int,
    *,
    slow: dict[int, float] | None = None,
    step_ns: int = 10 * MS,
    transfer_ns: int = 100 * US,
    jitter: float = 0.01,
    seed: int = 0,
    begin: int = 1_700_000_000_000_000_000,
    **facts: Any,
) -> Job:
    """A data-parallel job: each rank computes ``step_ns / collectives`` (x ``1 + slow[rank]``), then all reduce."""
    rng = np.random.default_rng(seed)
    job = Job(world=ranks)
    rates = np.array([1 + (slow or {}).get(r, 0.0) for r in range(ranks)])
    number = 0
    now = np.zeros(ranks)
    for step in range(steps):
        for k in range(collectives):
            work = step_ns / collectives * rates * (1 + jitter * rng.standard_normal(ranks))
            now = now + work
            end = now.max() + transfer_ns * (1 + k % 3)
            arrivals = {r: begin + round(now[r]) for r in range(ranks)}
            ends = {r: begin + round(end + abs(rng.normal(0, 2_000))) for r in range(ranks)}
            extra = {key: (value(number, k) if callable(value) else value) for key, value in facts.items()}
            job.add(step, arrivals, ends, elems_in=1000 + k % 3, **extra)
            now = np.array([ends[r] - begin for r in range(ranks)], np.float64)
            number += 1
    return job


Gaps = dict[int, list[tuple[str, float]]]
"""rank -> phases that fill its time between collectives, with their shares; others compute"""


def segments_of(table: Any, phases: Any, windows: Windows, rank: int, gaps: Gaps | None = None) -> Segments:
    """A rank's record as segments: its collectives wait and transfer, and between them it does what ``gaps`` says."""
    rows = np.flatnonzero(table["rank"].to_numpy() == rank)
    start, end = table["start"].to_numpy()[rows], table["end"].to_numpy()[rows]
    own = windows.rank == rank
    at, bounds, codes = int(windows.start[own].min()), [], []
    last = int(windows.end[own].max())

    def fill(until: int) -> None:
        nonlocal at
        begin, parts = at, (gaps or {}).get(rank, [("compute.plain", 1.0)])
        for k, (name, _) in enumerate(parts):
            share = sum(s for _, s in parts[: k + 1])
            stop = until if k + 1 == len(parts) else begin + round((until - begin) * share)
            if stop > at:
                bounds.append(at)
                codes.append(CODE[name])
                at = stop

    for row, a, e in zip(rows.tolist(), start.tolist(), end.tolist(), strict=True):
        fill(min(a, last))
        second = "comm_unresolved" if phases.second[row] == UNRESOLVED else "comm_transfer"
        kind = ".p2p" if phases.sub[row] == P2P else ".nxn"
        for name, stop in (("comm_wait", int(phases.wait_end[row])), (second, e)):
            if stop > at:
                bounds.append(at)
                codes.append(CODE[name + kind])
                at = stop
    fill(last)
    return Segments(np.array([*bounds, at], np.int64), np.array(codes, np.int8))


def kernels(table: Any, windows: Windows, rank: int, count: int = 4, extra: int = 0) -> Any:
    """``gpu_ops`` of a rank: its time between collectives cut into ``count`` equal kernels and ``extra`` others."""
    rows = np.flatnonzero(table["rank"].to_numpy() == rank)
    edges = [int(windows.start[windows.rank == rank].min())]
    cells = []
    for a, e in zip(table["start"].to_numpy()[rows].tolist(), table["end"].to_numpy()[rows].tolist(), strict=True):
        cuts = [edges[-1] + (a - edges[-1]) * k // (count + extra) for k in range(count + extra + 1)]
        cells += [(cuts[k], cuts[k + 1], f"gemm_{k}" if k < count else "extra") for k in range(count + extra)]
        edges.append(e)
    n = len(cells)
    return GPU_OPS.build(
        {
            "rank": [rank] * n,
            "device": [0] * n,
            "stream": [7] * n,
            "start": [a for a, _, _ in cells],
            "end": [b for _, b, _ in cells],
            "cls": ["compute"] * n,
            "fused_comm": [False] * n,
            "name": [x for _, _, x in cells],
        }
    )


@dataclass(frozen=True)
class Verdict:
    """All that the cross-rank analysis says of a job."""

    facts: Facts
    ledger: Ledger
    origin: Any
    clock: Alignment
    found: Stragglers

    @property
    def culprits(self) -> list[int]:
        return [r.rank for r in self.found.rows]


def step_windows(table: Any, step: Any) -> Windows:
    """A window per rank and step: from the end of the rank's last step (or its first row) to its last end."""
    rank, start, end = (table[k].to_numpy() for k in ("rank", "start", "end"))
    rows = []
    for r in np.unique(rank).tolist():
        at = None
        for k in np.unique(step[rank == r]).tolist():
            own = (rank == r) & (step == k)
            begin = at if at is not None else int(start[own].min()) - 1 * MS
            at = max(begin, int(end[own].max()))
            rows.append((r, 0, k, begin, at))
    cells = np.array(rows, np.int64).reshape(-1, 5).T
    return Windows(*cells, np.ones(len(rows), np.bool_))


def analyse(
    job: Job,
    hosts: dict[int, str] | None = None,
    *,
    world: int | None = None,
    gaps: Gaps | None = None,
    extra: dict[int, int] | None = None,
    windows: Windows | None = None,
    hide: int = 0,
) -> Verdict:
    """Matching to stragglers, as the pipeline does it; what of the waits is exposed: see ``exposed``."""
    table, step = job.table()
    seen = np.unique(table["rank"].to_numpy()).tolist()
    hosts = hosts or dict.fromkeys(seen, "a")
    hosts = {r: h for r, h in hosts.items() if r in seen}
    found = match(table, step, world or job.world or len(seen), hosts)
    clock = align(table, found, hosts)
    waited = waits(table, found, clock.base)
    windows = windows or step_windows(table, step)
    pieces = exposed(table, waited.phases, hide)
    facts = Facts(
        columns(table),
        found,
        waited,
        pieces,
        windows,
        step,
        lambda r: segments_of(table, waited.phases, windows, r, gaps),
        lambda r: kernels(table, windows, r, extra=(extra or {}).get(r, 0)),
    )
    ledger = blame(pieces, facts.c, found, waited, step)
    origins = origin(facts, ledger)
    used = sorted(set(step.tolist()))
    return Verdict(
        facts,
        ledger,
        origins.by_rank,
        clock,
        find(facts, ledger, origins, Clocks(clock.base, hosts, clock.clock), used),
    )
