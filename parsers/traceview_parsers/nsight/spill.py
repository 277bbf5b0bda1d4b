"""External sort: rows go to a scratch file as sorted runs and come back in order, in bounded memory.

Rows are records of one numpy dtype with fields ``start`` and ``end``. They are sorted by (group, start, end), where
the group is a small integer beside the rows (device, thread).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Rows = np.ndarray[Any, np.dtype[Any]]
BLOCK = 4_096
OUT = 65_536


@dataclass(frozen=True)
class _Run:
    """A sorted stretch of the file: first row, number of rows, start of every ``BLOCK``-th row, last start."""

    offset: int
    rows: int
    index: Rows
    last: int

    @property
    def first(self) -> int:
        return int(self.index[0])


class SortedSpill:
    """Append rows in any order; ``batches`` gives them back sorted. No memory map: it would count as RSS."""

    def __init__(self, path: Path, dtype: Any) -> None:
        self._path = path  # opened only while it is used: a report can hold a thousand processes
        self._dtype = np.dtype(dtype)
        self._runs: dict[int, list[_Run]] = {}
        self.rows = 0

    def append(self, group: Rows, rows: Rows) -> None:
        """Add rows; ``group`` has one integer per row."""
        if not len(rows):
            return
        start, end = rows["start"], rows["end"]
        same = start[1:] == start[:-1]
        ordered = (start[1:] > start[:-1]) | (same & (end[1:] >= end[:-1]))
        if (group != group[0]).any() or not ordered.all():
            order = np.lexsort((end, start, group))
            rows, group = rows[order], group[order]
        cuts = np.flatnonzero(np.diff(group)) + 1
        for first, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(rows)], strict=True):
            piece = rows["start"][first:stop]
            run = _Run(self.rows + first, stop - first, piece[::BLOCK].copy(), int(piece[-1]))
            self._runs.setdefault(int(group[first]), []).append(run)
        with self._path.open("ab") as file:
            file.write(np.ascontiguousarray(rows).data)
        self.rows += len(rows)

    @property
    def sizes(self) -> dict[int, int]:
        """Rows per group."""
        return {group: sum(r.rows for r in runs) for group, runs in self._runs.items()}

    @property
    def first(self) -> int:
        """The first start; there must be rows."""
        return min(r.first for runs in self._runs.values() for r in runs)

    @property
    def groups(self) -> list[int]:
        """Groups that have rows, ascending."""
        return sorted(self._runs)

    def batches(self) -> Iterator[tuple[Rows, Rows]]:
        """(group per row, rows) in order, about ``OUT`` rows at a time."""
        held: list[tuple[int, Rows]] = []
        size = 0
        for group in self.groups:
            for rows in self._merge(self._runs[group]):
                held.append((group, rows))
                size += len(rows)
                if size >= OUT:
                    yield _join(held)
                    held, size = [], 0
        if held:
            yield _join(held)

    def _read(self, run: _Run, first: int, stop: int) -> Rows:
        offset = (run.offset + first) * self._dtype.itemsize
        return np.fromfile(self._path, self._dtype, min(stop, run.rows) - first, offset=offset)

    def _merge(self, runs: list[_Run]) -> Iterator[Rows]:
        """Rows of one group in order: runs that do not overlap are read one after the other."""
        runs = sorted(runs, key=lambda r: r.first)
        at = 0
        while at < len(runs):
            stop, last = at + 1, runs[at].last
            while stop < len(runs) and runs[stop].first <= last:
                last = max(last, runs[stop].last)
                stop += 1
            if stop == at + 1:
                for first in range(0, runs[at].rows, OUT):
                    yield self._read(runs[at], first, first + OUT)
            else:
                yield from self._merge_overlapping(runs[at:stop])
            at = stop

    def _merge_overlapping(self, runs: list[_Run]) -> Iterator[Rows]:
        samples = np.sort(np.concatenate([r.index for r in runs]))
        bounds = np.unique(samples[:: OUT // BLOCK])[1:].tolist()
        for low, high in zip([None, *bounds], [*bounds, None], strict=True):
            pieces = [self._slice(r, low, high) for r in runs]
            rows = np.concatenate(pieces)
            if len(rows):
                yield rows[np.lexsort((rows["end"], rows["start"]))]

    def _slice(self, run: _Run, low: int | None, high: int | None) -> Rows:
        """Rows of a run with low <= start < high."""
        first = 0 if low is None else max(int(np.searchsorted(run.index, low, "left")) - 1, 0)
        stop = len(run.index) if high is None else int(np.searchsorted(run.index, high, "left"))
        if stop <= first:
            return np.empty(0, self._dtype)
        rows = self._read(run, first * BLOCK, stop * BLOCK)
        keep = np.ones(len(rows), np.bool_)
        if low is not None:
            keep &= rows["start"] >= low
        if high is not None:
            keep &= rows["start"] < high
        return rows[keep]


def _join(held: list[tuple[int, Rows]]) -> tuple[Rows, Rows]:
    group = np.repeat(np.array([g for g, _ in held], np.int64), [len(r) for _, r in held])
    rows = held[0][1] if len(held) == 1 else np.concatenate([r for _, r in held])
    return group, rows
