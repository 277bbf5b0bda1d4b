"""Writer of Nsight Systems SQLite exports: one report per host (or rank), several schema versions."""

from __future__ import annotations

import json
import sqlite3
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from simulator import nsight_schema as schema
from simulator.capture import Capture, Gpu, Host, capture
from simulator.comms import ELEMENT, comm_hash, count, operation, peer
from simulator.program import Group, Instance
from simulator.simulate import Sim

LEAD = 1_000_000_000  # the session begins this long before the first record
VM = 1 << 48
FIRST_SCHEMA = 0x1000000
SCHEMAS = {
    "CommInitRank": 0, "AllGather": 4, "AllReduce": 5, "Broadcast": 6, "ReduceScatter": 7, "Reduce": 8, "Send": 9,
    "Recv": 10, "AlltoAll": 16,
}  # fmt: skip
COMM, SIZE, REDUCTION = "NCCL communicator ID", "Message size [bytes]", "Reduction operation"
U64, SIZE_T, INT, ENUM = 18, 22, 5, FIRST_SCHEMA + 16
_RANKS = ((COMM, U64, 0), ("No. of ranks", INT, 8), ("Rank", INT, 12), ("CUDA device", INT, 16))
_SIZED = ((COMM, U64, 0), (SIZE, SIZE_T, 8))
FIELDS = {
    "CommInitRank": _RANKS,
    "AllReduce": (*_SIZED, (REDUCTION, ENUM, 16)),
    "ReduceScatter": (*_SIZED, (REDUCTION, ENUM, 16)),
    "AllGather": _SIZED,
    "AlltoAll": _SIZED,
    "Broadcast": (*_SIZED, ("Root", INT, 16)),
    "Send": (*_SIZED, ("Peer rank", INT, 16)),
    "Recv": (*_SIZED, ("Peer rank", INT, 16)),
}
API = {"cudaLaunchKernel": "_v7000", "cudaLaunchKernelExC": "_v11060", "cudaGraphLaunch": "_v10000"}
COPIES = {"pcie_h2d": 1, "pcie_d2h": 2, "gpu_d2d": 8}
MEMORY = {"pageable": 0, "pinned": 1}
SYNC_TYPES = {"cudaEventSynchronize": 1, "cudaStreamSynchronize": 3, "cudaDeviceSynchronize": 4}
METRICS = ("SMs Active [Throughput %]", "PCIe RX Throughput [Throughput %]", "NVLink TX Responses User Data")


@dataclass
class Report:
    """Rows of one report, and its string table (ids are sparse, as in real reports)."""

    version: str
    start: int
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    strings: dict[str, int] = field(default_factory=dict)

    def add(self, table: str, **row: Any) -> None:
        """A row; columns that the version lacks are left out on writing."""
        self.rows.setdefault(table, []).append(row)

    def text(self, value: str) -> int:
        """The id of a string."""
        return self.strings.setdefault(value, 7 + 3 * len(self.strings))

    def write(self, path: Path) -> None:
        """Create the SQLite file; tables without rows are not created."""
        for value, number in self.strings.items():
            self.add("StringIds", id=number, value=value)
        declared = schema.tables(self.version)
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as out:
            for table, rows in self.rows.items():
                if table not in declared:
                    continue
                columns = declared[table]
                out.execute(schema.ddl(table, columns))
                empty = {name: None if not need else "" if kind == "TEXT" else 0 for name, kind, need in columns}
                values = [[row.get(name, empty[name]) for name in empty] for row in rows]
                out.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(columns))})", values)
        out.close()


def write_nsight(
    sim: Sim,
    folder: Path,
    version: str = "2026.1",
    *,
    per: str = "host",
    payload: str = "blob",
    metrics: bool = False,
) -> list[Path]:
    """Reports of a run. ``per``: host | rank; ``payload``: blob | hex | json | none. Returns the paths in order."""
    folder.mkdir(parents=True, exist_ok=True)
    by_report: dict[str, list[Capture]] = {}
    for cap in capture(sim):
        key = f"{cap.host_name}" if per == "host" else f"report.{cap.rank}"
        by_report.setdefault(key, []).append(cap)
    out = []
    for name, caps in by_report.items():
        report = Report(version, min(c.start for c in caps) - LEAD)
        _session(report, sim, caps)
        for cap in caps:
            _Process(report, sim, cap, payload).write()
            if metrics:
                _metrics(report, sim, cap)
        out.append(folder / f"{name}.sqlite")
        report.write(out[-1])
    return out


def _session(report: Report, sim: Sim, caps: list[Capture]) -> None:
    """What the report says of itself and of the machine."""
    moment = datetime.fromtimestamp(report.start // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    report.add(
        "TARGET_INFO_SESSION_START_TIME", utcEpochNs=report.start, utcTime=moment, localTime=moment,
        systemClockNs=515_396_806_359_142,
    )  # fmt: skip
    last = max(c.end for c in caps) - report.start
    report.add("ANALYSIS_DETAILS", globalVid=VM, duration=last, startTime=515_396_806_359_142, stopTime=0)
    info = {"Hostname": caps[0].host_name, "NvDriverVersion": "550.54.15", "CudaDriverVersion": "12040"}
    for number, (name, value) in enumerate(info.items()):
        report.add(
            "TARGET_INFO_SYSTEM_ENV",
            globalVid=VM,
            devStateName="Local (CLI)",
            name=name,
            nameEnum=number,
            value=value,
        )
    pair = schema.VERSIONS[report.version]
    if pair:
        parts = zip(("MAJOR", "MINOR", "MICRO"), pair[1].split("."), strict=True)
        facts = {"EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems", "EXPORT_PRODUCT_VERSION": pair[0]}
        facts |= {"EXPORT_SCHEMA_VERSION": pair[1]} | {f"EXPORT_SCHEMA_VERSION_{k}": v for k, v in parts}
        facts |= {"EXPORT_PARAM_LAZY": "true", "EXPORT_PARAM_INCLUDE_BLOBS": "true"}
        for name, value in facts.items():
            report.add("META_DATA_EXPORT", name=name, value=value)
        for name, value in _capture_facts(sim, caps):
            report.add("META_DATA_CAPTURE", name=name, value=value)
    for table, names, prefix in (
        ("ENUM_CUDA_MEMCPY_OPER", schema.MEMCPY_OPER, "CUDA_MEMCPY_KIND"),
        ("ENUM_CUDA_MEM_KIND", schema.MEM_KIND, "CUDA_MEMOPR_MEMORY_KIND"),
    ):
        for number, name in enumerate(names):
            report.add(table, id=number, name=f"{prefix}_{name}", label=name.title())
    report.add("DIAGNOSTIC_EVENT", timestampType=1, source=3, severity=1, text="Profiling has started.")
    for device in range(sim.job.ranks // sim.job.hosts):
        report.add(
            "TARGET_INFO_GPU", vmId=VM, id=device, name=sim.job.gpu, busLocation=f"0000:{16 * device + 7:02x}:00.0",
            isDiscrete=1, totalMemory=85_094_825_984, smCount=108, cuDevice=device, uuid=f"gpu-{device}",
            computeMajor=8, smMajor=8, chipName="GA100", threadsPerWarp=32,
        )  # fmt: skip


def _capture_facts(sim: Sim, caps: list[Capture]) -> list[tuple[str, str]]:
    graphs = any(g.row.cls == "gpu_opaque" for c in caps for g in c.gpu)
    facts = [("CAPTURE_EVENT_TYPE", "NvtxEvents"), ("CAPTURE_EVENT_TYPE", "Cuda")]
    facts += [("CUDA_GRAPH_TRACE_OPTIONS:MODE", "Graph" if graphs else "Node"), ("PROCESS_0:COMMAND", "python3")]
    env = {"WORLD_SIZE": str(sim.job.ranks), "NCCL_DEBUG": "INFO", "HOME": "/root"}
    if len(caps) == 1:
        env["RANK"] = str(caps[0].rank)
    return facts + [("PROCESS_0:ENVIRONMENT_VARIABLE", f'{k}="{v}"') for k, v in env.items()]


class _Process:
    """Rows of one process of a report."""

    def __init__(self, report: Report, sim: Sim, cap: Capture, payload: str) -> None:
        self.report, self.sim, self.cap, self.payload = report, sim, cap, payload
        self.pid = VM | cap.pid << 24
        self.device = cap.rank % (sim.job.ranks // sim.job.hosts)
        self.stamp = {"globalPid": self.pid, "contextId": 1, "deviceId": self.device}

    def write(self) -> None:
        """All rows."""
        report, cap = self.report, self.cap
        report.add("PROCESSES", globalPid=self.pid, pid=cap.pid, name="python3")
        report.add(
            "TARGET_INFO_CUDA_DEVICE", gpuId=self.device, cudaId=self.device, pid=cap.pid, numMultiprocessors=108
        )
        report.add(
            "TARGET_INFO_CUDA_CONTEXT_INFO",
            nullStreamId=7,
            vmId=1,
            processId=cap.pid,
            deviceId=self.device,
            contextId=1,
        )
        for thread in sorted({h.row.thread for h in cap.host}):
            name = "python3" if thread == min(h.row.thread for h in cap.host) else "pt_autograd_0"
            report.add("ThreadNames", nameId=report.text(name), priority=20, globalTid=self.pid | thread)
        self._domain()
        for host in cap.host:
            self._host(host)
        for gpu in cap.gpu:
            self._gpu(gpu)

    def _nvtx(self, start: int, end: int | None, kind: int, thread: int, **what: Any) -> None:
        self.report.add(
            "NVTX_EVENTS", start=start, end=end, eventType=kind, globalTid=self.pid | thread,
            **({"domainId": 0} | what),
        )  # fmt: skip

    def _domain(self) -> None:
        """The NCCL domain of the process, its payload schemas, and its communicators."""
        main = self.cap.host[0].row.thread
        self._nvtx(-5_000, None, 75, main, text="NCCL", domainId=1)
        for name, entries in FIELDS.items():
            number = FIRST_SCHEMA + SCHEMAS[name]
            self.report.add(
                "NVTX_PAYLOAD_SCHEMAS", domainId=1, schemaId=number, type=1, numEntries=len(entries), payloadSize=24
            )
            for index, (label, kind, offset) in enumerate(entries):
                self.report.add(
                    "NVTX_PAYLOAD_SCHEMA_ENTRIES", domainId=1, schemaId=number, idx=index, type=kind, name=label,
                    offset=offset or None,
                )  # fmt: skip
        groups = {g.name: g for g in self.sim.groups[self.cap.rank].values() if len(g.members) > 1}
        for i, group in enumerate(groups.values()):
            start = LEAD // 2 + 1_000_000 * i
            values = (comm_hash(group), len(group.members), group.members.index(self.cap.rank), self.device)
            self._nvtx(
                start, start + 900_000, 59, main, domainId=1, textId=self.report.text("ncclCommInitRank"),
                **self._payload("CommInitRank", values),
            )  # fmt: skip

    def _payload(self, name: str, values: tuple[int, ...]) -> dict[str, Any]:
        if self.payload == "none":
            return {}
        fields = FIELDS[name]
        if self.payload == "json":
            return {"jsonText": json.dumps({label: v for (label, _, _), v in zip(fields, values, strict=True)})}
        body = bytearray(24)
        for (_, kind, offset), value in zip(fields, values, strict=True):
            struct.pack_into("<Q" if kind in (U64, SIZE_T) else "<i", body, offset, value)
        raw = struct.pack("<QQQQ", 1, FIRST_SCHEMA + SCHEMAS[name], len(body), 32) + bytes(body)
        return {"binaryData": raw.hex() if self.payload == "hex" else raw}

    def _host(self, host: Host) -> None:
        row, report = host.row, self.report
        start, end = host.start - report.start, host.end - report.start
        tid = self.pid | row.thread
        if row.name.startswith("cuda"):
            name = row.name + API.get(row.name, "_v3020")
            report.add(
                "CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, globalTid=tid, correlationId=row.correlation,
                nameId=report.text(name), returnValue=0,
            )  # fmt: skip
            if row.name in SYNC_TYPES:
                report.add(
                    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=start, end=end, streamId=7,
                    correlationId=row.correlation, syncType=SYNC_TYPES[row.name], eventId=4294967295, **self.stamp,
                )  # fmt: skip
        elif row.name.startswith("ProfilerStep#"):
            self._nvtx(start, end, 59, row.thread, text=f"step {row.name.partition('#')[2]}")
        else:
            text = f"{row.name}, op_id = {host.number}" if row.kind == "op" else row.name
            self._nvtx(start, end, 59, row.thread, text=text)

    def _call(self, host: Host, instance: Instance) -> None:
        """The NCCL call around a launch; of an all-to-all-v its sends and receives, and the end of their group."""
        rank, name = self.cap.rank, operation(instance, self.cap.rank)
        start, end = host.start - self.report.start, host.end - self.report.start
        if rank in instance.splits:
            self._range(start - 40, start - 39, host, "GroupStart")
            ways = zip(("Send", "Recv"), instance.splits[rank], strict=True)
            calls = [
                (way, p, n) for way, sizes in ways for p, n in enumerate(sizes) if n
            ]  # torch leaves out empty ones
            for i, (way, p, n) in enumerate(calls):
                values = (comm_hash(instance.group), n * ELEMENT, p)
                self._range(start - 38 + i, start - 37 + i, host, way, **self._payload(way, values))
            self._range(start, end, host, "GroupEnd")
            return
        values: tuple[int, ...] = (comm_hash(instance.group), count(instance) * ELEMENT)
        if len(FIELDS[name]) == 3:
            values += (peer(instance, rank) if instance.p2p else 0,)
        self._range(start, end, host, name, **self._payload(name, values))

    def _range(self, start: int, end: int, host: Host, name: str, **payload: Any) -> None:
        """A range of the NCCL domain."""
        text = self.report.text(f"nccl{name}")
        self._nvtx(start, end, 59, host.row.thread, domainId=1, textId=text, **payload)

    def _gpu(self, gpu: Gpu) -> None:
        row, report = gpu.row, self.report
        span = {"start": gpu.start - report.start, "end": gpu.stamped_end - report.start, "streamId": row.stream}
        span |= {"correlationId": row.correlation} | self.stamp
        call = self.cap.calls.get(row.call)
        if row.instance and call and not row.graph:
            self._call(call, row.instance)
        if row.cls == "gpu_opaque":
            report.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", graphId=1, graphExecId=2, **span)
        elif row.cls in COPIES:
            host, device = MEMORY.get(row.mem or "", 7), 2
            source, target = (host, device) if row.cls == "pcie_h2d" else (device, host)
            if row.cls == "gpu_d2d":
                source = target = device
            report.add(
                "CUPTI_ACTIVITY_KIND_MEMCPY", bytes=row.size or 0, copyKind=COPIES[row.cls], srcKind=source,
                dstKind=target, copyCount=1, **span,
            )  # fmt: skip
        else:
            short = row.name.removeprefix("void ").partition("<")[0].partition("(")[0].rpartition("::")[2]
            grid = dict(zip(("gridX", "gridY", "gridZ"), row.grid, strict=True))
            block = dict(zip(("blockX", "blockY", "blockZ"), row.block, strict=True))
            report.add(
                "CUPTI_ACTIVITY_KIND_KERNEL", demangledName=report.text(row.name), shortName=report.text(short),
                mangledName=report.text(short), registersPerThread=96, gridId=row.node,
                graphNodeId=row.node if row.graph else None, **span, **grid, **block,
            )  # fmt: skip


def _metrics(report: Report, sim: Sim, cap: Capture) -> None:
    """GPU metrics every 10 ms: how much of the interval computed, and what the PCIe link received, in percent."""
    device = cap.rank % (sim.job.ranks // sim.job.hosts)
    kind = 0x7AE800000000 | device
    for number, name in enumerate(METRICS):
        report.add(
            "TARGET_INFO_GPU_METRICS", typeId=kind, sourceId=1, typeName=f"GPU Metrics [{device}]", metricId=number,
            metricName=name,
        )  # fmt: skip
    step = 10_000_000
    for lo in range(cap.start, cap.end, step):
        values = [_share(cap, lo, lo + step, "compute"), _share(cap, lo, lo + step, "pcie_h2d"), 0]
        for number, value in enumerate(values):
            report.add(
                "GPU_METRICS", rawTimestamp=lo, timestamp=lo + step - report.start, typeId=kind, metricId=number,
                value=value,
            )  # fmt: skip


def _share(cap: Capture, lo: int, hi: int, cls: str) -> int:
    """Percent of [lo, hi) in which a class was active (its records do not overlap)."""
    busy = sum(max(0, min(g.end, hi) - max(g.start, lo)) for g in cap.gpu if g.row.cls == cls)
    return round(100 * busy / (hi - lo))


def communicators(sim: Sim) -> dict[int, Group]:
    """Communicator id -> group, over all ranks."""
    return {comm_hash(g): g for groups in sim.groups for g in groups.values() if len(g.members) > 1}
