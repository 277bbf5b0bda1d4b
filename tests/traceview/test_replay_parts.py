"""The parts of a replay: the max-plus graph, order between streams, blocks, blocking calls (METHODS h.2)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.analysis import maxplus
from traceview.analysis.intervals import NOTHING, Spans
from traceview.analysis.replay.lane import lane
from traceview.analysis.replay.ops import (
    COPY,
    KERNEL,
    Blocking,
    Host,
    Recorded,
    blocking_calls,
    launch_order,
    previous,
    waits_between_streams,
)
from traceview.config import DEFAULT

US = 1_000
NONE = np.zeros(0, np.int64)
NO_CALLS = Blocking(NONE, NONE, NONE)


def recorded(*ops, unlaunched=()):
    """(stream, start, end, launch) in µs, launch calls of no length."""
    stream, start, end, launch = (np.array(x, np.int64) for x in zip(*ops, strict=True))
    start, end, launch = start * US, end * US, launch * US
    n = len(ops)
    known = ~np.isin(np.arange(n), unlaunched)
    zero = np.zeros(n, np.int64)
    rows = Recorded(stream, start, end, launch, known, zero, np.full(n, KERNEL, np.int8), zero - 1)
    return rows.sorted()


def test_longest_path():
    source, target = np.array([0, 1, 0, 2]), np.array([1, 3, 2, 3])
    plan = maxplus.order(4, source, target)
    assert maxplus.evaluate(plan, np.array([5.0, 1.0, 2.0, 9.0])).tolist() == [0, 5, 2, 11]


def test_a_cycle_has_no_order():
    assert maxplus.order(3, np.array([0, 1, 2]), np.array([1, 2, 1])) is None


WAITS = {
    "the first after it, and not before its end": ([(1, 0, 10, 0), (2, 10, 20, 1)], [(0, 1)]),
    "it starts before the end: no": ([(1, 0, 10, 0), (2, 5, 20, 1)], []),
    "launched before it: no": ([(1, 0, 10, 1), (2, 30, 40, 0)], []),
    "not the first after it: no": ([(1, 0, 30, 0), (2, 5, 20, 1), (2, 50, 60, 2)], []),
    "not the first, but at once after it": ([(1, 0, 50, 0), (2, 5, 20, 1), (2, 51, 60, 2)], [(0, 2)]),
    "at once after it, but its own stream explains that": ([(1, 0, 50, 0), (2, 5, 49, 1), (2, 51, 60, 2)], []),
}


@pytest.mark.parametrize("case", WAITS)
def test_waits_between_streams(case):
    ops, want = WAITS[case]
    found = recorded(*ops)
    source, target = waits_between_streams(found, launch_order(found), DEFAULT)
    assert sorted(zip(source.tolist(), target.tolist(), strict=True)) == want


CALLS = {
    "back 2 us after the end": ("sync", (5, 42), [(5, 42, 0)]),
    "back long after the end: it waited for something else": ("sync", (5, 200), []),
    "nothing ended in it": ("sync", (41, 42), []),
    "a runtime call that drained the GPU": ("runtime", (5, 42), [(5, 42, 0)]),
    "a runtime call beside a running kernel": ("runtime", (5, 62), []),
}


@pytest.mark.parametrize("case", CALLS)
def test_blocking_calls(case):
    kind, call, want = CALLS[case]
    none, one = Spans(NONE, NONE), Spans(*(np.array([x * US]) for x in call))
    ops = recorded((1, 0, 40, 0), (1, 60, 90, 0))
    found = blocking_calls(ops, *((one, none) if kind == "sync" else (none, one)), DEFAULT)
    assert list(zip(*((x // US).tolist() for x in (found.start, found.end)), found.op.tolist(), strict=True)) == want


def test_a_launch_into_a_full_queue_blocks():
    ops = recorded((1, 0, 400, 0), (1, 401, 500, 10))
    full = Recorded(**{**vars(ops), "call": np.array([5, 395]) * US})
    found = blocking_calls(full, Spans(NONE, NONE), Spans(NONE, NONE), DEFAULT)
    assert (found.start.tolist(), found.end.tolist(), found.op.tolist()) == ([10 * US], [405 * US], [0])


def op_by_op(ops, factor):
    """Ends of all operations if work takes ``factor`` times as long: the rule without blocks."""
    before, place = previous(ops), launch_order(ops)
    source, target = waits_between_streams(ops, place, DEFAULT)
    holds = [before[i : i + 1].tolist() * int(before[i] >= 0) + source[target == i].tolist() for i in range(len(ops))]
    launch = [int(x) if known else -(10**18) for x, known in zip(ops.launch, ops.launched, strict=True)]
    end = {}
    for i in sorted(range(len(ops)), key=lambda i: (int(ops.start[i]), int(ops.end[i]), i)):
        was = max([launch[i], *(int(ops.end[j]) for j in holds[i])])
        now = max([launch[i], *(end[j] for j in holds[i])])
        begin = int(ops.start[i]) if was == -(10**18) else now + int(ops.start[i]) - was
        end[i] = begin + factor * int(ops.end[i] - ops.start[i])
    return end


def by_blocks(part, factor):
    """Ends of the blocks of a lane that meets nobody."""
    b = part.blocks
    held = np.where(b.held, (b.launch + b.after + factor * b.load).max(axis=1), -np.inf)
    end = np.full(len(b.row), -np.inf)
    edges = sorted(zip(part.target.tolist(), part.source.tolist(), strict=True), key=lambda e: b.end[e[1]])
    for at in np.argsort(b.end, kind="stable").tolist():
        ready = [end[s] for t, s in edges if t == at] + [0.0] * (at in part.free)
        end[at] = max(held[at], max(ready, default=-np.inf) + b.fixed[at] + factor * b.work[at])
    return end


@st.composite
def streams(draw):
    """Operations of up to three streams, in order on each; a launch before every start; some not known."""
    ops, moment = [], 0
    at = dict.fromkeys(range(3), 0)
    for _ in range(draw(st.integers(1, 14))):
        stream = draw(st.integers(0, 2))
        moment += draw(st.integers(0, 30))
        start = max(at[stream], moment) + draw(st.integers(0, 25))
        at[stream] = start + draw(st.integers(1, 40))
        ops.append((stream, start, at[stream], moment))
    return recorded(*ops, unlaunched=draw(st.sets(st.integers(0, 13), max_size=4)))


@given(ops=streams())
def test_blocks_end_as_their_operations_do(ops):
    """Exactly at the factors that are looked at; in between never later."""
    bounds = np.array([0, int(ops.end.max()) + 1])
    part = lane(ops, Host(NO_CALLS, NOTHING, NOTHING), 0, bounds, DEFAULT)
    b = part.blocks
    assert b.work.sum() == (ops.end - ops.start).sum()
    for factor in (1, 0, 2, 0.5):
        want = sorted(op_by_op(ops, factor).values())[-1]
        have = by_blocks(part, factor).max()
        assert have == want if factor != 0.5 else have <= want + 1e-6


def test_a_copy_is_a_block_of_its_own():
    ops = recorded((1, 0, 10, 0), (1, 10, 20, 0), (1, 20, 30, 0))
    mixed = Recorded(**{**vars(ops), "work": np.array([KERNEL, COPY, COPY], np.int8)})
    part = lane(mixed, Host(NO_CALLS, NOTHING, NOTHING), 0, np.array([0, 30 * US]), DEFAULT)
    assert (part.blocks.work // US).tolist() == [10, 20]
