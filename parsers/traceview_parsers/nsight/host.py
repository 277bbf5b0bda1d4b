"""Host calls of a report: CUDA API, synchronisation, operating system runtime, the profiler's own overhead."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from traceview.schema import HOST_KINDS
from traceview_parsers.host_names import HostNames
from traceview_parsers.nsight.gpu import Tick
from traceview_parsers.nsight.process import HOST_ROW, TID, Process, Reading
from traceview_parsers.nsight.source import Columns, Kind
from traceview_parsers.nsight.split import split
from traceview_parsers.nsight.times import DROPPED, OPEN

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
OSRT = "OSRT_API"
OVERHEAD = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
TABLES = (RUNTIME, OSRT, SYNCHRONIZATION)
_CALL = dict.fromkeys(("start", "end", "globalTid", "nameId"), Kind.INT)
# ENUM_CUPTI_SYNC_TYPE: event, stream, context; 2 (a stream waits for an event) does not block the host.
_BLOCKING = (1, 3, 4)
_VERSION = re.compile(r"(?:_v\d{4,})?(?:_ptsz|_ptds)?$")


class HostReader:
    """Reads host calls of a report into its processes. Calls that never returned are kept open for the end."""

    def __init__(self, reading: Reading, tables: HostNames) -> None:
        self._source, self._names, self._processes = reading.source, reading.names, reading.processes
        self._times = reading.times
        self._tables = tables
        self._kinds = np.empty(0, np.int8)
        self._plain = np.empty(0, np.int32)
        self.open: list[tuple[int, Any, Any]] = []
        """(globalPid, threads, rows) of ranges without an end"""

    def read(self, tick: Tick) -> None:
        """All host tables."""
        self._blocking(tick)
        for columns in self._source.batches(RUNTIME, _CALL | {"correlationId": Kind.INT}):
            self._calls(columns, tick)
        for columns in self._source.batches(OSRT, _CALL):
            self.spill(columns, *self._named(columns["nameId"]))
            tick(len(columns["start"]))
        for table in OVERHEAD:
            kind = HOST_KINDS.index("overhead")
            for columns in self._source.batches(table, _CALL):
                name, _ = self._named(columns["nameId"])
                self.spill(columns, name, np.full(len(name), kind, np.int8))

    def _blocking(self, tick: Tick) -> None:
        wanted = dict.fromkeys(("globalPid", "correlationId", "syncType"), Kind.INT)
        for columns in self._source.batches(SYNCHRONIZATION, wanted):
            blocks = np.isin(columns["syncType"], _BLOCKING)
            for key, index in split(columns["globalPid"]):
                self._processes[key].blocking.append(np.unique(columns["correlationId"][index][blocks[index]]))
            tick(len(blocks))

    def _calls(self, columns: Columns, tick: Tick) -> None:
        name, kind = self._named(columns["nameId"])
        ids, start, thread = columns["correlationId"], columns["start"], columns["globalTid"] & TID
        judged = self._times.judge(start, columns["end"])
        end, verdict, _ = judged
        ids = np.where(verdict >= DROPPED, 0, ids)  # no time, no launch
        sync = HOST_KINDS.index("sync")
        for key, index in split(columns["globalTid"] & ~TID):
            process = self._processes[key]
            process.told = True
            process.launches.add(ids[index], start[index], end[index], thread[index])
            if process.blocking:
                known = np.concatenate(process.blocking)
                kind[index] = np.where(np.isin(ids[index], known), sync, kind[index])
        self.spill(columns, name, kind, judged)
        tick(len(start))

    def _named(self, ids: Any) -> tuple[Any, Any]:
        """Name codes without version suffixes, and kinds."""
        code = self._names.of_ids(ids)
        own, kinds, at = self._plain.tolist(), self._kinds.tolist(), len(self._plain)
        while at < len(self._names.texts):  # a name without its version is a name too
            plain_code = self._names.code(_VERSION.sub("", self._names.texts[at]))
            own.append(plain_code)
            kinds.append(HOST_KINDS.index(self._tables.kind(self._names.texts[plain_code], "runtime")))
            at += 1
        if at > len(self._plain):
            self._plain, self._kinds = np.array(own, np.int32), np.array(kinds, np.int8)
        return self._plain[code], self._kinds[code]

    def spill(self, columns: Columns, name: Any, kind: Any, judged: Any = None) -> None:
        """Host rows of a batch (columns start, end, globalTid), per process; those without an end are set aside.

        ``judged``: what ``Times.judge`` says of them, if it was asked already.
        """
        rows = np.empty(len(name), HOST_ROW)
        end, verdict, cut = judged or self._times.judge(columns["start"], columns["end"])
        rows["start"], rows["end"], rows["name"], rows["kind"] = columns["start"], end, name, kind
        thread = columns["globalTid"] & TID
        whole, opened = (verdict < DROPPED) & (verdict != OPEN), verdict == OPEN
        for key, index in split(columns["globalTid"] & ~TID):
            process = self._processes[key]
            process.counts.take(verdict[index], cut[index])
            mine, threads, open_ = rows[index], thread[index], opened[index]
            if open_.any():
                self.open.append((key, threads[open_], mine[open_]))
            self._keep(process, threads[whole[index]], mine[whole[index]])

    def _keep(self, process: Process, thread: Any, rows: Any) -> None:
        if len(rows):
            process.host.append(thread, rows)
            process.host_names.update(np.flatnonzero(np.bincount(rows["name"])).tolist())
            process.cover(max(int(rows["start"].min()), 0), max(int(rows["end"].max()), 0))

    def close_open(self, end: int) -> None:
        """Clip the ranges without an end at the end of the capture, and count them."""
        for key, thread, rows in self.open:
            rows["end"] = np.maximum(rows["start"], end)
            self._processes[key].counts.unclosed += len(rows)
            self._keep(self._processes[key], thread, rows)
        self.open.clear()
