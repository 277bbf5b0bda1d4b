"""Why the GPU was idle, METHODS a.5: gaps of a device, and the phases that explain them.

A gap is host time until the launch call of the operation that ends it, launch latency after it, and unknown where
that work was queued before the gap began.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.host import NO_THREAD, TAG_NAMES, Host, Thread, launching_threads, together
from traceview.analysis.intervals import Spans, complement, expand, intersect, join, subtract, union
from traceview.analysis.ops import CLS, NONE, Ops
from traceview.analysis.phases import CODE
from traceview.analysis.types import Bools, Ints
from traceview.config import Config

FAR = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Gaps:
    """Maximal idle intervals of a device, ascending, with the launch of the operation that ends each."""

    start: Ints
    end: Ints
    launch: Ints
    """begin of that launch, at most ``end``; NONE = no such operation, or its launch is unknown"""
    thread: Ints
    before_peer_copy: Bools

    @property
    def late(self) -> Bools:
        """The launch came after the GPU had run dry (rule 2)."""
        out: Bools = (self.launch != NONE) & (self.launch > self.start)
        return out

    @property
    def queued(self) -> Bools:
        """The work was there before the gap (rule 1)."""
        out: Bools = (self.launch != NONE) & (self.launch <= self.start)
        return out


def find_gaps(ops: Ops, busy: Spans, start: int, end: int) -> Gaps:
    """Gaps of [start, end) between the operations of one device (launches on the GPU axis)."""
    idle = complement(busy, start, end)
    rows = np.flatnonzero(ops.end > ops.start)
    rows = rows[np.argsort(ops.start[rows], kind="stable")]
    begins = ops.start[rows]
    low = np.searchsorted(begins, idle.end, "left")
    who, which = expand(low, np.searchsorted(begins, idle.end, "right") - low)
    launch, thread = np.full(len(idle), NONE), np.full(len(idle), NONE)
    peer = np.zeros(len(idle), np.bool_)
    order = np.argsort(ops.launch[rows[which]], kind="stable")  # ascending: the latest launch is written last
    who, row = who[order], rows[which[order]]
    launch[who], thread[who], peer[who] = ops.launch[row], ops.thread[row], ops.cls[row] == CLS["peer_copy"]
    return Gaps(idle.start, idle.end, np.minimum(launch, idle.end), thread, peer)


def host_gap(start: int, end: int, thread: int) -> Gaps:
    """The whole of [start, end) as the one gap of a process without GPU operations, METHODS a.5."""
    one = np.array([end], np.int64)
    return Gaps(np.array([start], np.int64), one, one, np.array([thread], np.int64), np.zeros(1, np.bool_))


def launch_tau(latency: Ints, config: Config) -> int:
    """Launch latency that is ordinary on a rank: twice the median of those on an idle GPU, within bounds, in ns."""
    twice = int(2 * np.median(latency)) if len(latency) else 0
    return min(max(twice, config.launch_tau_min_ns), config.launch_tau_max_ns)


def gap_latency(gaps: Gaps) -> Ints:
    """Launch latencies on an idle GPU (rule 2)."""
    late = gaps.late
    out: Ints = (gaps.end - gaps.launch)[late]
    return out


@dataclass(frozen=True)
class Cause:
    """What the idle split needs of a rank besides its gaps. ``ops`` has all devices, launches on the GPU axis."""

    ops: Ops
    host: Host
    tau: int
    refill_max: int


def explain(gaps: Gaps, cause: Cause, uncovered: Spans) -> dict[int, Spans]:
    """Phases that explain the gaps: phase code -> spans, all inside the gaps.

    They overlap; the priority of ``phases.PHASES`` decides. Data loading in a stretch that was not recorded is cut
    away here, because ``uncovered`` comes before it but after a host collective.
    """
    late, queued = gaps.late, gaps.queued
    short = queued & (gaps.end - gaps.start <= cause.tau)
    split = np.minimum(gaps.launch + cause.tau, gaps.end)
    long = queued & ~short & ~gaps.before_peer_copy
    before_copy = queued & ~short & gaps.before_peer_copy
    out = {
        CODE["idle_launch"]: join([_part(gaps.launch, split, late), _part(gaps.start, gaps.end, short)]),
        CODE["idle_unknown:queued"]: join([_part(split, gaps.end, late), _part(gaps.start, gaps.end, long)]),
        CODE["idle_unknown:queued:comm?"]: _part(gaps.start, gaps.end, before_copy),
        CODE["idle_unknown"]: union(gaps.start, gaps.end),
    }
    for phase, spans in _host_parts(gaps, late, cause).items():
        out[phase] = subtract(spans, uncovered) if phase == CODE["idle_data"] else spans
    return out


def _part(start: Ints, end: Ints, mask: Bools) -> Spans:
    return union(start[mask], end[mask])


def _host_parts(gaps: Gaps, late: Bools, cause: Cause) -> dict[int, Spans]:
    """[gap start, launch) cut by what the launching thread does; where it shows nothing, by what the others do."""
    by_thread = {int(t): cause.host.of_thread(int(t)) for t in launching_threads(cause.ops)}
    anyone = together(by_thread.values()) if len(by_thread) > 1 else NO_THREAD
    found: dict[int, list[Spans]] = {}
    for thread in np.unique(gaps.thread[late]).tolist():
        area = _part(gaps.start, gaps.launch, late & (gaps.thread == thread))
        own = by_thread.get(thread) or cause.host.of_thread(thread)
        mine = _cut(area, own) | {CODE["idle_sync:refill"]: _refill(area, own, thread, cause)}
        nothing = subtract(area, join(list(mine.values())))
        for phase, spans in (*mine.items(), *_cut(nothing, anyone).items()):
            found.setdefault(phase, []).append(spans)
    return {phase: join(parts) for phase, parts in found.items()}


def _cut(area: Spans, thread: Thread) -> dict[int, Spans]:
    """A thread's activity inside the area, by phase."""
    tagged = {CODE[f"idle_host:{tag}"]: thread.tagged[code] for code, tag in enumerate(TAG_NAMES)}
    layers = {CODE["idle_data"]: thread.data, CODE["idle_sync"]: thread.sync, CODE["idle_host"]: thread.busy} | tagged
    return {phase: intersect(spans, area) for phase, spans in layers.items()}


def _refill(area: Spans, thread: Thread, number: int, cause: Cause) -> Spans:
    """From the return of a blocking call inside the area to the first of: the next launch, data loading, a host
    collective, the limit."""
    back = thread.sync_returns
    i = np.searchsorted(area.start, back, "right") - 1
    inside = (i >= 0) & (back < area.end[np.maximum(i, 0)]) if len(area) else np.zeros(len(back), np.bool_)
    back, until = back[inside], area.end[i[inside]] if len(area) else back[inside]
    launches = np.sort(cause.ops.launch[(cause.ops.thread == number) & cause.ops.launched])
    for stop in (
        back + cause.refill_max,
        _at_or_after(launches, back),
        _next(thread.data, back),
        _next(cause.host.comm, back),
    ):
        until = np.minimum(until, stop)
    return union(back, until)


def _at_or_after(times: Ints, time: Ints) -> Ints:
    """Per time: the first of the sorted ``times`` that is not before it."""
    out: Ints = np.append(times, FAR)[np.searchsorted(times, time, "left")]
    return out


def _next(spans: Spans, time: Ints) -> Ints:
    """Per time: when it is next covered (the time itself if it is)."""
    return np.where(spans.covers(time), time, _at_or_after(spans.start, time))
