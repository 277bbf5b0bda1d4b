"""What a GPU record is, by its name: the one table that all formats share (METHODS 0: by name, never by stream).

A kernel that no rule knows is compute, which is right for nearly all. A name that smells of communication but
matches no rule is listed by ``unclassified``, so that a wrong guess is seen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class GpuName:
    """Class of METHODS 0; ``kind`` is the collective kind that the name tells, ``mem`` the host memory of a copy."""

    cls: str
    kind: str | None = None
    fused_comm: bool = False
    mem: str | None = None


@dataclass(frozen=True)
class Rule:
    """``pattern`` (case-insensitive, searched in the identifier of the kernel) and what it means, in a line."""

    pattern: str
    why: str


# Compute although the name speaks of collectives.
COMPUTE = (
    Rule(r"^(void )?triton_(poi|red|per|tem|for|mm)_?", "inductor names kernels after the ops it fused"),
    Rule(r"^(void )?(at|c10)::native::", "ATen kernels"),
)
# One kernel that computes and communicates; searched in the whole name, CUTLASS has it in the template arguments.
FUSED = (
    Rule(r"(?<![a-z])(ag|allgather|all_gather)_?(group_?)?(gemm|matmul)", "all-gather + GEMM"),
    Rule(
        r"(gemm|matmul)_?(rs|reducescatter|reduce_scatter|ar|allreduce|all_reduce|a2a)(?![a-z])", "GEMM + reduction"
    ),
    Rule(r"(?<![a-z])(flux|flashoverlap)::", "Flux and FlashOverlap"),
    Rule(r"(?<![a-z])(matmul|gemm)\w*_(symm|multimem)|symm_mem\w*_(matmul|gemm|mm)", "symmetric-memory matmul"),
)
COMMUNICATION = (
    Rule(r"nccl|rccl", "NCCL and RCCL: ncclKernel_, ncclDevKernel_, ncclSym..., nccl:..."),
    Rule(r"msccl", "MSCCL, MSCCL++"),
    Rule(r"oneccl|(?<![a-z])ccl::|xccl", "oneCCL, XCCL"),
    Rule(r"hccl|hcom_", "HCCL of MTIA, Gaudi and Ascend"),
    Rule(r"multimem_|(one|two)_?shot", "NVLink multicast, one- and two-shot kernels"),
    Rule(r"cross_device_reduce|quick_?(all_?)?reduce|custom_?ar_", "custom all-reduce of vLLM, SGLang, AITER"),
    Rule(r"lamport|all_?reduce_?fusion|moe_?finalize_?all_?reduce", "all-reduce fused with normalisation"),
    Rule(r"nvshmem|rocshmem|ishmem", "SHMEM on the GPU"),
    Rule(
        r"deep_?ep::|dpsk::ep|(?<![a-z])ep::(internode|intranode)|(inter|intra)node(_ll)?::(dispatch|combine)",
        "DeepEP",
    ),
    Rule(r"userbuffers", "Transformer Engine userbuffers"),
    Rule(r"symmetric_memory|symm_mem", "torch symmetric memory"),
    Rule(r"all_?reduce|reduce_?scatter|all_?gather|all_?to_?all", "a kernel named after a collective"),
)
# First hit in the identifier, lower case, underscores removed.
KINDS = (
    ("reducescatter", "reduce_scatter"),
    ("allreduce", "allreduce"),
    ("crossdevicereduce", "allreduce"),
    ("quickreduce", "allreduce"),
    ("lamport", "allreduce"),
    ("allgather", "allgather"),
    ("alltoallv", "alltoallv"),
    ("alltoall", "alltoall"),
    ("dispatch", "alltoallv"),
    ("combine", "alltoallv"),
    ("sendrecv", "sendrecv"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("send", "send"),
    ("recv", "recv"),
)
SMELL = re.compile(
    r"all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|a2a|send_?recv|peer_|_peer|p2p|(?<![a-z])ipc_|_comm_|ring_",
    re.I,
)


def _joined(rules: tuple[Rule, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{r.pattern})" for r in rules), re.I)


_COMPUTE, _FUSED, _COMMUNICATION = _joined(COMPUTE), _joined(FUSED), _joined(COMMUNICATION)
_COPY = re.compile(r"\b([HDPA])to([HDPA])\b")
_COPY_WORDS = re.compile(r"(host|device|peer)\w*\s*(?:->|to)\s*(host|device|peer)", re.I)
_PLACE = re.compile(r"\(\s*(.*?)\s*->\s*(.*?)\s*\)")
_COPY_CLASS = {
    "HD": "pcie_h2d",
    "DH": "pcie_d2h",
    "DD": "gpu_d2d",
    "PP": "peer_copy",
    "DP": "peer_copy",
    "PD": "peer_copy",
}
_COPY_CLASS |= {"HA": "pcie_h2d", "AH": "pcie_d2h", "AA": "gpu_d2d", "AD": "gpu_d2d", "DA": "gpu_d2d"}


def identifier(name: str) -> str:
    """The function's own name, without template arguments and parameters.

    >>> identifier("void at::(anonymous namespace)::f<int, g<2> >(float*)")
    'void at::::f'
    """
    return re.split(r"[<(]", name.replace("(anonymous namespace)", ""), maxsplit=1)[0]


def collective_kind(text: str) -> str | None:
    """The collective that a name tells (a value of ``COLL_KINDS``), or None.

    >>> collective_kind("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"), collective_kind("ncclDevKernel_Generic")
    ('reduce_scatter', None)
    """
    flat = text.lower().replace("_", "")
    return next((kind for word, kind in KINDS if word in flat), None)


@lru_cache(maxsize=65536)
def kernel(name: str) -> GpuName:
    """Class of a kernel record.

    >>> kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)")
    GpuName(cls='comm', kind='allreduce', fused_comm=False, mem=None)
    """
    if _FUSED.search(name):
        return GpuName("compute", fused_comm=True)
    own = identifier(name)
    if not _COMPUTE.search(own) and _COMMUNICATION.search(own):
        return GpuName("comm", kind=collective_kind(own))
    return GpuName("compute")


@lru_cache(maxsize=4096)
def copy(name: str) -> GpuName:
    """Class of a copy record, by names such as ``Memcpy HtoD (Pinned -> Device)``; AMD's ``Host`` is mem unknown.

    >>> copy("Memcpy HtoD (Pinned -> Device)").cls, copy("Memcpy HtoD (Pinned -> Device)").mem
    ('pcie_h2d', 'pinned')
    """
    letters = _COPY.search(name)
    words = _COPY_WORDS.search(name)
    if letters:
        ends = letters.group(1) + letters.group(2)
    else:
        ends = (words.group(1)[0] + words.group(2)[0]).upper() if words else ""
    cls = _COPY_CLASS.get(ends, "gpu_other")
    if cls not in ("pcie_h2d", "pcie_d2h"):
        return GpuName(cls)
    place = _PLACE.search(name)
    host = (place.group(1 if cls == "pcie_h2d" else 2) if place else "").lower()
    return GpuName(cls, mem=host if host in ("pageable", "pinned") else "unknown")


def memset(name: str) -> GpuName:
    """Class of a memset record."""
    return GpuName("gpu_memset")


@lru_cache(maxsize=65536)
def unclassified(name: str) -> bool:
    """A compute kernel whose name smells of communication but matches no rule: to be listed with its time."""
    found = kernel(name)
    own = identifier(name)
    return found.cls == "compute" and not found.fused_comm and not _COMPUTE.search(own) and bool(SMELL.search(own))
