"""Kineto file -> one part: every event goes to the store of its role, the stores become tables."""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from traceview.errors import TraceviewError
from traceview.run import Part, PartMeta, SourceMeta, write_part
from traceview.schema import HOST_KINDS
from traceview.schema.arrays import to_numpy
from traceview_parsers.host_names import ALLOCATION, HostNames, may_launch
from traceview_parsers.kineto import meta as metadata
from traceview_parsers.kineto.collectives import collectives
from traceview_parsers.kineto.columns import Array
from traceview_parsers.kineto.comms import RECORD, CommStore, tells_collective
from traceview_parsers.kineto.counters import CounterStore
from traceview_parsers.kineto.events import MAX_US, MISSING, Events, integers, to_ns
from traceview_parsers.kineto.flops import FlopStore, counts_flops
from traceview_parsers.kineto.gpu import RECORDS, GpuStore
from traceview_parsers.kineto.host import HostStore, step_marks
from traceview_parsers.kineto.stream import EventStream
from traceview_parsers.kineto.vicinity import Vicinity
from traceview_parsers.limits import MAX_FAR
from traceview_parsers.reader import Progress, ReadOptions

# Category -> role. Capitals: torch 1.8-1.9.
ROLES: dict[str | None, str] = {
    **dict.fromkeys(("cpu_op", "Operator"), "op"),
    "user_annotation": "annotation",
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "xpu_driver"), "runtime"),
    **dict.fromkeys(("mtia_runtime", "glow_runtime", "privateuse1_runtime", "privateuse1_driver"), "runtime"),
    **dict.fromkeys(("kernel", "Kernel", "mtia_ccp_events"), "kernel"),
    **dict.fromkeys(("gpu_memcpy", "Memcpy"), "memcpy"),
    **dict.fromkeys(("gpu_memset", "Memset"), "memset"),
    "python_function": "python",
    "overhead": "overhead",
    "Trace": "window",
    "cpu_instant_event": "instant",
    None: "instant",
    "": "instant",
}
# Known, and no activity (METHODS 0): flows, GPU-side copies of annotations, waits of streams, overlays.
IGNORED = frozenset(
    [
        *(
            "ac2g",
            "async",
            "async_cpu_to_gpu",
            "fwdbwd",
            "gpu_user_annotation",
            "cuda_sync",
            "xpu_sync",
            "cuda_event",
        ),
        *("external_correlation", "cuda_profiler_range", "mtia_counters", "mtia_insight", "hardware_counters"),
        *("critical_path", "collective_comm", "xpu_scope_profiler"),
    ]
)
_FEATURES = ("Ev Idx", "Concrete Inputs", "Profiler Event Index")


class Collector:
    """Takes chunks of events in any order."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.comms = CommStore()
        self.flops = FlopStore()
        self.gpu = GpuStore(self.comms, self.flops)
        self.host = HostStore(HostNames.of(options.data_names))
        self.counters = CounterStore()
        self.events = 0
        self.without_time = 0
        self.vicinity = Vicinity()
        self.negative = 0
        self.unknown: Counter[str] = Counter()
        self.marks: set[str] = set()
        self.pids: set[Any] = set()
        self.first, self.last = np.iinfo(np.int64).max, np.iinfo(np.int64).min

    def add(self, events: Events) -> None:
        """Take one chunk."""
        self.events += len(events)
        if self.vicinity.unknown:
            self.vicinity.look([e for e in events if ROLES.get(e.cat, "python") not in ("python", "instant")])
        by_category: dict[str | None, Events] = defaultdict(list)
        for event in events:
            by_category[event.cat].append(event)
        for category, found in by_category.items():
            role = ROLES.get(category)
            if role is None:
                if category not in IGNORED:
                    self.unknown[str(category)] += len(found)
            elif role == "instant":
                self._instants(found)
            elif role != "python" or self.options.with_python:
                self._intervals(role, str(category), found)

    def _instants(self, events: Events) -> None:
        memory = [e for e in events if e.name == "[memory]" and e.ts is not None]
        if memory:
            self.counters.add_memory(memory, to_ns([e.ts for e in memory]))
        edges = [e.ts for e in events if e.ph == "i" and e.name is not None and e.name.startswith(_WINDOW_EDGES)]
        if edges:
            times = to_ns(edges)
            self._cover(times[self.vicinity.near(times, times)])
        lost = sum(e.ph == "X" for e in events)
        if lost:
            self.unknown["(none)"] += lost

    def _cover(self, times: Array) -> None:
        times = times[times != MISSING]
        if len(times):
            self.first = min(self.first, int(times.min()))
            self.last = max(self.last, int(times.max()))

    def _intervals(self, role: str, category: str, events: Events) -> None:
        start, length = to_ns([e.ts for e in events]), to_ns([e.dur for e in events])
        timed = (start != MISSING) & (length != MISSING)
        end = start + np.maximum(length, 0)
        usable = timed & self.vicinity.near(start, end)
        if not usable.all():
            self.without_time += int((~timed).sum())
            self.vicinity.far += int((timed & ~usable).sum())
            events = [e for e, ok in zip(events, usable.tolist(), strict=True) if ok]
            start, end, length = start[usable], end[usable], length[usable]
        if not events:
            return
        self.negative += int((length < 0).sum())
        if category[:1].isupper() and role != "window":
            self.marks.add("capitals")
        if (start % 1000).any():
            self.marks.add("decimals")
        if role in RECORDS:
            self.gpu.add(RECORDS.index(role), events, start, end)
            real = (start != 0) | (end != 0)
            self._cover(start[real])
            self._cover(end[real])
            return
        self._cover(start)
        self._cover(end)
        if role != "window":
            self._host(role, events, start, end)

    def _host(self, role: str, events: Events, start: Array, end: Array) -> None:
        self._features(role, events)
        thread = integers([e.tid for e in events])
        codes = self.host.names.codes([e.name for e in events])
        kinds = self.host.add(role, events, codes, thread, start, end)
        if role == "runtime":
            self._select(events, codes, may_launch, self.gpu.add_launches, start, end, thread)
            self._select(events, codes, ALLOCATION.match, self.counters.add_calls, start, end)
            return
        if role == "op":
            self._select(events, codes, counts_flops, self.flops.add, thread, start, end)
        self._select(events, codes, RECORD.__eq__, self.comms.add_records, thread, start, end)
        self._select(events, codes, tells_collective, self.comms.add_ranges, thread, start, end)
        if (kinds == _HOST_COMM).any():
            at = np.flatnonzero(kinds == _HOST_COMM)
            self.comms.add_host([events[i] for i in at.tolist()], thread[at], start[at], end[at])

    def _select(self, events: Events, codes: Array, test: Any, take: Any, *columns: Array) -> None:
        """Hand the events whose name passes ``test`` to ``take``; each name is tested once a file."""
        at = np.flatnonzero(self.host.flags(test)[codes])
        if len(at):
            take([events[i] for i in at.tolist()], *(c[at] for c in columns))

    def _features(self, role: str, events: Events) -> None:
        if role in ("op", "annotation", "runtime"):
            self.pids.update({e.pid for e in events})
        if role == "op" and len(self.marks) < len(_FEATURES) + 2:
            text = b"".join(e.args for e in events[:64])
            self.marks.update(f for f in _FEATURES if f.encode() in text)


_WINDOW_EDGES = ("Iteration Start", "Record Window End")
_HOST_COMM = HOST_KINDS.index("host_comm")


@contextmanager
def _no_cycles() -> Iterator[None]:
    """Events hold no cycles: the cycle collector would only walk over them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def read_file(path: Path, out: Path, options: ReadOptions, progress: Progress | None) -> Part:
    """Read one file into ``out``. TraceviewError if it holds no event that can be used."""
    stream = EventStream(path, progress)
    collector = Collector(options)
    with _no_cycles():
        for events in stream:
            collector.add(events)
        if collector.vicinity.far > MAX_FAR * collector.events:
            far = f"{path}: {collector.vicinity.far} of {collector.events} events lie over a month from the others"
            raise TraceviewError(f"{far}, so its time stamps mix two clocks; record it again")
        if collector.last < collector.first:
            count = f"{path}: {collector.events} events, but none of them is an activity"
            raise TraceviewError(f"{count}; record with CPU or CUDA activity")
        finish = _Finish(path, stream, collector)
        return write_part(out, finish.part, finish.tables())


class _Finish:
    """Collected columns -> tables, each written before the next is made: they need not fit in memory together."""

    def __init__(self, path: Path, stream: EventStream, collector: Collector) -> None:
        self._stream, self._c = stream, collector
        self._found = metadata.metadata(stream)
        self._base = metadata.base_time(self._found) or self._lost_base(path)
        if max(abs(collector.first), abs(collector.last)) + self._base >= MAX_US * 1000:
            self._base = 0
        source = SourceMeta(path=str(path), format="kineto", bytes=path.stat().st_size, events=collector.events)
        self.part = PartMeta(source=source)
        self.part.cover_start, self.part.cover_end = collector.first + self._base, collector.last + self._base
        self._comm: dict[str, Array] = {}
        self._host: dict[str, Array] = {}

    def _lost_base(self, path: Path) -> int:
        if metadata.is_absolute(self._c.first):
            return 0
        base = metadata.lost_base(path, self._c.last)
        if base is None:
            return 0
        self._found["baseTimeNanoseconds"] = base
        self._stream.warnings.append(
            "the base of its times is lost: taken from the stamp in its name or from its date"
        )
        return base

    def tables(self) -> dict[str, Any]:
        """Tables in the order in which they must be made."""
        self._c.host.count_duplicates()
        return {
            "gpu_ops": self._gpu_ops(),
            "collectives": self._collectives(),
            "host_ranges": self._host_ranges(),
            "step_marks": self._step_marks(),
            "counters": self._counters(),
        }

    def _gpu_ops(self) -> Iterator[Any]:
        self._comm, table = self._c.gpu.finish(self._base)
        busy = self._c.gpu.busy
        self.part.devices = sorted(busy, key=lambda d: (-busy[d], d))
        metadata.fill(self.part, self._found, Path(self.part.source.path))
        if self._stream.truncated and table.num_rows:
            # GPU records are written last: after the last one that is left the GPU was not idle, nobody knows
            self._lost_after(int(to_numpy(table["end"]).max()))
        yield table

    def _lost_after(self, end: int) -> None:
        if self.part.cover_end is not None and end < self.part.cover_end:
            self.part.holes.append((end, self.part.cover_end))

    def _collectives(self) -> Iterator[Any]:
        yield collectives(self._c.comms, self._comm, self._c.gpu.names(), self.part.groups, self._base)

    def _host_ranges(self) -> Iterator[Any]:
        self._host, table = self._c.host.finish(self._base)
        yield table

    def _step_marks(self) -> Iterator[Any]:
        yield step_marks(self._host, self._c.host.names.strings())

    def _counters(self) -> Iterator[Any]:
        yield self._c.counters.finish(self._base)
        self._settle()  # part.json is written after the last table

    def _settle(self) -> None:
        part, c = self.part, self._c
        if part.rank is None and c.comms.default_rank is not None:
            part.rank, part.rank_source = c.comms.default_rank, "default_pg"
        if part.pid is None and len(c.pids) == 1:
            part.pid = next((p for p in c.pids if isinstance(p, int)), None)
        _account(part.source, self._stream, c, self._found, part)


def _account(source: SourceMeta, stream: EventStream, c: Collector, found: dict[str, Any], part: PartMeta) -> None:
    """Counts, facts and warnings: nothing that was changed or left out is silent."""
    facts = c.gpu.facts
    source.schema_class = metadata.schema_class(found, c.marks)
    source.repaired = stream.repaired + facts.clipped + c.negative
    source.quarantined = stream.quarantined
    source.dropped = facts.duplicates + facts.empty + c.host.duplicates + c.without_time + c.vicinity.far
    source.truncated = stream.truncated
    source.losses = stream.losses
    source.warnings += stream.warnings
    counts = {
        "duplicate_events": facts.duplicates + c.host.duplicates,
        "empty_gpu_records": facts.empty,
        "events_without_time": c.without_time,
        "events_far_away": c.vicinity.far,
        "negative_durations": c.negative,
        "mended_events": stream.repaired,
        "clipped_overflows": facts.clipped,
        "clipped_overflow_ns": facts.clipped_ns,
        "gpu_records": c.gpu.kept,
        "gpu_records_linked": facts.linked,
    }
    source.facts |= {name: str(n) for name, n in counts.items() if n}
    if c.vicinity.far:
        source.warnings.append(f"{c.vicinity.far} events lie over a month from the others: left out")
    if facts.external_is_correlation:
        source.facts["external_id"] = "equals correlation"
    if c.unknown:
        source.facts["unknown_categories"] = ", ".join(f"{k} {n}" for k, n in c.unknown.most_common(10))
        source.warnings.append(f"events of unknown categories were left out: {source.facts['unknown_categories']}")
    if not metadata.is_absolute(part.cover_start or 0):
        source.facts["clock"] = "relative"
        source.warnings.append(
            "times are relative to a start that the file does not tell: ranks cannot be aligned by it"
        )
    if len(c.pids) > 1:
        source.warnings.append(
            f"events of {len(c.pids)} processes in one file: two ranks may have written to one path"
        )
