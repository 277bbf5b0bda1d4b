"""Which times of rows are possible, and what becomes of those that are not (the rules of ``limits``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceview.errors import TraceviewError
from traceview_parsers.limits import MAX_FAR, OVERFLOW_NS, SPAN_NS
from traceview_parsers.nsight.source import LATEST, NULL, Source, integer
from traceview_parsers.nsight.spill import SortedSpill
from traceview_parsers.nsight.split import split

Ints = np.ndarray[Any, np.dtype[np.int64]]

# Verdicts on a row.
FINE, OPEN, NEGATIVE, OVER, FAR, LOST, EMPTY = range(7)
DROPPED = FAR
"""This verdict and those above: rows without a usable time."""
FACTS = {
    OPEN: "events_without_end",
    NEGATIVE: "negative_durations",
    OVER: "clipped_overflows",
    FAR: "events_far_away",
    LOST: "events_without_time",
    EMPTY: "empty_gpu_records",
}
"""Names of the counts; those that the Kineto reader has too are called as there."""

_SAMPLE = 1_000
_FEW = 10
"""So many damaged times are no second clock, however short the file is."""
_SLACK_NS = 1_000_000_000
"""By so much may a row pass the end of the capture that the file tells."""


@dataclass
class Counts:
    """Rows of one process and what happened to them."""

    events: int = 0
    verdicts: Any = field(default_factory=lambda: np.zeros(len(FACTS) + 1, np.int64))
    cut_ns: int = 0
    """what was cut off rows that ran too long"""
    unclosed: int = 0
    """host ranges and calls without an end, clipped at the end of the capture"""

    def take(self, verdict: Any, cut: Any) -> None:
        """Count a batch; ``cut`` as ``Times.judge`` gives it."""
        self.events += len(verdict)
        self.verdicts += np.bincount(verdict, minlength=len(self.verdicts))
        self.cut_ns += sum(cut[verdict == OVER].tolist())

    @property
    def repaired(self) -> int:
        """Rows whose end was moved."""
        return int(self.verdicts[[OPEN, NEGATIVE, OVER]].sum())

    @property
    def dropped(self) -> int:
        """Rows without a usable time."""
        return int(self.verdicts[DROPPED:].sum())

    def facts(self) -> dict[str, str]:
        """The counts that are not 0, by name."""
        told = {name: int(self.verdicts[code]) for code, name in FACTS.items()} | {"clipped_overflow_ns": self.cut_ns}
        return {name: str(n) for name, n in told.items() if n}


@dataclass(frozen=True)
class Times:
    """Session times, ns, that rows of a report can have."""

    low: int = -LATEST
    high: int = LATEST
    end: int | None = None
    """End of the capture, if the rows bear out what the file tells of it."""

    def judge(self, start: Ints, end: Ints) -> tuple[Ints, Any, Ints]:
        """(possible ends, verdict, ns cut off) per row; ``OPEN`` rows, and negative ones, end where they start."""
        verdict = np.zeros(len(start), np.int8)
        stop = np.maximum(start, end)
        opened = end == NULL
        if opened.any():
            verdict[opened] = OPEN
        verdict[(end < start) & ~opened] = NEGATIVE
        latest = self.high
        if self.end is not None:
            latest = min(latest, self.end + _SLACK_NS)
            over = (stop > latest) & (stop <= self.high) & (start <= latest)
            if over.any():
                verdict[over] = OVER
                stop = np.where(over, self.end, stop)
                stop = np.maximum(stop, start)
        far = (start < self.low) | (start > latest) | (stop > self.high)
        if far.any():
            verdict[far] = FAR
            verdict[far & ((start < -LATEST) | (start > LATEST))] = LOST
        return stop, verdict, end - stop if (verdict == OVER).any() else np.zeros(len(start), np.int64)


def learn(source: Source, tables: Sequence[Sequence[str]], duration: int | None) -> tuple[Times, list[str]]:
    """(the possible times of a report, warnings), from the first and last rows of its large tables.

    ``tables``: asked in turn, until some have rows.
    ``duration``: end of the capture as the file tells it; not believed where the rows lie elsewhere.
    """
    rows = next((found for some in tables if (found := _sample(source, some))), [])
    if not rows:
        return Times(), []
    middle = int(np.median([first for first, _ in rows]))
    times = Times(middle - SPAN_NS, middle + SPAN_NS)
    if duration is None:
        return times, []
    beyond = sum(first > duration + _SLACK_NS for first, _ in rows)
    if middle > duration + _SLACK_NS or _two_clocks(beyond, len(rows)):
        return times, ["the rows go on after the end of the capture that the file tells: that end is not used"]
    return Times(times.low, times.high, duration), []


def _sample(source: Source, tables: Sequence[str]) -> list[tuple[int, int | None]]:
    """(start, end) of the first and last rows that have a start."""
    told = [row for table in tables for row in source.ends(table, ("start", "end"), _SAMPLE)]
    rows = [(integer(start), integer(end)) for start, end in told]
    return [(start, end) for start, end in rows if start is not None and abs(start) <= LATEST]


def _two_clocks(far: int, events: int) -> bool:
    return far > max(MAX_FAR * events, _FEW)


def refuse_two_clocks(path: Any, counts: list[Counts]) -> None:
    """TraceviewError if too many rows lie far from the others for damage of a few."""
    far, events = sum(int(c.verdicts[FAR]) for c in counts), sum(c.events for c in counts)
    if _two_clocks(far, events):
        raise TraceviewError(
            f"{path}: {far} of {events} rows lie far from the others, so its times mix two clocks; export it again"
        )


@dataclass(frozen=True)
class _Pending:
    """Rows of the last launch of a stream that are still running when the stream's last row begins."""

    launch: int
    place: Ints
    end: Ints


class Overflows:
    """GPU rows of a process that run past the begin of the next launch on their stream (those of one launch may).

    ``place``: their places in sorted order, ascending; ``end``: where they are cut; ``latest``: the last end that is
    left. Memory: the overlapping rows of one launch per stream.
    """

    def __init__(self, spill: SortedSpill) -> None:
        self._places: list[Ints] = []
        self._ends: list[Ints] = []
        self._pending: dict[tuple[int, int], _Pending] = {}
        self.latest = -LATEST
        self.cut_ns = 0
        done = 0
        for device, rows in spill.batches():
            for one, index in split(device):
                at = np.arange(done, done + len(rows))[index]
                self._batch(rows[index], at, one)
            done += len(rows)
        for left in self._pending.values():
            self._settle(left.place, left.end, None)
        place = np.concatenate(self._places) if self._places else np.empty(0, np.int64)
        order = np.argsort(place)
        self.place = place[order]
        self.end = (np.concatenate(self._ends) if self._ends else place)[order]

    def _settle(self, place: Ints, end: Ints, limit: Any) -> None:
        """Rows whose next launch is known: ``limit`` (one or per row) is its begin, None = there is none."""
        over = np.zeros(len(end), np.bool_) if limit is None else end > limit + OVERFLOW_NS
        if over.any():
            begin = np.broadcast_to(limit, len(end))[over]
            self._places.append(place[over])
            self._ends.append(begin)
            self.cut_ns += sum((end[over] - begin).tolist())
            self.latest = max(self.latest, int(begin.max()))
        self.latest = int(end[~over].max(initial=self.latest))

    def _batch(self, rows: Any, place: Ints, device: int) -> None:
        """Rows of one device, in order of time."""
        order = np.argsort(rows["stream"], kind="stable")
        stream, start, end, launch = (rows[c][order] for c in ("stream", "start", "end", "correlation"))
        place = place[order]
        fresh = np.append(True, stream[1:] != stream[:-1])
        begins = fresh | np.append(True, launch[1:] != launch[:-1]) | (launch <= 0)
        head = np.flatnonzero(begins)  # first rows of launches
        of = np.cumsum(begins) - 1
        last = np.append(fresh[head][1:], True)  # the last launch of its stream in this batch
        limit = start[np.append(head[1:], 0)[of]]
        inner = ~last[of]
        self._settle(place[inner], end[inner], limit[inner])
        firsts = np.flatnonzero(fresh)
        for a, b in zip(firsts.tolist(), [*firsts[1:].tolist(), len(order)], strict=True):
            tail = slice(int(head[of[b - 1]]), b)
            left = _Pending(int(launch[b - 1]), place[tail], end[tail])
            if before := self._pending.pop((device, int(stream[a])), None):
                if before.launch != launch[a] or before.launch <= 0:
                    self._settle(before.place, before.end, start[a])
                elif tail.start > a:
                    self._settle(before.place, before.end, start[head[of[a] + 1]])
                else:
                    left = _Pending(left.launch, np.append(before.place, left.place), np.append(before.end, left.end))
            self._keep(device, int(stream[a]), left, int(start[b - 1]))

    def _keep(self, device: int, stream: int, left: _Pending, begin: int) -> None:
        """Rows that run past ``begin``, and thus perhaps into the next launch, wait for that."""
        open_ = left.end > begin
        self._settle(left.place[~open_], left.end[~open_], None)
        self._pending[device, stream] = _Pending(left.launch, left.place[open_], left.end[open_])

    def apply(self, device: Ints, rows: Any, first: int) -> Any:
        """Rows ``first`` and on of the sorted order with their ends cut, in order of device, start and end."""
        low, high = np.searchsorted(self.place, (first, first + len(rows))).tolist()
        if low == high:
            return rows
        rows = rows.copy()
        rows["end"][self.place[low:high] - first] = self.end[low:high]
        return rows[np.lexsort((rows["end"], rows["start"], device))]
