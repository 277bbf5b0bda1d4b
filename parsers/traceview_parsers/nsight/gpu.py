"""GPU work of a report: kernels, copies, memsets and whole graphs, spilled per process and device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from traceview.schema import GPU_CLASSES, MEM_KINDS
from traceview_parsers.nsight.payload import MOST_BYTES
from traceview_parsers.nsight.process import GPU_ROW, Process, Reading
from traceview_parsers.nsight.source import NULL, Columns, Kind, Source
from traceview_parsers.nsight.split import split
from traceview_parsers.nsight.times import DROPPED, EMPTY

INT = Kind.INT
Tick = Callable[[int], None]
"""Told how many rows were read."""

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
TABLES = (KERNEL, MEMCPY, MEMSET, GRAPH)

_PLACE = dict.fromkeys(("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid"), INT)
_NAMES = ("demangledName", "shortName", "mangledName")
_SHAPE = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
KERNEL_WANTED = _PLACE | dict.fromkeys(("demangledName", *_SHAPE), INT)

# ENUM_CUDA_MEMCPY_OPER and ENUM_CUDA_MEM_KIND (not CUPTI's numbering); files before 2022 have no such tables.
_OPERATIONS = [
    "UNKNOWN",
    "HTOD",
    "DTOH",
    "HTOA",
    "ATOH",
    "ATOA",
    "ATOD",
    "DTOA",
    "DTOD",
    "HTOH",
    "PTOP",
    "UVM_HTOD",
    "UVM_DTOH",
    "UVM_DTOD",
]
_MEMORY = ["PAGEABLE", "PINNED", "DEVICE", "ARRAY", "MANAGED", "DEVICE_STATIC", "MANAGED_STATIC", "UNKNOWN"]
_COPY_CLASS = {
    **dict.fromkeys(("HTOD", "HTOA", "UVM_HTOD"), "pcie_h2d"),
    **dict.fromkeys(("DTOH", "ATOH", "UVM_DTOH"), "pcie_d2h"),
    **dict.fromkeys(("ATOA", "ATOD", "DTOA", "DTOD", "UVM_DTOD"), "gpu_d2d"),
    "PTOP": "peer_copy",
    "HTOH": "gpu_other",
}
_ON_HOST = ("PAGEABLE", "PINNED")
_ON_DEVICE = ("DEVICE", "ARRAY", "DEVICE_STATIC")


class Configs:
    """Launch configurations 'grid block' by small code."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._codes: dict[tuple[int, ...], int] = {}

    def of(self, columns: Columns) -> Any:
        """int32 codes of the rows of a kernel batch."""
        shape = [columns[c] for c in _SHAPE]
        grid = _small((shape[0] << 32) | (shape[1] << 16) | shape[2])
        block = _small((shape[3] << 32) | (shape[4] << 16) | shape[5])
        both = pa.array(grid.astype(np.int64) << 32 | block).dictionary_encode()
        codes = both.indices.to_numpy(zero_copy_only=False)
        first = np.empty(len(both.dictionary), np.int64)
        first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
        table = [self._code(tuple(int(c[i]) for c in shape)) for i in first.tolist()]
        return np.array(table, np.int32)[codes]

    def _code(self, shape: tuple[int, ...]) -> int:
        if NULL in shape:
            return -1
        code = self._codes.setdefault(shape, len(self.texts))
        if code == len(self.texts):
            x, y, z, u, v, w = shape
            self.texts.append(f"{x},{y},{z} {u},{v},{w}")
        return code


def _small(keys: Any) -> Any:
    return pa.array(keys).dictionary_encode().indices.to_numpy(zero_copy_only=False)


class GpuReader:
    """Reads the GPU tables of a report into its processes."""

    def __init__(self, reading: Reading, classify: Callable[[str], str]) -> None:
        source, names, processes = reading.source, reading.names, reading.processes
        self._times = reading.times
        self._source = source
        self._names = names
        self._processes = processes
        self._classify = classify
        self._classes = np.empty(0, np.int8)
        self.kernels = 0
        self.holes: list[tuple[int | None, int | None]] = []
        """stretches of session time of which rows are damaged; None = to the edge of the record"""
        self.configs = Configs()
        self._operations = _enum(source, "ENUM_CUDA_MEMCPY_OPER", _OPERATIONS)
        self._memory = _enum(source, "ENUM_CUDA_MEM_KIND", _MEMORY)

    def read(self, tick: Tick) -> None:
        """All GPU tables."""
        have = self._source.columns(KERNEL)
        name = next((c for c in _NAMES if c in have), _NAMES[0])
        for columns in self._batches(KERNEL, KERNEL_WANTED | {name: INT}):
            code = self._names.of_ids(columns[name])
            self.kernels += len(code)
            self._spill(columns, tick, name=code, cls=self._kernel_class(code), config=self.configs.of(columns))
        copy = ("bytes", "copyKind", "srcKind", "dstKind", "srcDeviceId", "dstDeviceId")
        for columns in self._batches(MEMCPY, _PLACE | dict.fromkeys(copy, INT)):
            self._spill(columns, tick, **self._copies(columns))
        for columns in self._batches(MEMSET, _PLACE | dict.fromkeys(("bytes", "memKind"), INT)):
            text = self._coded(columns["memKind"], lambda kind: f"Memset ({self._memory_name(kind)})")
            self._spill(columns, tick, name=text, cls=_code("gpu_memset"), bytes=self._bytes(MEMSET, columns))
        for columns in self._batches(GRAPH, _PLACE | {"graphId": INT}):
            text = self._coded(columns["graphId"], lambda graph: f"CUDA graph {graph}")
            self._spill(columns, tick, name=text, cls=_code("gpu_opaque"))
        for process in self._processes.values():
            process.settle_gpu()

    def _batches(self, table: str, wanted: dict[str, Kind]) -> Iterator[Columns]:
        """Batches of a table; between those around damage lies a hole: what the GPU did there nobody knows."""
        last: int | None = None
        seen = len(self._source.damage)
        for columns in self._source.batches(table, wanted):
            if len(self._source.damage) > seen:
                seen = len(self._source.damage)
                self.holes.append((last, self._edge(columns, np.min)))
            last = self._edge(columns, np.max) if last is None else max(last, self._edge(columns, np.max) or last)
            yield columns
        if len(self._source.damage) > seen:
            self.holes.append((last, None))

    def _edge(self, columns: Columns, choose: Callable[[Any], Any]) -> int | None:
        start = columns["start"]
        _, verdict, _ = self._times.judge(start, start)
        usable = start[verdict < DROPPED]
        return int(choose(usable)) if len(usable) else None

    def _spill(self, columns: Columns, tick: Tick, **given: Any) -> None:
        start = columns["start"]
        rows = np.empty(len(start), GPU_ROW)
        rows["start"] = start
        rows["end"], verdict, cut = self._times.judge(start, columns["end"])
        verdict[(start == 0) & (columns["end"] == 0)] = EMPTY  # "not collected"
        rows["correlation"] = _or(columns["correlationId"], -1)
        context, stream = _or(columns["contextId"], 0), _or(columns["streamId"], 0)
        rows["stream"] = context << 32 | (stream & 0xFFFFFFFF)
        for field, default in (("bytes", -1), ("name", 0), ("config", -1), ("cls", 0), ("mem", -1)):
            rows[field] = given.get(field, default)
        device = np.clip(_or(columns["deviceId"], 0), -1, 2**31 - 1)  # an ordinal, whatever the file says
        usable = verdict < DROPPED
        for key, index in split(columns["globalPid"]):
            process = self._processes[key]
            process.counts.take(verdict[index], cut[index])
            keep = usable[index]
            mine, place = rows[index], device[index]
            self._keep(process, *((place, mine) if keep.all() else (place[keep], mine[keep])))
        tick(len(rows))

    @staticmethod
    def _keep(process: Process, device: Any, rows: Any) -> None:
        if not len(rows):
            return
        process.gpu.append(device, rows)
        process.gpu_names.update(np.flatnonzero(np.bincount(rows["name"])).tolist())
        for one, at in split(device):
            contexts = rows["stream"][at] >> 32
            process.contexts.setdefault(one, set()).update(_distinct(contexts))

    def _kernel_class(self, code: Any) -> Any:
        if new := [_code(self._classify(text)) for text in self._names.texts[len(self._classes) :]]:
            self._classes = np.append(self._classes, np.array(new, np.int8))
        return self._classes[code]

    def _coded(self, values: Any, text: Callable[[int], str]) -> Any:
        encoded = pa.array(values).dictionary_encode()
        table = [self._names.code(text(v)) for v in encoded.dictionary.to_pylist()]
        return np.array(table, np.int32)[encoded.indices.to_numpy(zero_copy_only=False)]

    def _bytes(self, table: str, columns: Columns) -> Any:
        """Sizes; -1 for those that are not told or that none can be."""
        size = _or(columns["bytes"], -1)
        bad = (size < -1) | (size > MOST_BYTES)
        if bad.any():
            self._source.odd[f"{table}.bytes"] += int(bad.sum())
        return np.where(bad, -1, size)

    def _memory_name(self, kind: int) -> str:
        return self._memory.get(kind, "UNKNOWN").replace("_", " ").title()

    def _copies(self, columns: Columns) -> dict[str, Any]:
        """Name, class and host memory kind of a batch of copies, by distinct (operation, memories, same device)."""
        kinds = [np.clip(_or(columns[c], 255), 0, 255) for c in ("copyKind", "srcKind", "dstKind")]
        near, far = columns["srcDeviceId"], columns["dstDeviceId"]
        across = (near != far) & (near != NULL) & (far != NULL)
        encoded = pa.array(kinds[0] << 24 | kinds[1] << 16 | kinds[2] << 8 | across).dictionary_encode()
        index = encoded.indices.to_numpy(zero_copy_only=False)
        told = [self._copy(k >> 24, k >> 16 & 255, k >> 8 & 255, bool(k & 1)) for k in encoded.dictionary.to_pylist()]
        name, cls, mem = (np.array(column)[index] for column in zip(*told, strict=True))
        return {"name": name, "cls": cls, "mem": mem, "bytes": self._bytes(MEMCPY, columns)}

    def _copy(self, operation: int, near: int, far: int, across: bool) -> tuple[int, int, int]:
        what = self._operations.get(operation, "UNKNOWN")
        src, dst = self._memory.get(near, "UNKNOWN"), self._memory.get(far, "UNKNOWN")
        cls = _COPY_CLASS.get(what) or _class_by_memory(src, dst)
        if across and cls == "gpu_d2d":
            cls = "peer_copy"
        side = {"pcie_h2d": src, "pcie_d2h": dst}.get(cls)
        mem = -1 if side is None else MEM_KINDS.index(side.lower() if side in _ON_HOST else "unknown")
        short = what.replace("TO", "to").replace("UVM_", "UVM ").replace("UNKNOWN", "unknown")
        text = f"Memcpy {short} ({self._memory_name(near)} -> {self._memory_name(far)})"
        return self._names.code(text), _code(cls), mem


def _class_by_memory(src: str, dst: str) -> str:
    if src in _ON_HOST and dst in _ON_DEVICE:
        return "pcie_h2d"
    if src in _ON_DEVICE and dst in _ON_HOST:
        return "pcie_d2h"
    return "gpu_d2d" if src in _ON_DEVICE and dst in _ON_DEVICE else "gpu_other"


def _enum(source: Source, table: str, default: list[str]) -> dict[int, str]:
    """id -> short upper-case name; the file's own table overrides the built-in numbering."""
    told = {i: str(name).rpartition("KIND_")[2] for i, name in source.rows(table, ("id", "name")) if name}
    return dict(enumerate(default)) | told


def _code(cls: str) -> int:
    return GPU_CLASSES.index(cls)


def _or(values: Any, default: int) -> Any:
    return np.where(values == NULL, default, values)


def _distinct(values: Any) -> list[int]:
    return [int(values[0])] if (values == values[0]).all() else [int(v) for v in np.unique(values)]
