"""Identity of communicators: the same in Nsight payloads and NCCL logs, so that they can be joined."""

from __future__ import annotations

import hashlib

from simulator.program import Group, Instance

OPS = {
    "allreduce": "AllReduce",
    "allgather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "alltoall": "AlltoAll",
    "alltoallv": "AlltoAll",
    "broadcast": "Broadcast",
}
ELEMENT = 2  # bytes of bfloat16


def comm_hash(group: Group) -> int:
    """The 64-bit communicator id of a group."""
    digest = hashlib.sha256(f"{group.name}/{group.members}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1 | 1 << 56


def operation(instance: Instance, rank: int) -> str:
    """NCCL's name of the call that ``rank`` makes."""
    if instance.p2p:
        return "Send" if instance.src == rank else "Recv"
    return OPS[instance.kind]


def count(instance: Instance) -> int:
    """The count argument of the NCCL call in elements: per rank for all-gather, reduce-scatter and all-to-all."""
    per_rank = instance.kind in ("allgather", "reduce_scatter", "alltoall", "alltoallv")
    return instance.size // ELEMENT // (len(instance.group.members) if per_rank else 1)


def peer(instance: Instance, rank: int) -> int:
    """Rank in the group of the peer of a send or receive."""
    other = instance.dst if instance.src == rank else instance.src
    return instance.group.members.index(other) if other is not None else 0
