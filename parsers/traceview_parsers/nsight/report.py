"""What a report says about itself: versions, clock, host, capture settings, GPUs, diagnostics."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from traceview.errors import TraceviewError
from traceview_parsers.nsight.environment import is_launcher, read_environment
from traceview_parsers.nsight.names import REMOVED, clean
from traceview_parsers.nsight.process import pid_of
from traceview_parsers.nsight.source import Source

NEWEST_MINOR = 28  # of schema 3, nsys 2026.4
SURFACE = re.compile(
    r"might (not )?have (not )?been|No (CUDA|NVTX) events|is not supported|not supported on this system|legacy|"
    r"software instrumented|dropped|lost|buffer",
    re.I,
)
_ROUTINE = re.compile(r"^Buffers holding CUDA trace data will be flushed|^Number of CUPTI events produced")
_MAX_WARNING = 240


@dataclass
class Report:
    """Facts of one export. ``epoch`` is the UTC time, ns, of session time 0 (0 with a warning if it is not told)."""

    product: str = "unknown"
    schema: str = ""
    epoch: int = 0
    duration: int | None = None
    host: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    launcher: bool = False
    facts: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    gpu_names: dict[int, str] = field(default_factory=dict)
    """gpu id -> name"""
    cuda_to_gpu: dict[tuple[int | None, int], int] = field(default_factory=dict)
    """(pid or None = any process, CUDA ordinal) -> gpu id"""

    def gpu_of(self, pid: int, device: int) -> int | None:
        """The GPU that a process calls ``device``."""
        return self.cuda_to_gpu.get((pid, device), self.cuda_to_gpu.get((None, device)))

    def device_name(self, pid: int, device: int) -> str | None:
        """Model name of a device of a process; the only model of the host if the device is not told."""
        gpu = self.gpu_of(pid, device)
        models = set(self.gpu_names.values())
        return self.gpu_names.get(-1 if gpu is None else gpu) or (models.pop() if len(models) == 1 else None)


def read_report(source: Source, path: Path) -> Report:
    """Facts of an export. TraceviewError for a schema that this version cannot know."""
    report = Report()
    _version(report, source, path)
    _clock(report, source)
    system = {
        str(n): str(v)
        for n, v in source.rows("TARGET_INFO_SYSTEM_ENV", ("name", "value"))
        if n != "DeviceEnvironment"
    }
    report.host = system.get("Hostname") or None
    _capture(report, source)
    for name, key in (("NvDriverVersion", "driver_version"), ("CudaDriverVersion", "cuda_driver_version")):
        if system.get(name):
            report.facts[key] = clean(system[name])[:80]
    _gpus(report, source)
    nics = {clean(str(n)) for (n,) in source.rows("TARGET_INFO_NIC_INFO", ("name",)) if n}
    if nics:
        report.facts["nics"] = ",".join(sorted(nics))[:200]
    _diagnostics(report, source)
    return report


def _version(report: Report, source: Source, path: Path) -> None:
    told = {
        str(name): str(value)
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA")
        for name, value in source.rows(table, ("name", "value"))
    }
    report.product = told.get("EXPORT_PRODUCT_VERSION", "before 2022")
    report.schema = told.get("EXPORT_SCHEMA_VERSION", "")
    report.facts["nsys_version"] = report.product
    major, _, rest = report.schema.partition(".")
    minor = rest.partition(".")[0]
    if major.isdigit() and int(major) > 3:
        raise TraceviewError(
            f"{path}: written by nsys {report.product} with schema {report.schema}; this traceview knows schemas "
            f"up to 3.{NEWEST_MINOR}: export with an older nsys or update traceview"
        )
    if major == "3" and minor.isdigit() and int(minor) > NEWEST_MINOR:
        report.warnings.append(f"schema {report.schema} is newer than the newest known (3.{NEWEST_MINOR})")
    if "DERIVED_FROM" in told:
        report.warnings.append("the file is a slice made from another export: its edges cut launches and ranges")


def _clock(report: Report, source: Source) -> None:
    told = [e for (e,) in source.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)) if isinstance(e, int)]
    starts = [e for e in told if 0 < e < 4 * 10**18]  # before 2096
    if starts:
        report.epoch = starts[0]
        report.facts["session_start_ns"] = str(starts[0])
    else:
        report.warnings.append("the file has no UTC time of its session start: times are relative to it")
    spans = [d for (d,) in source.rows("ANALYSIS_DETAILS", ("duration",)) if isinstance(d, int) and d > 0]
    report.duration = max(spans, default=None)


def _capture(report: Report, source: Source) -> None:
    told: dict[str, list[str]] = {}
    for name, value in source.rows("META_DATA_CAPTURE", ("name", "value")):
        if not str(name).endswith("ENVIRONMENT_VARIABLE"):
            told.setdefault(str(name), []).append(str(value))
    for name, values in told.items():
        if name.endswith("CUDA_GRAPH_TRACE_OPTIONS:MODE"):
            report.facts["graph_mode"] = clean(values[0])[:40]
    if events := told.get("CAPTURE_EVENT_TYPE"):
        report.facts["traced"] = ",".join(sorted({clean(e)[:40] for e in events}))
    command = told.get("PROCESS_0:COMMAND", [])[:1]
    arguments = sorted((n for n in told if n.startswith("PROCESS_0:ARGUMENT_")), key=lambda n: (len(n), n))
    report.launcher = is_launcher([*command, *(told[n][0] for n in arguments)])
    report.environment = read_environment(source)
    report.facts |= {f"env.{n}": v for n, v in sorted(report.environment.items())}


def _gpus(report: Report, source: Source) -> None:
    for number, model, ordinal in source.rows("TARGET_INFO_GPU", ("id", "name", "cuDevice")):
        if model and isinstance(number, int):
            report.gpu_names[number] = clean(str(model))[:120]
            if isinstance(ordinal, int):
                report.cuda_to_gpu[None, ordinal] = number
    for device, model in source.rows("TARGET_INFO_CUDA_GPU", ("deviceId", "name")):  # 2020-21
        if model and isinstance(device, int) and (None, device) not in report.cuda_to_gpu:
            report.gpu_names.setdefault(device, clean(str(model))[:120])
            report.cuda_to_gpu[None, device] = device
    for gpu, ordinal, pid in source.rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid")):
        if isinstance(gpu, int) and isinstance(ordinal, int):
            report.cuda_to_gpu[pid, ordinal] = gpu


def _diagnostics(report: Report, source: Source) -> None:
    """Warnings and errors of the profiler, and those of its remarks that mean lost or coarse data."""
    seen: dict[str, int] = {}
    for severity, text in source.rows("DIAGNOSTIC_EVENT", ("severity", "text")):
        said = " ".join(clean(str(text)).split())
        if said != REMOVED and (severity in (2, 3) or (SURFACE.search(said) and not _ROUTINE.search(said))):
            seen[said[:_MAX_WARNING]] = seen.get(said[:_MAX_WARNING], 0) + 1
    report.warnings += [f"nsys: {said}" + (f" ({n} times)" if n > 1 else "") for said, n in seen.items()]


def mpi_ranks(source: Source) -> dict[int, int]:
    """pid -> rank of the MPI_RANKS table."""
    rows = source.rows("MPI_RANKS", ("globalTid", "rank"))
    return {pid_of(tid): rank for tid, rank in rows if isinstance(tid, int) and isinstance(rank, int)}
