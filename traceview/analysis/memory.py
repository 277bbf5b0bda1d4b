"""Device memory of a rank from its counters: peaks and allocator calls over the whole record."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from traceview.result import MemoryRow


def rows(counters: Any, rank: int) -> list[MemoryRow]:
    """One row per device with memory samples; allocator calls (``alloc.*``) go to the first of them."""
    if not counters.num_rows:
        return []
    names = counters["name"].cast("string")
    calls = pc.sum(pc.cast(pc.starts_with(names, "alloc."), "int64")).as_py() or 0
    memory = counters.filter(pc.starts_with(names, "memory."))
    devices = sorted(d for d in set(memory["device"].to_pylist()) if d >= 0)
    out = [
        MemoryRow(
            rank=rank,
            device=device,
            peak_allocated=_peak(memory, device, "memory.allocated"),
            peak_reserved=_peak(memory, device, "memory.reserved"),
            allocator_calls=calls if device == devices[0] else 0,
        )
        for device in devices
    ]
    return out or ([MemoryRow(rank, -1, None, None, calls)] if calls else [])


def _peak(memory: Any, device: int, name: str) -> int | None:
    chosen = memory.filter(pc.and_(pc.equal(memory["device"], device), pc.equal(memory["name"].cast("string"), name)))
    peak = pc.max(chosen["value"]).as_py()
    return None if peak is None else int(peak)
