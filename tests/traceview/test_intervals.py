"""Interval kernels against instant-by-instant counting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.analysis.intervals import (
    LONGEST,
    NOTHING,
    Spans,
    complement,
    crossings,
    intersect,
    join,
    owners,
    subtract,
    sweep,
    union,
)

END = 40
Pairs = list[tuple[int, int]]
pairs = st.lists(st.tuples(st.integers(0, END), st.integers(0, 12)), max_size=12).map(
    lambda raw: [(s, min(s + n, END)) for s, n in raw]
)


def arrays(p: Pairs) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(p, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def spans(p: Pairs) -> Spans:
    return union(*arrays(p))


def instants(x: Pairs | Spans) -> set[int]:
    each = zip(x.start.tolist(), x.end.tolist(), strict=True) if isinstance(x, Spans) else x
    return {t for s, e in each for t in range(s, e)}


def assert_normal(x: Spans) -> None:
    assert (x.end > x.start).all()
    assert (x.start[1:] > x.end[:-1]).all()


def test_touching_intervals_join_and_empty_ones_vanish() -> None:
    x = spans([(5, 9), (0, 5), (20, 20), (30, 31)])
    assert (x.start.tolist(), x.end.tolist()) == ([0, 30], [9, 31])
    assert x.measure == 10
    assert len(spans([(3, 3)])) == 0


@given(pairs, pairs)
def test_set_operations(a: Pairs, b: Pairs) -> None:
    x, y = spans(a), spans(b)
    for got, want in (
        (x, instants(a)),
        (join([x, y]), instants(a) | instants(b)),
        (intersect(x, y), instants(a) & instants(b)),
        (subtract(x, y), instants(a) - instants(b)),
        (complement(x, 3, 37), set(range(3, 37)) - instants(a)),
        (x.clip(5, 20), instants(a) & set(range(5, 20))),
    ):
        assert_normal(got)
        assert instants(got) == want


@given(pairs, pairs)
def test_measures(a: Pairs, b: Pairs) -> None:
    x = spans(a)
    time = np.arange(-2, END + 2)
    assert x.before(time).tolist() == [len([t for t in instants(a) if t < at]) for at in time]
    assert x.covers(time).tolist() == [t in instants(a) for t in time]
    assert x.within(*arrays(b)).tolist() == [len(instants(a) & set(range(s, e))) for s, e in b]


@given(pairs, pairs)
def test_crossings_are_all_the_intersections(a: Pairs, b: Pairs) -> None:
    y = spans(b)
    rows = list(zip(*(c.tolist() for c in crossings(*arrays(a), y)), strict=True))
    want = [
        (i, j, max(s, int(y.start[j])), min(e, int(y.end[j])))
        for i, (s, e) in enumerate(a)
        for j in range(len(y))
        if s < e and max(s, y.start[j]) < min(e, y.end[j])
    ]
    assert rows == want


@given(pairs)
def test_every_covered_instant_is_owned_by_the_active_interval_with_the_latest_end(a: Pairs) -> None:
    got = {}
    for s, e, i in zip(*(c.tolist() for c in owners(*arrays(a))), strict=True):
        for t in range(s, e):
            assert t not in got
            got[t] = i
    assert set(got) == instants(a)
    for t, i in got.items():
        active = [(e, s, n) for n, (s, e) in enumerate(a) if s <= t < e]
        latest = max(e for e, _, _ in active)
        first = min(s for e, s, _ in active if e == latest)
        assert i == min(n for e, s, n in active if (e, s) == (latest, first))


@given(
    st.lists(pairs.filter(lambda p: any(s < e for s, e in p)), min_size=1, max_size=4),
    st.sets(st.integers(0, END), min_size=1),
)
def test_sweep_tells_which_layers_are_active(layers: list[Pairs], cuts: set[int]) -> None:
    bounds, masks = sweep([spans(p) for p in layers], np.array(sorted(cuts)))
    assert cuts <= set(bounds.tolist())
    assert (np.diff(bounds) > 0).all()
    for s, e, mask in zip(bounds[:-1].tolist(), bounds[1:].tolist(), masks.tolist(), strict=True):
        for t in range(s, e):
            assert mask == sum(1 << k for k, p in enumerate(layers) if t in instants(p))


def test_sweep_refuses_what_its_key_cannot_hold() -> None:
    with pytest.raises(ValueError, match="too long"):
        sweep([], np.array([0, LONGEST]))
    assert sweep([], np.array([0, LONGEST - 1]))[1].tolist() == [0]


def test_nothing_stays_nothing() -> None:
    one = spans([(1, 2)])
    assert join([NOTHING, NOTHING]) is NOTHING
    assert len(intersect(NOTHING, one)) == len(intersect(one, NOTHING)) == len(subtract(NOTHING, one)) == 0
    assert subtract(one, NOTHING) is one
