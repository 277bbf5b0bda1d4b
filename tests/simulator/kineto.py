"""Writer of PyTorch profiler (Kineto) files of several schema classes: B3 (absolute integer us, no collective
facts), D0, D1 and D2 (decimal us after baseTimeNanoseconds, process groups, Seq, host name)."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.capture import Capture, Gpu, Host, capture
from simulator.job import EPOCH
from simulator.program import GpuRecord, HostRecord, Instance
from simulator.simulate import Sim

QUARTER = 7_889_238 * 1_000_000_000  # Kineto's base time is a multiple of this
CATEGORY = {
    "op": "cpu_op",
    "annotation": "user_annotation",
    "data": "user_annotation",
    "runtime": "cuda_runtime",
    "python": "python_function",
}
GPU_CATEGORY = {"compute": "kernel", "comm": "kernel", "gpu_opaque": "kernel", "gpu_memset": "gpu_memset"}
COLLECTIVE = {
    "allreduce": "allreduce",
    "allgather": "_allgather_base",
    "reduce_scatter": "_reduce_scatter_base",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_allv",
    "broadcast": "broadcast",
}
CUT = 30  # PyTorch cuts rank and split lists after so many entries


@dataclass(frozen=True)
class Style:
    """How a file is written: schema class and layout of the text."""

    schema: str = "D2"
    pretty: bool = True
    gz: bool = False

    @property
    def integer(self) -> bool:
        """Integer microseconds since the epoch."""
        return self.schema < "C"

    @property
    def base(self) -> int:
        """Nanoseconds that times are relative to."""
        return 0 if self.integer else EPOCH // QUARTER * QUARTER

    def us(self, ns: int) -> Any:
        """A duration or a relative time in microseconds as this class writes it."""
        if self.integer:
            return ns // 1000
        return ns // 1000 if ns % 1000 == 0 else float(f"{ns // 1000}.{ns % 1000:03d}")

    def ts(self, ns: int) -> Any:
        """An absolute time."""
        return self.us(ns - self.base)


def write_kineto(sim: Sim, folder: Path, schema: str = "D2", *, gz: bool = False, pretty: bool = True) -> list[Path]:
    """One file per present rank, named as torch.profiler's handler does; returns the paths in rank order."""
    style = Style(schema, pretty, gz)
    folder.mkdir(parents=True, exist_ok=True)
    out = []
    for cap in capture(sim):
        path = folder / f"{cap.host_name}_{cap.pid}.{EPOCH + cap.rank}.pt.trace.json{'.gz' if gz else ''}"
        text = _text(document(sim, cap, style), style).encode()
        path.write_bytes(_gzip(text) if gz else text)
        out.append(path)
    return out


def _gzip(data: bytes) -> bytes:
    """gzip without time stamp and name, so that the same run gives the same bytes."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=9, mtime=0, filename="") as out:
        out.write(data)
    return buffer.getvalue()


def _text(doc: dict[str, Any], style: Style) -> str:
    events = doc.pop("traceEvents")
    if not style.pretty:
        return json.dumps(doc | {"traceEvents": events}, separators=(",", ":"))
    name = doc.pop("traceName")
    head = ",\n  ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in doc.items())
    body = ",\n".join("  " + json.dumps(e) for e in events)
    return f'{{\n  {head},\n  "traceEvents": [\n{body}\n  ],\n  "traceName": {json.dumps(name)}\n}}\n'


def document(sim: Sim, cap: Capture, style: Style) -> dict[str, Any]:
    """The file as a value."""
    doc: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": _devices(sim)}
    if style.schema >= "D1":
        doc |= {"cuda_runtime_version": 12040, "cuda_driver_version": 12040, "cupti_version": 22}
        doc["trace_id"] = f"{sim.job.seed:016X}{cap.rank:016X}"
    doc["distributedInfo"] = _distributed(sim, cap, style)
    if style.schema >= "D2":
        doc["host_name"] = cap.host_name
    doc["displayTimeUnit"] = "ms"
    if not style.integer:
        doc["baseTimeNanoseconds"] = style.base
    doc["traceEvents"] = _events(sim, cap, style)
    doc["traceName"] = f"/tmp/tmp{cap.rank:08d}.json"
    return doc


def _devices(sim: Sim) -> list[dict[str, Any]]:
    one = {
        "totalGlobalMem": 85_094_825_984, "computeMajor": 8, "computeMinor": 0, "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32, "sharedMemPerBlock": 49152,
        "numSms": 108, "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 166912,
        "sharedMemPerMultiprocessor": 167936,
    }  # fmt: skip
    return [{"id": i, "name": sim.job.gpu} | one for i in range(sim.job.ranks // sim.job.hosts)]


def _distributed(sim: Sim, cap: Capture, style: Style) -> dict[str, Any]:
    info: dict[str, Any] = {"backend": "nccl", "rank": cap.rank, "world_size": sim.job.ranks}
    if style.integer:
        return info
    groups = {g.name: g for g in sim.groups[cap.rank].values() if len(g.members) > 1}
    config = [
        {
            "pg_name": g.name, "pg_desc": g.desc, "backend_config": "cuda:nccl", "pg_size": len(g.members),
            "ranks": list(g.members),
        }
        for g in groups.values()
    ]  # fmt: skip
    return info | {"pg_count": len(config), "pg_config": config, "nccl_version": "2.21.5"}


def _events(sim: Sim, cap: Capture, style: Style) -> list[dict[str, Any]]:
    sequence = _sequence(sim.programs[cap.rank].host)
    device = cap.rank % (sim.job.ranks // sim.job.hosts)
    meta = _metadata(cap, style, device)
    external = {h.number: i + 1 for i, h in enumerate(h for h in cap.host if h.row.kind != "runtime")}
    out = [_host_event(cap, h, style, external, sequence) for h in cap.host]
    for gpu in cap.gpu:
        out.append(_gpu_event(cap, gpu, style, external, (device, sequence)))
        flow = {"id": gpu.row.correlation, "cat": "ac2g", "name": "ac2g"}
        call = cap.calls.get(gpu.row.call)
        if call:
            start = {"ph": "s", "pid": cap.pid, "tid": call.row.thread, "ts": style.ts(call.start)}
            out.append(start | flow)
        out.append({"ph": "f", "pid": device, "tid": gpu.row.stream, "ts": style.ts(gpu.start), "bp": "e"} | flow)
    return meta + out + _window(cap, style)


def _sequence(records: list[HostRecord]) -> dict[int, int]:
    """Seq of every instance as this rank counts it: equal on all members, except point to point."""
    out: dict[int, int] = {}
    counts: dict[str, int] = {}
    for instance in (r.instance for r in records):
        if instance:
            counts[instance.group.name] = counts.get(instance.group.name, 0) + 1
            out[id(instance)] = counts[instance.group.name] if instance.p2p else instance.seq
    return out


def _metadata(cap: Capture, style: Style, device: int) -> list[dict[str, Any]]:
    ts = style.ts(cap.start)

    def meta(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
        return {"ph": "M", "name": name, "ts": ts, "pid": pid, "tid": tid, "args": args}

    out = []
    for pid, name, label in ((cap.pid, "python3", "CPU"), (device, "python3", f"GPU {device}")):
        out += [
            meta("process_name", pid, 0, {"name": name}),
            meta("process_labels", pid, 0, {"labels": label}),
            meta("process_sort_index", pid, 0, {"sort_index": pid if label == "CPU" else 5_000_000 + pid}),
        ]
    for thread in sorted({h.row.thread for h in cap.host}):
        out.append(meta("thread_name", cap.pid, thread, {"name": f"thread {thread} (python3)"}))
        out.append(meta("thread_sort_index", cap.pid, thread, {"sort_index": thread}))
    for stream in sorted({g.row.stream for g in cap.gpu}):
        out.append(meta("thread_name", device, stream, {"name": f"stream {stream} {stream}"}))
        out.append(meta("thread_sort_index", device, stream, {"sort_index": stream}))
    return out


def _window(cap: Capture, style: Style) -> list[dict[str, Any]]:
    span = {"ts": style.ts(cap.start), "dur": style.us(cap.end - cap.start)}
    return [
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler"}
        | span
        | {"args": {"Op count": 0}},
        {
            "ph": "i", "s": "g", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces",
            "tid": "Trace PyTorch Profiler", "ts": style.ts(cap.start),
        },
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": style.ts(cap.end)},
    ]  # fmt: skip


def _host_event(
    cap: Capture, host: Host, style: Style, external: dict[int, int], sequence: dict[int, int]
) -> dict[str, Any]:
    row = host.row
    category = CATEGORY.get(row.kind, "cuda_runtime" if row.name.startswith("cuda") else "cpu_op")
    event = {"ph": "X", "cat": category, "name": row.name, "pid": cap.pid, "tid": row.thread}
    event |= {"ts": style.ts(host.start), "dur": style.us(host.end - host.start)}
    if category == "cuda_runtime":
        # class B copies the correlation into External id, a trap that real files set
        ext = row.correlation if style.integer else external.get(row.parent, 0)
        args: dict[str, Any] = {"External id": ext, "cbid": 211, "correlation": row.correlation}
    elif category == "python_function":
        args = {"Python id": host.number, "Python parent id": None, "Ev Idx": host.number}
    else:
        args = {"External id": external[host.number]}
        args |= {} if style.integer else {"Record function id": host.number}
        args["Ev Idx"] = host.number
        if row.instance and row.name == "record_param_comms" and not style.integer:
            args |= _collective(cap.rank, row.instance, style, sequence, on_cpu=True)
    return event | {"args": args}


def _list(numbers: Iterable[int]) -> str:
    """A list as torch writes it: cut after 30 entries."""
    text = [str(x) for x in numbers]
    return f"[{', '.join(text if len(text) <= CUT else [*text[:CUT], '...'])}]"


def _collective(
    rank: int, instance: Instance, style: Style, sequence: dict[int, int], *, on_cpu: bool
) -> dict[str, Any]:
    """Arguments that torch writes for a collective."""
    role = "" if not instance.p2p else "send" if instance.src == rank else "recv"
    members = instance.group.members
    into, out = instance.elements(rank)
    sent, received = instance.splits.get(rank, ([], []))
    args: dict[str, Any] = {
        "Collective name": role or COLLECTIVE[instance.kind],
        "In msg nelems": into,
        "Out msg nelems": out,
        "Group size": len(members),
        "dtype": instance.dtype,
        "In split size": _list(sent),
        "Out split size": _list(received),
        "Process Group Name": instance.group.name,
        "Process Group Description": instance.group.desc,
        "Process Group Ranks": _list(members),
    }
    if style.schema >= "D1":
        args |= {"Rank": members.index(rank), "Seq": sequence[id(instance)]}
    if style.schema >= "D1" or on_cpu:
        stride = members[1] - members[0] if len(members) > 1 else 1
        args |= {"Global rank start": members[0], "Global rank stride": stride}
    if role == "send":
        args["Dst Rank"] = instance.dst
    elif role == "recv":
        args["Src Rank"] = instance.src
    return args


def _gpu_event(
    cap: Capture, gpu: Gpu, style: Style, external: dict[int, int], where: tuple[int, dict[int, int]]
) -> dict[str, Any]:
    row = gpu.row
    device, sequence = where
    span = gpu.stamped_end - gpu.start
    event = {"ph": "X", "cat": GPU_CATEGORY.get(row.cls, "gpu_memcpy"), "name": row.name, "pid": device}
    event |= {"tid": row.stream, "ts": style.ts(gpu.start), "dur": style.us(span)}
    call = cap.calls.get(row.call)
    ext = row.correlation if style.integer else external.get(call.row.parent if call else -1, 0)
    args: dict[str, Any] = {"External id": ext}
    place = {"device": device, "context": 1, "stream": row.stream, "correlation": row.correlation}
    if event["cat"] == "kernel":
        args |= {"queued": 0} | place | _launch_shape(row)
        if row.instance and style.schema >= "D0" and not row.graph:
            args |= _collective(cap.rank, row.instance, style, sequence, on_cpu=False)
        if row.graph:
            args |= {"graph id": 1, "graph node id": row.node}
    else:
        args |= place | {"bytes": row.size, "memory bandwidth (GB/s)": (row.size or 0) / max(span, 1)}
    return event | {"args": args}


def _launch_shape(row: GpuRecord) -> dict[str, Any]:
    return {
        "registers per thread": 96,
        "shared memory": 49152,
        "blocks per SM": round(row.grid[0] / 108, 6),
        "warps per SM": round(row.grid[0] * row.block[0] / 32 / 108, 6),
        "grid": list(row.grid),
        "block": list(row.block),
        "est. achieved occupancy %": 25,
    }
