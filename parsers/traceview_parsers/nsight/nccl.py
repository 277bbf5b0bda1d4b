"""NCCL calls of a process: which launch they belong to, and what they tell of the kernel launched there.

The ranges time the enqueueing on the host only. Outside a group, the kernel is launched inside the call's own range;
inside ``ncclGroupStart`` .. ``ncclGroupEnd``, all calls of the group are launched by the closing ``ncclGroupEnd``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from traceview_parsers.kernels import collective_kind
from traceview_parsers.nsight.payload import MOST_BYTES, blank
from traceview_parsers.nsight.process import Process

_OPERATION = re.compile(
    r"^p?nccl(AllReduce|AllGather|AllGatherV|ReduceScatter|AlltoAllv?|AllToAllv?|Broadcast|Bcast|Reduce|Gather|Scatter|Send|Recv)$"
)
# Payloads tell count x element size; message size S (METHODS f.1) of these is that times the number of ranks.
TIMES_RANKS = ("allgather", "reduce_scatter", "alltoall", "gather", "scatter")


def operation(name: str) -> str | None:
    """The collective kind of an NCCL function name, None for one that moves no data.

    >>> operation("ncclAllGather"), operation("ncclBcast"), operation("ncclGroupEnd")
    ('allgather', 'broadcast', None)
    """
    found = _OPERATION.match(name)
    return collective_kind(name.replace("Bcast", "Broadcast")) if found else None


@dataclass(frozen=True)
class Communicator:
    """What the process's own init call told."""

    nranks: int
    rank: int


@dataclass(frozen=True)
class Facts:
    """What the NCCL calls behind one kernel tell; None = not told."""

    kind: str | None = None
    comm: int | None = None
    bytes: int | None = None
    count: int = 1
    src: int | None = None
    """rank within the communicator: the sender, or the root of a broadcast"""
    dst: int | None = None
    sent: int | None = None
    """bytes that go out of this rank in an all-to-all, to itself included"""
    received: int | None = None
    even: bool = True
    """all sends and receives are of one size and, where the ranks are known, one of each with every rank"""

    def all_to_all(self) -> Facts:
        """As torch's own range names it what NCCL shows as sends and receives."""
        return replace(self, kind="alltoall" if self.even else "alltoallv", src=None, dst=None)


@dataclass(frozen=True)
class Windows:
    """Host ranges, sorted by (thread, start), that do not overlap on a thread."""

    thread: Any
    start: Any
    end: Any

    def containing(self, thread: Any, time: Any) -> Any:
        """Per (thread, time): the window that contains it, -1 if none does."""
        out = np.full(len(time), -1, np.int64)
        for one in np.unique(self.thread).tolist():
            rows = np.flatnonzero(thread == one)
            mine = np.flatnonzero(self.thread == one)
            at = np.searchsorted(self.start[mine], time[rows], "right") - 1
            inside = (at >= 0) & (time[rows] <= self.end[mine[np.maximum(at, 0)]])
            out[rows[inside]] = mine[at[inside]]
        return out


@dataclass(frozen=True)
class Calls:
    """What a process's NVTX ranges tell of its communication.

    ``launches``: ranges in which kernels are launched; call ``i`` of launch ``w`` has ``first[w] <= i < first[w+1]``.
    ``torch``: ranges of torch's collectives (``nccl:all_to_all``), which enclose the calls, with their kinds.
    """

    launches: Windows
    first: Any
    kinds: list[str]
    """per call"""
    payload: Any
    """per call: a row of ``PAYLOAD``"""
    torch: Windows
    torch_kinds: list[str | None]
    comms: dict[int | None, Communicator]
    """By id; None = the only one, in payloads without ids (NCCL before 2.25)."""
    inits: list[Communicator]
    """All that the process joined, with id or without."""

    def facts(self, window: int, kernels: int) -> list[Facts]:
        """Facts of the ``kernels`` kernels launched in a window, in launch order; nothing where not certain."""
        calls = range(int(self.first[window]), int(self.first[window + 1]))
        if kernels == 1:
            return [self._combine(list(calls))]
        if kernels == len(calls):
            return [self._combine([c]) for c in calls]
        comms: dict[int | None, list[int]] = {}
        for c in calls:
            comms.setdefault(self._comm(c), []).append(c)
        if len(comms) == kernels and None not in comms:
            return [self._combine(group) for group in comms.values()]
        return [Facts()] * kernels

    def _comm(self, call: int) -> int | None:
        row = self.payload[call]
        return int(row["comm"]) if row["has_comm"] else None

    def _combine(self, calls: list[int]) -> Facts:
        kinds = [self.kinds[c] for c in calls]
        comms = {self._comm(c) for c in calls}
        comm = comms.pop() if len(comms) == 1 else None
        if set(kinds) <= {"send", "recv"}:
            return self._pairs(calls, kinds, comm)
        kind = kinds[0] if len(set(kinds)) == 1 else "unknown"
        sizes = [self._bytes(c, k, comm) for c, k in zip(calls, kinds, strict=True)]
        roots = {int(self.payload[c]["root"]) for c in calls}
        root = roots.pop() if len(roots) == 1 else -1
        known = [s for s in sizes if s is not None]
        total = sum(known) if len(known) == len(sizes) and sum(known) <= MOST_BYTES else None
        both = total if kind == "alltoall" else None
        return Facts(
            kind,
            comm,
            total,
            len(calls),
            sent=both,
            received=both,
            src=root if root >= 0 and kind in ("broadcast", "scatter") else None,
            dst=root if root >= 0 and kind in ("reduce", "gather") else None,
        )

    def _bytes(self, call: int, kind: str, comm: int | None) -> int | None:
        size = int(self.payload[call]["size"])
        if size < 0:
            return None
        if kind not in TIMES_RANKS:
            return size
        known = self.comms.get(comm)
        return size * known.nranks if known else None

    def _pairs(self, calls: list[int], kinds: list[str], comm: int | None) -> Facts:
        """Sends and receives launched as one kernel; one of each with every rank is an all-to-all."""
        sends = [c for c, k in zip(calls, kinds, strict=True) if k == "send"]
        receives = [c for c, k in zip(calls, kinds, strict=True) if k == "recv"]
        out, back = (self.payload[some] for some in (sends, receives))
        moved = [p["size"] for p in (out, back) if len(p)]
        told = not any((s < 0).any() for s in moved)
        sent, received = (int(p["size"].sum()) if told else None for p in (out, back))
        total = max(int(s.sum()) for s in moved) if told else None
        same = len({*out["size"].tolist(), *back["size"].tolist()}) == 1
        known = self.comms.get(comm)
        everyone = set(range(known.nranks)) if known else None
        one_each = everyone and len(sends) == len(receives) == len(everyone) > 1
        if one_each and set(out["peer"].tolist()) == set(back["peer"].tolist()) == everyone:
            return Facts(None, comm, total, len(calls), sent=sent, received=received, even=same).all_to_all()
        kind = "sendrecv" if sends and receives else kinds[0]
        one_way = len(sends) + len(receives) == 1
        to = int(out["peer"][0]) if len(sends) == 1 else -1
        of = int(back["peer"][0]) if len(receives) == 1 else -1
        me = known.rank if known and one_way else None
        return Facts(
            kind,
            comm,
            total,
            len(calls),
            src=of if of >= 0 else me,
            dst=to if to >= 0 else me,
            sent=sent,
            received=received,
            even=same and everyone is None,
        )


def calls_of(process: Process, texts: list[str], payloads: Any) -> Calls | None:
    """The communication ranges of a process, None if it has none. ``payloads`` are those of the report."""
    if not process.nccl:
        return None
    thread, start, end, code = (np.concatenate(column) for column in zip(*process.nccl, strict=True))
    order = np.lexsort((-end, start, thread))
    thread, start, end, code = thread[order], start[order], end[order], code[order]
    words = [texts[c] for c in code.tolist()]
    payload = _join(payloads, thread | process.key, start)
    kinds = [operation(w) for w in words]
    launch, bounds = _launch_ranges(thread, words, kinds)
    rows = np.flatnonzero(launch >= 0)
    rows = rows[np.argsort(launch[rows], kind="stable")]
    torch = np.array([":" in w for w in words], np.bool_)
    told = payload[(payload["nranks"] > 0) & (payload["rank"] >= 0)]
    return Calls(
        launches=Windows(thread[bounds], start[bounds], end[bounds]),
        first=np.searchsorted(launch[rows], np.arange(len(bounds) + 1)),
        kinds=[kinds[r] or "unknown" for r in rows.tolist()],
        payload=payload[rows],
        torch=Windows(thread[torch], start[torch], end[torch]),
        torch_kinds=[collective_kind(words[r].partition(":")[2]) for r in np.flatnonzero(torch).tolist()],
        comms=_communicators(told),
        inits=[Communicator(int(r["nranks"]), int(r["rank"])) for r in told],
    )


def _join(payloads: Any, tid: Any, start: Any) -> Any:
    """The payload of each call (same thread, same start), blank where there is none."""
    out = blank(len(tid))
    for one in np.unique(tid).tolist():
        mine = np.flatnonzero(tid == one)
        have = payloads[payloads["tid"] == one]
        if not len(have):
            continue
        at = np.minimum(np.searchsorted(have["start"], start[mine]), len(have) - 1)
        hit = have["start"][at] == start[mine]
        out[mine[hit]] = have[at[hit]]
    return out


def _communicators(told: Any) -> dict[int | None, Communicator]:
    """Communicators by id from the payloads of init calls."""
    found: dict[int | None, Communicator] = {
        int(r["comm"]) if r["has_comm"] else None: Communicator(int(r["nranks"]), int(r["rank"])) for r in told
    }
    if len(told) > 1:
        found.pop(None, None)  # which of them a call without an id means is not told
    return found


def _launch_ranges(thread: Any, words: list[str], kinds: list[str | None]) -> tuple[Any, Any]:
    """(launch range per call or -1, row of that range), ranges in stored order."""
    step = np.array([1 if w.endswith("GroupStart") else -1 if w.endswith("GroupEnd") else 0 for w in words])
    row = np.full(len(words), -1, np.int64)
    moves = np.array([k is not None for k in kinds], np.bool_)
    for one in np.unique(thread).tolist():
        mine = np.flatnonzero(thread == one)
        depth = np.cumsum(step[mine])
        depth -= np.minimum(np.minimum.accumulate(depth), 0)  # a group whose start is not recorded
        closing = mine[(step[mine] < 0) & (depth == 0)]
        calls = moves[mine]
        alone, grouped = mine[calls & (depth == 0)], mine[calls & (depth > 0)]
        row[alone] = alone
        at = np.searchsorted(closing, grouped)
        kept = at < len(closing)
        row[grouped[kept]] = closing[at[kept]]
    bounds, window = np.unique(row, return_inverse=True)
    if len(bounds) and bounds[0] < 0:
        return window - 1, bounds[1:]
    return window, bounds
