"""A training job and the faults that can be injected into it: plain values, nothing computed."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.network import Cluster, Network

US, MS = 1_000, 1_000_000
EPOCH = 1_700_000_000 * 1_000_000_000  # UTC begin of every simulated run, ns


class Fault:
    """Base of all faults."""


@dataclass(frozen=True)
class SlowRank(Fault):
    """Compute of a rank takes ``factor`` times as long, from a step on, growing by ``drift`` a step."""

    rank: int
    factor: float
    from_step: int = 0
    drift: float = 0.0


@dataclass(frozen=True)
class SlowNode(Fault):
    """Compute of all ranks of a host takes ``factor`` times as long."""

    host: int
    factor: float


@dataclass(frozen=True)
class SlowLink(Fault):
    """A link (``nv:3``, ``pcie:0``, ``nic:1:0``, ``spine``) has ``factor`` of its capacity."""

    link: str
    factor: float


@dataclass(frozen=True)
class LossyNic(Fault):
    """Every ``every``-th transfer that leaves the host takes ``extra_ns`` longer (retransmission)."""

    host: int
    every: int
    extra_ns: int


@dataclass(frozen=True)
class SharedNic(Fault):
    """Two GPUs share one NIC on every host."""


@dataclass(frozen=True)
class HostStaged(Fault):
    """NCCL moves data through host memory (SHM, NET without GPUDirect)."""


@dataclass(frozen=True)
class PageableCopies(Fault):
    """Input batches are copied from pageable memory, on the compute stream, the host waits."""


@dataclass(frozen=True)
class SlowLoader(Fault):
    """``next(loader)`` takes this long on the ranks (None: all)."""

    ns: int
    ranks: tuple[int, ...] | None = None


@dataclass(frozen=True)
class HostPauses(Fault):
    """The Python thread stops for ``ns`` (garbage collection) in a random phase of every ``every``-th step."""

    ns: int
    every: int = 3
    ranks: tuple[int, ...] | None = None


@dataclass(frozen=True)
class AllocatorStorm(Fault):
    """cudaFree and cudaMalloc of ``ns`` in every step of a rank; cudaFree waits for the device."""

    rank: int
    ns: int


@dataclass(frozen=True)
class Checkpoint(Fault):
    """After a step all ranks wait for the device, copy state to the host and write it for ``ns``."""

    step: int
    ns: int


@dataclass(frozen=True)
class LaunchBound(Fault):
    """The host needs ``ns`` for every operator around a launch."""

    ns: int


@dataclass(frozen=True)
class HostReads(Fault):
    """``.item()`` so many times in the forward pass of every step."""

    per_step: int


@dataclass(frozen=True)
class StageImbalance(Fault):
    """Layers of a pipeline stage take ``factor`` times as long."""

    stage: int
    factor: float


@dataclass(frozen=True)
class ExpertImbalance(Fault):
    """Rank r gets the share ``load[r]`` of the tokens (1.0 = even)."""

    load: tuple[float, ...]


@dataclass(frozen=True)
class Routing(Fault):
    """Experts of rank r receive ``load[r]`` of the tokens (relative; 1.0 for all = even), told by the all-to-all-v.

    ``moves``: the loads go one rank on with every ``step`` or every ``layer``. ``same_grid``: expert kernels have one
    launch configuration whatever they compute (persistent ones). ``fixed``: share of their time that is not tokens.
    """

    load: tuple[float, ...]
    moves: str = ""
    same_grid: bool = True
    fixed: float = 0.0

    def shares(self, members: tuple[int, ...], step: int, layer: int) -> dict[int, float]:
        """Tokens of each rank of an expert group over the mean of the group."""
        n, by = len(members), {"step": step, "layer": layer}.get(self.moves, 0)
        load = {r: self.load[members[(i - by) % n]] for i, r in enumerate(members)}
        return {r: x * n / sum(load.values()) for r, x in load.items()}


@dataclass(frozen=True)
class SingleQueue(Fault):
    """One hardware queue: an operation cannot start before the one launched before it has started."""


@dataclass(frozen=True)
class ClockOffset(Fault):
    """The clock of a host shows ``ns`` more than true time."""

    host: int
    ns: int


@dataclass(frozen=True)
class ClockDrift(Fault):
    """The clock of a host runs slow by ``ppb`` (true = local + ppb * 1e-9 * elapsed local)."""

    host: int
    ppb: int


@dataclass(frozen=True)
class AxisShift(Fault):
    """Host stamps of a rank are ``ns`` later than its GPU stamps."""

    rank: int
    ns: int


@dataclass(frozen=True)
class LateStart(Fault):
    """The profiler of a rank starts after its first ``steps`` steps and ``ns`` more."""

    rank: int
    steps: int
    ns: int = 0


@dataclass(frozen=True)
class MissingRanks(Fault):
    """No file of these ranks."""

    ranks: tuple[int, ...]


@dataclass(frozen=True)
class MissingFirstCollectives(Fault):
    """The first ``count`` collective kernels of a rank are not in its record."""

    rank: int
    count: int


@dataclass(frozen=True)
class DroppedStart(Fault):
    """The first ``count`` GPU records of a rank are lost at the begin of the session."""

    rank: int
    count: int


@dataclass(frozen=True)
class OverflowedDurations(Fault):
    """The last ``count`` compute kernels of a rank carry an impossible duration of ``ns``."""

    rank: int
    count: int
    ns: int = 4_294_967_295


@dataclass(frozen=True)
class CudaGraphs(Fault):
    """The forward pass is one graph launch; ``node`` records its kernels, ``graph`` one interval."""

    mode: str = "node"


@dataclass(frozen=True)
class Job:
    """A training job. Times in ns; ``tick`` makes every time a multiple of itself (1,000 for integer-us formats).

    ``layout``: dp, fsdp, tp, pp or ep; ranks are ordered tensor, then data, then pipeline parallel.
    """

    layout: str = "dp"
    ranks: int = 4
    hosts: int = 1
    steps: int = 5
    faults: tuple[Fault, ...] = ()
    seed: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 0
    """ranks of an expert group; 0 = all"""
    layers: int = 6
    kernels: int = 3
    """per layer and pass"""
    layer_ns: int = 3 * MS
    """forward compute of a layer; backward takes twice as long"""
    layer_bytes: int = 48_000_000
    """parameters of a layer"""
    activation_bytes: int = 16_000_000
    micro_batches: int = 4
    grad_norm: bool = False
    """all ranks reduce the norm of the gradients before the optimizer"""
    accumulate: int = 1
    buckets: int = 3
    jitter: float = 0.002
    end_jitter_ns: int = 0
    """members of a collective end up to this much apart"""
    loader_ns: int = 150 * US
    batch_bytes: int = 12_000_000
    launch_ns: int = 5 * US
    latency_ns: int = 4 * US
    gap_ns: int = 1 * US
    op_ns: int = 4 * US
    queue_limit: int = 1024
    tick: int = 1
    net: Network = field(default_factory=Network)
    host_names: str = "node-{}"
    framework: str = "torch"
    gpu: str = "NVIDIA A100-SXM4-80GB"

    def find(self, kind: type[Fault]) -> list[Fault]:
        """All faults of a kind."""
        return [f for f in self.faults if isinstance(f, kind)]

    @property
    def dp(self) -> int:
        """Data-parallel degree."""
        return self.ranks // (self.tp * self.pp)

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """(tensor, data, pipeline) coordinates of a rank."""
        return rank % self.tp, rank // self.tp % self.dp, rank // (self.tp * self.dp)

    def cluster(self) -> Cluster:
        """The cluster with its network faults applied."""
        slowed = dict(self.net.slowed)
        for fault in self.find(SlowLink):
            slowed[fault.link] = slowed.get(fault.link, 1.0) * fault.factor
        per_host = self.ranks // self.hosts
        nics = max(1, per_host // 2) if self.find(SharedNic) else self.net.nics_per_host
        staged = bool(self.find(HostStaged)) or self.net.host_staged
        values = self.net.__dict__ | {"slowed": slowed, "nics_per_host": nics, "host_staged": staged}
        return Cluster(self.ranks, self.hosts, Network(**values))

    def host_of(self, rank: int) -> int:
        """Host number of a rank."""
        return rank // (self.ranks // self.hosts)

    def host_name(self, rank: int) -> str:
        """Host name of a rank, counted from 1."""
        return self.host_names.format(self.host_of(rank) + 1)

    def compute_factor(self, rank: int, step: int) -> float:
        """By how much the compute of a rank is longer in a step."""
        factor = 1.0
        for f in self.find(SlowRank):
            if f.rank == rank and step >= f.from_step:
                factor *= f.factor + f.drift * (step - f.from_step)
        for f in self.find(SlowNode):
            factor *= f.factor if f.host == self.host_of(rank) else 1.0
        for f in self.find(StageImbalance):
            factor *= f.factor if self.coordinates(rank)[2] == f.stage else 1.0
        return factor

    def ticks(self, ns: float) -> int:
        """Round to the tick, at least one."""
        return max(self.tick, round(ns / self.tick) * self.tick)
