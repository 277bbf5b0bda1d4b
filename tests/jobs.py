"""Small training jobs as ``collectives`` tables with a known truth: fast, and without any file format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceview.analysis.types import WaitPieces
from traceview.schema import COLLECTIVES
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


def exposed(table: Any, step: Any, phases: Any) -> WaitPieces:
    """Every wait as an exposed piece (nothing else runs beside the collectives of these jobs)."""
    start = table["start"].to_numpy()
    rows = np.flatnonzero(phases.wait_end > start)
    return WaitPieces(
        rank=table["rank"].to_numpy().astype(np.int64)[rows],
        step=step[rows],
        start=start[rows],
        end=phases.wait_end[rows],
        row=rows,
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
