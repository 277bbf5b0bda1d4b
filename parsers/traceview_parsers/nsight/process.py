"""What one process did, while its report is being read: spilled rows, launches, marks, counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from traceview_parsers.nsight.launches import LaunchIndex
from traceview_parsers.nsight.names import Names
from traceview_parsers.nsight.source import Source
from traceview_parsers.nsight.spill import SortedSpill
from traceview_parsers.nsight.times import OVER, Counts, Overflows, Times

Ints = np.ndarray[Any, np.dtype[np.int64]]

TID = 0xFFFFFF
"""The thread bits of a globalTid; the rest is the globalPid."""

GPU_ROW = np.dtype(
    [
        ("start", "i8"),
        ("end", "i8"),
        ("correlation", "i8"),
        ("stream", "i8"),
        ("bytes", "i8"),
        ("name", "i4"),
        ("config", "i4"),
        ("cls", "i1"),
        ("mem", "i1"),
    ]
)
"""``stream`` holds the context in its upper half; -1 stands for null in correlation, bytes, config and mem."""

HOST_ROW = np.dtype([("start", "i8"), ("end", "i8"), ("name", "i4"), ("kind", "i1")])


def pid_of(global_pid: int) -> int:
    """The operating system's process id in a globalPid (or globalTid)."""
    return (global_pid >> 24) & 0xFFFFFF


@dataclass
class Process:
    """One process of a report. Files live in ``folder``; nothing here grows with the number of GPU or host rows."""

    key: int
    folder: Path
    gpu: SortedSpill
    host: SortedSpill
    launches: LaunchIndex
    counts: Counts = field(default_factory=Counts)
    contexts: dict[int, set[int]] = field(default_factory=dict)
    """device -> contexts seen on it"""
    gpu_names: set[int] = field(default_factory=set)
    host_names: set[int] = field(default_factory=set)
    blocking: list[Ints] = field(default_factory=list)
    """correlation ids of calls that blocked the host"""
    marks: list[tuple[Any, ...]] = field(default_factory=list)
    nccl: list[tuple[Any, ...]] = field(default_factory=list)
    first: int | None = None
    last: int | None = None
    mpi_rank: int | None = None
    overflows: Overflows | None = None
    """of its GPU rows, once they are all there"""
    told: bool = False
    """It has CUDA calls or NVTX ranges, not only calls of the operating system."""

    @property
    def pid(self) -> int:
        """The operating system's process id."""
        return pid_of(self.key)

    def cover(self, low: int, high: int) -> None:
        """Widen the recorded window."""
        self.first = low if self.first is None else min(self.first, low)
        self.last = high if self.last is None else max(self.last, high)

    def settle_gpu(self) -> None:
        """All GPU rows are there: find those that run too long, and widen the window by the others."""
        if self.gpu.rows:
            self.overflows = found = Overflows(self.gpu)
            self.counts.verdicts[OVER] += len(found.place)
            self.counts.cut_ns += found.cut_ns
            low = self.gpu.first
            self.cover(low, max(low, found.latest))


class Processes(dict[int, Process]):
    """The processes of a report by globalPid, made when first seen."""

    def __init__(self, scratch: Path) -> None:
        super().__init__()
        self._scratch = scratch

    def __missing__(self, key: int) -> Process:
        folder = self._scratch / f"{key:x}"
        folder.mkdir(parents=True)
        self[key] = process = Process(
            key,
            folder,
            SortedSpill(folder / "gpu", GPU_ROW),
            SortedSpill(folder / "host", HOST_ROW),
            LaunchIndex(folder),
        )
        return process


@dataclass(frozen=True)
class Reading:
    """What the readers of the tables of one report share."""

    source: Source
    names: Names
    processes: Processes
    times: Times
