"""Per-name sums of GPU records in the used windows, and the excess of slow compute (METHODS g)."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from traceview.analysis.types import Ints
from traceview.result import KernelRow
from traceview.schema import GPU_CLASSES, codes
from traceview.schema.arrays import from_numpy, to_numpy


def step_of(starts: Ints, window_start: Ints, window_end: Ints, steps: Ints) -> Ints:
    """Step whose window holds each time, -1 outside; windows are disjoint and ascending."""
    if not len(window_start):
        return np.full(len(starts), -1, np.int64)
    i = np.searchsorted(window_start, starts, "right") - 1
    inside = (i >= 0) & (starts < window_end[np.maximum(i, 0)])
    return np.where(inside, steps[np.maximum(i, 0)], -1)


def sums(gpu_ops: Any, step: Ints, rank: int) -> pl.DataFrame:
    """Kernel sums of one rank: rank, step, name, config, cls, count, ns, max_ns.

    ``step``: step per row of ``gpu_ops`` (the window in which it starts), -1 = not counted.
    """
    keep = np.flatnonzero(step >= 0)
    part = gpu_ops.take(from_numpy(keep))
    frame = pl.DataFrame(
        {
            "step": step[keep],
            "name": pl.from_arrow(part["name"]).cast(pl.String),
            "config": pl.from_arrow(part["config"]).cast(pl.String),
            "cls": codes(part["cls"], GPU_CLASSES),
            "ns": to_numpy(part["end"]) - to_numpy(part["start"]),
        }
    )
    return (
        frame.group_by("step", "name", "config", "cls")
        .agg(count=pl.len(), ns=pl.col("ns").sum(), max_ns=pl.col("ns").max())
        .with_columns(rank=pl.lit(rank, pl.Int64))
    )


def executed(gpu_ops: Any, step: Ints) -> tuple[float, int]:
    """FLOPs that recorded shapes tell of the counted rows, and ns of the operations that they cover; see ``sums``."""
    flops = gpu_ops["flops"]
    if flops.null_count == len(flops):
        return 0.0, 0
    told = np.flatnonzero((step >= 0) & ~to_numpy(flops.is_null()))
    length = to_numpy(gpu_ops["end"])[told] - to_numpy(gpu_ops["start"])[told]
    return float(to_numpy(flops, 0.0)[told].sum()), int(length.sum())


def excess_ns(frames: list[pl.DataFrame]) -> tuple[int, int]:
    """Compute time above what the same kernel takes on the median peer in the same step, and the kernels compared.

    METHODS g: the reference is the lower median over ranks of the mean duration of (name, config) in that step; only
    kernels that at least two ranks ran can be compared. Returns (excess ns, number of compared rank-kernels).
    """
    if not frames:
        return 0, 0
    compute = GPU_CLASSES.index("compute")
    rows = pl.concat(frames).filter(pl.col("cls") == compute).with_columns(mean=pl.col("ns") / pl.col("count"))
    keys = ["step", "name", "config"]
    rows = rows.with_columns(
        ref=pl.col("mean").quantile(0.5, "lower").over(keys), peers=pl.col("rank").n_unique().over(keys)
    ).filter(pl.col("peers") > 1)
    over = ((pl.col("mean") - pl.col("ref")).clip(lower_bound=0) * pl.col("count")).sum()
    total = rows.select(over=over, n=pl.len())
    return int(total["over"][0] or 0), int(total["n"][0])


def table(frames: list[pl.DataFrame], limit: int = 300) -> list[KernelRow]:
    """The heaviest names over all ranks and used steps."""
    if not frames:
        return []
    rows = (
        pl.concat(frames)
        .group_by("name", "cls")
        .agg(
            count=pl.col("count").sum(),
            total_ns=pl.col("ns").sum(),
            max_ns=pl.col("max_ns").max(),
            ranks=pl.col("rank").n_unique(),
        )
        .sort("total_ns", "name", descending=[True, False])
        .head(limit)
    )
    return [
        KernelRow(
            name=r["name"],
            cls=GPU_CLASSES[r["cls"]],
            count=r["count"],
            total_ns=r["total_ns"],
            mean_ns=r["total_ns"] // max(1, r["count"]),
            max_ns=r["max_ns"],
            ranks=r["ranks"],
        )
        for r in rows.iter_rows(named=True)
    ]
