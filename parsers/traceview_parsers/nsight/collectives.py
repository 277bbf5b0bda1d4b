"""The communication operations of a process: one row per communication kernel or peer copy, and MPI calls."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from traceview.schema import COLL_FACTS, COLL_KINDS, COLLECTIVES
from traceview.units import ranks as as_ranges
from traceview_parsers.kernels import collective_kind, kernel
from traceview_parsers.nsight.nccl import Calls, Facts

P2P_KINDS = ("send", "recv", "sendrecv")
UNSETTLED = (None, "unknown", "sendrecv")


@dataclass
class CommRows:
    """Communication rows of gpu_ops, gathered while they are written, in stored order."""

    columns: dict[str, list[Any]] = field(
        default_factory=lambda: {
            c: [] for c in ("op", "device", "stream", "start", "end", "launch", "thread", "name")
        }
    )

    def add(self, **columns: Any) -> None:
        """Add the rows of a batch; ``launch`` and ``thread`` are -1 where no launch call was recorded."""
        for name, values in columns.items():
            self.columns[name].append(values)

    def joined(self) -> dict[str, Any]:
        """All rows, as int64 arrays."""
        return {n: np.concatenate(v) if v else np.empty(0, np.int64) for n, v in self.columns.items()}


def facts_of(rows: dict[str, Any], calls: Calls | None) -> list[Facts | None]:
    """What NVTX ranges tell of each row; None where no range is known to belong to it."""
    out: list[Facts | None] = [None] * len(rows["op"])
    if calls is None or not out:
        return out
    window = np.where(rows["thread"] >= 0, calls.launches.containing(rows["thread"], rows["launch"]), -1)
    inside = np.flatnonzero(window >= 0)
    order = inside[np.lexsort((rows["start"][inside], rows["launch"][inside], window[inside]))]
    cuts = np.flatnonzero(np.diff(window[order])) + 1
    for group in np.split(order, cuts) if len(order) else ():
        told = calls.facts(int(window[group[0]]), len(group))
        for row, one in zip(group.tolist(), told, strict=True):
            out[row] = one
    return _with_torch(out, rows, calls)


def _with_torch(facts: list[Facts | None], rows: dict[str, Any], calls: Calls) -> list[Facts | None]:
    """The kind from torch's own range where the NCCL calls do not settle it: an all-to-all is sends and receives."""
    at = np.where(rows["thread"] >= 0, calls.torch.containing(rows["thread"], rows["launch"]), -1)
    for row in np.flatnonzero(at >= 0).tolist():
        kind, fact = calls.torch_kinds[int(at[row])], facts[row]
        if kind and (fact is None or fact.kind in UNSETTLED):
            facts[row] = replace(fact or Facts(), kind=kind)
    return facts


def build(
    rows: dict[str, Any], texts: list[str], calls: Calls | None, epoch: int, members: dict[int, list[int]]
) -> Any:
    """The ``collectives`` table of kernels and peer copies. ``members``: communicator -> global ranks, if known."""
    facts = facts_of(rows, calls)
    comms = calls.comms if calls else {}
    names = [texts[c] for c in rows["name"].tolist()]
    known = [f or Facts() for f in facts]
    kinds = _kinds(names, rows["stream"].tolist(), known)
    groups = [None if f.comm is None else f"{f.comm:#x}" for f in known]
    listed = [members.get(f.comm) if f.comm is not None else None for f in known]
    sizes = [comms[f.comm].nranks if f.comm in comms else None for f in known]
    launch = rows["launch"]
    return COLLECTIVES.build(
        {
            "op": rows["op"],
            "device": rows["device"].astype(np.int32),
            "stream": rows["stream"],
            "start": rows["start"] + epoch,
            "end": rows["end"] + epoch,
            "launch_start": pa.array(launch + epoch, mask=rows["thread"] < 0),
            "kind": np.array([COLL_KINDS.index(k) for k in kinds], np.int8),
            "group": _names(groups),
            "members": _names([as_ranges(m) if m else None for m in listed]),
            "group_size": pa.array(sizes, pa.int32()),
            "p2p": [k in P2P_KINDS for k in kinds],
            "src": pa.array([_global(m, f.src) for m, f in zip(listed, known, strict=True)], pa.int32()),
            "dst": pa.array([_global(m, f.dst) for m, f in zip(listed, known, strict=True)], pa.int32()),
            "bytes": pa.array([f.bytes for f in known], pa.int64()),
            "coalesced": np.array([f.count for f in known], np.int32),
            "comm_id": pa.array(groups, pa.string()),
            "facts": np.array([_source(f) for f in facts], np.int8),
            "name": _names(names),
        },
        stored=True,
    )


def _kinds(names: list[str], streams: list[int], known: list[Facts]) -> list[str]:
    """Kind per row: from its ranges, else from its name. A kernel cut off from its launch by the edge of the capture
    takes the kind that all others of its name on its stream have."""
    told = [f.kind if f.kind != "unknown" else None for f in known]
    others: dict[tuple[str, int], set[str]] = {}
    for name, stream, kind in zip(names, streams, told, strict=True):
        if kind is not None:
            others.setdefault((name, stream), set()).add(kind)
    out = []
    for name, stream, kind in zip(names, streams, told, strict=True):
        common = others.get((name, stream), set())
        out.append(kind or (next(iter(common)) if len(common) == 1 else kernel(name).kind or "unknown"))
    return out


def _source(fact: Facts | None) -> int:
    told = fact is not None and (fact.comm is not None or fact.bytes is not None)
    return COLL_FACTS.index("payload" if told else "cpu_record" if fact else "name")


def _global(members: list[int] | None, rank: int | None) -> int | None:
    """Global rank of a rank within a communicator; not told where the members are unknown."""
    return members[rank] if members is not None and rank is not None and rank < len(members) else None


def _names(values: list[str | None]) -> Any:
    return pa.array(values, pa.string()).dictionary_encode()


def host_rows(thread: Any, start: Any, end: Any, names: list[str], epoch: int) -> Any:
    """MPI calls as host collectives (no GPU row, device -1)."""
    kinds = [mpi_kind(n) for n in names]
    return COLLECTIVES.build(
        {
            "device": np.full(len(names), -1, np.int32),
            "stream": thread,
            "start": start + epoch,
            "end": end + epoch,
            "kind": np.array([COLL_KINDS.index(k) for k in kinds], np.int8),
            "p2p": [k in P2P_KINDS for k in kinds],
            "coalesced": np.ones(len(names), np.int32),
            "facts": np.full(len(names), COLL_FACTS.index("name"), np.int8),
            "name": _names(list(names)),
        },
        stored=True,
    )


def mpi_kind(name: str) -> str:
    """Collective kind of an MPI function.

    >>> mpi_kind("MPI_Allreduce"), mpi_kind("MPI_Isend"), mpi_kind("MPI_Bcast"), mpi_kind("MPI_Waitall")
    ('allreduce', 'send', 'broadcast', 'unknown')
    """
    return (
        collective_kind(name.removeprefix("MPI_").replace("cast", "roadcast").replace("roadroad", "road"))
        or "unknown"
    )
