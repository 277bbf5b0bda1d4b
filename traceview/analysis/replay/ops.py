"""What one rank's records say of order: which operation waited for which, and when the host did (METHODS h.2).

No trace holds all dependencies. Inside a stream the order is certain. Between streams an operation is taken to wait
for the last one that was launched before it on the other stream, if it is the first of its own stream after that
one and the record does not contradict (it starts after that end); else for one whose end it follows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from traceview.analysis.host import KIND
from traceview.analysis.intervals import Spans, subtract, union
from traceview.analysis.ops import ints
from traceview.analysis.types import Bools, Codes, Ints
from traceview.config import Config
from traceview.schema import HOST_KINDS, codes

KERNEL, COPY, COMM = 0, 1, 2
"""What a scenario may scale: kernels, copies over PCIe, communication"""
UNKNOWN = -1


@dataclass(frozen=True)
class Recorded:
    """GPU operations of a rank by (stream, start); times in ns on the common axis, from the chain's begin."""

    stream: Ints
    start: Ints
    end: Ints
    launch: Ints
    """never after the start; the start where it is not known"""
    launched: Bools
    """the launch call is known"""
    call: Ints
    """duration of the launch call, 0 = unknown"""
    work: Codes
    row: Ints
    """collectives row, -1 = none"""

    def __len__(self) -> int:
        return len(self.start)

    def streams(self) -> Iterator[tuple[int, int]]:
        """[first, last) of the operations of each stream."""
        cuts = np.flatnonzero(np.diff(self.stream, prepend=UNKNOWN - 1)).tolist()
        return pairwise([*cuts, len(self)])

    def take(self, rows: Ints) -> Recorded:
        """Some operations, in the given order."""
        return replace(self, **{name: column[rows] for name, column in vars(self).items()})

    def sorted(self) -> Recorded:
        """By (stream, start)."""
        return self.take(np.lexsort((self.end, self.start, self.stream)))


@dataclass(frozen=True)
class Blocking:
    """Host calls that came back when a GPU operation had ended, in time order."""

    start: Ints
    end: Ints
    op: Ints
    """the operation that was waited for"""


@dataclass(frozen=True)
class Host:
    """What the host of a rank did that a replay asks for."""

    calls: Blocking
    data: Spans
    """when it waited for input"""
    work: Spans
    """when it did what leads to launches"""


def launch_order(ops: Recorded) -> Ints:
    """Place of every operation in the order of launching."""
    place = np.empty(len(ops), np.int64)
    place[np.lexsort((ops.start, ops.launch))] = np.arange(len(ops))
    return place


def previous(ops: Recorded) -> Ints:
    """The operation before on the same stream, -1 = none."""
    before = np.arange(len(ops)) - 1
    before[1:][ops.stream[1:] != ops.stream[:-1]] = UNKNOWN
    return before


def waits_between_streams(ops: Recorded, place: Ints, config: Config) -> tuple[Ints, Ints]:
    """(operation, one that waits for it) across streams."""
    near = config.launch_tau_min_ns
    before = previous(ops)
    own_place = np.where(before >= 0, place[before], -1)
    ready = np.maximum(np.where(before >= 0, ops.end[before], np.iinfo(np.int64).min), ops.launch)
    lone = ops.start - ready > near
    found: list[tuple[Ints, Ints]] = []
    for low, high in ops.streams():
        other = np.concatenate((np.arange(low), np.arange(high, len(ops))))
        launched = np.searchsorted(np.maximum.accumulate(place[low:high]), place[other]) - 1
        ended = np.searchsorted(np.maximum.accumulate(ops.end[low:high]), ops.start[other], "right") - 1
        last = low + np.maximum(launched, 0)
        first = (launched >= 0) & (place[last] > own_place[other]) & (ops.end[last] <= ops.start[other])
        close = low + np.maximum(np.minimum(ended, launched), 0)
        follows = (np.minimum(ended, launched) >= 0) & ~first & lone[other]
        follows &= ops.start[other] - ops.end[close] <= near
        for source, which in ((last, first), (close, follows)):
            found.append((source[which], other[which]))
    none = np.empty(0, np.int64)
    return (
        np.concatenate([none, *(s for s, _ in found)]),
        np.concatenate([none, *(t for _, t in found)]),
    )


@dataclass(frozen=True)
class HostSpans:
    """What the host of a rank did, by kind."""

    sync: Spans
    """synchronising calls, not merged"""
    runtime: Spans
    """long runtime calls, not merged"""
    data: Spans
    """it waited for input"""
    work: Spans
    """operators, runtime calls and Python that are neither"""


def host_spans(host_ranges: Any, move: Callable[[Ints], Ints], config: Config) -> HostSpans:
    """The ``host_ranges`` of a rank; ``move`` brings its stamps to the axis of the replay."""
    start, end = (move(ints(host_ranges, name)) for name in ("start", "end"))
    kind = codes(host_ranges["kind"], HOST_KINDS)

    def of(*kinds: str) -> Spans:
        some = np.isin(kind, [KIND[k] for k in kinds])
        return Spans(start[some], end[some])

    sync, runtime = of("sync"), of("runtime")
    long = runtime.end - runtime.start > config.launch_tau_max_ns
    data, work = (union(x.start, x.end) for x in (of("data"), of("op", "runtime", "python")))
    other = union(np.concatenate((data.start, sync.start)), np.concatenate((data.end, sync.end)))
    return HostSpans(sync, Spans(runtime.start[long], runtime.end[long]), data, subtract(work, other))


def blocking_calls(ops: Recorded, sync: Spans, runtime: Spans, config: Config) -> Blocking:
    """Calls that returned when an operation had ended: synchronisation, and launches into a full queue.

    A long runtime call counts only if the GPU was empty when it came back.
    """
    limit = config.launch_tau_max_ns
    drained = np.zeros(len(runtime), np.bool_)
    if len(runtime):
        drained = ~union(ops.start, ops.end).covers(runtime.end)
    full = ops.launched & (ops.call > limit)
    calls = union(
        np.concatenate((sync.start, runtime.start[drained], ops.launch[full])),
        np.concatenate((sync.end, runtime.end[drained], (ops.launch + ops.call)[full])),
    )
    if not len(calls):
        return Blocking(calls.start, calls.end, calls.start)
    by_end = np.argsort(ops.end, kind="stable")
    at = np.searchsorted(ops.end[by_end], calls.end, "right") - 1
    op = by_end[np.maximum(at, 0)]
    held = (at >= 0) & (ops.end[op] > calls.start) & (calls.end - ops.end[op] <= limit)
    return Blocking(calls.start[held], calls.end[held], op[held])
