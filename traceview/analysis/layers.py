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
_OF_MEM = np.array([MEM_KINDS.index(m) - MEM_KINDS.index("unknown") for m in (*MEM_KINDS, "unknown")], np.int8)
"""Offset of a copy's phase from that of an unknown memory kind; the last element serves code -1."""


@dataclass(frozen=True)
class Pieces:
    """Intervals of one phase each, with the ``gpu_ops`` row they come from."""

    phase: Codes
    start: Ints
    end: Ints
    row: Ints


def pieces(ops: Ops, phases: OpPhases) -> tuple[Pieces, Pieces]:
    """(all other records, communication and copies over PCIe); a communication kernel gives two pieces."""
    phase = _OF_CLASS[ops.cls]
    phase[(phase == CODE["compute.plain"]) & ops.fused] = CODE["compute.fused_comm"]
    copies = (ops.cls == CLS["pcie_h2d"]) | (ops.cls == CLS["pcie_d2h"])
    phase[copies] += _OF_MEM[ops.mem[copies]]
    moves = copies | (ops.cls == CLS["peer_copy"])
    plain, moved = np.flatnonzero((phase >= 0) & ~moves), np.flatnonzero(moves)
    comm = np.flatnonzero(ops.cls == CLS["comm"])
    sub, second = phases.sub[comm], phases.second[comm]
    wait = (CODE["comm_wait.nxn"] + sub).astype(np.int8)
    after = (np.where(second == TRANSFER, CODE["comm_transfer.nxn"], CODE["comm_unresolved.nxn"]) + sub).astype(
        np.int8
    )
    start, middle, end = ops.start[comm], phases.wait_end[comm], ops.end[comm]
    return (
        Pieces(phase[plain], ops.start[plain], ops.end[plain], plain),
        Pieces(
            np.concatenate((wait, after, phase[moved])),
            np.concatenate((start, middle, ops.start[moved])),
            np.concatenate((middle, end, ops.end[moved])),
            np.concatenate((comm, comm, moved)),
        ),
    )


def layers(*groups: Pieces) -> dict[int, Spans]:
    """Phase -> union of its pieces; no phase is in two groups."""
    out: dict[int, Spans] = {}
    for group in groups:
        for phase in np.flatnonzero(np.bincount(group.phase, minlength=1)).tolist():
            rows = np.flatnonzero(group.phase == phase)
            out[phase] = union(group.start[rows], group.end[rows])
    return out
