"""Decompositions and tables as rows of the result."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from traceview.analysis.phases import coactivity_name
from traceview.analysis.types import Decomposition, Ints, Windows
from traceview.config import Config
from traceview.result import CopyRow, IdleRow, Metric, Window
from traceview.run import Run
from traceview.schema import GPU_CLASSES, LEAVES, MEM_KINDS, SUB_LEAVES, codes
from traceview.schema.arrays import to_numpy

COPY_CLASSES = ("pcie_h2d", "pcie_d2h", "gpu_d2d", "peer_copy", "gpu_memset")


def windows_of(lane: Decomposition, windows: Windows) -> list[Window]:
    """The used windows of one device."""
    out = []
    for i, row in enumerate(lane.window.tolist()):
        if not windows.used[row]:
            continue
        active: dict[str, int] = defaultdict(int)
        for mask, ns in zip(lane.masks.tolist(), lane.coactivity[i].tolist(), strict=True):
            if ns:
                active[coactivity_name(mask)] += ns
        out.append(
            Window(
                rank=lane.rank,
                device=lane.device,
                step=int(windows.step[row]),
                start_ns=int(windows.start[row]),
                end_ns=int(windows.end[row]),
                leaves_ns=dict(zip(LEAVES, lane.leaves[i].tolist(), strict=True)),
                sub_ns={s: ns for s, ns in zip(SUB_LEAVES, lane.sub[i].tolist(), strict=True) if ns},
                coactivity_ns=dict(active),
            )
        )
    return out


def idle(lanes: Iterable[tuple[Decomposition, Any]]) -> list[IdleRow]:
    """Idle time of the used windows by cause and tag; ``lanes`` pairs a decomposition with its used mask."""
    total: dict[tuple[str, str], int] = defaultdict(int)
    names: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for lane, used in lanes:
        for cause in lane.idle:
            ns = int(cause.ns[used].sum())
            total[cause.leaf, cause.tag] += ns
            for name in cause.names:
                names[cause.leaf, cause.tag][name] += ns
    rows = [
        IdleRow(leaf, tag, ns, sorted(names[leaf, tag], key=lambda n: (-names[leaf, tag][n], n))[:5])
        for (leaf, tag), ns in total.items()
        if ns
    ]
    return sorted(rows, key=lambda r: (-r.ns, r.cause, r.tag))


class Copies:
    """Sums of copies by direction and memory kind, over ranks."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0, 0, 0])

    def add(self, gpu_ops: Any, exposed: Ints, inside: Any) -> None:
        """Add the copies of one rank that start in a used window (``inside``, one bool per row)."""
        cls = codes(gpu_ops["cls"], GPU_CLASSES)
        copies = np.flatnonzero(inside & np.isin(cls, [GPU_CLASSES.index(name) for name in COPY_CLASSES]))
        cls, mem, exposed = cls[copies], codes(gpu_ops["mem"], MEM_KINDS)[copies], exposed[copies]
        size = to_numpy(gpu_ops["bytes"], 0)[copies]
        ns = (to_numpy(gpu_ops["end"]) - to_numpy(gpu_ops["start"]))[copies]
        for name in COPY_CLASSES:
            for kind in range(-1, len(MEM_KINDS)):
                rows = np.flatnonzero((cls == GPU_CLASSES.index(name)) & (mem == kind))
                if not len(rows):
                    continue
                big = rows[(size[rows] >= self.config.copy_min_bytes) & (ns[rows] > 0)]
                found = (len(rows), size[rows], ns[rows], exposed[rows], len(big), size[big], ns[big])
                key = name, MEM_KINDS[kind] if kind >= 0 else ""
                self.sums[key] = [a + int(np.sum(b)) for a, b in zip(self.sums[key], found, strict=True)]

    def rows(self) -> list[CopyRow]:
        """One row per (direction, memory kind); the rate is that of copies of at least 1 MB, decimal GB/s."""
        return [
            CopyRow(name, mem, n, size, ns, exposed, big_size / big_ns if big_ns else None, big_n)
            for (name, mem), (n, size, ns, exposed, big_n, big_size, big_ns) in sorted(self.sums.items())
        ]


def ratio(part: int, whole: int, basis: str, n: int) -> Metric:
    """A share; a zero denominator gives null, never 0 or 1."""
    if not whole:
        return Metric(None, "fraction", n, f"{basis}: nothing to divide by", "unavailable")
    return Metric(part / whole, "fraction", n, basis, "proved")


def companion_metrics(total: dict[str, int], wall: int, n: int) -> dict[str, Metric]:
    """Overlap and busy shares of METHODS a.4 and g from sums over the used windows."""
    t = total
    return {
        "overlap_transfer": ratio(t["hidden_transfer"], t["transfer_busy"], "hidden transfer / transfer", n),
        "overlap_comm": ratio(t["hidden_comm"], t["comm_busy"], "hidden communication / communication", n),
        "staging_overlap": ratio(t["hidden_staging"], t["staging_busy"], "staging hidden by compute or comm", n),
        "busy": ratio(t["busy"], wall, "time with any GPU operation / wall (what nvidia-smi calls utilisation)", n),
        "busy_no_wait": ratio(t["busy_no_wait"], wall, "the same without communication kernels that only wait", n),
    }


def hosts_of(run: Run) -> dict[str, list[int]]:
    """host -> ranks."""
    out: dict[str, list[int]] = defaultdict(list)
    for rank in run.ranks:
        out[run.host(rank)].append(rank)
    return dict(out)
