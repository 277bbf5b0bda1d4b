"""NVTX events of a report: host ranges, step marks, NCCL calls, MPI ranks.

Ranges are push/pop and start/end pairs in any domain. A name is inline text or a string id. Ranges that began
before the capture have negative times and are kept; ranges that never ended are clipped at its end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceview.schema import HOST_KINDS, MARK_SOURCES
from traceview_parsers.host_names import HostNames, mark
from traceview_parsers.nsight.gpu import Tick
from traceview_parsers.nsight.host import HostReader
from traceview_parsers.nsight.names import Names
from traceview_parsers.nsight.process import TID, Reading
from traceview_parsers.nsight.source import NULL, Columns, Kind
from traceview_parsers.nsight.split import split
from traceview_parsers.nsight.times import DROPPED

NVTX = "NVTX_EVENTS"
MPI_EVENTS = ("MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS", "MPI_START_WAIT_EVENTS", "MPI_OTHER_EVENTS")
RANGES = (59, 60)  # push/pop, start/end
THREAD_NAME, DOMAIN = 39, 75
_WANTED = {
    **dict.fromkeys(("start", "end", "eventType", "textId", "globalTid"), Kind.INT),
    "text": Kind.TEXT,
}
_MPI_WANTED = dict.fromkeys(("start", "end", "globalTid", "textId"), Kind.INT)
NCCL_CALL = re.compile(r"^p?nccl[A-Z]")
TORCH_CALL = re.compile(r"^(?:nccl|rccl):(\w+)")
MPI_CALL = re.compile(r"^MPI_\w+$")
_MPI_RANK = re.compile(r"^MPI Rank (\d+)$")
_MPI_QUIET = re.compile(r"^MPI_(Init|Finalize|Comm_|Type_|Info_|Group_|Get_|Initialized|Wtime)")
# Operators of torch's emit_nvtx: 'aten::add', 'AddmmBackward0', 'autograd::engine::evaluate_function: ...'.
_OPERATOR = re.compile(r"^(\w+::\w|[A-Z]\w*Backward\d*$|torch\.ops\.)")


@dataclass(frozen=True)
class Meaning:
    """What ranges of one name are: kind of host range, mark (source, series code, step) or None, NCCL call or not."""

    kind: int
    mark: tuple[int, int, int | None] | None
    nccl: bool
    """an NCCL call, or a collective of torch (``nccl:all_to_all``) which encloses some"""


def meaning(code: int, names: Names, tables: HostNames) -> Meaning:
    """By name, see ``traceview_parsers.host_names``."""
    text = names.texts[code]
    if NCCL_CALL.match(text):
        return Meaning(HOST_KINDS.index("runtime"), None, True)
    if MPI_CALL.match(text):
        return Meaning(HOST_KINDS.index("annotation" if _MPI_QUIET.match(text) else "host_comm"), None, False)
    found = mark(text)
    told = None if found is None else (MARK_SOURCES.index(found.source), names.code(found.series), found.step)
    operator = code in names.numbered or _OPERATOR.match(text)
    plain = "op" if operator and found is None else "annotation"
    return Meaning(HOST_KINDS.index(tables.kind(text, plain)), told, bool(TORCH_CALL.match(text)))


class NvtxReader:
    """Reads NVTX events into the processes of a report."""

    def __init__(self, reading: Reading, host: HostReader) -> None:
        self._source, self._names, self._processes = reading.source, reading.names, reading.processes
        self._times = reading.times
        self._host = host
        self._meanings: list[Meaning] = []
        self._kind = np.empty(0, np.int8)
        self._nccl = np.empty(0, np.bool_)
        self._special = np.empty(0, np.bool_)
        self.domains: set[str] = set()

    def read(self, tables: HostNames, tick: Tick) -> None:
        """All NVTX events, and MPI calls where the version has tables of their own for them."""
        for columns in self._source.batches(NVTX, _WANTED):
            tick(len(columns["start"]))
            code = self._code(columns)
            self._notes(columns, code)
            keep = np.isin(columns["eventType"], RANGES)
            if not keep.any():
                continue
            self._understand(tables)
            kept = {c: v[keep] for c, v in columns.items() if c != "text"}
            for key, _ in split(kept["globalTid"] & ~TID):
                self._processes[key].told = True
            judged = self._times.judge(kept["start"], kept["end"])
            self._host.spill(kept, code[keep], self._kind[code[keep]], judged)
            self._specials(kept, code[keep], judged)
        for table in MPI_EVENTS:
            for columns in self._source.batches(table, _MPI_WANTED):
                code = self._names.of_ids(columns["textId"])
                self._understand(tables)
                self._host.spill(columns, code, self._kind[code])

    def _code(self, columns: Columns) -> Any:
        """Inline text wins over the string id; exactly one of them is set."""
        ids = columns["textId"]
        by_id = ids != NULL
        if by_id.all():
            return self._names.of_ids(ids)
        code = self._names.of_texts(columns["text"])
        if by_id.any():
            code = np.where(by_id & (code == 0), self._names.of_ids(ids), code)
        return code

    def _understand(self, tables: HostNames) -> None:
        at = len(self._meanings)
        if at == len(self._names.texts):
            return
        while at < len(self._names.texts):  # a series is a name too
            self._meanings.append(meaning(at, self._names, tables))
            at += 1
        self._kind = np.array([m.kind for m in self._meanings], np.int8)
        self._nccl = np.array([m.nccl for m in self._meanings], np.bool_)
        self._special = self._nccl | np.array([m.mark is not None for m in self._meanings], np.bool_)

    def _notes(self, columns: Columns, code: Any) -> None:
        """Thread names (MPI ranks) and domain names; there are few."""
        for at in np.flatnonzero(np.isin(columns["eventType"], (THREAD_NAME, DOMAIN))).tolist():
            text = self._names.texts[code[at]]
            if columns["eventType"][at] == DOMAIN:
                self.domains.add(text)
            elif found := _MPI_RANK.match(text):
                self._processes[int(columns["globalTid"][at]) & ~TID].mpi_rank = int(found.group(1))

    def _specials(self, columns: Columns, code: Any, judged: Any) -> None:
        """NCCL calls and step marks are kept apart: few, and needed as a whole. ``judged``: by ``Times.judge``."""
        start = columns["start"]
        end, verdict, _ = judged
        rows = np.flatnonzero(self._special[code] & (verdict < DROPPED))
        if not len(rows):
            return
        nccl = self._nccl[code]
        for key, index in split((columns["globalTid"] & ~TID)[rows]):
            process = self._processes[key]
            mine = rows[index]
            thread = columns["globalTid"][mine] & TID
            calls = nccl[mine]
            some = mine[calls]
            process.nccl.append((thread[calls], start[some], end[some], code[some]))
            some = mine[~calls]
            process.marks.append((thread[~calls], start[some], end[some], code[some]))

    def meaning(self, code: int) -> Meaning:
        """What ranges of a name are."""
        return self._meanings[code]
