"""GPU time by host range: small examples, and a brute-force reference on random ranges."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from traceview.analysis.nvtx import GpuTime, LaunchedOps, Ranges, project

Row = tuple[int, int, int, int]  # ranges: thread, start, end, name; ops: thread, launch, start, end


def columns(rows: list[Row]) -> list[np.ndarray]:
    return [np.array([r[i] for r in rows], np.int64) for i in range(4)]


def run(ranges: list[Row], ops: list[Row], names: int = 4) -> GpuTime:
    return project(Ranges(*columns(ranges), names), LaunchedOps(*columns(ops)))


def test_inner_range_owns_and_outer_range_includes() -> None:
    found = run([(1, 0, 100, 0), (1, 10, 20, 1)], [(1, 12, 200, 205), (1, 50, 205, 215), (2, 15, 300, 400)])
    assert found.gpu_ns.tolist() == [15, 5, 0, 0] and found.self_ns.tolist() == [10, 5, 0, 0]
    assert found.ops.tolist() == [2, 1, 0, 0]
    assert (found.first.tolist(), found.last.tolist()) == ([200, 200, 0, 0], [215, 205, 0, 0])


def test_a_recursive_name_counts_an_operation_once() -> None:
    found = run([(1, 0, 100, 0), (1, 10, 90, 0), (1, 20, 80, 1)], [(1, 30, 100, 107)])
    assert (found.gpu_ns[0], found.ops[0], found.ranges[0], found.self_ns[1]) == (7, 1, 2, 7)


def test_half_open_and_adjacent() -> None:
    found = run([(1, 0, 10, 0), (1, 10, 20, 1)], [(1, 10, 30, 31), (1, 20, 31, 33)])
    assert found.gpu_ns.tolist()[:2] == [0, 1]


def test_crossing_ranges_keep_their_totals() -> None:
    found = run([(1, 0, 10, 0), (1, 5, 15, 1)], [(1, 7, 20, 23)])
    assert found.gpu_ns.tolist()[:2] == [3, 3] and found.self_ns.sum() == 3


@st.composite
def nested(draw: st.DrawFn) -> list[Row]:
    """Properly nested ranges: by pushing and popping."""
    rows: list[Row] = []
    for thread in (1, 2):
        stack: list[tuple[int, int]] = []
        time = 0
        for push in draw(st.lists(st.booleans(), max_size=14)):
            time += draw(st.integers(0, 3))
            if push:
                stack.append((time, draw(st.integers(0, 3))))
            elif stack:
                begin, name = stack.pop()
                rows.append((thread, begin, time, name))
        rows += [(thread, begin, time + 5, name) for begin, name in stack]
    return draw(st.permutations(rows))


@settings(max_examples=150, deadline=None)
@given(nested(), st.lists(st.tuples(st.integers(1, 2), st.integers(0, 40), st.integers(0, 9)), max_size=12))
def test_equals_brute_force(ranges: list[Row], launches: list[tuple[int, int, int]]) -> None:
    ops = [(thread, launch, 100 + i, 100 + i + length) for i, (thread, launch, length) in enumerate(launches)]
    found = run(ranges, ops)
    gpu, own = [0] * 4, [0] * 4
    for thread, launch, start, end in ops:
        inside = [r for r in ranges if r[0] == thread and r[1] <= launch < r[2]]
        for name in {r[3] for r in inside}:
            gpu[name] += end - start
        if inside:
            shortest = min(r[2] - r[1] for r in inside)
            owners = {r[3] for r in inside if r[2] - r[1] == shortest}
            if len(owners) == 1:
                own[owners.pop()] += end - start
    assert found.gpu_ns.tolist() == gpu
    unique = all(len({r[3] for r in ranges if (r[0], r[1], r[2]) == key}) == 1 for key in {r[:3] for r in ranges})
    if unique:
        assert found.self_ns.tolist() == own
