"""A training job as programs of its ranks: what each layout computes, communicates and waits for."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field

from simulator import job as faults
from simulator.engine import Graph, Transfer
from simulator.job import Job
from simulator.program import COMM, COMPUTE, COPY, GRADS, P2P, GpuRecord, Group, Instance, RankProgram

NAMES = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "allgather": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "alltoall": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "alltoallv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "sendrecv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
}
FORWARD = (
    ("aten::linear", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"),
    (
        "aten::_flash_attention_forward",
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>",
    ),
    ("aten::add", "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>"),
)
BACKWARD = (
    ("MmBackward0", "ampere_bf16_s16816gemm_bf16_256x64_ldg8_f2f_stages_64x3_nt"),
    (
        "FlashAttentionBackward0",
        "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8>>",
    ),
    ("AddBackward0", "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, float>>"),
)
ADAM = "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>"
FLAT = "void at::native::CatArrayBatchedCopy<at::native::OpaqueType<2u>, unsigned int, 2, 64, 64>"


Splits = dict[int, tuple[list[int], list[int]]]


@dataclass
class Exchange:
    """All collectives of the job; ranks meet in the same instance by (group, channel, number)."""

    job: Job
    cluster: object
    found: dict[tuple[object, ...], Instance] = field(default_factory=dict)
    counts: dict[tuple[object, ...], int] = field(default_factory=dict)
    transfers: int = 0

    def next(
        self,
        rank: int,
        group: Group,
        kind: str,
        size: int,
        edge: tuple[int, int] | None = None,
        splits: Splits | None = None,
    ) -> Instance:
        """The instance that ``rank`` launches next in the group (or on the p2p channel ``edge`` = src, dst)."""
        channel = (group.name, group.members, edge)
        number = self.counts[(channel, rank)] = self.counts.get((channel, rank), 0) + 1
        key = (channel, number)
        if key not in self.found:
            members = edge or group.members
            parts = {r: 2 * max(sum(a), sum(b)) for r, (a, b) in splits.items()} if splits else None
            transfer = Transfer(
                latency=self.cluster.latency(members), loads=self.cluster.loads(kind, members, size, parts)
            )
            instance = Instance(group, kind, number, size, transfer, splits=splits or {})
            if edge:
                instance.src, instance.dst = edge
            self.found[key] = instance
        return self.found[key]

    def lossy(self) -> None:
        """Retransmissions: every n-th transfer that leaves a host gets its extra time."""
        for fault in self.job.find(faults.LossyNic):
            count = 0
            for instance in self.found.values():
                members = (instance.src, instance.dst) if instance.p2p else instance.group.members
                hosts = {self.job.host_of(r) for r in members}
                if fault.host in hosts and len(hosts) > 1:
                    count += 1
                    if count % fault.every == 0:
                        instance.transfer.latency += fault.extra_ns


class Trainer:
    """Writes the program of one rank, step by step."""

    def __init__(self, job: Job, rank: int, graph: Graph, exchange: Exchange, groups: dict[str, Group]) -> None:
        self.job, self.rank, self.exchange, self.groups = job, rank, exchange, groups
        self.p = RankProgram(graph, rank, launch_ns=job.launch_ns, latency_ns=job.latency_ns)
        self.p.gap_ns, self.p.queue_limit = job.gap_ns, job.queue_limit
        self.p.single_queue = bool(job.find(faults.SingleQueue))
        self.random = random.Random(f"{job.seed}/{rank}")
        self.autograd = self.p.main + 500
        self.op_ns = sum(f.ns for f in job.find(faults.LaunchBound)) or job.op_ns
        self.step = 0
        self.batch: GpuRecord | None = None
        self.reduced: list[GpuRecord] = []
        load = [f.load[rank] for f in job.find(faults.ExpertImbalance)]
        self.expert = load[0] if load else 1.0

    # one operator, one collective ------------------------------------------------------------------
    def compute(
        self, what: tuple[str, str], ns: float, waits: tuple[GpuRecord, ...] = (), load: float = 1.0
    ) -> GpuRecord:
        """An operator with one compute kernel; faults and jitter change its time, the load its time and its grid."""
        noise = 1.0 + self.random.gauss(0, 1) * self.job.jitter if self.job.jitter else 1.0
        factor = self.job.compute_factor(self.rank, self.step) * max(0.5, noise)
        with self.p.range("op", what[0]):
            self.p.busy(self.op_ns)
            grid = (round(108 * load), 1, 1)
            return self.p.launch(COMPUTE, "compute", what[1], self.job.ticks(ns * load * factor), waits, grid=grid)

    def collective(
        self,
        stream: int,
        group: str,
        kind: str,
        size: int,
        waits: tuple[GpuRecord, ...] = (),
        splits: Splits | None = None,
    ) -> GpuRecord | None:
        """A collective on a communication stream; nothing in a group of one."""
        target = self.groups[group]
        if len(target.members) < 2:
            return None
        instance = self.exchange.next(self.rank, target, kind, size, splits=splits)
        return self._communicate(stream, instance, waits, "")

    def exchange_tokens(self, layer: int, back: bool, after: GpuRecord) -> GpuRecord | None:
        """The all-to-all before (dispatch) or behind (``back``: combine) the experts of a layer."""
        size, routed = self.job.activation_bytes, self.job.find(faults.Routing)
        if not routed:
            return self.collective(COMM, "ep", "alltoall", size, (after,))
        members = self.groups["ep"].members
        n, shares = len(members), routed[0].shares(members, self.step, layer)
        to = [round(size // 2 * x / n) for x in shares.values()]
        ways = {r: (to, [to[i]] * n) for i, r in enumerate(members)}
        splits = {r: (b, a) if back else (a, b) for r, (a, b) in ways.items()}
        return self.collective(COMM, "ep", "alltoallv", size, (after,), splits)

    def experts_of(self, layer: int, what: tuple[str, str], ns: float, waits: tuple[GpuRecord, ...]) -> GpuRecord:
        """The expert kernel of a layer: its time follows the tokens, its grid not always does."""
        routed = self.job.find(faults.Routing)
        if not routed:
            return self.compute(what, ns, waits, self.expert)
        fault = routed[0]
        tokens = fault.shares(self.groups["ep"].members, self.step, layer)[self.rank]
        load = fault.fixed + (1 - fault.fixed) * tokens
        return self.compute(what, ns * load, waits) if fault.same_grid else self.compute(what, ns, waits, load)

    def p2p(self, stream: int, peer: int, size: int, send: bool, waits: tuple[GpuRecord, ...] = ()) -> GpuRecord:
        """A send to or a receive from a peer stage."""
        edge = (self.rank, peer) if send else (peer, self.rank)
        instance = self.exchange.next(self.rank, self.groups["pp"], "sendrecv", size, edge)
        return self._communicate(stream, instance, waits, "send" if send else "recv")

    def _communicate(self, stream: int, instance: Instance, waits: tuple[GpuRecord, ...], role: str) -> GpuRecord:
        verb = {"allreduce": "all_reduce", "allgather": "_all_gather_base", "reduce_scatter": "_reduce_scatter_base"}
        label = role or verb.get(instance.kind, "all_to_all")
        lag = self.job.ticks(self.random.randrange(self.job.end_jitter_ns)) if self.job.end_jitter_ns else 0
        with self.p.range("op", f"c10d::{label}"):
            self.p.busy(1_000)
            with self.p.range("op", "record_param_comms", instance):
                self.p.busy(1_000)
                with self.p.range("annotation", f"nccl:{label}"):
                    self.p.call("cudaEventRecord", 1_000)
                    self.p.call("cudaStreamWaitEvent", 1_000)
                    op = self.p.communicate(stream, instance, NAMES[instance.kind], waits, role, lag=lag)
        return op

    # a step -----------------------------------------------------------------------------------------
    def run_step(self, step: int) -> None:
        """One training step, marked as torch.profiler does."""
        self.step, self.reduced = step, []
        self.pauses = self._pause_points(step)
        with self.p.range("annotation", f"ProfilerStep#{step}") as mark:
            self.p.busy(1_000)
            self.load_batch()
            last = None
            for part in range(self.job.accumulate):
                final = part == self.job.accumulate - 1
                last = PASSES[self.job.layout](self, final)
            self.optimizer()
            self.p.sync("cudaEventSynchronize", [last] if last else [])
            self.extras()
        self.p.marks.append((step, mark))

    def load_batch(self) -> None:
        """Data loader and the input copy: prefetched on its own stream, or pageable on the compute stream."""
        ns = self.job.loader_ns
        for f in self.job.find(faults.SlowLoader):
            if f.ranks is None or self.rank in f.ranks:
                ns = f.ns
        self.p.spend("data", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", ns)
        size = self.job.batch_bytes
        with self.p.range("op", "aten::copy_"):
            self.p.busy(self.job.op_ns)
            if self.job.find(faults.PageableCopies):
                ns = self.job.ticks(size / 6)  # 6 GB/s
                name = "Memcpy HtoD (Pageable -> Device)"
                self.batch = self.p.launch(
                    COMPUTE, "pcie_h2d", name, ns, call="cudaMemcpyAsync", size=size, mem="pageable"
                )
                self.p.sync("cudaStreamSynchronize", [self.batch])
            else:
                name = "Memcpy HtoD (Pinned -> Device)"
                self.batch = self.p.launch(
                    COPY, "pcie_h2d", name, self.job.ticks(size / 24), call="cudaMemcpyAsync", size=size, mem="pinned"
                )

    def layer(
        self, index: int, table: tuple[tuple[str, str], ...], ns: int, waits: tuple[GpuRecord, ...]
    ) -> GpuRecord:
        """The kernels of one layer and pass."""
        op = None
        for number in range(self.job.kernels):
            op = self.compute(table[number % len(table)], ns / self.job.kernels, waits if number == 0 else ())
        if self.pauses and self.pauses[0][0] == index:
            self.p.spend("python", "gc.collect", self.pauses.pop(0)[1])
        assert op is not None
        return op

    def _pause_points(self, step: int) -> list[tuple[int, int]]:
        out = []
        for f in self.job.find(faults.HostPauses):
            if (f.ranks is None or self.rank in f.ranks) and self.random.randrange(f.every) == 0:
                out.append((self.random.randrange(self.job.layers), f.ns))
        return sorted(out)

    def optimizer(self) -> None:
        """Optimizer kernels, after every gradient collective."""
        with self.p.range("annotation", "Optimizer.step#AdamW.step"):
            waits = tuple(self.reduced)
            if self.job.grad_norm:
                norm = self.collective(GRADS, "world", "allreduce", 4, waits)
                waits += (norm,) if norm else ()
            for _ in range(2):
                self.compute(("aten::_fused_adamw_", ADAM), self.job.layer_ns * self.job.layers / 50, waits)
                waits = ()
        self.p.spend("annotation", "Optimizer.zero_grad#AdamW.zero_grad", 5_000)

    def extras(self) -> None:
        """Allocator storm and checkpoint at the end of the step."""
        for f in self.job.find(faults.AllocatorStorm):
            if f.rank == self.rank:
                with self.p.range("op", "aten::empty"):
                    self.p.sync("cudaFree", self.p.gpu[-1:], "runtime")
                    self.p.call("cudaMalloc", f.ns)
        for c in self.job.find(faults.Checkpoint):
            if c.step == self.step:
                self.p.sync("cudaDeviceSynchronize", self.p.gpu[-2:])
                size = self.job.layer_bytes * self.job.layers
                name = "Memcpy DtoH (Device -> Pinned)"
                with self.p.range("op", "aten::to"):
                    copy = self.p.launch(
                        COMPUTE, "pcie_d2h", name, self.job.ticks(size / 24), call="cudaMemcpyAsync", size=size,
                        mem="pinned",
                    )  # fmt: skip
                    self.p.sync("cudaStreamSynchronize", [copy])
                self.p.spend("op", "checkpoint.save", c.ns)

    def read_scalar(self) -> None:
        """``.item()``: a small copy to the host and a wait for it."""
        with self.p.range("sync", "aten::item"), self.p.range("sync", "aten::_local_scalar_dense"):
            name = "Memcpy DtoH (Device -> Pageable)"
            copy = self.p.launch(
                COMPUTE, "pcie_d2h", name, self.job.ticks(1_500), call="cudaMemcpyAsync", size=4, mem="pageable"
            )
            self.p.sync("cudaStreamSynchronize", [copy])

    def reads_after(self, index: int) -> bool:
        """True if the loss or a mask is read after this layer."""
        count = sum(f.per_step for f in self.job.find(faults.HostReads))
        return index < count

    def first_waits(self) -> tuple[GpuRecord, ...]:
        """The first kernel waits for the input copy."""
        return (self.batch,) if self.batch else ()

    def graphed(self) -> object:
        """The forward pass as one graph launch where the job uses CUDA graphs."""
        return self.p.cuda_graph() if self.job.find(faults.CudaGraphs) else nullcontext()


def forward_backward(t: Trainer, final: bool) -> GpuRecord:
    """Data parallel (with tensor parallelism inside a layer): bucketed all-reduce during backward."""
    job, waits = t.job, t.first_waits()
    with t.graphed():
        for i in range(job.layers):
            op = t.layer(i, FORWARD, job.layer_ns, waits)
            tp = t.collective(COMM, "tp", "allreduce", job.activation_bytes, (op,))
            waits = (tp,) if tp else ()
            if t.reads_after(i) and not t.p._graph_call:
                t.read_scalar()
    forward = op
    with t.p.on_thread(t.autograd):
        for i in reversed(range(job.layers)):
            op = t.layer(i, BACKWARD, 2 * job.layer_ns, waits)
            tp = t.collective(COMM, "tp", "allreduce", job.activation_bytes, (op,))
            waits = (tp,) if tp else ()
            per = -(-job.layers // job.buckets)
            if final and i % per == 0:
                done = min(per, job.layers - i)
                reduced = t.collective(GRADS, "dp", "allreduce", job.layer_bytes * done // job.tp, (op,))
                t.reduced += [reduced] if reduced else []
    t.reduced += list(waits)
    return forward


def fully_sharded(t: Trainer, final: bool) -> GpuRecord:
    """FSDP: parameters gathered one layer ahead, gradients reduce-scattered, one communication stream."""
    job, last = t.job, t.first_waits()
    gathered = [t.collective(COMM, "dp", "allgather", job.layer_bytes)]
    op = None
    for i in range(job.layers):
        if i + 1 < job.layers:
            gathered.append(t.collective(COMM, "dp", "allgather", job.layer_bytes, (op,) if op else ()))
        op = t.layer(i, FORWARD, job.layer_ns, (*last, *(g for g in gathered[i : i + 1] if g)))
        last = ()
        if t.reads_after(i):
            t.read_scalar()
    forward = op
    with t.p.on_thread(t.autograd):
        ahead = None
        for i in reversed(range(job.layers)):
            waits = (ahead,) if ahead else ()
            if i:
                ahead = t.collective(COMM, "dp", "allgather", job.layer_bytes, (op,))
            op = t.layer(i, BACKWARD, 2 * job.layer_ns, waits)
            scattered = t.collective(COMM, "dp", "reduce_scatter", job.layer_bytes, (op,))
            t.reduced += [scattered] if scattered else []
    return forward


def experts(t: Trainer, final: bool) -> GpuRecord:
    """Mixture of experts: all-to-all around the expert half of each layer, gradients all-reduced at the end."""
    job, waits = t.job, t.first_waits()

    def both(i: int, table: tuple[tuple[str, str], ...], ns: int, waits: tuple[GpuRecord, ...]) -> GpuRecord:
        dense = t.layer(i, table, ns // 2, waits)
        there = t.exchange_tokens(i, False, dense)
        expert = t.experts_of(i, table[0], ns / 2, (there,) if there else ())
        back = t.exchange_tokens(i, True, expert)
        return back or expert

    for i in range(job.layers):
        op = both(i, FORWARD, job.layer_ns, waits)
        waits = (op,)
    forward = op
    with t.p.on_thread(t.autograd):
        for i in reversed(range(job.layers)):
            op = both(i, BACKWARD, 2 * job.layer_ns, waits)
            waits = (op,)
            if final:
                reduced = t.collective(GRADS, "dp", "allreduce", job.layer_bytes // 8, (op,))
                t.reduced += [reduced] if reduced else []
    t.reduced.append(op)
    return forward


class Stage:
    """One pass of a pipeline stage: its micro-batches forward and backward; each direction has its own stream."""

    def __init__(self, t: Trainer) -> None:
        self.t, self.stage, self.stages = t, t.job.coordinates(t.rank)[2], t.job.pp
        self.hop, self.layers = t.job.tp * t.job.dp, max(1, t.job.layers // t.job.pp)
        self.first = t.first_waits()
        self.last: GpuRecord | None = None

    def forward(self) -> GpuRecord:
        """Receive, compute, send on."""
        t, size, waits = self.t, self.t.job.activation_bytes, self.first
        if self.stage:
            waits = (t.p2p(P2P, t.rank - self.hop, size, False),)
        for i in range(self.layers):
            op = t.layer(i, FORWARD, t.job.layer_ns, waits)
            waits = self._tensor(op)
        if self.stage < self.stages - 1:
            t.p2p(P2P + 1, t.rank + self.hop, size, True, (op, *waits))
        return op

    def _tensor(self, op: GpuRecord) -> tuple[GpuRecord, ...]:
        """The activations of a layer, reduced over the tensor-parallel group."""
        reduced = self.t.collective(COMM, "tp", "allreduce", self.t.job.activation_bytes, (op,))
        return (reduced,) if reduced else ()

    def backward(self) -> None:
        """The same with gradients, in the other direction, on the autograd thread."""
        t, size, waits = self.t, self.t.job.activation_bytes, ()
        with t.p.on_thread(t.autograd):
            if self.stage < self.stages - 1:
                waits = (t.p2p(P2P + 2, t.rank + self.hop, size, False),)
            for i in reversed(range(self.layers)):
                op = t.layer(i, BACKWARD, 2 * t.job.layer_ns, waits)
                waits = self._tensor(op)
            if self.stage:
                t.p2p(P2P + 3, t.rank - self.hop, size, True, (op, *waits))
        self.last = op


def pipeline(t: Trainer, final: bool) -> GpuRecord:
    """1F1B over the stages; gradients all-reduced at the end."""
    stage, count = Stage(t), t.job.micro_batches
    warmup = min(stage.stages - 1 - stage.stage, count)
    forward = None
    for _ in range(warmup):
        forward = stage.forward()
    for _ in range(count - warmup):
        forward = stage.forward()
        stage.backward()
    for _ in range(warmup):
        stage.backward()
    if final:
        reduced = t.collective(GRADS, "dp", "allreduce", t.job.layer_bytes * stage.layers, (stage.last,))
        t.reduced += [reduced] if reduced else []
    return forward


PASSES: dict[str, Callable[[Trainer, bool], GpuRecord]] = {
    "dp": forward_backward,
    "tp": forward_backward,
    "fsdp": fully_sharded,
    "pp": pipeline,
    "ep": experts,
}


def groups_of(job: Job, rank: int) -> dict[str, Group]:
    """The process groups of a rank: world, and those of its layout."""
    tp, dp, pp = job.coordinates(rank)
    hop = job.tp * job.dp
    world = tuple(range(job.ranks))
    data = tuple(pp * hop + d * job.tp + tp for d in range(job.dp))
    tensor = tuple(pp * hop + dp * job.tp + t for t in range(job.tp))
    stages = tuple(s * hop + dp * job.tp + tp for s in range(job.pp))
    plain = len(data) == job.ranks
    out = {
        "world": Group("0", "default_pg", world),
        "dp": Group("0", "default_pg", world) if plain else Group(str(1 + pp * job.tp + tp), "mesh_dp", data),
        "tp": Group(str(101 + pp * job.dp + dp), "mesh_tp", tensor),
        "pp": Group(str(201 + dp * job.tp + tp), "mesh_pp", stages),
    }
    if job.layout == "ep":
        size = job.ep or job.ranks
        first = rank // size * size
        out["ep"] = Group(str(301 + rank // size), "expert_parallel", world[first : first + size])
    return out
