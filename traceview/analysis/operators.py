"""GPU time by the host ranges that launched it: operators, modules, annotations; over the used steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pyarrow.compute as pc

from traceview.analysis.nvtx import LaunchedOps, Ranges, project
from traceview.analysis.ops import NONE, ints
from traceview.analysis.types import Ints
from traceview.result import KernelRow, RangeRow
from traceview.schema import HOST_KINDS, codes
from traceview.schema.arrays import from_numpy, to_numpy

KINDS = ("annotation", "op")
"""user ranges and modules; operators. Each kind is a stack of its own"""
_STEP = r"^ProfilerStep#\d+$"  # the steps have tables of their own


@dataclass
class Launchers:
    """Sums over ranks."""

    ranges: list[pl.DataFrame] = field(default_factory=list)
    kernels: list[pl.DataFrame] = field(default_factory=list)

    def add(self, gpu_ops: Any, host_ranges: Any, step: Ints, rank: int) -> None:
        """Add one rank; ``step``: step per row of ``gpu_ops``, -1 = not counted."""
        launch, thread = ints(gpu_ops, "launch_start"), ints(gpu_ops, "launch_thread")
        keep = np.flatnonzero((step >= 0) & (launch != NONE))
        if not len(keep):
            return
        begin, end = to_numpy(gpu_ops["start"])[keep], to_numpy(gpu_ops["end"])[keep]
        ops = LaunchedOps(thread[keep], launch[keep], begin, end)
        for kind in KINDS:
            self._add_kind(kind, gpu_ops["name"].take(from_numpy(keep)), host_ranges, ops, rank)

    def _add_kind(self, kind: str, kernel: Any, host_ranges: Any, ops: LaunchedOps, rank: int) -> None:
        of_kind = codes(host_ranges["kind"], HOST_KINDS) == HOST_KINDS.index(kind)
        chosen = host_ranges.take(from_numpy(np.flatnonzero(of_kind)))
        if not chosen.num_rows:
            return
        name = chosen["name"].combine_chunks()
        texts = name.dictionary
        code = to_numpy(name.indices).astype(np.int64)
        thread, start, end = (to_numpy(chosen[c]) for c in ("thread", "start", "end"))
        found = project(Ranges(thread, start, end, code, len(texts)), ops)
        marks = to_numpy(pc.match_substring_regex(texts, _STEP))
        some = np.flatnonzero((found.ops > 0) & ~marks)
        frame = {"name": texts.take(from_numpy(some)), "ops": found.ops[some], "gpu_ns": found.gpu_ns[some]}
        frame |= {"self_ns": found.self_ns[some], "count": found.ranges[some]}
        self.ranges.append(pl.DataFrame(frame).with_columns(kind=pl.lit(kind), rank=pl.lit(rank)))
        if kind == "op":
            own = np.flatnonzero(found.owner >= 0)
            pairs = {
                "kernel": pl.from_arrow(kernel.take(from_numpy(own))),
                "op": texts.take(from_numpy(code[found.owner[own]])),
            }
            owned = pl.DataFrame(pairs | {"ns": ops.end[own] - ops.start[own]})
            self.kernels.append(owned.with_columns(pl.col("kernel").cast(pl.String)).group_by("kernel", "op").sum())

    def rows(self, limit: int = 200) -> list[RangeRow]:
        """The names with most GPU time, over all ranks."""
        if not self.ranges:
            return []
        sums = (
            pl.concat(self.ranges)
            .group_by("name", "kind")
            .agg(pl.col("count", "ops", "gpu_ns", "self_ns").sum(), ranks=pl.col("rank").n_unique())
            .sort("self_ns", "gpu_ns", "name", descending=[True, True, False])
        )
        return [RangeRow(**row) for row in sums.head(limit).iter_rows(named=True)]

    def name(self, rows: list[KernelRow]) -> None:
        """Fill in, per kernel, the operator that launched most of it."""
        if not self.kernels:
            return
        most = pl.concat(self.kernels).group_by("kernel", "op").sum().sort("ns", "op", descending=[True, False])
        known = dict(most.unique("kernel", keep="first", maintain_order=True).select("kernel", "op").iter_rows())
        for row in rows:
            row.op = known.get(row.name, "")
