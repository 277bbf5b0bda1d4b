"""The co-activity table of a device's windows and everything that is a lookup in it, METHODS a.1, a.3 and a.4."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.intervals import Spans, sweep
from traceview.analysis.phases import ACTIVE, LEAF_OF, PHASES, SUB_OF, bits
from traceview.analysis.types import Ints, Segments
from traceview.schema import LEAVES, SUB_LEAVES

COMPUTE = bits("compute")
TRANSFER = bits("comm_transfer")
WAIT = bits("comm_wait")
COMM = TRANSFER | WAIT | bits("comm_unresolved")
STAGING = bits("pcie_d2h", "pcie_h2d")
GPU = ACTIVE & ~bits("comm_host", "uncovered")


@dataclass(frozen=True)
class Table:
    """[windows, sets of phases] in ns; a row sums to its window exactly."""

    masks: Ints
    ns: Ints

    def measure(self, *every: int) -> Ints:
        """Per window: time in which each of the given masks has an active phase."""
        chosen = np.ones(len(self.masks), np.bool_)
        for mask in every:
            chosen &= (self.masks & mask) != 0
        out: Ints = self.ns[:, chosen].sum(axis=1)
        return out

    def grouped(self, masks: Ints) -> Table:
        """The same with every column counted under another mask (one given per column)."""
        unique, inverse = np.unique(masks, return_inverse=True)
        ns = np.zeros((len(self.ns), len(unique)), np.int64)
        np.add.at(ns.T, inverse, self.ns.T)
        return Table(unique, ns)

    def phases(self) -> Ints:
        """[windows, len(PHASES)]: each set counted under its first phase."""
        out = np.zeros((len(self.ns), len(PHASES)), np.int64)
        np.add.at(out.T, first_phase(self.masks), self.ns.T)
        return out


def first_phase(masks: Ints) -> Ints:
    """The lowest set bit of every mask (a mask of no bits is a defect of the caller)."""
    lowest = masks & -masks
    out: Ints = np.searchsorted(_POWERS, lowest)
    return out


_POWERS: Ints = np.int64(1) << np.arange(len(PHASES), dtype=np.int64)


def tabulate(layers: dict[int, Spans], start: Ints, end: Ints) -> tuple[Table, Segments]:
    """Sweep the layers (phase -> spans) and sum by window [start, end) and set of active phases.

    Windows are disjoint and ascending; together the layers must cover them. Segments cover all that the layers cover.
    """
    order = sorted(phase for phase, spans in layers.items() if len(spans))
    bounds, local = sweep([layers[phase] for phase in order], np.concatenate((start, end)))
    # with few layers masks are small numbers, and counting beats sorting
    used = np.flatnonzero(np.bincount(local)) if len(order) <= 16 else np.unique(local)
    where = np.searchsorted(used, local)
    masks = sum((((used >> k) & 1) << phase for k, phase in enumerate(order)), np.zeros(len(used), np.int64))
    window = np.searchsorted(start, bounds[:-1], "right") - 1
    inside = (window >= 0) & (bounds[:-1] < end[window])
    # float64 sums of whole numbers are exact below 2^53 ns, 104 days in one cell
    ns = np.bincount(
        window[inside] * len(used) + where[inside],
        weights=np.diff(bounds)[inside],
        minlength=len(start) * len(used),
    )
    table = Table(masks, ns.astype(np.int64).reshape(len(start), len(used)))
    return table, _segments(bounds, np.where(masks != 0, first_phase(masks), 0)[where])


def _segments(bounds: Ints, phase: Ints) -> Segments:
    """Neighbours of one phase joined."""
    change = np.concatenate(([True], phase[1:] != phase[:-1])) if len(phase) else np.zeros(0, np.bool_)
    return Segments(np.concatenate((bounds[:-1][change], bounds[-1:])), phase[change].astype(np.int8))


def leaves(phase_ns: Ints) -> Ints:
    """[windows, len(LEAVES)] of [windows, len(PHASES)]."""
    out = np.zeros((len(phase_ns), len(LEAVES)), np.int64)
    np.add.at(out.T, LEAF_OF, phase_ns.T)
    return out


def sub_leaves(phase_ns: Ints) -> Ints:
    """[windows, len(SUB_LEAVES)] of [windows, len(PHASES)]."""
    out = np.zeros((len(phase_ns), len(SUB_LEAVES)), np.int64)
    np.add.at(out.T, SUB_OF[SUB_OF >= 0], phase_ns.T[SUB_OF >= 0])
    return out


def companions(table: Table) -> dict[str, Ints]:
    """METHODS a.4 per window: lengths of unions and of intersections, in ns."""
    return {
        "compute_busy": table.measure(COMPUTE),
        "comm_busy": table.measure(COMM),
        "transfer_busy": table.measure(TRANSFER),
        "wait_total": table.measure(WAIT),
        "staging_busy": table.measure(STAGING),
        "hidden_comm": table.measure(COMM, COMPUTE),
        "hidden_transfer": table.measure(TRANSFER, COMPUTE),
        "hidden_staging": table.measure(STAGING, COMPUTE | COMM),
        "busy": table.measure(GPU),
        "busy_no_wait": table.measure(GPU & ~WAIT),
    }
