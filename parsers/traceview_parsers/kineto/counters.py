"""Memory samples and allocator calls as counters."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceview.schema import COUNTERS
from traceview_parsers.kineto.arguments import ArgsDecoder, MemoryArgs
from traceview_parsers.kineto.columns import Array, Growing, Interner, dictionary
from traceview_parsers.kineto.events import MISSING, Events, integers

_CPU = 0  # c10::DeviceType


class CounterStore:
    """Collects ``[memory]`` instants and allocator calls.

    Counters: ``memory.allocated`` and ``memory.reserved`` (bytes; device -1 is the host), ``memory.delta`` where the
    file has no totals, ``alloc.<call>`` (ns spent in the call).
    """

    def __init__(self) -> None:
        self._names = Interner()
        self._units = Interner()
        self._args = ArgsDecoder(MemoryArgs)
        self._rows = Growing(name=np.int32, device=np.int32, time=np.int64, value=np.float64, unit=np.int32)

    def _add(self, name: Any, device: Any, time: Array, value: Array, unit: str) -> None:
        self._rows.add(len(time), name=name, device=device, time=time, value=value, unit=self._units[unit])

    def add_memory(self, events: Events, time: Array) -> None:
        """``[memory]`` instants at ``time`` ns without the base."""
        args = self._args(events)
        host = integers([a.device_type for a in args]) == _CPU
        device = np.where(host, -1, integers([a.device for a in args])).astype(np.int32)
        total = False
        for name in ("allocated", "reserved"):
            value = integers([getattr(a, name) for a in args])
            at = np.flatnonzero((value >= 0) & (time != MISSING))
            total |= bool(len(at))
            if len(at):
                self._add(self._names[f"memory.{name}"], device[at], time[at], value[at], "bytes")
        if not total:
            value = np.array([a.delta or 0 for a in args], np.float64)
            self._add(self._names["memory.delta"], device, time, value, "bytes")

    def add_calls(self, events: Events, start: Array, end: Array) -> None:
        """Allocator calls of the runtime."""
        codes = self._names.codes([f"alloc.{e.name}" for e in events])
        self._add(codes, -1, start, end - start, "ns")

    def finish(self, base: int) -> Any:
        """``COUNTERS`` table."""
        rows = self._rows.take_all()
        names = self._names.strings()
        alphabetic = np.argsort(np.argsort(np.array(names, object))) if names else np.empty(0, np.int64)
        order = np.lexsort((rows["time"], alphabetic[rows["name"]]))
        rows = {name: column[order] for name, column in rows.items()}
        rows["time"] += base
        columns: dict[str, Any] = {**rows, "name": dictionary(rows["name"], names)}
        return COUNTERS.build({**columns, "unit": dictionary(rows["unit"], self._units.strings())}, stored=True)
