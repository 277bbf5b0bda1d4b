"""Calls of a trace found in the calls of a log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from traceview.analysis.callalign import Alignment, Signature, align

STEP: list[Signature] = [("allgather", 4 * i) for i in range(1, 12)] + [("allreduce", 8)]
LOG = [("broadcast", 99)] * 3 + STEP * 10


def test_a_window_of_the_log() -> None:
    found = align(LOG, LOG[15:75])
    assert found is not None and found.agree == 1.0
    assert found.equal_offsets == 6 and (found.offset - 3) % len(STEP) == 0  # steps repeat


def test_a_unique_place() -> None:
    trace = [("broadcast", 99)] * 2 + STEP * 3
    assert align(LOG, trace) == Alignment(1, 1.0, 1)


def test_a_trace_that_begins_before_the_log() -> None:
    trace = [("broadcast", 7)] * 5 + LOG[:40]
    assert align(LOG, trace) == Alignment(-5, 1.0, 1)


def test_one_missing_call_costs_agreement_not_the_place() -> None:
    trace = LOG[:60] + LOG[61:100]
    found = align(LOG, trace)
    assert found is not None and found.offset == 0 and 0.6 <= found.agree < 1.0


def test_other_calls_do_not_align() -> None:
    assert align(LOG, [("alltoall", 5)] * 30) is None
    assert align(LOG, []) is None and align([], LOG) is None


@given(st.lists(st.integers(0, 3), min_size=25, max_size=80), st.data())
def test_every_window_is_found(kinds: list[int], data: st.DataObject) -> None:
    log: list[Signature] = [("allreduce", k) for k in kinds]
    start = data.draw(st.integers(0, len(log) - 21))
    found = align(log, log[start : start + 21])
    assert found is not None and found.agree == 1.0
