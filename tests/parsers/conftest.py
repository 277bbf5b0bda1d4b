"""Tiny PyTorch traces made to order."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BASE_NS = 1_767_189_312_000_000_000


def tiny_trace(start_s: float = 0.0, pid: int = 100, **keys: Any) -> dict[str, Any]:
    """One op, its launch, its kernel, at ``start_s`` after BASE_NS; ``keys`` go beside (None: left out)."""
    ts = start_s * 1e6 + 10.0
    cpu = {"ph": "X", "pid": pid, "tid": pid}
    events = [
        {**cpu, "cat": "user_annotation", "name": "ProfilerStep#1", "ts": ts, "dur": 100.0, "args": {}},
        {**cpu, "cat": "cpu_op", "name": "aten::mm", "ts": ts + 1, "dur": 8.0, "args": {}},
        {
            **cpu,
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "ts": ts + 2,
            "dur": 2.5,
            "args": {"correlation": 7},
        },
        {
            **{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": ts + 6, "dur": 50.001},
            "args": {"device": 0, "stream": 7, "correlation": 7, "grid": [1, 2, 3], "block": [4, 5, 6]},
        },
    ]
    around = {"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, **keys}
    return {**{k: v for k, v in around.items() if v is not None}, "traceEvents": events}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """write("a/rank0.json", rank=0, world=2, start_s=1.5, pid=1, ...) -> path."""

    def make(name: str, rank: int | None = None, world: int | None = None, **more: Any) -> Path:
        info = {k: v for k, v in (("rank", rank), ("world_size", world)) if v is not None}
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(tiny_trace(distributedInfo=info or None, **more)))
        return path

    return make
