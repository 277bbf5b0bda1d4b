"""Positions of collectives that carry no sequence number: ordinals, and their repair (METHODS c, K2-K4, V2, V3).

Rows are cut into *cells* (one group, kind and step) and each cell into *runs* (one rank). Rows of a cell with the
same position are one instance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview.analysis.instances import begins
from traceview.analysis.sequence import Run, align, by_time, overlap_share, slip
from traceview.analysis.types import Bools, Ints
from traceview.config import Config


@dataclass(frozen=True)
class Cells:
    """Rows sorted by cell, rank and time. ``run_*`` have one element per (cell, rank), cell by cell."""

    order: Ints
    """row numbers"""
    position: Ints
    """per element of ``order``: ordinal within its run"""
    run_cell: Ints
    run_rank: Ints
    run_start: Ints
    """offset into ``order``"""
    run_count: Ints
    cell_runs: Ints
    """per cell: offset of its first run; one more element at the end"""
    cell_class: Ints
    """per cell: what the cell is one step of"""


UNPLACED = np.iinfo(np.int64).min


@dataclass
class Placed:
    """Result per element of ``Cells.order``: position in the cell (``UNPLACED`` = unmatched), and how sure."""

    position: Ints
    aligned: Bools
    """by alignment (K3), not by plain ordinal"""
    ambiguous: Bools

    def keys(self, cells: Cells) -> Ints:
        """Instance key per element: equal for equal cells and positions, -1 = unmatched."""
        cell = np.repeat(cells.run_cell, cells.run_count)
        fit = self.position != UNPLACED
        count = len(cells.cell_class)
        low = np.full(count, np.iinfo(np.int64).max)
        high = np.full(count, UNPLACED)
        np.minimum.at(low, cell[fit], self.position[fit])
        np.maximum.at(high, cell[fit], self.position[fit])
        height = np.where(high == UNPLACED, 0, high - np.minimum(low, high) + 1)
        base = np.cumsum(height) - height
        return np.where(fit, base[cell] + self.position - low[cell], -1)


def cut(rows: Ints, classes: Ints, step: Ints, rank: Ints, time: Ints) -> Cells:
    """Cells of ``rows`` (row numbers); the other arrays have one element per row of ``rows``."""
    span = step.max(initial=0) - step.min(initial=0) + 1
    key = classes * span + (step - step.min(initial=0))
    order = np.lexsort((time, rank, key))
    key, rank = key[order], rank[order]
    run_start = np.flatnonzero(begins(key, rank))
    run_count = np.diff(np.append(run_start, len(order)))
    run_key = key[run_start]
    values, cell_runs, run_cell = np.unique(run_key, return_index=True, return_inverse=True)
    return Cells(
        order=rows[order],
        position=np.arange(len(order)) - np.repeat(run_start, run_count),
        run_cell=run_cell,
        run_rank=rank[run_start],
        run_start=run_start,
        run_count=run_count,
        cell_runs=np.append(cell_runs, len(run_start)),
        cell_class=values // span,
    )


def uneven(cells: Cells, sig: Ints) -> Bools:
    """Per cell: its ranks differ in the number or in the signatures of their collectives (V1)."""
    first = cells.cell_runs[:-1]
    low = np.minimum.reduceat(cells.run_count, first)
    high = np.maximum.reduceat(cells.run_count, first)
    row_cell = np.repeat(cells.run_cell, cells.run_count)
    mirror = np.minimum(cells.position, low[row_cell] - 1) + cells.run_start[first][row_cell]
    differs = sig[cells.order] != sig[cells.order[mirror]]
    out: Bools = (low != high) | (np.bincount(row_cell, differs, len(first)) > 0)
    return out


@dataclass(frozen=True)
class Clues:
    """What placing looks at, per row of the collectives table, and hosts by rank."""

    sig: Ints
    start: Ints
    end: Ints
    host: Ints
    config: Config

    def run(self, cells: Cells, index: int) -> Run:
        """The run ``index`` as arrays."""
        at = cells.run_start[index]
        rows = cells.order[at : at + cells.run_count[index]]
        return Run(self.sig[rows], self.start[rows], self.end[rows])

    def same_host(self, cells: Cells, first: int, second: int) -> bool:
        """Both runs have stamps of one system clock."""
        return bool(self.host[cells.run_rank[first]] == self.host[cells.run_rank[second]])


def place(cells: Cells, clues: Clues, *, anchored: bool) -> Placed:
    """Positions of all rows. ``anchored``: a cell is one step that all ranks number alike, so ordinals count.

    Else a cell is a whole record, and every run is shifted against the longest one (V2).
    """
    n = len(cells.order)
    out = Placed(cells.position.copy(), np.zeros(n, np.bool_), np.zeros(n, np.bool_))
    if not n:
        return out
    bad = uneven(cells, clues.sig)
    for cell in np.flatnonzero(bad if anchored else np.ones(len(bad), np.bool_)).tolist():
        ref = _reference(cells, cell, modal=anchored)
        for run in range(cells.cell_runs[cell], cells.cell_runs[cell + 1]):
            if run == ref:
                continue
            span = slice(cells.run_start[run], cells.run_start[run] + cells.run_count[run])
            if anchored:
                out.position[span] = _aligned(cells, clues, bad, ref, run)
                out.aligned[span] = True
            else:
                out.position[span], out.aligned[span], out.ambiguous[span] = _free(cells, clues, ref, run)
    return out


def _reference(cells: Cells, cell: int, *, modal: bool) -> int:
    """The run that others are placed against: of the commonest length (the longest if none is), the first such."""
    low, high = cells.cell_runs[cell], cells.cell_runs[cell + 1]
    counts = cells.run_count[low:high]
    length = int(counts.max())
    if modal:
        tally = np.bincount(counts)
        length = int(np.flatnonzero(tally == tally.max())[-1])
    return int(low + np.argmax(counts == length))


def _aligned(cells: Cells, clues: Clues, bad: Bools, ref: int, run: int) -> Ints:
    """K3; rows whose place the signatures leave open are placed by time if the clocks allow it, else unmatched."""
    theirs, own = clues.run(cells, ref), clues.run(cells, run)
    if np.array_equal(theirs.sig, own.sig):
        return np.arange(len(own))
    position, certain = align(theirs.sig, own.sig)
    sure = _certain(position, certain)
    if certain.all():
        return sure
    offset = _offset(cells, clues, bad, ref, run, sure)
    if offset is None:
        return sure
    timed = by_time(theirs, own, offset)
    grows = np.maximum.accumulate(np.append(-1, timed[:-1])) < timed
    return np.where((timed >= 0) & grows, timed, UNPLACED)


def _certain(position: Ints, certain: Bools) -> Ints:
    return np.where(certain & (position >= 0), position, UNPLACED)


def _offset(cells: Cells, clues: Clues, bad: Bools, ref: int, run: int, sure: Ints) -> int | None:
    """What to add to the clock of ``run`` to compare it with ``ref``: from the nearest step that matched evenly."""
    if clues.same_host(cells, ref, run):
        return 0
    cell = int(cells.run_cell[run])
    for distance in range(1, 8):
        for near in (cell - distance, cell + distance):
            inside = 0 <= near < len(bad) and not bad[near] and cells.cell_class[near] == cells.cell_class[cell]
            pair = [_run_of(cells, near, int(cells.run_rank[r])) for r in (ref, run)] if inside else []
            if pair and None not in pair:
                theirs, own = (clues.run(cells, r) for r in pair if r is not None)
                return int(np.median(theirs.end - own.end))
    known = sure >= 0
    if known.sum() < 3:
        return None
    return int(np.median(clues.run(cells, ref).end[sure[known]] - clues.run(cells, run).end[known]))


def _run_of(cells: Cells, cell: int, rank: int) -> int | None:
    low, high = cells.cell_runs[cell], cells.cell_runs[cell + 1]
    at = low + int(np.searchsorted(cells.run_rank[low:high], rank))
    return at if at < high and cells.run_rank[at] == rank else None


def _free(cells: Cells, clues: Clues, ref: int, run: int) -> tuple[Ints, bool, bool]:
    """(positions, by alignment, ambiguous) of a run that no step number anchors."""
    theirs, own = clues.run(cells, ref), clues.run(cells, run)
    same = clues.same_host(cells, ref, run)
    found = slip(theirs, own, same_clock=same, reach=clues.config.max_slip)
    if found.share >= clues.config.overlap_good:
        return np.arange(len(own)) + found.shift, found.shift != 0, not found.certain
    position, certain = align(theirs.sig, own.sig)
    position = _certain(position, certain)
    if same:
        timed = by_time(theirs, own)
        if np.mean(timed >= 0) >= clues.config.overlap_good:
            return np.where(timed >= 0, timed, UNPLACED), True, False
        return position, True, overlap_share(theirs, own, position) < clues.config.overlap_good
    return position, True, True
