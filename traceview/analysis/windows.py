"""Device-step windows of a rank from its host marks, METHODS b.1."""

from __future__ import annotations

import numpy as np

from traceview.analysis.marks import stops
from traceview.analysis.ops import CLS, HOST_DEVICE, Ops
from traceview.analysis.types import Bools, Ints, Marks, Windows

FAR = int(np.iinfo(np.int64).max)


def device_windows(marks: Marks, rank: int, ops: Ops, host_shift: int = 0) -> Windows:
    """Windows of every device of a rank (device HOST_DEVICE if it has no GPU operation), by device and step.

    ``host_shift`` ns are added to the marks and to the launches (METHODS a.5). Where marks of neighbouring steps
    are adjacent the windows tile the timeline (I4).
    """
    mine = np.flatnonzero(marks.rank == rank)
    mine = mine[np.argsort(marks.start[mine], kind="stable")]
    step = marks.step[mine]
    h, h_end = marks.start[mine] + host_shift, marks.end[mine] + host_shift
    stop = stops(step, h, h_end)
    if not len(ops):
        lanes = [(HOST_DEVICE, h, stop)]
    else:
        shifted = ops.on_gpu_axis(host_shift)
        lanes = [(d, *_bounds(shifted, shifted.device == d, h, stop)) for d in np.unique(ops.device).tolist()]
    n = len(step)
    return Windows(
        rank=np.full(n * len(lanes), rank, np.int64),
        device=np.repeat(np.array([d for d, _, _ in lanes], np.int64), n),
        step=np.tile(step, len(lanes)),
        start=np.concatenate([s for _, s, _ in lanes]),
        end=np.concatenate([e for _, _, e in lanes]),
        used=np.tile(~np.isin(step, list(marks.excluded)), len(lanes)),
    )


def concat(parts: list[Windows]) -> Windows:
    """Windows of several ranks as one."""
    return Windows(*(np.concatenate([getattr(p, name) for p in parts]) for name in Windows.__dataclass_fields__))


def _bounds(ops: Ops, on_device: Bools, h: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """Window starts and ends of one device (launches on the axis of ``h``)."""
    decisive = on_device & np.isin(ops.cls, [CLS["compute"], CLS["comm"], CLS["peer_copy"], CLS["gpu_opaque"]])
    rows = np.flatnonzero(decisive if decisive.any() else on_device)
    # an operation of unknown launch belongs to the step in which it starts
    launch = np.where(ops.launched[rows], ops.launch[rows], ops.start[rows])
    order = np.argsort(launch, kind="stable")
    launch, begin, end = launch[order], ops.start[rows][order], ops.end[rows][order]
    low, high = np.searchsorted(launch, h, "left"), np.searchsorted(launch, stop, "left")
    done = np.append(np.maximum.accumulate(end), -FAR)  # done[n - 1]: last end of the first n launches; n = 0: none
    starts, ends = np.empty_like(h), np.empty_like(h)
    bound = -FAR
    for k in range(len(h)):
        tiles = k > 0 and stop[k - 1] == h[k]
        first = int(begin[low[k] : high[k]].min(initial=FAR))
        ready = max(int(h[k]), int(done[low[k] - 1])) if tiles else int(h[k])
        starts[k] = bound = max(bound, min(first, ready))
        if tiles:
            ends[k - 1] = bound
        ends[k] = max(bound, int(stop[k]), int(done[high[k] - 1]))
        if k + 1 < len(h) and stop[k] != h[k + 1]:
            bound = int(ends[k])
    return starts, ends
