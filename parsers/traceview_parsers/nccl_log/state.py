"""What is known of processes and communicators while a log streams by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Comm:
    """A communicator of a process. Without ``pointer`` it is a draft: its Init line is still to come."""

    proc: Proc
    pointer: str | None = None
    number: int = 0
    rank: int | None = None
    nranks: int | None = None
    comm_id: str | None = None
    parent: Comm | None = None
    split: int | None = None
    color: int | None = None
    complete: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    """Further columns of nccl_comms by name."""
    votes: int = 0
    """Records that say the same rank of this pointer; one alone may be glued from halves of two."""
    before: Comm | None = None
    """The latest finished communicator of the process when this draft began."""

    @property
    def instance(self) -> str:
        """Key of the communicator within all logs."""
        return f"{self.proc.name}:{self.pointer}#{self.number}"


@dataclass(eq=False)
class Proc:
    """A process: everything with the same host and pid."""

    host: str
    pid: int
    clean: bool = False
    """The host name was seen where nothing can be glued to it."""
    vendor: str = "nccl"
    version: str | None = None
    cuda: str | None = None
    network: str | None = None
    nics: dict[int, str] = field(default_factory=dict)
    nic_gbs: dict[int, float] = field(default_factory=dict)
    nvlink: bool | None = None
    pcie_gbs: float | None = None
    gdr_hca: bool | None = None
    gdr_reasons: dict[str, None] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    records: int = 0
    torn: int = 0
    unknown: int = 0
    wrapper_rank: int | None = None
    heads: list[tuple[str, int, int]] = field(default_factory=list)
    """(pointer, rank, ranks) in the begins of torn records"""
    comms: list[Comm] = field(default_factory=list)
    by_pointer: dict[str, Comm] = field(default_factory=dict)
    open: dict[int, Comm] = field(default_factory=dict)
    """Communicator under construction per thread."""
    last: Comm | None = None
    """Finished or called last."""
    last_function: str = ""
    columns: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    """(algorithm, protocol) of the columns of the tuning table that a thread is printing."""

    @property
    def name(self) -> str:
        """Key of the process within all logs."""
        return f"{self.host}:{self.pid}"


@dataclass(eq=False, slots=True)
class Edge:
    """A channel edge as printed."""

    proc: Proc
    comm: Comm | None
    channel: int
    conn: int
    src: int
    dst: int
    side: str
    wire: str
    via: str
    nic: int | None = None
    gdr: bool | None = None
    pxn: int | None = None
    basis: str = "logged"
    labels: tuple[str | None, str | None] = (None, None)
    """What is in the brackets of both ends: device index or bus id."""


@dataclass(eq=False)
class Notable:
    """A warning, error or note of one process; equal ones are counted."""

    proc: Proc | None
    level: str
    kind: str
    text: str
    meaning: str
    line: int
    rank: int | None = None
    count: int = 1


@dataclass(slots=True)
class Context:
    """A thread of a process: where a record comes from."""

    proc: Proc
    tid: int
    records: int = 0
    choices: dict[tuple[Comm | None, str, bytes], int] = field(default_factory=dict)
    """(communicator and function called before, message) -> how often"""


@dataclass
class State:
    """All that a log told so far. Memory grows with processes, communicators and edges, not with the log."""

    procs: dict[tuple[str, int], Proc] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    models: list[tuple[Comm, str, str, str, float, float]] = field(default_factory=list)
    """(draft or communicator, function, algorithm, protocol, latency µs, GB/s)"""
    choices: dict[tuple[Any, ...], int] = field(default_factory=dict)
    """(process, communicator or None, function, bytes, algorithm, protocol, channels) -> count"""
    notables: dict[tuple[Any, ...], Notable] = field(default_factory=dict)
    version: str | None = None
    cuda: str | None = None
    vendor: str = "nccl"
    lines: int = 0
    records: int = 0
    torn: int = 0
    unknown: int = 0
    repeated: int = 0
    """Records that Ray dropped because other processes wrote the same."""

    def draft(self, ctx: Context) -> Comm:
        """The communicator under construction on this thread; a draft if its Init line is still to come."""
        found = ctx.proc.open.get(ctx.tid)
        if found is None:
            found = ctx.proc.open[ctx.tid] = Comm(ctx.proc, before=ctx.proc.last)
        return found

    def tear(self, proc: Proc | None) -> None:
        """Count a damaged record."""
        self.torn += 1
        if proc is not None:
            proc.torn += 1
