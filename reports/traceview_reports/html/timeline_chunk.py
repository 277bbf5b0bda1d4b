"""One rank's chosen events as a chunk of text and what the reader must know of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from traceview.analysis.types import UNRESOLVED, Bools, Ints
from traceview.run import Run
from traceview_reports.html.timeline_data import Detail, RankDetail
from traceview_reports.html.timeline_lanes import (
    CommFacts,
    Events,
    FactTable,
    Names,
    comm_facts,
    events_of,
    lanes_of,
)
from traceview_reports.html.timeline_pack import COMM, EVENT, GPU, deltas, pack, text, zigzag

ALL_TIME = (-(1 << 62), 1 << 62)


@dataclass(frozen=True)
class Cells:
    """A rank's record cut at its step windows: ``edges`` (n - 1,) on the common axis since the origin.

    Cell i is [edges[i - 1], edges[i]); ``steps`` (n,) names its step, -1 = before, after or between steps.
    """

    edges: Ints
    steps: Ints

    def spans(self, chosen: Bools) -> list[tuple[int, int]]:
        """The chosen cells as merged intervals; the first and last cell have no outer bound."""
        bounds = np.concatenate(([ALL_TIME[0]], self.edges, [ALL_TIME[1]]))
        flips = np.flatnonzero(np.diff(np.concatenate(([False], chosen, [False])).astype(np.int8)))
        return [(int(bounds[a]), int(bounds[b])) for a, b in flips.reshape(-1, 2)]

    def of(self, start: Ints) -> Ints:
        """The cell of each event, by its start."""
        out: Ints = np.searchsorted(self.edges, start, "right")
        return out


def cells_of(detail: RankDetail, origin: int) -> Cells:
    """Cells of one rank; a rank without windows is one cell."""
    start, end = detail.common(detail.step_start) - origin, detail.common(detail.step_end) - origin
    edges = np.unique(np.concatenate((start, end)))
    steps: Ints = np.full(len(edges) + 1, -1, np.int64)
    steps[np.searchsorted(edges, start, "right")] = detail.step
    return Cells(edges, steps)


@dataclass(frozen=True)
class Chunk:
    """``text`` is base64; ``head`` goes into the page's index; ``events`` counts what is inside."""

    text: str
    head: dict[str, Any]
    events: int


@dataclass(frozen=True)
class Shared:
    """Tables of the page that chunks refer to."""

    names: Names
    facts: FactTable


def _comm_columns(events: Events, comm: CommFacts, rows: Ints) -> dict[str, Ints]:
    at = events.comm[rows]
    known = at >= 0

    def take(column: Ints, otherwise: int) -> Ints:
        padded = np.append(column, otherwise)
        out: Ints = np.where(known, padded[at], otherwise)
        return out

    return {
        "wait": take(comm.wait, 0),
        "phase": take(comm.phase, UNRESOLVED),
        "late": take(comm.late, -1) + 1,
        "inst": deltas(take(comm.inst, -1)),
        "seq": deltas(take(comm.seq, -1)),
        "fact": take(comm.fact, -1) + 1,
        "bytes": take(comm.bytes, 0),
    }


def _gpu_columns(events: Events, rows: Ints, stream: Ints) -> dict[str, Ints]:
    delay = events.delay[rows]
    known = delay > np.iinfo(np.int64).min
    return {
        "stream": stream,
        "corr": deltas(events.corr[rows]),
        "delay": np.where(known, zigzag(np.where(known, delay, 0)) + 1, 0),
        "op": events.op[rows] + 1,
        "bytes": events.bytes[rows],
    }


def _gaps(start: Ints, end: Ints, counts: list[int]) -> tuple[Ints, list[int]]:
    """Gap before every event to the end of the one before it in its lane, and the start of every lane."""
    if not len(start):
        return start, []
    gap = start - np.concatenate(([0], end[:-1]))
    firsts = np.cumsum([0, *counts[:-1]])
    gap[firsts] = 0
    return gap, [int(s) for s in start[firsts]]


def _pieces(detail: RankDetail, origin: int, cells: Cells, chosen: Bools) -> tuple[Ints, Ints, Ints]:
    start, end, phase = detail.pieces(origin)
    here = chosen[cells.of(start)]
    return start[here], end[here], phase[here].astype(np.int64)


def _adopt(events: Events, rows: Ints, local: Names, page: Names) -> None:
    """Number the names by the page's table, which then holds only those of events that are embedded."""
    texts = list(local.index)
    used = np.union1d(events.name[rows], events.op[rows])
    table = np.full(len(texts) + 1, -1, np.int64)  # -1 stays -1
    table[used] = [page.of(texts[i]) if i >= 0 else -1 for i in used]
    events.name, events.op = table[events.name], table[events.op]


def build_chunk(run: Run, detail: Detail, rank: int, chosen: Bools, shared: Shared) -> Chunk:
    """The events of the chosen cells of a rank, in lanes, with its pieces as the last lane."""
    mine = detail.ranks[rank]
    cells = cells_of(mine, detail.origin_ns)
    local = Names()
    events = events_of(run, rank, detail, local)
    comm = comm_facts(run, rank, mine, shared.facts)
    lanes = lanes_of(events, comm, chosen[cells.of(events.start)])
    p_start, p_end, p_kind = _pieces(mine, detail.origin_ns, cells, chosen)
    rows = np.concatenate([lane.rows for lane in lanes]) if lanes else np.empty(0, np.int64)
    counts = [len(lane.rows) for lane in lanes] + ([len(p_start)] if len(p_start) else [])
    _adopt(events, rows, local, shared.names)
    start = np.concatenate((events.start[rows], p_start))
    end = np.concatenate((events.end[rows], p_end))
    gap, bases = _gaps(start, end, counts)
    n_comm = sum(len(x.rows) for x in lanes if x.key.startswith("comm."))
    n_gpu = sum(len(x.rows) for x in lanes if not x.key.startswith("host."))
    streams, stream = np.unique(events.stream[rows[:n_gpu]], return_inverse=True)
    of_gpu = _gpu_columns(events, rows[:n_gpu], stream.astype(np.int64))
    of_comm = _comm_columns(events, comm, rows[:n_comm])
    of_gpu["bytes"][:n_comm] = of_comm.pop("bytes")
    of_event = {
        "gap": gap,
        "dur": end - start,
        "name": np.concatenate((events.name[rows], np.zeros(len(p_start), np.int64))),
        "kind": np.concatenate((events.kind[rows], p_kind)),
    }
    raw = pack(EVENT, of_event) + pack(GPU, of_gpu) + pack(COMM, of_comm)
    listed = [[x.key, x.label, x.depth, len(x.rows)] for x in lanes]
    if len(p_start):
        listed.append(["pieces", "where time went", 0, len(p_start)])
    head = {
        "rank": rank,
        "n": [len(start), n_gpu, n_comm],
        "lanes": [[*lane, base] for lane, base in zip(listed, bases, strict=True)],
        "streams": [int(s) for s in streams],
        "spans": cells.spans(chosen),
    }
    return Chunk(text(raw), head, len(rows))
