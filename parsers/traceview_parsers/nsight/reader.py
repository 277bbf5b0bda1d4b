"""One export, from the source of its rows to its parts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from traceview.errors import TraceviewError
from traceview.run import Part, PartMeta, SourceMeta
from traceview_parsers.host_names import HostNames
from traceview_parsers.kernels import kernel
from traceview_parsers.nsight import counters, gpu, host, nvtx
from traceview_parsers.nsight.counters import CounterReader
from traceview_parsers.nsight.gpu import GpuReader
from traceview_parsers.nsight.host import HostReader
from traceview_parsers.nsight.names import Names
from traceview_parsers.nsight.nccl import Calls, calls_of
from traceview_parsers.nsight.nvtx import NvtxReader
from traceview_parsers.nsight.parts import PartWriter
from traceview_parsers.nsight.payload import read_payloads
from traceview_parsers.nsight.process import Process, Processes, Reading
from traceview_parsers.nsight.ranks import Identity, identify, members
from traceview_parsers.nsight.report import Report, mpi_ranks, read_report
from traceview_parsers.nsight.source import Source
from traceview_parsers.nsight.times import FAR, learn, refuse_two_clocks
from traceview_parsers.reader import Progress, ReadOptions

_SCRATCH = ".reading"
_TIMED = ((gpu.KERNEL, gpu.MEMCPY, host.RUNTIME), (nvtx.NVTX, host.OSRT))
"""Tables whose rows tell where the record is: those of the first kind that has any."""


class ReportReader:
    """Reads one export. ``path`` is the user's file, ``source`` what is read (the same, or made of it), ``told``
    what to tell of that."""

    def __init__(self, path: Path, source: Source, out: Path, options: ReadOptions, told: list[str]) -> None:
        self.path = path
        self.source = source
        self.out = out
        self.report: Report = read_report(source, path)
        self._said: set[str] = set()
        self.report.warnings += told
        self.scratch = out / _SCRATCH
        self.scratch.mkdir(parents=True)
        self.names = Names(source)
        self.processes = Processes(self.scratch)
        self.times, doubts = learn(source, _TIMED, self.report.duration)
        self.report.warnings += doubts
        self.tables = HostNames.of(options.data_names)
        reading = Reading(source, self.names, self.processes, self.times)
        self.gpu = GpuReader(reading, lambda text: kernel(text).cls)
        self.host = HostReader(reading, self.tables)
        self.nvtx = NvtxReader(reading, self.host)
        self.counters = CounterReader(source, self.scratch, self.times)

    def read(self, progress: Progress | None) -> list[Part]:
        """All parts, in the order of process ids. The scratch folder is gone afterwards."""
        try:
            self._read_rows(_ticker(self.source, self.path, progress))
            return self._parts()
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _read_rows(self, tick: gpu.Tick) -> None:
        self.gpu.read(tick)
        self.host.read(tick)
        self.nvtx.read(self.tables, tick)
        self.counters.read(tick)
        refuse_two_clocks(self.path, [p.counts for p in self.processes.values()])
        last = max((p.last for p in self.processes.values() if p.last is not None), default=0)
        self.host.close_open(last if self.times.end is None else min(last, self.times.end))

    def _parts(self) -> list[Part]:
        chosen = self._chosen()
        payloads = read_payloads(self.source)
        calls = {p.key: calls_of(p, self.names.texts, payloads) for p in chosen}
        found = identify(chosen, calls, self.report, mpi_ranks(self.source), self.path)
        known = members(chosen, calls, found, self.report)
        writer = PartWriter(self.names, self.gpu.configs.texts, self.nvtx, self.report.epoch)
        parts = []
        for number, process in enumerate(chosen):
            meta = self._meta(process, found[process.key], calls[process.key])
            if number == 0 and (lost := self.counters.lost):
                meta.source.dropped += lost
                meta.source.warnings.append(f"{lost} samples of metrics have no possible time: left out")
                meta.source.facts["counter_samples_left_out"] = str(lost)
            more: dict[str, Any] = {
                "calls": calls[process.key],
                "members": known,
                "counters": self.counters.table(self._gpus(process, chosen), number == 0, self.report.epoch),
            }
            parts.append(writer.write(self.out / f"p{number}", process, meta, more))
        return parts

    def _chosen(self) -> list[Process]:
        """The processes that are ranks: with GPU work, else with ranges or CUDA calls, else any."""
        ordered = sorted(self.processes.values(), key=lambda p: p.key)
        working = [p for p in ordered if p.gpu.rows] or [p for p in ordered if p.told]
        working = working or [p for p in ordered if p.host.rows]
        if not working and self.source.damage:
            raise TraceviewError(f"{self.path}: the database is damaged ({self.source.damage[0]}); export it again")
        if not working:
            raise TraceviewError(
                f"{self.path}: no GPU work, no CUDA call and no NVTX range in this export; record with "
                "`nsys profile -t cuda,nvtx,osrt`"
            )
        if rest := [p for p in ordered if p not in working and p.host.rows]:
            pids = ", ".join(str(p.pid) for p in rest[:8])
            self.report.warnings.append(f"{len(rest)} processes without GPU work are left out (pid {pids})")
        return working

    def _gpus(self, process: Process, chosen: list[Process]) -> dict[int, int]:
        """GPU id -> device ordinal of the GPUs whose samples belong to a process; unclaimed ones go to the first."""
        mine = {}
        for device in process.gpu.groups:
            number = self.report.gpu_of(process.pid, device)
            mine[device if number is None else number] = device
        if process is chosen[0]:
            claimed = {self.report.gpu_of(p.pid, d) for p in chosen for d in p.gpu.groups}
            mine |= {g: g for g in self.counters.gpus if g not in claimed and g not in mine}
        return mine

    def _meta(self, process: Process, identity: Identity, calls: Calls | None) -> PartMeta:
        counts, report = process.counts, self.report
        warnings = [*report.warnings, *self._missing(process)]
        if far := int(counts.verdicts[FAR]):
            warnings.append(f"{far} rows lie far from the others in time: left out")
        if counts.unclosed:
            warnings.append(f"{counts.unclosed} ranges or calls never ended: clipped at the end of the capture")
        if process.key and calls is not None and not calls.inits and not (calls.payload["size"] >= 0).any():
            warnings.append(
                "NCCL ranges without message sizes and communicators: export with `nsys export --include-blobs=true`"
            )
        warnings += [f"damaged, rows are missing: {what}" for what in dict.fromkeys(self.source.damage)]
        if missing := self.names.missing:
            warnings.append(f"names that the table of strings lacks, shown as '(no name)': {missing}")
        if odd := self.source.odd:
            which = ", ".join(f"{column} {n}" for column, n in odd.most_common(5))
            warnings.append(f"values that cannot be there, read as not told: {odd.total()} ({which})")
        warnings = [w for w in warnings if w not in self._said]  # what is true of the file is said once
        self._said.update(warnings)
        devices = sorted(process.gpu.sizes, key=lambda d: (-process.gpu.sizes[d], d))
        return PartMeta(
            source=SourceMeta(
                path=str(self.path),
                format="nsight",
                schema_class=f"nsys {report.product}" + (f", schema {report.schema}" if report.schema else ""),
                bytes=_size(self.path),
                events=counts.events,
                repaired=counts.repaired,
                dropped=counts.dropped,
                truncated=bool(self.source.damage),
                warnings=warnings,
                facts=self._facts() | counts.facts(),
            ),
            rank=identity.rank,
            rank_source=identity.source,
            world_size=identity.world,
            host=report.host,
            pid=process.pid,
            devices=devices,
            device_name=report.device_name(process.pid, devices[0]) if devices else None,
            vendor="NVIDIA",
            holes=self._holes(process),
            cover_start=None if process.first is None else process.first + report.epoch,
            cover_end=None if process.last is None else process.last + report.epoch,
        )

    def _holes(self, process: Process) -> list[tuple[int, int]]:
        """Stretches of which GPU rows are damaged, within the process's record."""
        if process.first is None or process.last is None:
            return []
        low, high, epoch = process.first, process.last, self.report.epoch
        found = [(low if a is None else a, high if b is None else b) for a, b in self.gpu.holes]
        return [(max(a, low) + epoch, min(b, high) + epoch) for a, b in found if min(b, high) > max(a, low)]

    def _facts(self) -> dict[str, str]:
        facts = dict(self.report.facts)
        if not self.source.columns(host.OSRT):
            facts["osrt"] = "no"
        if self.nvtx.domains:
            facts["nvtx_domains"] = ",".join(sorted(self.nvtx.domains))[:200]
        return facts

    def _missing(self, process: Process) -> list[str]:
        """What this capture does not hold, and the flag that would add it."""
        said = []
        if not process.gpu.rows:
            said.append("no GPU work in the file: record with `nsys profile -t cuda,nvtx`")
        elif not self.gpu.kernels and not self.source.count(gpu.GRAPH):
            said.append("no kernels in the file, only copies and the like: was it exported with all tables?")
        if not self.source.columns(nvtx.NVTX):
            said.append("no NVTX ranges, so no steps by name: record with `-t cuda,nvtx` and mark steps")
        if not self.source.columns(host.RUNTIME):
            said.append("no CUDA API calls, so no launch times: record with `-t cuda`")
        if self.source.count(gpu.GRAPH):
            said.append("CUDA graphs were recorded as one interval each: record with `--cuda-graph-trace=node`")
        return said


def _size(path: Path) -> int:
    files = path.glob("*.parquet") if path.is_dir() else (path,)
    return sum(p.stat().st_size for p in files)


def _ticker(source: Source, path: Path, progress: Progress | None) -> Callable[[int], None]:
    """Rows read -> the share of the file's bytes that this stands for."""
    tables = (*gpu.TABLES, *host.TABLES, nvtx.NVTX, *counters.TABLES)
    total = sum(source.count(t) for t in tables) or 1
    size, done = _size(path), 0

    def tick(rows: int) -> None:
        nonlocal done
        done += rows
        if progress:
            progress(min(size, size * done // total), size)

    return tick
