"""What one rank does: a host thread that launches work on streams, recorded the way a profiler would.

The builder only adds activities and edges to the graph; times exist after ``Graph.run``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from simulator.engine import Edge, Graph, Transfer

COMPUTE, COPY, COMM, GRADS, P2P = 7, 13, 20, 24, 28  # streams


@dataclass(frozen=True)
class Group:
    """A process group: name and description as PyTorch gives them, global ranks."""

    name: str
    desc: str
    members: tuple[int, ...]


@dataclass
class Instance:
    """One collective: what it is, who takes part, and the transfer that the engine runs."""

    group: Group
    kind: str
    seq: int
    size: int
    transfer: Transfer
    dtype: str = "BFloat16"
    src: int | None = None
    dst: int | None = None
    ops: dict[int, GpuRecord] = field(default_factory=dict)
    splits: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    """rank -> elements that it sends to, and receives from, every member (all-to-all-v)"""

    @property
    def p2p(self) -> bool:
        """Point to point."""
        return self.kind == "sendrecv"

    def elements(self, rank: int) -> tuple[int, int]:
        """Elements in and out of one rank, as PyTorch reports them."""
        if rank in self.splits:
            into, out = self.splits[rank]
            return sum(into), sum(out)
        total, n = self.size // 2, len(self.group.members)
        return {"allgather": (total // n, total), "reduce_scatter": (total, total // n)}.get(
            self.kind, (total, total)
        )


@dataclass
class HostRecord:
    """A host interval: from the end of activity ``begin`` to the end of activity ``close``."""

    thread: int
    kind: str
    name: str
    begin: int
    close: int = -1
    parent: int = -1
    correlation: int | None = None
    instance: Instance | None = None
    start: int = 0
    end: int = 0


@dataclass
class GpuRecord:
    """A GPU activity; ``call`` is the row of its launch call in the host records."""

    node: int
    stream: int
    cls: str
    name: str
    call: int
    correlation: int
    size: int | None = None
    mem: str | None = None
    instance: Instance | None = None
    role: str = ""
    grid: tuple[int, int, int] = (108, 1, 1)
    block: tuple[int, int, int] = (256, 1, 1)
    graph: int = 0
    start: int = 0
    end: int = 0


class RankProgram:
    """Builds the activities of one rank. ``now`` is the last activity of the host thread."""

    def __init__(self, graph: Graph, rank: int, *, launch_ns: int = 5_000, latency_ns: int = 4_000) -> None:
        self.graph, self.rank = graph, rank
        self.launch_ns, self.latency_ns = launch_ns, latency_ns
        self.gap_ns, self.queue_limit, self.single_queue = 0, 1024, False
        self.main = self.thread = 1000 + rank
        self.host: list[HostRecord] = []
        self.gpu: list[GpuRecord] = []
        self.marks: list[tuple[int, HostRecord]] = []
        self.tails: dict[int, int] = {}
        self.now = graph.add(0)
        self._open: list[int] = []
        self._correlation = 0
        self._graph_call: tuple[int, int] | None = None

    def busy(self, ns: int, edges: Iterable[Edge] = ()) -> int:
        """The host thread works (unrecorded) for ``ns``."""
        self.now = self.graph.add(ns, [(self.now, "e", 0), *edges])
        return self.now

    @contextmanager
    def range(self, kind: str, name: str, instance: Instance | None = None) -> Iterator[HostRecord]:
        """A recorded host range around what is done inside."""
        parent = self._open[-1] if self._open else -1
        record = HostRecord(self.thread, kind, name, self.now, parent=parent, instance=instance)
        self._open.append(len(self.host))
        self.host.append(record)
        yield record
        self._open.pop()
        record.close = self.now

    @contextmanager
    def on_thread(self, thread: int) -> Iterator[None]:
        """The work inside is done by another thread of the process (autograd)."""
        before, opened = self.thread, self._open
        self.thread, self._open = thread, []
        yield
        self.thread, self._open = before, opened

    def spend(self, kind: str, name: str, ns: int) -> None:
        """A recorded host range of ``ns``."""
        with self.range(kind, name):
            self.busy(ns)

    def call(self, name: str, ns: int, edges: Iterable[Edge] = (), kind: str = "runtime") -> int:
        """A runtime call; returns its row in the host records."""
        self._correlation += 1
        with self.range(kind, name) as record:
            record.correlation = self._correlation
            self.busy(ns, edges)
        return len(self.host) - 1

    def sync(self, name: str, ops: Iterable[GpuRecord], kind: str = "sync") -> None:
        """A blocking call: returns 2 us after the last of ``ops`` has ended, or at once."""
        with self.range(kind, name) as record:
            self._correlation += 1
            record.correlation = self._correlation
            self.busy(2_000)
            self.busy(0, [(op.node, "e", 2_000) for op in ops])

    @contextmanager
    def cuda_graph(self) -> Iterator[None]:
        """Everything launched inside belongs to one cudaGraphLaunch."""
        row = self.call("cudaGraphLaunch", 2 * self.launch_ns)
        self._graph_call = (row, self.now)
        yield
        self._graph_call = None

    def launch(
        self,
        stream: int,
        cls: str,
        name: str,
        ns: int,
        waits: Iterable[GpuRecord] = (),
        call: str = "cudaLaunchKernel",
        not_before: int = 0,
        **facts: object,
    ) -> GpuRecord:
        """Launch an operation on a stream after the ends of ``waits``."""
        if self._graph_call:
            row, node = self._graph_call
        else:
            gate: list[Edge] = []
            if len(self.gpu) >= self.queue_limit:
                gate = [(self.gpu[-self.queue_limit].node, "s", 0)]
            row = self.call(call, self.launch_ns, gate)
            node = self.now
        edges: list[Edge] = [(node, "s", self.latency_ns), *((op.node, "e", self.gap_ns) for op in waits)]
        if stream in self.tails:
            edges.append((self.tails[stream], "e", self.gap_ns))
        if self.single_queue and self.gpu:
            edges.append((self.gpu[-1].node, "s", 0))
        op = GpuRecord(
            self.graph.add(ns, edges, not_before), stream, cls, name, row, self.host[row].correlation or 0, **facts
        )  # type: ignore[arg-type]
        op.graph = int(self._graph_call is not None)
        self.tails[stream] = op.node
        self.gpu.append(op)
        return op

    def communicate(
        self,
        stream: int,
        instance: Instance,
        name: str,
        waits: Iterable[GpuRecord] = (),
        role: str = "",
        not_before: int = 0,
        lag: int = 0,
    ) -> GpuRecord:
        """Launch this rank's part of a collective; it ends ``lag`` ns after the transfer."""
        op = self.launch(
            stream, "comm", name, 0, waits, "cudaLaunchKernelExC", not_before,
            instance=instance, role=role, size=instance.size,
        )  # fmt: skip
        op.grid, op.block = (24, 1, 1), (544, 1, 1)
        self.graph.join(op.node, instance.transfer, lag)
        instance.ops[self.rank] = op
        return op

    def finish(self) -> None:
        """Read the times of all records from the graph that has run."""
        for record in self.host:
            record.start, record.end = self.graph.end[record.begin], self.graph.end[record.close]
        for op in self.gpu:
            op.start, op.end = self.graph.start[op.node], self.graph.end[op.node]
