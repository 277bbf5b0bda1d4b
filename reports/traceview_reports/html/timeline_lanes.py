"""One rank's records as lanes by meaning, none of whose events overlap, on the common axis since the origin."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceview.analysis.types import UNRESOLVED, Bools, Ints
from traceview.run import Run
from traceview.schema import COLL_KINDS, COLLECTIVES, GPU_CLASSES, GPU_OPS, HOST_KINDS, HOST_RANGES, codes
from traceview_reports.html.timeline_data import Detail, RankDetail

MAX_HOST_DEPTH = 12
MAX_THREADS = 6
MAX_NAME = 400
_LARGEST = 1 << 40  # correlation ids beyond this are not ids

# Lanes of GPU records that are not communication: key, label, classes.
_GPU_LANES = (
    ("compute", "compute", ("compute", "gpu_opaque")),
    ("copies", "copies", ("pcie_h2d", "pcie_d2h")),
    ("other", "other GPU", ("gpu_d2d", "gpu_memset", "gpu_other", "peer_copy")),
)


class Names:
    """Names of the page, each once; long ones are cut (a 4 kB template name helps nobody)."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def of(self, text: str) -> int:
        """Number of a name."""
        short = text if len(text) <= MAX_NAME else text[: MAX_NAME - 1] + "…"
        return self.index.setdefault(short, len(self.index))

    def column(self, column: Any) -> Ints:
        """Numbers of an Arrow dictionary column (n,); null is -1."""
        column = column.combine_chunks()
        table = np.array([self.of(v) for v in column.dictionary.to_pylist()] + [-1], np.int64)
        out: Ints = table[column.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)]
        return out


@dataclass
class Lane:
    """A row of the timeline: ``rows`` are positions in the rank's ``Events``, in time order, none overlapping."""

    key: str
    label: str
    depth: int
    rows: Ints


@dataclass
class Events:
    """Columns of all events of a rank (n,): GPU records first, then host ranges; times since the origin."""

    start: Ints
    end: Ints
    name: Ints
    kind: Ints
    stream: Ints
    corr: Ints
    delay: Ints
    op: Ints
    bytes: Ints
    comm: Ints
    """row in the collectives table, -1 = none"""
    host: Bools
    thread: Ints
    device: Ints
    """-1 on the host"""


def starts_first(start: Ints, end: Ints) -> Ints:
    """Order by start, enclosing before enclosed."""
    return np.lexsort((-end, start))


def _chain(start: Ints, end: Ints) -> Bools:
    """The first event and, after each one taken, the next that starts when it has ended. Sorted by start.

    Reachability by doubling: what 2^k jumps reach, for falling k; so no loop over events.
    """
    n = len(start)
    if (start[1:] >= end[:-1]).all():
        return np.ones(n, bool)
    jump = np.append(np.maximum(np.searchsorted(start, end), np.arange(1, n + 1)), n)
    jumps = [jump]
    while jumps[-1][0] < n:
        jumps.append(jumps[-1][jumps[-1]])
    taken = np.zeros(n + 1, bool)
    reached = np.zeros(1, np.int64)
    for hop in reversed(jumps):
        reached = np.concatenate((reached, hop[reached]))
    taken[reached] = True
    return taken[:n]


def depths(start: Ints, end: Ints, limit: int = 1 << 30) -> Ints:
    """Depth of every interval (n,): no two of one depth overlap; nested ones get their nesting depth.

    First fit in order of start, so as many depths as intervals are ever open at once. Beyond ``limit`` depths: -1.
    """
    out: Ints = np.full(len(start), -1, np.int64)
    left = starts_first(start, end)
    depth = 0
    while len(left) and depth < limit:
        here = _chain(start[left], end[left])
        out[left[here]] = depth
        left = left[~here]
        depth += 1
    return out


def _numbers(column: Any, null: int) -> Ints:
    out: Ints = column.fill_null(null).to_numpy().astype(np.int64)
    return out


def _launch_ops(thread: Ints, at: Ints, hosts: Any, names: Names) -> Ints:
    """Name of the innermost operator open on a thread at a time, METHODS a.5's launching thread; -1 = none."""
    out: Ints = np.full(len(at), -1, np.int64)
    ops = codes(hosts["kind"], HOST_KINDS) == HOST_KINDS.index("op")
    start, end, where = (_numbers(hosts[c], 0)[ops] for c in ("start", "end", "thread"))
    name = names.column(hosts["name"])[ops] if ops.any() else start
    for one in np.unique(thread[thread >= 0]):
        mine, asked = np.flatnonzero(where == one), np.flatnonzero(thread == one)
        depth = depths(start[mine], end[mine], 64)
        for level in range(int(depth.max(initial=-1)) + 1):
            rows = mine[depth == level]
            rows = rows[np.argsort(start[rows], kind="stable")]
            found = np.searchsorted(start[rows], at[asked], "right") - 1
            inside = (found >= 0) & (end[rows[found]] > at[asked])
            out[asked[inside]] = name[rows[found[inside]]]
    return out


def _gpu(run: Run, rank: int, detail: RankDetail, origin: int, names: Names) -> dict[str, Ints]:
    table, hosts, colls = (run.parts[rank].table(t) for t in (GPU_OPS, HOST_RANGES, COLLECTIVES))
    start, end = (detail.common(_numbers(table[c], 0)) - origin for c in ("start", "end"))
    launch = _numbers(table["launch_start"], -1)
    launched = launch >= 0
    comm: Ints = np.full(len(start), -1, np.int64)
    op = _numbers(colls["op"], -1)
    comm[op[op >= 0]] = np.flatnonzero(op >= 0)
    thread = np.where(launched, _numbers(table["launch_thread"], -1), -1)
    corr = _numbers(table["correlation"], -1)
    return {
        "start": start,
        "end": end,
        "name": names.column(table["name"]) if len(start) else start,
        "kind": codes(table["cls"], GPU_CLASSES).astype(np.int64),
        "stream": _numbers(table["stream"], 0),
        "corr": np.where(corr > _LARGEST, -1, corr),
        "delay": np.where(launched, start - detail.common_host(launch) + origin, np.iinfo(np.int64).min),
        "op": _launch_ops(thread, launch, hosts, names),
        "bytes": np.maximum(_numbers(table["bytes"], 0), 0),
        "comm": comm,
        "host": np.zeros(len(start), bool),
        "thread": thread,
        "device": _numbers(table["device"], 0),
    }


def _host(run: Run, rank: int, detail: RankDetail, origin: int, names: Names) -> dict[str, Ints]:
    table, colls = (run.parts[rank].table(t) for t in (HOST_RANGES, COLLECTIVES))
    rows = np.flatnonzero(_numbers(colls["op"], -1) < 0)  # host collectives are events of their own
    start, end = (
        np.concatenate((_numbers(table[c], 0), _numbers(colls[c], 0)[rows])) + detail.host_shift_ns
        for c in ("start", "end")
    )
    n, none = len(start), np.full(len(start), -1, np.int64)
    plain = np.full(len(table), -1, np.int64)
    name = [names.column(t["name"]) for t in (table, colls) if len(t)] or [none]
    if len(table) and len(colls):
        name[1] = name[1][rows]
    elif len(colls):
        name[0] = name[0][rows]
    return {
        "start": detail.common(start) - origin,
        "end": detail.common(end) - origin,
        "name": np.concatenate(name),
        "kind": np.concatenate((codes(table["kind"], HOST_KINDS).astype(np.int64), np.zeros(len(rows), np.int64))),
        "stream": np.zeros(n, np.int64),
        "corr": none,
        "delay": np.full(n, np.iinfo(np.int64).min),
        "op": none,
        "bytes": np.zeros(n, np.int64),
        "comm": np.concatenate((plain, rows)),
        "host": np.ones(n, bool),
        "device": none,
        "thread": np.concatenate((_numbers(table["thread"], 0), _numbers(colls["stream"], 0)[rows])),
    }


def events_of(run: Run, rank: int, detail: Detail, names: Names) -> Events:
    """All GPU records, host ranges and host collectives of a rank."""
    mine = detail.ranks[rank]
    parts = [f(run, rank, mine, detail.origin_ns, names) for f in (_gpu, _host)]
    return Events(**{k: np.concatenate([p[k] for p in parts]) for k in parts[0]})


@dataclass
class CommFacts:
    """Facts of the rank's collectives table (n,), what the waits say beside them."""

    wait: Ints
    phase: Ints
    """bit 0: second phase unresolved, bit 1: point to point"""
    late: Ints
    inst: Ints
    seq: Ints
    bytes: Ints
    fact: Ints
    kind: Ints


@dataclass
class FactTable:
    """Distinct (group, description, members, size, dtype, source, destination, facts from) of the page."""

    index: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def column(self, table: Any) -> Ints:
        """Number of every row's facts (n,)."""
        keys = ("group", "group_desc", "members", "group_size", "dtype", "src", "dst", "facts", "coalesced")
        if not len(table):
            return np.empty(0, np.int64)
        coded = [table[k].combine_chunks() for k in keys]
        coded = [c if hasattr(c, "dictionary") else c.dictionary_encode() for c in coded]
        grid = np.stack([c.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) for c in coded])
        distinct, inverse = np.unique(grid, axis=1, return_inverse=True)
        values = [[*c.dictionary.to_pylist(), None] for c in coded]  # -1 takes the None at the end
        facts = [tuple(v[i] for v, i in zip(values, column, strict=True)) for column in distinct.T]
        out: Ints = np.array([self.index.setdefault(f, len(self.index)) for f in facts], np.int64)[inverse.ravel()]
        return out


def comm_facts(run: Run, rank: int, detail: RankDetail, facts: FactTable) -> CommFacts:
    """What the page says of every collectives row of a rank. Rows that the analysis left out do not wait."""
    table = run.parts[rank].table(COLLECTIVES)
    n = len(table)
    start, end = _numbers(table["start"], 0), _numbers(table["end"], 0)
    known = len(detail.wait_end) == n
    none = np.full(n, -1, np.int64)
    wait = np.clip(detail.wait_end, start, end) - start if known else np.zeros(n, np.int64)
    second = detail.second.astype(np.int64) if len(detail.second) == n else np.full(n, UNRESOLVED, np.int64)
    sub = detail.sub.astype(np.int64) if len(detail.sub) == n else _numbers(table["p2p"].cast("int64"), 0)
    return CommFacts(
        wait=wait,
        phase=second | sub << 1,
        late=detail.late_rank if len(detail.late_rank) == n else none,
        inst=detail.instance if len(detail.instance) == n else none,
        seq=_numbers(table["seq"], -1),
        bytes=np.maximum(_numbers(table["bytes"], 0), 0),
        fact=facts.column(table),
        kind=np.maximum(codes(table["kind"], COLL_KINDS).astype(np.int64), 0),
    )


def _levels(key: str, label: str, rows: Ints, events: Events, limit: int = 1 << 30) -> list[Lane]:
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    depth = depths(events.start[rows], events.end[rows], limit)
    return [Lane(key, label, d, rows[depth == d]) for d in range(int(depth.max(initial=-1)) + 1)]


def _comm_kind(events: Events, comm: CommFacts) -> Ints:
    """Kind of every communication event (n,), "unknown" where no row tells it; -1 for all others."""
    unknown = COLL_KINDS.index("unknown")
    gpu_comm = ~events.host & (events.kind == GPU_CLASSES.index("comm"))
    kind = np.where(gpu_comm, unknown, -1)
    if len(comm.kind):
        kind = np.where(events.comm >= 0, comm.kind[events.comm], kind)
    return kind


def lanes_of(events: Events, comm: CommFacts, chosen: Bools) -> list[Lane]:
    """Lanes of the chosen events: communication by kind, then the other GPU lanes, then the host's threads.

    A rank with several devices has lanes of each; those of all but the first say which.
    """
    out: list[Lane] = []
    kind = _comm_kind(events, comm)
    devices = np.unique(events.device[chosen])
    places = [(int(d), "" if d == devices[devices >= 0][0] else f" (GPU {d})") for d in devices if d >= 0]
    for k, name in enumerate(COLL_KINDS):
        words = "other communication" if name == "unknown" else name.replace("_", "-")
        for device, suffix in (*places, (-1, " (host)")):
            rows = np.flatnonzero(chosen & (kind == k) & (events.device == device))
            out += _levels(f"comm.{name}{suffix}", words + suffix, rows, events)
    for key, label, classes in _GPU_LANES:
        wanted = chosen & np.isin(events.kind, [GPU_CLASSES.index(c) for c in classes]) & (kind < 0)
        for device, suffix in places:
            rows = np.flatnonzero(wanted & (events.device == device))
            out += _levels(key + suffix, label + suffix, rows, events)
    hosts = np.flatnonzero(chosen & events.host & (kind < 0))
    threads, counts = np.unique(events.thread[hosts], return_counts=True)
    for thread in threads[np.argsort(-counts, kind="stable")][:MAX_THREADS]:
        rows = hosts[events.thread[hosts] == thread]
        out += _levels(f"host.{thread}", f"thread {thread}", rows, events, MAX_HOST_DEPTH)
    return out
