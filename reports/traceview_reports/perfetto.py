"""A window of the run as Chrome trace JSON that ui.perfetto.dev opens: aligned clocks, waits, causes, arrows.

One process per rank; its threads are the lanes of the report's timeline. Times count from the run's first step.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
import numpy as np

from traceview import files, units
from traceview.analysis.phases import PHASES
from traceview.analysis.types import UNRESOLVED, Ints
from traceview.errors import TraceviewError
from traceview.result import Result
from traceview.run import Run
from traceview.schema import GPU_CLASSES, HOST_KINDS
from traceview_reports.html.timeline_data import GROUP_NAMES, GROUP_OF_PHASE, Detail
from traceview_reports.html.timeline_lanes import (
    CommFacts,
    Events,
    FactTable,
    Lane,
    Names,
    comm_facts,
    events_of,
    lanes_of,
)
from traceview_reports.names import host

_NO_DELAY = np.iinfo(np.int64).min
_STEPS, _PIECES, _FIRST_LANE = 1, 2, 10
_FACTS = ("group", "description", "members", "ranks", "dtype", "src", "dst", "facts", "coalesced")
Event = dict[str, Any]


@dataclass
class _Flows:
    """Ends of the arrows: where an instance ran on a rank, and who waited there for whom."""

    ran: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """(rank, instance) -> (thread, begin)"""
    waits: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """(rank, thread, begin, instance, late rank)"""


@dataclass(frozen=True)
class _Record:
    """One rank's events and the tables that they refer to."""

    rank: int
    events: Events
    comm: CommFacts
    text: list[str]
    facts: list[tuple[Any, ...]]


def export(
    run: Run,
    result: Result,
    detail: Detail,
    out: Path,
    *,
    ranks: Iterable[int] | None = None,
    window: tuple[int, int] | None = None,
) -> int:
    """Write ``out`` (gzip if it ends in .gz) and return the number of slices.

    ``window`` is [start, end) in ns since ``detail.origin_ns``, as in the report's links; records that touch it are
    kept whole. TraceviewError for a rank that is not there, an empty window, or a file that cannot be written.
    """
    chosen = _ranks(run, detail, ranks)
    start, end = window or (-(1 << 62), 1 << 62)
    if start >= end:
        raise TraceviewError(f"window {start}-{end}: the end must be after the start")
    count = 0
    with _replacing(out) as sink:
        sink.write(b'{"displayTimeUnit":"ns","otherData":' + msgspec.json.encode(_facts_of(result, detail)))
        sink.write(b',"traceEvents":[\n')
        for number, event in enumerate(_events(run, result, detail, chosen, (start, end))):
            sink.write(b",\n" * bool(number) + msgspec.json.encode(event))
            count += event["ph"] == "X"
        sink.write(b"\n]}\n")
    return count


def _events(run: Run, result: Result, detail: Detail, ranks: list[int], window: tuple[int, int]) -> Iterator[Event]:
    flows = _Flows()
    for rank in ranks:
        yield from _rank(run, result, detail, rank, window, flows)
    yield from _arrows(flows)


def _ranks(run: Run, detail: Detail, ranks: Iterable[int] | None) -> list[int]:
    present = [r for r in run.ranks if r in detail.ranks]
    wanted = present if ranks is None else list(ranks)
    absent = sorted(set(wanted) - set(present))
    if absent or not wanted:
        raise TraceviewError(
            f"rank {units.ranks(absent) or 'none'} is not in this run; it has {units.ranks(present) or 'no rank'}"
        )
    return wanted


def _facts_of(result: Result, detail: Detail) -> dict[str, str]:
    return {
        "tool": f"traceview {result.tool_version}".strip(),
        "origin_ns": str(detail.origin_ns),
        "clock_grade": result.clock.grade,
    }


@contextmanager
def _replacing(out: Path) -> Iterator[BinaryIO]:
    """A file that takes its name when it is whole; gzip by its name."""
    with files.replacing(out) as plain:
        if out.suffix != ".gz":
            yield plain
            return
        with gzip.open(plain, "wb", 6) as sink:
            yield cast("BinaryIO", sink)


def _us(ns: int) -> msgspec.Raw:
    """Exact microseconds: a float would lose nanoseconds of a long run."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return msgspec.Raw(f"{sign}{ns // 1000}.{ns % 1000:03d}".encode())


def _slice(rank: int, thread: int, name: str, span: tuple[int, int], cat: str, args: Event | None = None) -> Event:
    start, end = span
    out = {"ph": "X", "pid": rank, "tid": thread, "name": name, "cat": cat, "ts": _us(start), "dur": _us(end - start)}
    return out | {"args": args} if args else out


def _label(rank: int, thread: int, name: str) -> Iterator[Event]:
    yield {"ph": "M", "pid": rank, "tid": thread, "name": "thread_name", "args": {"name": name}}
    yield {"ph": "M", "pid": rank, "tid": thread, "name": "thread_sort_index", "args": {"sort_index": thread}}


def _rank(
    run: Run, result: Result, detail: Detail, rank: int, window: tuple[int, int], flows: _Flows
) -> Iterator[Event]:
    mine = detail.ranks[rank]
    where = host(run.host(rank))
    name = f"rank {rank}" if where == "-" else f"rank {rank} ({where})"
    yield {"ph": "M", "pid": rank, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": rank, "name": "process_sort_index", "args": {"sort_index": rank}}
    yield from _steps(result, detail, rank, window)
    yield from _pieces(detail, rank, window)
    names, facts = Names(), FactTable()
    events = events_of(run, rank, detail, names)
    comm = comm_facts(run, rank, mine, facts)
    touches = (events.start < window[1]) & (events.end > window[0])
    record = _Record(rank, events, comm, list(names.index), list(facts.index))
    for k, lane in enumerate(sorted(lanes_of(events, comm, touches), key=_order)):
        thread = _FIRST_LANE + k
        yield from _label(rank, thread, lane.label + (f" ({lane.depth + 1})" if lane.depth else ""))
        if lane.key.startswith("comm."):
            yield from _comm_lane(record, thread, lane, flows)
        else:
            yield from _lane(record, thread, lane)


def _order(lane: Lane) -> tuple[bool, bool]:
    return lane.key.startswith("host."), not lane.key.startswith("compute")


def _steps(result: Result, detail: Detail, rank: int, window: tuple[int, int]) -> Iterator[Event]:
    mine = detail.ranks[rank]
    reasons = {e.step: e.reason for e in result.run.steps.excluded}
    start, end = (mine.common(a) - detail.origin_ns for a in (mine.step_start, mine.step_end))
    yield from _label(rank, _STEPS, "steps")
    for step, s, e in zip(mine.step.tolist(), start.tolist(), end.tolist(), strict=True):
        if s < window[1] and e > window[0]:
            why = {"not used": reasons[step]} if step in reasons else None
            yield _slice(rank, _STEPS, f"step {step}", (s, e), "step", why)


def _pieces(detail: Detail, rank: int, window: tuple[int, int]) -> Iterator[Event]:
    start, end, phase = detail.ranks[rank].pieces(detail.origin_ns)
    here = (start < window[1]) & (end > window[0])
    yield from _label(rank, _PIECES, "where time went")
    for s, e, p in zip(start[here].tolist(), end[here].tolist(), phase[here].tolist(), strict=True):
        yield _slice(rank, _PIECES, PHASES[p], (s, e), GROUP_NAMES[GROUP_OF_PHASE[p]])


def _lane(record: _Record, thread: int, lane: Lane) -> Iterator[Event]:
    host, events = lane.key.startswith("host."), record.events
    kinds = HOST_KINDS if host else GPU_CLASSES
    for i in lane.rows.tolist():
        span = int(events.start[i]), int(events.end[i])
        args = None if host else _launch(events, i, record.text)
        yield _slice(record.rank, thread, record.text[events.name[i]], span, kinds[events.kind[i]], args)


def _launch(events: Events, i: int, text: list[str]) -> Event:
    args: Event = {"stream": int(events.stream[i])}
    if events.corr[i] >= 0:
        args["correlation"] = int(events.corr[i])
    if events.delay[i] != _NO_DELAY:
        args["launch_to_start_ns"] = int(events.delay[i])
    if events.op[i] >= 0:
        args["launched_by"] = text[events.op[i]]
    if events.bytes[i]:
        args["bytes"] = int(events.bytes[i])
    return args


def _comm_lane(record: _Record, thread: int, lane: Lane, flows: _Flows) -> Iterator[Event]:
    """A communication record with its waiting and its transfer nested in it."""
    rank, events, comm = record.rank, record.events, record.comm
    for i in lane.rows.tolist():
        s, e, row = int(events.start[i]), int(events.end[i]), int(events.comm[i])
        name = record.text[events.name[i]]
        args = {} if events.host[i] else _launch(events, i, record.text)
        if row < 0:
            yield _slice(rank, thread, name, (s, e), "comm", args)
            continue
        wait, late, instance = _at(comm.wait, row), _at(comm.late, row), _at(comm.inst, row)
        args |= {k: v for k, v in zip(_FACTS, record.facts[comm.fact[row]], strict=True) if v is not None}
        args |= {"bytes": _at(comm.bytes, row), "seq": _at(comm.seq, row), "wait_ns": wait}
        yield _slice(rank, thread, name, (s, e), "comm", args)
        if wait:
            whom = f"waits for rank {late}" if late >= 0 else "waits"
            yield _slice(rank, thread, whom, (s, s + wait), "wait", {"late_rank": late})
        if e > s + wait:
            phase = "unresolved" if comm.phase[row] & 1 == UNRESOLVED else "transfer"
            yield _slice(rank, thread, phase, (s + wait, e), phase)
        if instance >= 0:
            flows.ran[rank, instance] = thread, s
            if wait and late >= 0:
                flows.waits.append((rank, thread, s, instance, late))


def _at(column: Ints, row: int) -> int:
    return int(column[row])


def _arrows(flows: _Flows) -> Iterator[Event]:
    """Flow events from the begin of a wait to the record of the rank that ended it, where both are here."""
    for number, (rank, thread, start, instance, late) in enumerate(flows.waits):
        target = flows.ran.get((late, instance))
        if target is None:
            continue
        common = {"name": "waits for", "cat": "wait", "id": number}
        yield common | {"ph": "s", "pid": rank, "tid": thread, "ts": _us(start)}
        yield common | {"ph": "f", "bp": "e", "pid": late, "tid": target[0], "ts": _us(target[1])}
