"""Exclusive decomposition of the device-step windows of one rank, METHODS a: every nanosecond in one leaf."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceview.analysis import coactivity
from traceview.analysis.host import KIND, TAG_NAMES, Host, launching_threads
from traceview.analysis.idle import Cause, Gaps, explain, find_gaps, gap_latency, host_gap, launch_tau
from traceview.analysis.intervals import LONGEST, Spans, complement, crossings, intersect, join, owners, union
from traceview.analysis.launches import LaunchAxis, launch_axis
from traceview.analysis.layers import Pieces, layers, pieces
from traceview.analysis.ops import NONE, Ops, ints
from traceview.analysis.phases import ACTIVE, CODE, IDLE_PHASES, PHASES, bits, idle_tag, leaf_name
from traceview.analysis.types import (
    NXN,
    UNRESOLVED,
    Bools,
    Decomposition,
    IdleCause,
    Ints,
    OpPhases,
    Phases,
    Segments,
    WaitPieces,
    Windows,
)
from traceview.config import DEFAULT, Config
from traceview.errors import InternalError, TraceviewError

NAMES_SHOWN = 3
_WAITS = (CODE["comm_wait.nxn"], CODE["comm_wait.p2p"])
_EXPOSED = tuple(
    code
    for code in range(len(PHASES))
    if (bits("comm_transfer", "comm_unresolved", "pcie_d2h", "pcie_h2d") >> code) & 1
)


@dataclass(frozen=True)
class RankRecord:
    """What the decomposition reads of one rank."""

    rank: int
    gpu_ops: Any
    """its ``gpu_ops`` table"""
    host_ranges: Any
    """its ``host_ranges`` table"""
    phases: OpPhases
    cover: tuple[int, int] | None = None
    """recorded range in ns, None = not known"""
    holes: list[tuple[int, int]] = field(default_factory=list)
    """known losses inside it"""
    thread: int = NONE
    """thread of the step marks; it explains the windows of a rank without GPU operations"""


def op_phases(rows: int, collectives: Any, phases: Phases, first: int) -> OpPhases:
    """Phases of one rank by row of its ``gpu_ops`` (``rows`` of them).

    ``collectives`` is the rank's own table, ``phases`` that of the run, ``first`` the row where the rank begins.
    A communication record without a row is unresolved from its start: it has no ``wait_end`` of its own.
    """
    op = ints(collectives, "op")
    mine = np.flatnonzero(op != NONE)
    at, source = op[mine], mine + first
    row, wait_end = np.full(rows, -1, np.int64), np.full(rows, NONE, np.int64)
    second, sub = np.full(rows, UNRESOLVED, np.int8), np.full(rows, NXN, np.int8)
    row[at], wait_end[at] = source, phases.wait_end[source]
    second[at], sub[at] = phases.second[source], phases.sub[source]
    return OpPhases(row, wait_end, second, sub)


def decompose(
    record: RankRecord, windows: Windows, config: Config = DEFAULT
) -> tuple[list[Decomposition], LaunchAxis]:
    """One ``Decomposition`` per device that has windows of this rank, and what its launches tell.

    Raises InternalError if leaves do not sum to their window (I2): a defect, never a property of the input.
    """
    stamped = Ops.of(record.gpu_ops)
    axis = launch_axis(stamped, config)
    ops = stamped.on_gpu_axis(axis.host_shift)
    host = Host.of(record.host_ranges, axis.host_shift)
    mine = windows.rank == record.rank
    lanes = [_lane(d, ops, record, windows, host) for d in np.unique(windows.device[mine]).tolist()]
    tau = launch_tau(np.concatenate([np.empty(0, np.int64), *(gap_latency(lane.gaps) for lane in lanes)]), config)
    cause = Cause(ops, host, tau, config.sync_refill_max_ns)
    return [_decompose(lane, record, windows, cause) for lane in lanes], axis


@dataclass(frozen=True)
class _Lane:
    """One device of the rank, before its idle time is explained."""

    device: int
    rows: Ints
    """its rows of gpu_ops"""
    window: Ints
    """its rows of Windows, ascending in time"""
    layers: dict[int, Spans]
    moves: Pieces
    """communication and PCIe copies"""
    gaps: Gaps
    uncovered: Spans


def _lane(device: int, ops: Ops, record: RankRecord, windows: Windows, host: Host) -> _Lane:
    window = np.flatnonzero((windows.rank == record.rank) & (windows.device == device))
    window = window[np.lexsort((windows.end[window], windows.start[window]))]
    rows = np.flatnonzero(ops.device == device)
    own = ops.take(rows)
    given = record.phases
    wait_end = np.clip(given.wait_end[rows], own.start, own.end)
    phases = OpPhases(given.row[rows], wait_end, given.second[rows], given.sub[rows])
    plain, moves = pieces(own, phases)
    found = layers(plain, moves)
    start, end = _hull(own, windows, window, record)
    gaps = find_gaps(own, join(list(found.values())), start, end) if len(ops) else host_gap(start, end, record.thread)
    uncovered = _uncovered(record, start, end)
    found |= {CODE["comm_host"]: host.comm.clip(start, end), CODE["uncovered"]: uncovered}
    return _Lane(device, rows, window, found, moves, gaps, uncovered)


def _hull(ops: Ops, windows: Windows, window: Ints, record: RankRecord) -> tuple[int, int]:
    """From the first to the last instant of the device's windows, operations and record."""
    starts, ends = [windows.start[window].min()], [windows.end[window].max()]
    if len(ops):
        starts, ends = [*starts, ops.start.min()], [*ends, ops.end.max()]
    if record.cover:
        starts, ends = [*starts, record.cover[0]], [*ends, record.cover[1]]
    start, end = int(min(starts)), int(max(ends))
    if end - start >= LONGEST:
        raise TraceviewError(
            f"time stamps of rank {record.rank} span {(end - start) / 3.2e16:.0f} years, so its file mixes "
            "two clocks; record it again, or leave that rank out"
        )
    return start, end


def _uncovered(record: RankRecord, start: int, end: int) -> Spans:
    """What was not recorded, or is known to be lost."""
    holes = np.array(record.holes, np.int64).reshape(-1, 2)
    lost = union(holes[:, 0], holes[:, 1]).clip(start, end)
    if record.cover is None:
        return lost
    recorded = union(np.array(record.cover[:1], np.int64), np.array(record.cover[1:], np.int64))
    return join([lost, complement(recorded, start, end)])


def _decompose(lane: _Lane, record: RankRecord, windows: Windows, cause: Cause) -> Decomposition:
    start, end, used = windows.start[lane.window], windows.end[lane.window], windows.used[lane.window]
    table, segments = coactivity.tabulate(lane.layers | explain(lane.gaps, cause, lane.uncovered), start, end)
    phase_ns = table.phases()
    leaves = coactivity.leaves(phase_ns)
    if not np.array_equal(leaves.sum(axis=1), end - start):
        raise InternalError(f"rank {record.rank} device {lane.device}: leaves do not sum to their windows")
    threads = np.isin(cause.host.thread, np.append(launching_threads(cause.ops), record.thread))
    active = table.grouped(table.masks & ACTIVE)
    return Decomposition(
        rank=record.rank,
        device=lane.device,
        window=lane.window,
        leaves=leaves,
        sub=coactivity.sub_leaves(phase_ns),
        masks=active.masks,
        coactivity=active.ns,
        companions=coactivity.companions(table),
        idle=_idle_causes(phase_ns, segments, union(start[used], end[used]), cause.host, threads),
        segments=segments,
        waits=_waits(lane, record, windows, segments),
        exposed=_exposed(lane, segments, union(start[used], end[used]), len(cause.ops)),
        tau_ns=cause.tau,
    )


def phase_spans(segments: Segments, phase: int) -> Spans:
    """The stretches of a device's record whose first phase is the given one."""
    at = np.flatnonzero(segments.phase == phase)
    return union(segments.bounds[at], segments.bounds[at + 1])


def _waits(lane: _Lane, record: RankRecord, windows: Windows, segments: Segments) -> WaitPieces:
    """Exposed waiting by window and by the operation with the latest end of waiting, METHODS e.3."""
    used = lane.window[windows.used[lane.window]]
    starts, ends = windows.start[used], windows.end[used]
    out: list[tuple[Ints, Ints, Ints]] = []
    for phase in _WAITS:
        mine = np.flatnonzero(lane.moves.phase == phase)
        s, e, op = owners(lane.moves.start[mine], lane.moves.end[mine])
        who, _, s, e = crossings(s, e, phase_spans(segments, phase))
        _, piece, s, e = crossings(starts, ends, Spans(s, e))
        row = record.phases.row[lane.rows[lane.moves.row[mine[op[who[piece]]]]]]
        out.append((s, e, row))
    start, end, row = (np.concatenate(parts) for parts in zip(*out, strict=True))
    order = np.argsort(start, kind="stable")
    return WaitPieces(start[order], end[order], row[order].astype(np.int32))


def _exposed(lane: _Lane, segments: Segments, used: Spans, rows: int) -> Ints:
    """Per gpu_ops row: exclusive time in the used windows; a shared instant is that of the latest end."""
    out = np.zeros(rows, np.int64)
    for phase in _EXPOSED:
        mine = np.flatnonzero(lane.moves.phase == phase)
        s, e, op = owners(lane.moves.start[mine], lane.moves.end[mine])
        who, _, s, e = crossings(s, e, phase_spans(segments, phase))
        np.add.at(out, lane.rows[lane.moves.row[mine[op[who]]]], used.within(s, e))
    return out


def exposed_host(segments: Segments, used: Spans, start: Ints, end: Ints) -> Ints:
    """Per host collective [start, end): exclusive time exposed in the used windows; shared as in ``_exposed``."""
    out = np.zeros(len(start), np.int64)
    s, e, row = owners(start, end)
    who, _, s, e = crossings(s, e, phase_spans(segments, CODE["comm_host"]))
    np.add.at(out, row[who], used.within(s, e))
    return out


# Which host kinds name an idle cause.
_NAMED: dict[str, tuple[str, ...]] = {
    "idle_data": ("data",),
    "idle_sync": ("sync",),
    "idle_host": ("op", "runtime"),
}


def _idle_causes(phase_ns: Ints, segments: Segments, used: Spans, host: Host, threads: Bools) -> list[IdleCause]:
    """Idle time per cause and tag, with the names of the host ranges that cover most of it in the used windows."""
    out = []
    for code in IDLE_PHASES:
        ns = phase_ns[:, code]
        if ns.any():
            leaf, tag = leaf_name(PHASES[code]), idle_tag(PHASES[code])
            spans = intersect(phase_spans(segments, code), used)
            out.append(IdleCause(leaf, tag, ns, _names(leaf, tag, spans, host, threads)))
    return out


def _names(leaf: str, tag: str, spans: Spans, host: Host, threads: Bools) -> list[str]:
    """Names of the host ranges that overlap the spans most, the largest first."""
    rows = threads & np.isin(host.kind, [KIND[kind] for kind in _NAMED.get(leaf, ())])
    if tag in TAG_NAMES:
        rows &= host.tag == TAG_NAMES.index(tag)
    chosen = np.flatnonzero(rows)
    share = np.bincount(
        host.name[chosen], weights=spans.within(host.start[chosen], host.end[chosen]), minlength=len(host.names)
    )
    order = np.argsort(-share, kind="stable")[:NAMES_SHOWN]
    return [host.names[i] for i in order if share[i] > 0]
