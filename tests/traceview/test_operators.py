"""GPU time by operator and annotation, and the operator of each kernel."""

from __future__ import annotations

import numpy as np

from traceview.analysis.operators import Launchers
from traceview.schema import GPU_OPS, HOST_RANGES


def job() -> tuple[object, object]:
    """A thread with block > (linear > mm, relu); three kernels launched in mm, relu, and outside."""
    kinds = ["annotation", "op", "op", "op", "annotation"]
    ranges = HOST_RANGES.build(
        {
            "thread": np.zeros(5, np.int64),
            "start": np.array([0, 10, 20, 60, 0]),
            "end": np.array([100, 50, 40, 80, 200]),
            "kind": kinds,
            "name": ["block", "linear", "mm", "relu", "ProfilerStep#3"],
        },
        stored=True,
    )
    gpu = GPU_OPS.build(
        {
            "device": np.zeros(3, np.int32),
            "stream": np.zeros(3, np.int64),
            "start": np.array([100, 200, 300]),
            "end": np.array([150, 230, 310]),
            "cls": ["compute"] * 3,
            "fused_comm": np.zeros(3, bool),
            "name": ["gemm", "act", "late"],
            "launch_start": np.array([25, 65, 150]),
            "launch_thread": np.zeros(3, np.int64),
        },
        stored=True,
    )
    return gpu, ranges


def test_time_goes_to_every_enclosing_range_and_once_to_the_innermost() -> None:
    launchers = Launchers()
    launchers.add(*job(), np.array([1, 1, 1]), 0)
    rows = {r.name: (r.kind, r.ops, r.gpu_ns, r.self_ns) for r in launchers.rows()}
    assert rows == {
        "block": ("annotation", 2, 80, 80),
        "linear": ("op", 1, 50, 0),
        "mm": ("op", 1, 50, 50),
        "relu": ("op", 1, 30, 30),
    }


def test_unused_steps_do_not_count() -> None:
    launchers = Launchers()
    launchers.add(*job(), np.array([-1, 1, -1]), 0)
    assert {r.name: r.gpu_ns for r in launchers.rows()} == {"block": 30, "relu": 30}


def test_a_kernel_is_named_after_the_operator_that_launched_most_of_it() -> None:
    from traceview.result import KernelRow

    launchers = Launchers()
    launchers.add(*job(), np.array([1, 1, 1]), 0)
    kernels = [KernelRow(name, "compute", 1, 1, 1, 1, 1) for name in ("gemm", "act", "late")]
    launchers.name(kernels)
    assert [k.op for k in kernels] == ["mm", "relu", ""]
