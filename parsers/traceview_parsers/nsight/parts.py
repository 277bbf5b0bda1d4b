"""From what was read of one process to its part: tables in declared order, written batch by batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from traceview.run import Part, PartMeta, SourceMeta, write_part
from traceview.schema import GPU_CLASSES, GPU_OPS, HOST_KINDS, HOST_RANGES, STEP_MARKS
from traceview_parsers.kernels import kernel
from traceview_parsers.nsight import collectives
from traceview_parsers.nsight.collectives import CommRows
from traceview_parsers.nsight.names import Names, used_dictionary
from traceview_parsers.nsight.nccl import Calls
from traceview_parsers.nsight.nvtx import NvtxReader
from traceview_parsers.nsight.process import Process

_COMM = [GPU_CLASSES.index(c) for c in ("comm", "peer_copy")]


@dataclass
class PartWriter:
    """Writes the parts of one report."""

    names: Names
    configs: list[str]
    nvtx: NvtxReader
    epoch: int

    def write(self, folder: Path, process: Process, meta: PartMeta, more: dict[str, Any]) -> Part:
        """The part of a process; ``more`` holds tables made elsewhere and ``calls``, ``members`` for collectives."""
        rows = CommRows()
        calls: Calls | None = more.pop("calls")
        members = more.pop("members")
        part = write_part(
            folder,
            meta,
            {
                "gpu_ops": self._gpu(process, rows, meta.source),
                "host_ranges": self._host(process),
                "step_marks": self._marks(process),
                "collectives": self._collectives(process, rows, calls, members),
                **more,
            },
        )
        return part

    def _gpu(self, process: Process, rows: CommRows, source: SourceMeta) -> Iterator[Any]:
        words, remap = used_dictionary(self.names, sorted(process.gpu_names))
        fused = np.array([kernel(w).fused_comm for w in words.to_pylist()], np.bool_)
        configs = pa.array(self.configs, pa.string())
        done = 0
        for device, batch in process.gpu.batches():
            batch = process.overflows.apply(device, batch, done) if process.overflows else batch
            found = process.launches.find(batch["correlation"])
            absent = ~found.found
            stream = self._streams(process, device, batch["stream"])
            comm = np.flatnonzero(np.isin(batch["cls"], _COMM))
            rows.add(
                op=done + comm,
                device=device[comm],
                stream=stream[comm],
                start=batch["start"][comm],
                end=batch["end"][comm],
                launch=np.where(absent, -1, found.start)[comm],
                thread=np.where(absent, -1, found.thread)[comm],
                name=batch["name"][comm].astype(np.int64),
            )
            name = remap[batch["name"]]
            yield GPU_OPS.build(
                {
                    "device": device.astype(np.int32),
                    "stream": stream,
                    "start": batch["start"] + self.epoch,
                    "end": batch["end"] + self.epoch,
                    "cls": batch["cls"],
                    "fused_comm": (batch["cls"] == 0) & fused[name],
                    "name": pa.DictionaryArray.from_arrays(name, words),
                    "config": pa.DictionaryArray.from_arrays(
                        pa.array(batch["config"], mask=batch["config"] < 0), configs
                    ),
                    "correlation": pa.array(batch["correlation"], mask=batch["correlation"] <= 0),
                    "launch_start": pa.array(found.start + self.epoch, mask=absent),
                    "launch_end": pa.array(found.end + self.epoch, mask=absent),
                    "launch_thread": pa.array(found.thread, mask=absent),
                    "bytes": pa.array(batch["bytes"], mask=batch["bytes"] < 0),
                    "mem": batch["mem"],
                },
                stored=True,
            )
            done += len(batch)
            source.facts["launches_missing"] = str(int(source.facts.get("launches_missing", "0")) + int(absent.sum()))

    @staticmethod
    def _streams(process: Process, device: Any, stream: Any) -> Any:
        """Stream ids: with the context in the upper half only on devices on which several contexts were used."""
        several = [d for d, contexts in process.contexts.items() if len(contexts) > 1]
        plain = stream & 0xFFFFFFFF
        return np.where(np.isin(device, several), stream, plain) if several else plain

    def _host(self, process: Process) -> Iterator[Any]:
        words, remap = used_dictionary(self.names, sorted(process.host_names))
        for thread, batch in process.host.batches():
            yield HOST_RANGES.build(
                {
                    "thread": thread,
                    "start": batch["start"] + self.epoch,
                    "end": batch["end"] + self.epoch,
                    "kind": batch["kind"],
                    "name": pa.DictionaryArray.from_arrays(remap[batch["name"]], words),
                },
                stored=True,
            )

    def _marks(self, process: Process) -> Any:
        if not process.marks:
            return STEP_MARKS.empty(stored=True)
        thread, start, end, code = (np.concatenate(c) for c in zip(*process.marks, strict=True))
        order = np.lexsort((start, thread))
        ordinal: Counter[tuple[int, int]] = Counter()
        source, series, step = [], [], []
        for c in code[order].tolist():
            kind, own, number = self.nvtx.meaning(c).mark or (0, 0, None)
            source.append(kind)
            series.append(self.names.texts[own])
            step.append(ordinal[kind, own] if number is None else number)
            ordinal[kind, own] += 1
        end = np.maximum(end, start)[order]  # one that never ended has no length
        table = STEP_MARKS.build(
            {
                "source": np.array(source, np.int8),
                "series": pa.array(series, pa.string()).dictionary_encode(),
                "step": np.array(step, np.int64),
                "start": start[order] + self.epoch,
                "end": end + self.epoch,
                "thread": thread[order],
            },
            stored=True,
        )
        return table.take(pa.array(np.lexsort((start[order], np.array(series), np.array(source)))))

    def _collectives(self, process: Process, rows: CommRows, calls: Any, members: Any) -> Iterator[Any]:
        """Made when asked for: after ``_gpu`` has been written."""
        table = collectives.build(rows.joined(), self.names.texts, calls, self.epoch, members)
        mpi = self._mpi(process)
        if mpi is not None:
            table = pa.concat_tables([table, mpi]).unify_dictionaries()
        yield table.sort_by("start").combine_chunks() if len(table) else table

    def _mpi(self, process: Process) -> Any:
        codes = [c for c in sorted(process.host_names) if self.names.texts[c].startswith("MPI_")]
        kind = HOST_KINDS.index("host_comm")
        if not codes:
            return None
        found = []
        for thread, batch in process.host.batches():
            keep = (batch["kind"] == kind) & np.isin(batch["name"], codes)
            found.append((thread[keep], batch[keep]))
        thread = np.concatenate([t for t, _ in found])
        batch = np.concatenate([b for _, b in found])
        texts = [self.names.texts[c] for c in batch["name"].tolist()]
        return collectives.host_rows(thread, batch["start"], batch["end"], texts, self.epoch)
