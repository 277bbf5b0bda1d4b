"""GPU records: kernels, copies, memsets; linked to the calls that launched them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from traceview.schema import GPU_CLASSES, GPU_OPS, MEM_KINDS
from traceview.schema.arrays import from_numpy
from traceview_parsers import kernels
from traceview_parsers.kineto.arguments import ArgsDecoder, GpuArgs, Launch
from traceview_parsers.kineto.columns import Array, Growing, Interner, dictionary, nullable
from traceview_parsers.kineto.comms import CommStore
from traceview_parsers.kineto.events import MISSING, Events, integers
from traceview_parsers.kineto.flops import FlopStore
from traceview_parsers.kineto.host import identity
from traceview_parsers.limits import OVERFLOW_NS

RECORDS = ("kernel", "memcpy", "memset")
_CLASSIFY = (kernels.kernel, kernels.copy, kernels.memset)


@dataclass
class GpuFacts:
    """What was noticed about the GPU records of a file."""

    duplicates: int = 0
    empty: int = 0
    """Records with time 0: not collected."""
    clipped: int = 0
    clipped_ns: int = 0
    linked: int = 0
    external_is_correlation: bool = False


class GpuStore:
    """Collects GPU records and launch calls."""

    def __init__(self, comms: CommStore, flops: FlopStore) -> None:
        self._names = Interner()
        self._configs = Interner()
        self._comms = comms
        self._flops = flops
        self._args = ArgsDecoder(GpuArgs)
        self._launch_args = ArgsDecoder(Launch)
        self._rows = Growing(
            record=np.int8,
            device=np.int32,
            stream=np.int64,
            start=np.int64,
            end=np.int64,
            name=np.int32,
            config=np.int32,
            correlation=np.int64,
            bytes=np.int64,
        )
        self._launches = Growing(correlation=np.int64, start=np.int64, end=np.int64, thread=np.int64)
        self._external_differs = False
        self.facts = GpuFacts()
        self.kept = 0
        self.busy: dict[int, int] = {}
        """ns of records by device, once finished."""

    def names(self) -> list[str]:
        """Names by code."""
        return self._names.strings()

    def add(self, record: int, events: Events, start: Array, end: Array) -> None:
        """Add records of one kind (index into RECORDS); times in ns without the base."""
        args = self._args(events)
        self._comms.add_kernels(self._rows.rows, args)
        correlation = integers([a.correlation for a in args])
        device = integers([e.pid if a.device is None else a.device for a, e in zip(args, events, strict=True)])
        stream = integers([e.tid if a.stream is None else a.stream for a, e in zip(args, events, strict=True)])
        external = integers([a.external_id for a in args])
        self._external_differs |= bool(((external != correlation) | (external < 0)).any())
        config = self._config_codes(args) if record == 0 else np.full(len(args), -1, np.int32)
        self._rows.add(
            len(args),
            record=record,
            device=np.clip(device, -1, 2**31 - 1),
            stream=stream,
            start=start,
            end=end,
            name=self._names.codes([e.name for e in events]),
            config=config,
            correlation=correlation,
            bytes=integers([a.bytes for a in args]),
        )

    def _config_codes(self, args: list[Any]) -> Array:
        return self._configs.codes([(bytes(a.grid), bytes(a.block)) for a in args])

    def add_launches(self, events: Events, start: Array, end: Array, thread: Array) -> None:
        """Add runtime or driver calls; those without a correlation cannot launch anything."""
        correlation = integers([a.correlation for a in self._launch_args(events)])
        at = np.flatnonzero(correlation > 0)
        self._launches.add(len(at), correlation=correlation[at], start=start[at], end=end[at], thread=thread[at])

    def finish(self, base: int) -> tuple[dict[str, Array], Any]:
        """(columns of the communication records with ``op`` = row of the table, ``GPU_OPS`` table).

        ``source`` is the row number as added, by which ``CommStore`` keeps the facts on kernels.
        """
        rows = self._sorted()
        self.kept = len(rows["start"])
        self._clip(rows)
        names = self._names.strings()
        by_record = [[classify(n) for n in names] for classify in _CLASSIFY]
        cls = _lookup(rows, by_record, lambda g: GPU_CLASSES.index(g.cls), np.int8)
        mem = _lookup(rows, by_record, lambda g: MEM_KINDS.index(g.mem) if g.mem else -1, np.int8)
        fused = _lookup(rows, by_record, lambda g: g.fused_comm, np.bool_)
        launch = self._link(rows["correlation"])
        rows |= {"cls": cls, **launch}
        compute = cls == GPU_CLASSES.index("compute")
        flops = self._flops.of_records(launch["launch_start"], launch["launch_thread"], compute)
        for name in ("start", "end"):
            rows[name] += base
        for name in ("launch_start", "launch_end"):
            rows[name][rows[name] != MISSING] += base
        self.facts.external_is_correlation = self.kept > 0 and not self._external_differs
        table = GPU_OPS.build(
            {
                **{name: rows[name] for name in ("device", "stream", "start", "end", "cls")},
                "fused_comm": fused,
                "name": dictionary(rows["name"], names),
                "config": dictionary(rows["config"], self._config_names(), missing=True),
                "correlation": nullable(np.where(rows["correlation"] > 0, rows["correlation"], -1)),
                **{name: nullable(column, MISSING) for name, column in launch.items()},
                "bytes": nullable(rows["bytes"]),
                "mem": mem,
                **({} if flops is None else {"flops": from_numpy(flops, missing=np.isnan(flops))}),
            },
            stored=True,
        )
        self.busy = _busy(rows)
        ops = np.flatnonzero(cls == GPU_CLASSES.index("comm"))
        return {"op": ops} | {name: column[ops] for name, column in rows.items()}, table

    def _config_names(self) -> list[str]:
        return [_config(grid, block) for grid, block in self._configs]

    def _sorted(self) -> dict[str, Array]:
        """Rows by device, start, end; without records of time 0 and without repeated ones."""
        rows = self._rows.take_all()
        rows["source"] = np.arange(len(rows["start"]))
        order = np.lexsort((rows["end"], rows["start"], rows["device"]))
        collected = (rows["start"][order] != 0) | (rows["end"][order] != 0)
        self.facts.empty = int((~collected).sum())
        order = order[collected]
        for name in rows:
            rows[name] = rows[name][order]
        ident = identity(rows[c] for c in ("device", "stream", "start", "end", "name", "correlation", "config"))
        seen = np.sort(ident)
        self.facts.duplicates = int((seen[1:] == seen[:-1]).sum())
        if self.facts.duplicates:
            first = np.sort(np.unique(ident, return_index=True)[1])
            rows = {name: column[first] for name, column in rows.items()}
        return rows

    def _clip(self, rows: dict[str, Array]) -> None:
        """Cut a record that runs past the begin of the next one on its stream (but not inside one graph launch)."""
        order = np.lexsort((rows["start"], rows["stream"], rows["device"]))
        here, after = order[:-1], order[1:]
        same = (rows["stream"][here] == rows["stream"][after]) & (rows["device"][here] == rows["device"][after])
        same &= (rows["correlation"][here] != rows["correlation"][after]) | (rows["correlation"][here] <= 0)
        over = same & (rows["end"][here] > rows["start"][after] + OVERFLOW_NS)
        at, limit = here[over], rows["start"][after[over]]
        self.facts.clipped = len(at)
        self.facts.clipped_ns = int((rows["end"][at] - limit).sum())
        rows["end"][at] = limit

    def _link(self, correlation: Array) -> dict[str, Array]:
        """Launch columns per record; MISSING where the call was not recorded."""
        calls = self._launches.take_all()
        order = np.argsort(calls["correlation"], kind="stable")
        keys = calls["correlation"][order]
        at = np.searchsorted(keys, correlation)
        at[at == len(keys)] = 0
        hit = (keys[at] == correlation) if len(keys) else np.zeros(len(correlation), bool)
        self.facts.linked = int(hit.sum())
        out = {}
        for name, source in (("launch_start", "start"), ("launch_end", "end"), ("launch_thread", "thread")):
            column = np.full(len(correlation), MISSING, np.int64)
            column[hit] = calls[source][order[at[hit]]]
            out[name] = column
        return out


def _busy(rows: dict[str, Array]) -> dict[int, int]:
    devices, at = np.unique(rows["device"], return_inverse=True)
    time = np.bincount(at, rows["end"] - rows["start"], len(devices))
    return {int(d): int(t) for d, t in zip(devices, time, strict=True)}


def _lookup(rows: dict[str, Array], by_record: list[list[Any]], value: Any, kind: Any) -> Array:
    """Per row, ``value`` of the class of its name."""
    table = np.array([[value(g) for g in row] for row in by_record], kind).reshape(len(by_record), -1)
    out: Array = table[rows["record"], rows["name"]]
    return out


def _config(grid: bytes, block: bytes) -> str:
    """'[1, 2, 3]', '[4, 5, 6]' as in the file -> '1,2,3 4,5,6'."""
    return " ".join(b"".join(t.strip(b"[] \n").split()).decode("utf-8", "replace") for t in (grid, block)).strip()
