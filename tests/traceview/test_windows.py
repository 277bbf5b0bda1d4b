"""Device-step windows (METHODS b.1)."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tiny import MAIN, gpu
from traceview.analysis.ops import HOST_DEVICE, Ops
from traceview.analysis.types import Marks
from traceview.analysis.windows import concat, device_windows


def marks(*bounds: tuple[int, int, int], excluded: dict[int, str] | None = None) -> Marks:
    step, start, end = (np.array(x, np.int64) for x in zip(*bounds, strict=True))
    zeros = np.zeros(len(step), np.int64)
    return Marks("profiler_step", zeros, step, start, end, zeros + MAIN, excluded or {})


def bounds(m: Marks, *ops: dict[str, object], shift: int = 0) -> list[tuple[int, int]]:
    w = device_windows(m, 0, Ops.of(gpu(*ops)), shift)
    return list(zip(w.start.tolist(), w.end.tolist(), strict=True))


TWO = ((1, 0, 100), (2, 100, 200))


def op(cls: str, s: int, e: int, ls: int | None, **more: object) -> dict[str, object]:
    return {"cls": cls, "s": s, "e": e, "ls": ls, **more}


def test_gpu_behind_the_host_moves_the_boundary_to_the_first_new_operation() -> None:
    assert bounds(marks(*TWO), op("compute", 20, 120, 10), op("compute", 130, 190, 105)) == [(0, 120), (120, 200)]


def test_host_bound_boundary_is_the_mark() -> None:
    assert bounds(marks(*TWO), op("compute", 20, 60, 10), op("compute", 150, 190, 140)) == [(0, 100), (100, 200)]


def test_last_window_runs_until_its_work_is_done() -> None:
    assert bounds(marks(*TWO), op("compute", 20, 60, 10), op("compute", 150, 250, 140))[-1] == (100, 250)


def test_prefetch_copy_does_not_move_a_boundary() -> None:
    ops = [op("compute", 20, 60, 10), op("pcie_h2d", 60, 130, 50), op("compute", 130, 190, 120)]
    assert bounds(marks(*TWO), *ops) == [(0, 100), (100, 200)]


def test_only_copies_then_all_operations_count() -> None:
    assert bounds(marks(*TWO), op("pcie_h2d", 60, 130, 50), op("pcie_h2d", 130, 190, 120)) == [(0, 130), (130, 200)]


def test_operation_of_unknown_launch_belongs_where_it_starts() -> None:
    assert bounds(marks(*TWO), op("compute", 90, 120, None), op("compute", 120, 190, None)) == [(0, 120), (120, 200)]


def test_marks_that_are_not_adjacent_end_on_their_own() -> None:
    m = marks((1, 0, 100), (2, 100, 200), (7, 500, 600), excluded={1: "first"})
    ops = [op("compute", 20, 60, 10), op("compute", 150, 230, 140), op("compute", 510, 590, 505)]
    assert bounds(m, *ops) == [(0, 100), (100, 230), (500, 600)]
    assert device_windows(m, 0, Ops.of(gpu(*ops))).used.tolist() == [False, True, True]


def test_host_time_between_marks_of_neighbouring_steps_belongs_to_the_earlier_one() -> None:
    m = marks((1, 0, 80), (2, 100, 180))
    assert bounds(m, op("compute", 10, 20, 5), op("compute", 95, 99, 90), op("compute", 110, 170, 105)) == [
        (0, 100),
        (100, 180),
    ]


def test_every_device_has_its_own_windows() -> None:
    ops = [op("compute", 20, 120, 10), op("compute", 120, 190, 105)]
    ops += [op("compute", 20, 50, 10, device=1), op("compute", 140, 150, 110, device=1)]
    w = device_windows(marks(*TWO), 0, Ops.of(gpu(*ops)))
    assert w.device.tolist() == [0, 0, 1, 1]
    assert w.start.tolist() == [0, 120, 0, 100]
    assert w.end.tolist() == [120, 200, 100, 200]


def test_rank_without_gpu_has_the_host_steps() -> None:
    w = device_windows(marks((1, 0, 80), (2, 100, 180)), 0, Ops.of(gpu()))
    assert (w.device.tolist(), w.start.tolist(), w.end.tolist()) == ([HOST_DEVICE] * 2, [0, 100], [100, 180])


def test_host_shift_moves_marks_and_launches_alike() -> None:
    ops = [op("compute", 20, 120, 10), op("compute", 130, 190, 105)]
    assert bounds(marks(*TWO), *ops, shift=-30) == [(-30, 120), (120, 190)]


def test_ranks_are_concatenated() -> None:
    one = device_windows(marks(*TWO), 0, Ops.of(gpu()))
    assert concat([one, one]).start.tolist() == [0, 100, 0, 100]


@given(
    st.lists(st.tuples(st.integers(-50, 450), st.integers(0, 120), st.integers(0, 90)), min_size=1, max_size=25),
)
def test_adjacent_windows_tile_and_keep_all_that_was_launched(raw: list[tuple[int, int, int]]) -> None:
    m = marks(*((k, k * 100, k * 100 + 100) for k in range(4)))
    ops = [op("compute", ls + delay, ls + delay + length, ls) for ls, delay, length in raw]
    w = bounds(m, *ops)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(w))
    assert all(s <= e for s, e in w)
    inside = [o for o in ops if 0 <= int(o["ls"]) < 400]  # type: ignore[call-overload]
    assert w[-1][1] >= max([400, *(int(o["e"]) for o in inside)])  # type: ignore[call-overload]
