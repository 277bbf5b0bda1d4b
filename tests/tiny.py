"""Tiny declared tables, written in one line each. Times are nanoseconds unless a test says otherwise."""

from __future__ import annotations

from typing import Any

from traceview.schema import COLLECTIVES, GPU_OPS, HOST_RANGES, STEP_MARKS

MAIN = 1
EMPTY_HOST = HOST_RANGES.empty()
EMPTY_COLLECTIVES = COLLECTIVES.empty()


def gpu(*rows: dict[str, Any], rank: int = 0) -> Any:
    """GPU records: ``cls, s, e`` and optionally ``ls, thread, device, stream, name, config, mem, fused``."""
    rows = tuple(sorted(rows, key=lambda r: (r.get("device", 0), r["s"], r["e"])))
    launch = [r.get("ls") for r in rows]
    return GPU_OPS.build(
        {
            "rank": [rank] * len(rows),
            "device": [r.get("device", 0) for r in rows],
            "stream": [r.get("stream", 7) for r in rows],
            "start": [r["s"] for r in rows],
            "end": [r["e"] for r in rows],
            "cls": [r["cls"] for r in rows],
            "fused_comm": [r.get("fused", False) for r in rows],
            "name": [r.get("name", r["cls"]) for r in rows],
            "config": [r.get("config") for r in rows],
            "launch_start": launch,
            "launch_end": launch,
            "launch_thread": [
                None if t is None else r.get("thread", MAIN) for t, r in zip(launch, rows, strict=True)
            ],
            "mem": [r.get("mem") for r in rows],
        }
    )


def host(*rows: tuple[Any, ...], rank: int = 0) -> Any:
    """Host ranges: (kind, start, end[, thread[, name]])."""
    full = sorted(((*r, *(MAIN, r[0])[len(r) - 3 :]) for r in rows), key=lambda r: (r[3], r[1]))
    return HOST_RANGES.build(
        {
            "rank": [rank] * len(full),
            "thread": [r[3] for r in full],
            "start": [r[1] for r in full],
            "end": [r[2] for r in full],
            "kind": [r[0] for r in full],
            "name": [r[4] for r in full],
        }
    )


def step_marks(*rows: tuple[Any, ...]) -> Any:
    """Step marks: (rank, source, series, step, start, end)."""
    return STEP_MARKS.build(
        {
            "rank": [r[0] for r in rows],
            "source": [r[1] for r in rows],
            "series": [r[2] for r in rows],
            "step": [r[3] for r in rows],
            "start": [r[4] for r in rows],
            "end": [r[5] for r in rows],
            "thread": [MAIN] * len(rows),
        }
    )
