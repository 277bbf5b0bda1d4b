"""The GPU records of one device as layers: phase -> spans, METHODS a.2."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.intervals import Spans, union
from traceview.analysis.ops import CLS, Ops
from traceview.analysis.phases import CODE
from traceview.analysis.types import TRANSFER, Codes, Ints, OpPhases
from traceview.schema import GPU_CLASSES, MEM_KINDS

# Phase of a record by class; communication has two phases and is cut apart below.
_PHASE = {
    "compute": "compute.plain",
    "pcie_h2d": "pcie_h2d.unknown",
    "pcie_d2h": "pcie_d2h.unknown",
    "peer_copy": "comm_transfer.p2p",
}
_OF_CLASS = np.array([CODE.get(_PHASE.get(name, name), -1) for name in GPU_CLASSES], np.int8)
_MOVES = np.isin(GPU_CLASSES, ("pcie_h2d", "pcie_d2h", "peer_copy"))
_OF_MEM = np.array([MEM_KINDS.index(m) - MEM_KINDS.index("unknown") for m in (*MEM_KINDS, "unknown")], np.int8)
"""Offset of a copy's phase from that of an unknown memory kind; the last element serves code -1."""


@dataclass(frozen=True)
class Pieces:
    """Intervals of one phase each, with the ``gpu_ops`` row they come from; phase -1 = not here."""

    phase: Codes
    start: Ints
    end: Ints
    row: Ints


def pieces(ops: Ops, phases: OpPhases) -> tuple[Pieces, Pieces]:
    """(all other records, communication and copies over PCIe); a communication kernel gives two pieces."""
    phase = _OF_CLASS[ops.cls]
    phase[ops.fused & (phase == CODE["compute.plain"])] = CODE["compute.fused_comm"]
    comm, moved = np.flatnonzero(ops.cls == CLS["comm"]), np.flatnonzero(_MOVES[ops.cls])
    copied = _OF_CLASS[ops.cls[moved]]
    copied[copied != CODE["comm_transfer.p2p"]] += _OF_MEM[ops.mem[moved][copied != CODE["comm_transfer.p2p"]]]
    phase[moved] = -1
    sub, second = phases.sub[comm], phases.second[comm]
    wait = (CODE["comm_wait.nxn"] + sub).astype(np.int8)
    after = (np.where(second == TRANSFER, CODE["comm_transfer.nxn"], CODE["comm_unresolved.nxn"]) + sub).astype(
        np.int8
    )
    start, middle, end = ops.start[comm], phases.wait_end[comm], ops.end[comm]
    return (
        Pieces(phase, ops.start, ops.end, np.arange(len(ops))),
        Pieces(
            np.concatenate((wait, after, copied)),
            np.concatenate((start, middle, ops.start[moved])),
            np.concatenate((middle, end, ops.end[moved])),
            np.concatenate((comm, comm, moved)),
        ),
    )


def layers(*groups: Pieces) -> dict[int, Spans]:
    """Phase -> union of its pieces; no phase is in two groups."""
    out: dict[int, Spans] = {}
    for group in groups:
        for code in np.flatnonzero(np.bincount(group.phase + 1, minlength=1)[1:]).tolist():
            rows = np.flatnonzero(group.phase == code)
            out[code] = union(group.start[rows], group.end[rows])
    return out
