"""FLOPs by recorded shapes, and the kernels they are given to. Times in µs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.schema import GPU_OPS
from traceview_parsers import kineto
from traceview_parsers.kineto.flops import flops_of
from traceview_parsers.reader import ReadOptions

Flops = Callable[..., list[float | None]]
MM = {"Input Dims": [[2, 3], [3, 5]]}


@pytest.mark.parametrize(
    ("name", "dims", "values", "flops"),
    [
        ("aten::mm", [[4, 8], [8, 16]], None, 2 * 4 * 8 * 16),
        ("aten::_scaled_mm", [[4, 8], [8, 16], [], []], None, 2 * 4 * 8 * 16),
        ("aten::addmm", [[16], [4, 8], [8, 16], [], []], None, 2 * 4 * 8 * 16),
        ("aten::bmm", [[3, 4, 8], [3, 8, 16]], None, 2 * 3 * 4 * 8 * 16),
        ("aten::baddbmm", [[3, 4, 16], [3, 4, 8], [3, 8, 16], [], []], None, 2 * 3 * 4 * 8 * 16),
        # 224 -> 112 with stride 2, padding 3 and a kernel of 7: 8 images, 3 channels in, 64 out.
        (
            "aten::conv2d",
            [[8, 3, 224, 224], [64, 3, 7, 7], [], [], [], [], []],
            ["", "", "", "[2, 2]", "[3, 3]", "[1, 1]", "1"],
            2 * 8 * 64 * 112 * 112 * 3 * 7 * 7,
        ),
        # depthwise: the weight holds the channels of its group alone
        (
            "aten::conv2d",
            [[1, 32, 8, 8], [32, 1, 3, 3]],
            ["", "", "", "[1]", "[1]", "[1]", "32"],
            2 * 32 * 8 * 8 * 9,
        ),
    ],
)
def test_formulas(name: str, dims: Any, values: Any, flops: float) -> None:
    assert flops_of(name, json.dumps(dims).encode(), json.dumps(values).encode()) == flops


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("aten::mm", b"null"),
        ("aten::mm", b""),
        ("aten::mm", b"[[2, 3], [4, 5]]"),
        ("aten::mm", b"[[2, 3]]"),
        ("aten::mm", b'[["2", 3], [3, 5]]'),
        ("aten::mm", b'[["2", 100000000000000], [3, 5]]'),
        ("aten::mm", b"[[0, 3], [3, 5]]"),
        ("aten::mm", b"[[-2, 3], [3, -5]]"),
        ("aten::mm", b"{}"),
        ("aten::mm", b"[[100000000000, 3], [3, 500000000000]]"),
        ("aten::bmm", b"[[2, 2, 3], [4, 3, 5]]"),
        ("aten::conv2d", b"[[1, 3, 8, 8], [4, 3, 3, 3]]"),
    ],
)
def test_shapes_that_cannot_be_tell_nothing(name: str, dims: bytes) -> None:
    assert math.isnan(flops_of(name, dims))


@given(st.sampled_from(["aten::mm", "aten::addmm", "aten::conv2d"]), st.binary(max_size=40), st.binary(max_size=40))
def test_any_text_is_taken(name: str, dims: bytes, values: bytes) -> None:
    assert not flops_of(name, dims, values) < 0


@pytest.fixture
def flops(tmp_path: Path) -> Flops:
    """The column of the kernels in order of their start."""

    def run(*events: dict[str, Any]) -> list[float | None]:
        path = tmp_path / "t.json"
        path.write_text(json.dumps({"traceEvents": events, "schemaVersion": 1}))
        (tmp_path / "out").mkdir(exist_ok=True)
        part = kineto.read(path, tmp_path / "out", ReadOptions(), None)[0]
        column: list[float | None] = part.table(GPU_OPS)["flops"].to_pylist()
        return column

    return run


def op(name: str, ts: int, dur: int, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 10, "tid": tid, "ts": ts, "dur": dur, "args": args}


def launched(
    correlation: int, ts: int, tid: int = 1, name: str = "gemm", cat: str = "kernel"
) -> list[dict[str, Any]]:
    """A launch at ``ts`` and its kernel 100 µs later."""
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 10, "tid": tid, "ts": ts, "dur": 1}
    work = {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts + 100, "dur": 1}
    own = {"correlation": correlation, "device": 0, "stream": 7}
    return [{**call, "args": {"correlation": correlation}}, {**work, "args": own}]


def test_the_first_kernel_of_an_operator_has_its_flops(flops: Flops) -> None:
    outer = op("aten::linear", 0, 20, **MM)  # not counted itself: the product inside is
    inner = op("aten::mm", 5, 10, **MM)
    kernels = [launched(n, ts) for n, ts in ((1, 2), (2, 6), (3, 8), (4, 16))]
    assert flops(outer, inner, *chain(*kernels)) == [None, 60.0, 0.0, None]


def test_an_operator_inside_another_counts_once(flops: Flops) -> None:
    conv = {
        "Input Dims": [[1, 1, 3, 3], [1, 1, 3, 3]],
        "Concrete Inputs": ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "1"],
    }
    events = [op("aten::conv2d", 0, 20, **conv), op("aten::addmm", 5, 5, **{"Input Dims": [[5], [2, 3], [3, 5]]})]
    assert flops(*events, *launched(1, 6), *launched(2, 12)) == [18.0, 0.0]


def test_threads_and_classes_are_kept_apart(flops: Flops) -> None:
    events = [op("aten::mm", 0, 10, 1, **MM), op("aten::mm", 0, 10, 2, **{"Input Dims": [[1, 1], [1, 1]]})]
    memset = launched(1, 1, 1, "Memset (Device)", "gpu_memset")
    comm = launched(2, 2, 1, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    kernels = [*memset, *comm, *launched(3, 3, 1), *launched(4, 4, 2), *launched(5, 5, 3)]
    assert flops(*events, *kernels) == [None, None, 60.0, 2.0, None]


def test_without_shapes_nothing_is_told(flops: Flops) -> None:
    assert flops(op("aten::mm", 0, 10), *launched(1, 5)) == [None]


def test_a_real_trace(shared_dir: Path, tmp_path: Path) -> None:
    """Recorded with_flops: 26 products, counted from the file by hand."""
    part = kineto.read(shared_dir / "traces/torch/h100_bert_small.json.gz", tmp_path, ReadOptions(), None)[0]
    column = [f for f in part.table(GPU_OPS)["flops"].to_pylist() if f is not None]
    assert (len(column), sum(column)) == (26, 8_029_194_240)
