"""The tables of NCCL logs, declared. A fact that is not printed is null, never a default."""

from __future__ import annotations

from traceview.schema.declare import BOOL, CODE, F64, I32, I64, NAME, STR, Column, Table

# How a fact of a log was got: it stands there; it follows from what stands there; it is a guess, said so.
FACT_BASES = ("logged", "inferred", "assumed")
# Wire of a channel edge as NCCL prints it; `indirect` hops over a third GPU, `shm` and plain `net` pass host memory.
NCCL_WIRES = ("p2p", "mnnvl", "indirect", "shm", "net", "collnet")
NCCL_FUNCTIONS = (
    *("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "Send", "Recv", "AlltoAll", "AlltoAllv"),
    *("Gather", "Scatter", "PutSignal", "Signal", "WaitSignal", "other"),
)
NCCL_DTYPES = ("i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2")
_PROC = Column("proc", NAME, "process, 'host:pid'")
_INSTANCE = "communicator of this process, 'host:pid:pointer#n' (pointers are used again)"

NCCL_PROCS = Table(
    "nccl_procs",
    "One row per process that wrote NCCL records.",
    (
        _PROC,
        Column("host", NAME, "host name as printed"),
        Column("pid", I64, "process id (of the container)"),
        Column("rank", I32, "rank in the largest communicator of the process", nullable=True),
        Column("rank_basis", CODE, "how the rank is known", nullable=True, values=FACT_BASES),
        Column("vendor", CODE, "nccl or rccl", values=("nccl", "rccl")),
        Column("version", NAME, "library version", nullable=True),
        Column("version_basis", CODE, "how the version is known", nullable=True, values=FACT_BASES),
        Column("cuda", NAME, "CUDA (HIP) version that the library was built for", nullable=True),
        Column("network", NAME, "network that NCCL chose: IB, Socket, a plug-in", nullable=True),
        Column("nics", NAME, "NICs as '0=mlx5_0:1/IB;1=...'", nullable=True),
        Column("nic_gbs", F64, "bandwidth of all its NICs together, GB/s, one direction", nullable=True),
        Column("nvlink", BOOL, "the printed topology has NVLink", nullable=True),
        Column("pcie_gbs", F64, "slowest PCIe link of the printed topology, GB/s", nullable=True),
        Column("gdr_hca", BOOL, "the NIC driver can do GPUDirect (says nothing of an edge)", nullable=True),
        Column("gdr_reason", NAME, "why GPUDirect is off between a GPU and a NIC, path types named", nullable=True),
        Column("env", STR, "NCCL settings as 'NAME=value;...', sorted", nullable=True),
        Column("records", I64, "records of the process"),
        Column("torn", I64, "records that are damaged"),
        Column("unknown", I64, "whole records that no rule knows"),
    ),
    sort=("proc",),
)

NCCL_COMMS = Table(
    "nccl_comms",
    "One row per communicator of a process, in the order of creation.",
    (
        Column("instance", NAME, _INSTANCE),
        _PROC,
        Column("comm", NAME, "communicator, equal on all its processes: commId or a made-up id"),
        Column("comm_basis", CODE, "how that id is known", values=FACT_BASES),
        Column("rank", I32, "rank in the communicator", nullable=True),
        Column("nranks", I32, "ranks of the communicator", nullable=True),
        Column("cuda_dev", I32, "CUDA ordinal", nullable=True),
        Column("nvml_dev", I32, "NVML index", nullable=True),
        Column("bus_id", NAME, "PCI bus id, hex", nullable=True),
        Column("nodes", I32, "hosts (or NVLink domains) that NCCL counts", nullable=True),
        Column("local_ranks", I32, "ranks on this node", nullable=True),
        Column("mnnvl", BOOL, "multi-node NVLink is used", nullable=True),
        Column("clique", NAME, "NVLink domain, 'fabric/clique'", nullable=True),
        Column("nvls", BOOL, "NVLink SHARP channels exist", nullable=True),
        Column("parent", NAME, "communicator that it was split from", nullable=True),
        Column("color", I64, "color of the split", nullable=True),
        Column("channels", I32, "channels for collectives", nullable=True),
        Column("p2p_channels", I32, "channels for send and receive", nullable=True),
        Column("gdr", BOOL, "all ring edges over the network use GPUDirect", nullable=True),
        Column("intra", NAME, "path type between GPUs of a node in the ring (NVL, PIX, PHB, SYS ...)", nullable=True),
        Column("inter", NAME, "path type between GPU and NIC in the ring", nullable=True),
        Column("init_s", F64, "seconds of initialisation", nullable=True),
        Column("bootstrap_s", F64, "seconds of the bootstrap: a late rank makes the others wait here", nullable=True),
        Column("complete", BOOL, "initialisation finished"),
        Column("end", CODE, "how it ended", nullable=True, values=("destroy", "abort", "revoke")),
    ),
)

NCCL_EDGES = Table(
    "nccl_edges",
    "One row per printed channel edge. Network edges are printed by both ends, the others by the sender.",
    (
        _PROC,
        Column("instance", NAME, _INSTANCE, nullable=True),
        Column("instance_basis", CODE, "how the communicator is known", nullable=True, values=FACT_BASES),
        Column("channel", I32, "channel"),
        Column("conn", I32, "0 collectives, 1 send and receive"),
        Column("src", I32, "sending rank of the communicator; -1 = not printed"),
        Column("dst", I32, "receiving rank of the communicator; -1 = not printed"),
        Column("side", CODE, "which end printed it", values=("send", "receive")),
        Column("wire", CODE, "what it runs over", values=NCCL_WIRES),
        Column("via", NAME, "as printed: P2P/CUMEM, NET/IB, ..."),
        Column("nic", I32, "NIC index of the network", nullable=True),
        Column("gdr", BOOL, "the NIC reads or writes GPU memory", nullable=True),
        Column("host_staged", BOOL, "the data passes host memory"),
        Column("pxn", I32, "local rank whose NIC is used", nullable=True),
    ),
)

NCCL_CALLS = Table(
    "nccl_calls",
    "One row per logged call, in the order of its process.",
    (
        Column("instance", NAME, _INSTANCE),
        Column("function", CODE, "called function", values=NCCL_FUNCTIONS),
        Column("count", I64, "count argument", "elements"),
        Column("dtype", CODE, "element type", nullable=True, values=NCCL_DTYPES),
        Column("peer", I32, "root, or peer of a send or receive"),
        Column("bytes", I64, "message size S of METHODS f.1", "bytes", True),
        Column("opcount", I64, "operation counter of the communicator before the call"),
    ),
)

NCCL_TUNING = Table(
    "nccl_tuning",
    "What NCCL expects (model) and what it chose (choice, counted).",
    (
        Column("kind", CODE, "model or choice", values=("model", "choice")),
        _PROC,
        Column("instance", NAME, _INSTANCE, nullable=True),
        Column("function", CODE, "function; null where the line does not say", nullable=True, values=NCCL_FUNCTIONS),
        Column("bytes", I64, "message size as printed (whole or per rank, by version)", "bytes", True),
        Column("algorithm", NAME, "Ring, Tree, NVLS, ..., or the kernel"),
        Column("protocol", NAME, "LL, LL128, Simple", nullable=True),
        Column("channels", I32, "channels of the choice", nullable=True),
        Column("latency_us", F64, "NCCL's model of the latency, µs", nullable=True),
        Column("gbs", F64, "NCCL's model of the algorithm bandwidth, GB/s", nullable=True),
        Column("n", I64, "how often the choice was made"),
    ),
)

NCCL_MESSAGES = Table(
    "nccl_messages",
    "Warnings, errors and notable lines; equal ones of a process are one row.",
    (
        _PROC,
        Column("level", CODE, "error, warning or note", values=("error", "warning", "note")),
        Column("kind", NAME, "what it is: ib_completion, watchdog_timeout, ..."),
        Column("text", STR, "the first such line"),
        Column("meaning", STR, "what it means and what to do, empty if nothing is known"),
        Column("count", I64, "how many such lines"),
        Column("line", I64, "line number of the first"),
        Column("rank", I32, "rank that the line names", nullable=True),
    ),
)

NCCL_BENCH = Table(
    "nccl_bench",
    "Rows of an nccl-tests or rccl-tests table.",
    (
        Column("test", NAME, "all_reduce_perf, ..."),
        Column("ranks", I32, "ranks of the test", nullable=True),
        Column("bytes", I64, "size", "bytes"),
        Column("count", I64, "elements", "elements"),
        Column("dtype", NAME, "element type"),
        Column("in_place", BOOL, "in-place half of the row"),
        Column("time_us", F64, "mean time of one operation, µs"),
        Column("algbw", F64, "algorithm bandwidth as printed, GB/s"),
        Column("busbw", F64, "bus bandwidth as printed, GB/s"),
        Column("wrong", I64, "wrong elements", nullable=True),
    ),
)

NCCL_LINKS = Table(
    "nccl_links",
    "Links of an NCCL topology file: PCI devices, GPUs with their NVLinks, NICs.",
    (
        Column("device", CODE, "kind of device", values=("gpu", "nic", "nvlink")),
        Column("name", NAME, "GPU ordinal, NIC name, or GPU ordinal of an NVLink"),
        Column("rank", I32, "rank of the GPU", nullable=True),
        Column("bus_id", NAME, "PCI bus id", nullable=True),
        Column("numa", I32, "NUMA node", nullable=True),
        Column("switches", NAME, "bus ids of the PCI bridges above, root first", nullable=True),
        Column("pcie_gts", F64, "PCIe transfer rate of the slowest link above, GT/s", nullable=True),
        Column("pcie_width", I32, "lanes of that link", nullable=True),
        Column("gbs", F64, "bandwidth of the NIC, GB/s", nullable=True),
        Column("links", I32, "NVLinks to that target", nullable=True),
        Column("target", NAME, "bus id at the other end of the NVLinks", nullable=True),
        Column("gdr", BOOL, "GPUDirect is possible", nullable=True),
    ),
)

LOG_TABLES = (
    *(NCCL_PROCS, NCCL_COMMS, NCCL_EDGES, NCCL_CALLS, NCCL_TUNING, NCCL_MESSAGES),
    *(NCCL_BENCH, NCCL_LINKS),
)
