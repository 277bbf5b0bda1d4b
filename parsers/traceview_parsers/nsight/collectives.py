"""The communication operations of a process: one row per communication kernel or peer copy, and MPI calls."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from traceview.schema import COLL_FACTS, COLL_KINDS, COLLECTIVES
from traceview.units import ranks as as_ranges
from traceview_parsers.kernels import collective_kind, kernel
from traceview_parsers.nsight.nccl import Calls, Communicator, Facts

P2P_KINDS = ("send", "recv", "sendrecv")
NOTHING = Facts()
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


def facts_of(rows: dict[str, Any], calls: Calls | None) -> tuple[Any, list[Facts]]:
    """What NVTX ranges tell: (per row: index of its facts, the distinct facts); facts 0 are ``NOTHING``."""
    codes: dict[Facts, int] = {NOTHING: 0}
    index = np.zeros(len(rows["op"]), np.int64)
    if calls is None or not len(index):
        return index, [NOTHING]
    launched = rows["thread"] >= 0
    window = np.where(launched, calls.launches.containing(rows["thread"], rows["launch"]), -1)
    inside = np.flatnonzero(window >= 0)
    order = inside[np.lexsort((rows["start"][inside], rows["launch"][inside], window[inside]))]
    cuts = np.flatnonzero(np.diff(window[order])) + 1
    for group in np.split(order, cuts) if len(order) else ():
        told = calls.facts(int(window[group[0]]), len(group))
        index[group] = [codes.setdefault(one, len(codes)) for one in told]
    # The kind from torch's own range where the NCCL calls do not settle it: an all-to-all is sends and receives.
    at = np.where(launched, calls.torch.containing(rows["thread"], rows["launch"]), -1)
    facts = list(codes)
    for row in np.flatnonzero(at >= 0).tolist():
        kind, fact = calls.torch_kinds[int(at[row])], facts[index[row]]
        if kind == "alltoall" and fact.kind in P2P_KINDS:
            index[row] = codes.setdefault(fact.all_to_all(), len(codes))
        elif kind and fact.kind in UNSETTLED:
            index[row] = codes.setdefault(replace(fact, kind=kind), len(codes))
    return index, list(codes)


def build(
    rows: dict[str, Any], texts: list[str], calls: Calls | None, epoch: int, members: dict[int, list[int]]
) -> Any:
    """The ``collectives`` table of kernels and peer copies. ``members``: communicator -> global ranks, if known."""
    index, facts = facts_of(rows, calls)
    pairs, inverse = np.unique(index * len(texts) + rows["name"], return_inverse=True)
    comms: dict[int | None, Communicator] = calls.comms if calls else {}
    told = [(facts[pair // len(texts)], texts[pair % len(texts)]) for pair in pairs.tolist()]
    where = pa.array(inverse)
    told_columns = {name: column.take(where) for name, column in _told(told, comms, members).items()}
    launch = rows["launch"]
    return COLLECTIVES.build(
        {
            "op": rows["op"],
            "device": rows["device"].astype(np.int32),
            "stream": rows["stream"],
            "start": rows["start"] + epoch,
            "end": rows["end"] + epoch,
            "launch_start": pa.array(launch + epoch, mask=rows["thread"] < 0),
            **told_columns,
        },
        stored=True,
    )


def _told(
    told: list[tuple[Facts, str]], comms: dict[int | None, Communicator], members: dict[int, list[int]]
) -> dict[str, Any]:
    """Columns of the distinct (facts, kernel name)."""
    facts = [f for f, _ in told]
    kinds = _kinds(told)
    groups = [None if f.comm is None else f"{f.comm:#x}" for f in facts]
    listed = [None if f.comm is None else members.get(f.comm) for f in facts]
    sizes = [comms[f.comm].nranks if f.comm in comms and f != NOTHING else None for f in facts]
    return {
        "kind": _words(kinds, pa.int8()),
        "group": _words(groups),
        "members": _words([as_ranges(m) if m else None for m in listed]),
        "group_size": pa.array(sizes, pa.int32()),
        "p2p": pa.array([k in P2P_KINDS for k in kinds], pa.bool_()),
        "src": pa.array([_global(m, f.src) for m, f in zip(listed, facts, strict=True)], pa.int32()),
        "dst": pa.array([_global(m, f.dst) for m, f in zip(listed, facts, strict=True)], pa.int32()),
        "elems_in": pa.array(_of_all_to_all(kinds, [f.sent for f in facts]), pa.int64()),
        "elems_out": pa.array(_of_all_to_all(kinds, [f.received for f in facts]), pa.int64()),
        "bytes": pa.array([f.bytes for f in facts], pa.int64()),
        "coalesced": pa.array([f.count for f in facts], pa.int32()),
        "comm_id": pa.array(groups, pa.string()),
        "facts": _words([_source(f) for f in facts], pa.int8()),
        "name": _words([name for _, name in told]),
    }


def _kinds(told: list[tuple[Facts, str]]) -> list[str]:
    """Kind per (facts, name): from the ranges, else from the name. A kernel cut off from its launch by the edge of
    the capture takes the kind that all others of its name have."""
    known = [f.kind if f.kind != "unknown" else None for f, _ in told]
    others: dict[str, set[str]] = {}
    for (_, name), kind in zip(told, known, strict=True):
        if kind is not None:
            others.setdefault(name, set()).add(kind)
    out = []
    for (_, name), kind in zip(told, known, strict=True):
        common = others.get(name, set())
        out.append(kind or (next(iter(common)) if len(common) == 1 else kernel(name).kind or "unknown"))
    return out


def _of_all_to_all(kinds: list[str], sizes: list[int | None]) -> list[int | None]:
    """One direction of all-to-alls in bytes: no payload tells the element type."""
    return [s if k in ("alltoall", "alltoallv") else None for k, s in zip(kinds, sizes, strict=True)]


def _words(values: list[Any], index: Any = None) -> Any:
    """A dictionary array of texts; ``index``: type of its indices."""
    return pa.array(values, pa.string()).cast(pa.dictionary(index or pa.int32(), pa.string()))


def _source(fact: Facts) -> str:
    if fact == NOTHING:
        return "name"
    return "payload" if fact.comm is not None or fact.bytes is not None else "cpu_record"


def _global(members: list[int] | None, rank: int | None) -> int | None:
    """Global rank of a rank within a communicator; not told where the members are unknown."""
    return members[rank] if members is not None and rank is not None and rank < len(members) else None


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
            "name": _words(names),
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
