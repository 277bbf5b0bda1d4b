"""The tables of traceview, declared: name, columns, type, unit, nullability, order, one sentence each.

Parsers emit these tables and nothing else; analysis refers to columns by these names. All times are int64
nanoseconds, absolute (UTC where known), as stamped by the host of that rank; intervals are half-open.

A table of one *part* (the records of one process in one file) is stored without its ``rank`` column: which rank
a part is may be learnt after it was read. ``traceview.run.Run`` adds the column on load.
"""

from __future__ import annotations

from traceview.schema.declare import BOOL as BOOL
from traceview.schema.declare import CODE as CODE
from traceview.schema.declare import F64 as F64
from traceview.schema.declare import I32 as I32
from traceview.schema.declare import I64 as I64
from traceview.schema.declare import NAME as NAME
from traceview.schema.declare import STR as STR
from traceview.schema.declare import Column as Column
from traceview.schema.declare import Table as Table
from traceview.schema.declare import codes as codes
from traceview.schema.nccl import LOG_TABLES as LOG_TABLES

# METHODS 0: classes of GPU records.
GPU_CLASSES = (
    "compute",
    "comm",
    "pcie_h2d",
    "pcie_d2h",
    "gpu_d2d",
    "gpu_memset",
    "peer_copy",
    "gpu_other",
    "gpu_opaque",
)
# What a host interval is, METHODS a.5. `annotation` merely encloses work; `overhead` is the profiler's own.
HOST_KINDS = ("data", "sync", "host_comm", "runtime", "op", "annotation", "overhead", "python")
# METHODS f.1
COLL_KINDS = (
    "allreduce",
    "allgather",
    "reduce_scatter",
    "alltoall",
    "alltoallv",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send",
    "recv",
    "sendrecv",
    "barrier",
    "unknown",
)
# Where the facts of a collective come from, best first.
COLL_FACTS = ("kernel_args", "cpu_record", "payload", "name")
MEM_KINDS = ("pageable", "pinned", "unknown")
# Where a step mark comes from, METHODS b.2 (the order of preference).
MARK_SOURCES = ("profiler_step", "range", "optimizer")

# METHODS a.3, in priority order; each nanosecond of a window is in exactly one leaf.
LEAVES = (
    "compute",
    "gpu_opaque",
    "comm_transfer",
    "comm_unresolved",
    "comm_wait",
    "pcie_d2h",
    "pcie_h2d",
    "comm_host",
    "gpu_d2d",
    "gpu_memset",
    "gpu_other",
    "uncovered",
    "idle_data",
    "idle_sync",
    "idle_host",
    "idle_launch",
    "idle_unknown",
)
# Sub-leaves, kept beside; those of one leaf sum to it.
SUB_LEAVES = (
    "compute.plain",
    "compute.fused_comm",
    "comm_transfer.nxn",
    "comm_transfer.p2p",
    "comm_unresolved.nxn",
    "comm_unresolved.p2p",
    "comm_wait.nxn",
    "comm_wait.p2p",
    "pcie_d2h.pageable",
    "pcie_d2h.pinned",
    "pcie_d2h.unknown",
    "pcie_h2d.pageable",
    "pcie_h2d.pinned",
    "pcie_h2d.unknown",
)
# Groups shown to people, always in this order; each leaf (or sub-leaf of comm_wait) in exactly one.
GROUPS: dict[str, tuple[str, ...]] = {
    "compute": ("compute", "gpu_opaque"),
    "exposed communication": ("comm_transfer", "comm_unresolved", "comm_host"),
    "straggler wait": ("comm_wait.nxn",),
    "pipeline wait": ("comm_wait.p2p",),
    "PCIe staging": ("pcie_d2h", "pcie_h2d"),
    "other GPU": ("gpu_d2d", "gpu_memset", "gpu_other"),
    "idle": ("idle_data", "idle_sync", "idle_host", "idle_launch", "idle_unknown"),
    "uncovered": ("uncovered",),
}


RANK = Column("rank", I32, "global rank of the process that recorded the row")
THREAD = "thread id of the process (OS id where the format has it)"

GPU_OPS = Table(
    "gpu_ops",
    "One row per GPU activity record: kernel, copy, memset, or a graph recorded as one interval.",
    (
        RANK,
        Column("device", I32, "device ordinal as the profiler of that process counts"),
        Column("stream", I64, "stream id, unique within the device of the process"),
        Column("start", I64, "begin of execution", "ns"),
        Column("end", I64, "end of execution, never before start", "ns"),
        Column("cls", CODE, "activity class, METHODS 0", values=GPU_CLASSES),
        Column("fused_comm", BOOL, "a compute kernel that also communicates (METHODS a.6)"),
        Column("name", NAME, "kernel or copy name as recorded"),
        Column("config", NAME, "launch configuration 'grid block' of a kernel", nullable=True),
        Column("correlation", I64, "launch id; shared by all nodes of one graph launch", nullable=True),
        Column("launch_start", I64, "begin of the host call that launched it", "ns", True),
        Column("launch_end", I64, "end of that call", "ns", True),
        Column("launch_thread", I64, "thread of that call", nullable=True),
        Column("bytes", I64, "bytes of a copy or memset", "bytes", True),
        Column("mem", CODE, "host memory kind of a copy", nullable=True, values=MEM_KINDS),
        Column(
            "flops",
            F64,
            "of the product or convolution that launched it: on its first kernel, 0 on its others; null: not told",
            unit="FLOPs",
            nullable=True,
        ),
    ),
    sort=("device", "start", "end"),
    per_part=True,
)

HOST_RANGES = Table(
    "host_ranges",
    "One row per host interval that matters for idle causes, steps and host communication.",
    (
        RANK,
        Column("thread", I64, THREAD),
        Column("start", I64, "begin", "ns"),
        Column("end", I64, "end", "ns"),
        Column("kind", CODE, "what it is, METHODS a.5", values=HOST_KINDS),
        Column("name", NAME, "name as recorded"),
    ),
    sort=("thread", "start"),
    per_part=True,
)

COLLECTIVES = Table(
    "collectives",
    "One row per communication operation on a rank: a GPU kernel, a peer copy, or a host range (gloo, MPI).",
    (
        RANK,
        Column("op", I64, "row number in gpu_ops of the part; null for a host collective", nullable=True),
        Column("device", I32, "device ordinal; -1 for a host collective"),
        Column("stream", I64, "stream, or thread for a host collective"),
        Column("start", I64, "arrival: begin on this rank", "ns"),
        Column("end", I64, "end on this rank", "ns"),
        Column("launch_start", I64, "begin of the host call that launched it", "ns", True),
        Column("kind", CODE, "collective kind", values=COLL_KINDS),
        Column("group", NAME, "process group or communicator name", nullable=True),
        Column("group_desc", NAME, "description of the group (default_pg, tp, ...)", nullable=True),
        Column("members", NAME, "global ranks of the group as ranges, '0-7,16'; null if unknown", nullable=True),
        Column("group_size", I32, "number of ranks in the group", nullable=True),
        Column("seq", I64, "sequence number within the group, equal on all members", nullable=True),
        Column("p2p", BOOL, "point-to-point (send, recv, batches of them)"),
        Column("src", I32, "global rank of the sender (p2p) or of the root (1->N)", nullable=True),
        Column("dst", I32, "global rank of the receiver (p2p) or of the root (N->1)", nullable=True),
        Column("dtype", NAME, "element type as recorded", nullable=True),
        Column("elems_in", I64, "elements sent by this rank; bytes where no type is told", "elements", True),
        Column("elems_out", I64, "elements received by this rank; bytes where no type is told", "elements", True),
        Column("bytes", I64, "message size S of METHODS f.1", "bytes", True),
        Column("in_splits", NAME, "split sizes of an all-to-all-v as recorded", nullable=True),
        Column("out_splits", NAME, "split sizes of an all-to-all-v as recorded", nullable=True),
        Column("coalesced", I32, "number of operations in this one record"),
        Column("comm_id", STR, "id of the communicator or call where the format has one, hex", nullable=True),
        Column("facts", CODE, "where the facts of the row come from", values=COLL_FACTS),
        Column("name", NAME, "kernel or range name"),
    ),
    sort=("start",),
    per_part=True,
)

STEP_MARKS = Table(
    "step_marks",
    "Candidate step marks found in a part, per source; METHODS b.2 chooses one source.",
    (
        RANK,
        Column("source", CODE, "which kind of mark", values=MARK_SOURCES),
        Column("series", NAME, "the name without its counter: marks of one series belong together"),
        Column("step", I64, "number in the name, else ordinal"),
        Column("start", I64, "begin on the host", "ns"),
        Column("end", I64, "end on the host", "ns"),
        Column("thread", I64, THREAD),
    ),
    sort=("source", "series", "start"),
    per_part=True,
)

COUNTERS = Table(
    "counters",
    "Samples of counters: memory, GPU and NIC metrics.",
    (
        RANK,
        Column("name", NAME, "counter name, e.g. 'memory.allocated', 'alloc.cudaMalloc', 'gpu.PCIe RX'"),
        Column("device", I32, "device ordinal, -1 = host"),
        Column("time", I64, "time of the sample", "ns"),
        Column("value", F64, "value"),
        Column("unit", NAME, "unit of the value"),
    ),
    sort=("name", "time"),
    per_part=True,
)

PART_TABLES = (GPU_OPS, HOST_RANGES, COLLECTIVES, STEP_MARKS, COUNTERS, *LOG_TABLES)
TABLES: dict[str, Table] = {t.name: t for t in PART_TABLES}
