"""Writer of NCCL debug logs in the grammars of six versions, whole or damaged the way real logs are."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from simulator.capture import Capture, capture
from simulator.comms import ELEMENT, comm_hash, count, operation, peer
from simulator.program import Group, Instance
from simulator.simulate import Sim

VERSIONS = {
    "2.7": "2.7.8+cuda10.2",
    "2.16": "2.16.5+cuda11.8",
    "2.20": "2.20.5+cuda12.4",
    "2.23": "2.23.4+cuda12.6",
    "2.27": "2.27.3+cuda12.9",
    "2.30": "2.30.7+cuda13.0",
}
SUBSYSTEMS = ("INIT", "GRAPH", "NET", "P2P", "COLL", "TUNING")
WRAPPERS = {
    "none": "",
    "srun": "{rank}: ",
    "mpirun": "[1,{rank}]<stdout>:",
    "torchrun": "[rank{rank}]:",
    "ray": "(RayTrainWorker pid={pid}, ip=10.72.7.6) ",
    "stamp": "2025-11-09T15:39:31.043Z ",
    "ansi": "\x1b[0m ",
}
CHANNELS = 2
# PHB (over the host bridge) and PXB (over switches) on the scale of each version
DISTANCES = {"2.7": (4, 3), "2.16": (6, 4), "2.20": (6, 4), "2.23": (6, 4), "2.27": (8, 5), "2.30": (8, 5)}


@dataclass
class Record:
    """One line of one process."""

    time: int
    rank: int
    text: str
    bare: bool = False


@dataclass
class LogTruth:
    """What the log says, to compare a parser's tables with."""

    communicators: dict[int, Group] = field(default_factory=dict)
    """printed commId -> group (versions that print one)"""
    calls: int = 0
    edges: list[tuple[int, int, str]] = field(default_factory=list)
    """(global rank from, to, transport), one per printed edge record"""
    torn: int = 0


def write_nccl_log(
    sim: Sim,
    folder: Path,
    version: str = "2.27",
    *,
    subsystems: tuple[str, ...] = SUBSYSTEMS,
    per: str = "job",
    damage: int = 0,
    wrapper: str = "none",
    stamps: bool = False,
) -> LogTruth:
    """Logs of a run. ``per``: job (one file, interleaved) | process; ``damage``: every n-th record is torn."""
    writer = _Writer(sim, version, subsystems)
    records = sorted(writer.records(), key=lambda r: (r.time, r.rank))
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, list[Record]] = {}
    for record in records:
        host, pid = sim.job.host_name(record.rank), 1234 + record.rank
        name = "nccl.log" if per == "job" else f"nccl.{host}.{pid}.log"
        files.setdefault(name, []).append(record)
    for name, rows in files.items():
        lines = [_line(sim, r, wrapper, stamps and version >= "2.27") for r in rows]
        if damage:
            lines, torn = _tear(lines, damage, sim.job.seed)
            writer.truth.torn += torn
        (folder / name).write_text("\n".join(lines) + "\n")
    return writer.truth


def _line(sim: Sim, record: Record, wrapper: str, stamps: bool) -> str:
    pid = 1234 + record.rank
    front = WRAPPERS[wrapper].format(rank=record.rank, pid=pid)
    if record.bare:
        return front + record.text
    device = record.rank % (sim.job.ranks // sim.job.hosts)
    moment = ""
    if stamps:
        local = datetime.fromtimestamp(record.time // 1_000_000_000, UTC)
        moment = f"[{local:%Y-%m-%d %H:%M:%S}.{record.time % 1_000_000_000 // 1000:06d}] "
    return f"{front}{moment}{sim.job.host_name(record.rank)}:{pid}:{pid} [{device}] NCCL INFO {record.text}"


def _tear(lines: list[str], every: int, seed: int) -> tuple[list[str], int]:
    """Every n-th record is cut; its rest comes after the next record, whose begin follows without a newline."""
    rng, out, i, torn = random.Random(seed), [], 0, 0
    while i < len(lines):
        if i % every == every - 1 and i + 1 < len(lines) and len(lines[i]) > 60:
            at = rng.randrange(len(lines[i]) // 2, len(lines[i]) - 5)
            out += [lines[i][:at] + lines[i + 1], lines[i][at:]]
            torn += 1
            i += 2
        else:
            out.append(lines[i])
            i += 1
    return out, torn


class _Writer:
    """Makes the records of all processes."""

    def __init__(self, sim: Sim, version: str, subsystems: tuple[str, ...]) -> None:
        self.sim, self.version, self.subsystems = sim, version, subsystems
        self.minor = int(version.split(".")[1])
        self.cluster = sim.job.cluster()
        self.staged = self.cluster.net.host_staged
        self.truth = LogTruth()

    def records(self) -> Iterator[Record]:
        """Every record, unordered."""
        for cap in capture(self.sim):
            yield from self._process(cap)
            if "COLL" in self.subsystems or "TUNING" in self.subsystems:
                yield from self._calls(cap)

    # communicators ------------------------------------------------------------------------------------

    def pointer(self, group: Group, rank: int) -> str:
        """The communicator's address in the process of a rank."""
        digest = hashlib.sha256(f"{group.name}/{rank}".encode()).hexdigest()[:9]
        return f"0x55{digest}0"

    def comm_id(self, group: Group) -> int:
        """The printed commId: equal to the communicator hash of NVTX only from 2.26 on."""
        if self.minor >= 26:
            return comm_hash(group)
        return int.from_bytes(hashlib.sha256(f"old {group.name}".encode()).digest()[:8], "big") >> 1

    def bus(self, rank: int) -> str:
        """PCI bus id as NCCL prints it."""
        return f"{16 * (rank % self.cluster.per_host) + 7:x}000"

    def _groups(self, rank: int) -> list[Group]:
        return list({g.name: g for g in self.sim.groups[rank].values() if len(g.members) > 1}.values())

    def _process(self, cap: Capture) -> Iterator[Record]:
        rank, at = cap.rank, cap.start - 2_000_000_000

        def say(text: str, bare: bool = False) -> Record:
            nonlocal at
            at += 10_000
            return Record(at, rank, text, bare)

        if "INIT" in self.subsystems:
            colon = ":" if self.minor >= 24 else " :"
            yield say(f"Bootstrap{colon} Using {'[0]' if self.minor < 10 else ''}eth0:10.0.0.{rank + 1}<0>")
            if self.minor >= 22:
                yield say(f"NCCL version {VERSIONS[self.version]}")
            elif rank == 0:
                yield say(f"NCCL version {VERSIONS[self.version]}", True)
        if "NET" in self.subsystems or "INIT" in self.subsystems:
            for text in self._network(rank):
                yield say(text)
        for group in self._groups(rank):
            for text in self._communicator(group, rank):
                yield say(text)

    def _network(self, rank: int) -> Iterator[str]:
        local = range(self.cluster.per_host)
        nics = sorted({int(self.cluster.nic(r).rpartition(":")[2]) for r in local})
        names = " ".join(f"[{n}]mlx5_{n}:1/IB" for n in nics)
        relaxed = " [RO]" if self.minor >= 12 else " "
        yield f"NET/IB : Using {names}{relaxed}; OOB eth0:10.0.0.{rank + 1}<0>"
        yield "Using network IB"
        if self.minor >= 13:
            for nic in nics:
                yield f"NET/IB : GPU Direct RDMA Enabled for HCA {nic} 'mlx5_{nic}'"
        if self.minor >= 24:
            for nic in nics:
                yield f"NET/IB : Made virtual device [{nic}] name=mlx5_{nic} speed=200000 ndevs=1"
        nic = self.cluster.nic(rank).rpartition(":")[2]
        if self.minor <= 28:
            gpu = self.bus(rank) if self.minor <= 26 else str(rank)
            host_bridge, switch = DISTANCES[self.version]
            verdict, relation = "Enabled", f"{switch} <= {switch}"
            if self.staged:
                verdict, relation = "Disabled", f"{host_bridge} > {switch}"
            read = "" if self.staged else ", read 0"
            yield f"GPU Direct RDMA {verdict} for GPU {gpu} / HCA {nic} (distance {relation}){read}"

    def _communicator(self, group: Group, rank: int) -> Iterator[str]:
        me, n = group.members.index(rank), len(group.members)
        device = rank % self.cluster.per_host
        nvml = f" nvmlDev {device}" if self.minor >= 18 else ""
        front = "ncclCommInitRankConfig " if self.minor >= 23 else ""
        printed = f" commId 0x{self.comm_id(group):x}" if self.minor >= 16 else ""
        if printed:
            self.truth.communicators[self.comm_id(group)] = group
        name = f"{front}comm {self.pointer(group, rank)} rank {me} nranks {n} cudaDev {device}{nvml}"
        name += f" busId {self.bus(rank)}{printed}"
        rank_mark = f"[Rank {me}] " if self.minor >= 29 else ""
        if "INIT" in self.subsystems:
            if self.minor >= 18:
                yield f"{rank_mark}{name} - Init START"
            yield from self._shape(group, rank)
            yield from self._rings(group, me)
        if "GRAPH" in self.subsystems:
            yield f"Pattern 4, crossNic 0, nChannels {CHANNELS}, bw 24.000000/24.000000, type NVL/PXB, sameChannels 1"
        if "P2P" in self.subsystems or "INIT" in self.subsystems:
            yield from self._edges(group, rank)
        if "INIT" in self.subsystems:
            yield from self._ready(me, n, name)
        if "TUNING" in self.subsystems and me == 0 and self.minor >= 18:
            yield from _table()

    def _shape(self, group: Group, rank: int) -> Iterator[str]:
        if self.minor < 20:
            return
        hosts = {self.cluster.host(r) for r in group.members}
        here = [r for r in group.members if self.cluster.host(r) == self.cluster.host(rank)]
        fabric = int(len(hosts) > 1 and not self.cluster.spans(group.members))
        yield (
            f"comm {self.pointer(group, rank)} rank {group.members.index(rank)} nRanks {len(group.members)}"
            f" nNodes {len(hosts)} localRanks {len(here)} localRank {here.index(rank)} MNNVL {fabric}"
        )

    def _ready(self, me: int, n: int, name: str) -> Iterator[str]:
        ring = f", use ring PXN 0 GDR {int(not self.staged)}" if self.minor >= 24 else ""
        if self.minor >= 8:
            yield f"Connected all rings{ring}"
            yield "Connected all trees"
        middle = "0 collnet channels, 0 nvls channels, " if self.minor >= 20 else ""
        yield f"{CHANNELS} coll channels, {middle}{CHANNELS} p2p channels, {CHANNELS} p2p channels per peer"
        yield f"{name} - Init COMPLETE"
        if self.minor >= 23:
            yield (
                f"Init timings - ncclCommInitRankConfig: rank {me} nranks {n} total 2.34 (kernels 0.39, alloc 1.63,"
                " bootstrap 0.23, allgathers 0.00, topo 0.02, graphs 0.04, connections 0.01, rest 0.00)"
            )

    def _rings(self, group: Group, me: int) -> Iterator[str]:
        for channel in range(CHANNELS):
            ring = self._ring(group, channel)
            at = ring.index(me)
            if me == 0:
                order = " ".join(f"{r:3d}" for r in ring) if self.minor < 23 else " ".join(map(str, ring))
                yield f"Channel {channel:02d}/{CHANNELS:02d} : {order}"
            if "GRAPH" in self.subsystems and self.minor >= 10:
                yield f"Ring {channel:02d} : {ring[at - 1]} -> {me} -> {ring[(at + 1) % len(ring)]}"
        up, down = (me - 1 if me else -1), (me + 1 if me + 1 < len(group.members) else -1)
        tree = f"{down}/-1/-1->{me}->{up}"
        if self.minor < 8:
            tree += f"|{up}->{me}->{down}/-1/-1"
        yield "Trees " + " ".join(f"[{c}] {tree}" for c in range(CHANNELS))

    # edges --------------------------------------------------------------------------------------------

    def _ring(self, group: Group, channel: int) -> list[int]:
        """Ranks of the communicator in ring order: host by host, rotated inside a host per channel."""
        out: list[int] = []
        for host in sorted({self.cluster.host(r) for r in group.members}):
            local = [i for i, r in enumerate(group.members) if self.cluster.host(r) == host]
            turn = channel % len(local)
            out += local[turn:] + local[:turn]
        return out

    def _edges(self, group: Group, rank: int) -> Iterator[str]:
        me = group.members.index(rank)
        for channel in range(CHANNELS):
            ring = self._ring(group, channel)
            at = ring.index(me)
            before, after = ring[at - 1], ring[(at + 1) % len(ring)]
            if self._remote(group, before, me):
                yield self._edge(group, channel, (before, me), "receive")
            yield self._edge(group, channel, (me, after), "send")

    def _remote(self, group: Group, a: int, b: int) -> bool:
        return self.cluster.domain(group.members[a]) != self.cluster.domain(group.members[b])

    def _edge(self, group: Group, channel: int, pair: tuple[int, int], direction: str) -> str:
        source, target = (group.members[i] for i in pair)
        net = self._remote(group, *pair)
        transport = self._transport(source, target, net)
        self.truth.edges.append((source, target, transport))
        boxes = [self.bus(r) if self.minor < 18 else str(r % self.cluster.per_host) for r in (source, target)]
        slash = "/0" if (self.minor >= 12 if net else self.minor >= 14 and not transport.startswith("SHM")) else ""
        where = f" [{direction}]" if net else ""
        return f"Channel {channel:02d}{slash} : {pair[0]}[{boxes[0]}] -> {pair[1]}[{boxes[1]}]{where} via {transport}"

    def _transport(self, source: int, target: int, net: bool) -> str:
        if net:
            nic = self.cluster.nic(source).rpartition(":")[2]
            return f"NET/IB/{nic}" + ("" if self.staged else "/GDRDMA")
        if self.cluster.host(source) != self.cluster.host(target):
            return "P2P/MNNVL"
        if self.staged:
            return (
                "direct shared memory"
                if self.minor <= 12
                else "SHM/direct"
                if self.minor >= 30
                else "SHM/direct/direct"
            )
        return "P2P/CUMEM" if self.minor >= 18 else "P2P/IPC"

    # calls --------------------------------------------------------------------------------------------

    def _calls(self, cap: Capture) -> Iterator[Record]:
        counts: dict[str, int] = {}
        for host in cap.host:
            instance = host.row.instance
            if instance is None:
                continue
            group = instance.group
            number = counts[group.name] = counts.get(group.name, 0) + 1
            proxied = self.minor <= 12 or self.staged or self.cluster.spans(group.members)
            for text in self._call(instance, cap.rank, number - 1 if proxied else 0):
                yield Record(host.start, cap.rank, text)

    def _call(self, instance: Instance, rank: int, op_count: int) -> Iterator[str]:
        n, per_call = len(instance.group.members), count(instance)
        calls = [(operation(instance, rank), peer(instance, rank) if instance.p2p else 0, per_call)]
        if rank in instance.splits:  # torch leaves out empty ones
            ways = zip(("Send", "Recv"), instance.splits[rank], strict=True)
            calls = [(name, q, size) for name, sizes in ways for q, size in enumerate(sizes) if size]
        elif calls[0][0] == "AlltoAll" and self.minor < 28:  # a group of sends and receives
            calls = [(name, q, per_call) for q in range(n) for name in ("Send", "Recv")]
        for name, root, elements in calls:
            if "COLL" in self.subsystems:
                send = "(nil)" if name == "Recv" or (name == "Send" and self.minor >= 12) else "0x7f10a0000000"
                receive = "(nil)" if name == "Send" and 8 <= self.minor < 12 else "0x7f10b0000000"
                self.truth.calls += 1
                yield (
                    f"{name}: opCount {op_count:x} sendbuff {send} recvbuff {receive} count {elements} datatype"
                    f" {9 if self.minor >= 10 else 6} op 0 root {root} comm {self.pointer(instance.group, rank)}"
                    f" [nranks={n}] stream 0x55d0c0ffee00"
                )
        if "TUNING" in self.subsystems:
            yield from self._choice(instance, rank, calls[0][0])

    def _choice(self, instance: Instance, rank: int, name: str) -> Iterator[str]:
        """What NCCL chose for the call, printed from 2.20 on."""
        if self.minor < 20 or name in ("Send", "Recv"):
            return
        if self.minor >= 24:
            size = count(instance) * ELEMENT
            yield f"{name}: {size} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..{CHANNELS - 1}}}"
        elif rank == instance.group.members[0]:
            front = f"{name}: " if self.minor >= 23 else ""
            yield f"{front}{instance.size} Bytes -> Algo 1 proto 2 time {instance.size / 24_000:.6f}"


def _table() -> Iterator[str]:
    """NCCL's own expectation per algorithm and protocol: latency in us, bandwidth in GB/s."""
    yield "  Algorithm   |" + "|".join(f"{a:^50}" for a in ("Tree", "Ring")) + "|"
    yield "  Protocol    |" + "|".join(f"{p:>15} " for p in ("LL", "LL128", "Simple") * 2) + "|"
    yield " Max NThreads |" + "|".join(f"{t:>15} " for t in (512, 640, 512) * 2) + "|"
    for name in ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"):
        tree = [(20.4, 9.6), (38.5, 18.0), (60.4, 20.0)] if name == "AllReduce" else [(0.0, 0.0)] * 3
        cells = [*tree, (28.2, 8.5), (46.0, 20.1), (120.4, 22.0)]
        yield f"{name:>13} |" + "|".join(f"{lat:8.1f}/{bw:6.1f} " for lat, bw in cells) + "|"
