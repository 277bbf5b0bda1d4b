"""Kernel sums, and the excess that keeps goodput honest (METHODS g)."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceview.analysis import kernels
from traceview.schema import GPU_OPS


def gpu(rows: list[tuple[str, str, int, int]]) -> object:
    """gpu_ops of (name, class, start, end)."""
    n = len(rows)
    return GPU_OPS.build(
        {
            "device": np.zeros(n, np.int32),
            "stream": np.zeros(n, np.int64),
            "start": np.array([r[2] for r in rows], np.int64),
            "end": np.array([r[3] for r in rows], np.int64),
            "cls": [r[1] for r in rows],
            "fused_comm": np.zeros(n, bool),
            "name": [r[0] for r in rows],
            "config": ["[1] [32]"] * n,
        },
        stored=True,
    )


def test_only_rows_in_a_step_count_and_names_are_summed_over_ranks() -> None:
    table = gpu([("gemm", "compute", 0, 10), ("gemm", "compute", 10, 30), ("gemm", "compute", 90, 99)])
    frames = [kernels.sums(table, np.array([1, 1, -1]), rank) for rank in (0, 1)]
    (row,) = kernels.table(frames)
    assert (row.name, row.count, row.total_ns, row.mean_ns, row.max_ns, row.ranks) == ("gemm", 4, 60, 15, 20, 2)


def test_step_of_is_minus_one_outside_the_windows() -> None:
    steps = kernels.step_of(np.array([0, 5, 9, 10, 25]), np.array([5, 20]), np.array([10, 30]), np.array([7, 8]))
    assert steps.tolist() == [-1, 7, 7, -1, 8]
    assert kernels.step_of(np.array([3]), *[np.empty(0, np.int64)] * 3).tolist() == [-1]


def frames_of(durations: list[int]) -> list[pl.DataFrame]:
    return [kernels.sums(gpu([("gemm", "compute", 0, d)]), np.array([1]), rank) for rank, d in enumerate(durations)]


def test_one_rank_has_no_peer_to_compare_with() -> None:
    assert kernels.excess_ns(frames_of([100])) == (0, 0)
    assert kernels.excess_ns([]) == (0, 0)


@pytest.mark.parametrize("ranks", [2, 3, 8])
@settings(max_examples=20, deadline=None)
@given(base=st.integers(1, 10**6), slower=st.integers(0, 10**6), rank=st.integers(0, 7))
def test_slowing_one_gpu_never_raises_goodput(ranks: int, base: int, slower: int, rank: int) -> None:
    durations = [base] * ranks
    durations[rank % ranks] += slower
    excess, compared = kernels.excess_ns(frames_of(durations))
    assert compared == ranks
    assert sum(durations) - excess == base * ranks  # the extra time is no useful time
