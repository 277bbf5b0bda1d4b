"""Host intervals: ops, runtime calls, annotations; which of them are kept, and the step marks among them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from traceview.schema import HOST_KINDS, HOST_RANGES, MARK_SOURCES, STEP_MARKS
from traceview_parsers.host_names import TELLING, HostNames, mark
from traceview_parsers.kineto.columns import Array, Growing, Interner, dictionary
from traceview_parsers.kineto.events import Events

_KIND = {kind: code for code, kind in enumerate(HOST_KINDS)}
_COMPACT_ROWS = 1 << 16
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], np.uint64)


def identity(columns: Iterable[Array]) -> Array:
    """uint64 per row, equal for equal rows (and, by chance of 2**-64 each, for others)."""
    out: Any = np.uint64(0)
    for i, column in enumerate(columns):
        out = out ^ column.astype(np.int64).view(np.uint64) * _MIX[i % 4]
        out = (out << np.uint64(23)) | (out >> np.uint64(41))
        out *= _MIX[(i + 1) % 4]
    mixed: Array = out
    return mixed


class HostStore:
    """Collects host intervals in bounded memory.

    An op or runtime call inside another one on its thread adds nothing to the cause of an idle gap (METHODS a.5), so
    only the outermost are kept, apart from those that say why the host was slow (allocations, module loads) and from
    waits, data, host communication and annotations, which are all kept.
    """

    def __init__(self, names: HostNames) -> None:
        self.names = Interner()
        self._host_names = names
        self._kinds: dict[str, Array] = {}
        self._flags: dict[Any, Array] = {}
        columns = {"thread": np.int64, "start": np.int64, "end": np.int64, "name": np.int32, "kind": np.int8}
        self._rows, self._fresh = Growing(**columns), Growing(**columns)
        self._idents = Growing(ident=np.uint64)
        self.duplicates = 0

    def add(self, plain: str, events: Events, codes: Array, thread: Array, start: Array, end: Array) -> Array:
        """Add the intervals of ``events``; returns their kinds (codes of HOST_KINDS)."""
        kind = self._kind_of(plain, codes)
        ident = identity((thread, start, end, codes))
        if not (start % 1000).any() and not (end % 1000).any():  # whole µs: different events can look the same
            ident ^= np.fromiter((zlib.crc32(e.args) for e in events), np.uint64, len(events))
        self._idents.add(len(ident), ident=ident)
        self._fresh.add(len(codes), thread=thread, start=start, end=end, name=codes, kind=kind)
        if self._fresh.rows > _COMPACT_ROWS:
            self._compact()
        return kind

    def _kind_of(self, plain: str, codes: Array) -> Array:
        known = self._kinds.get(plain, np.empty(0, np.int8))
        if len(known) < len(self.names):
            known = np.concatenate([known, np.full(len(self.names) - len(known), -1, np.int8)])
            self._kinds[plain] = known
        kinds = known[codes]
        if (kinds < 0).any():
            text = self.names.strings()
            for code in np.unique(codes[kinds < 0]).tolist():
                known[code] = _KIND[self._host_names.kind(text[code], plain)]
            kinds = known[codes]
        return kinds

    def flags(self, test: Any) -> Array:
        """bool per name: what ``test`` says of it; each name is tested once."""
        known = self._flags.get(test, np.empty(0, bool))
        if len(known) < len(self.names):
            fresh = self.names.strings()[len(known) :]
            known = np.concatenate([known, np.array([bool(test(n)) for n in fresh], bool)])
            self._flags[test] = known
        return known

    def _compact(self) -> None:
        fresh = self._fresh.take_all()
        keep = outermost(fresh, self.flags(TELLING.match))
        self._rows.add(len(keep), **{name: column[keep] for name, column in fresh.items()})

    def count_duplicates(self) -> None:
        """Once all events are in: how many of them are repeated."""
        idents = np.sort(self._idents.take("ident"))
        self.duplicates = int((idents[1:] == idents[:-1]).sum())

    def finish(self, base: int) -> tuple[dict[str, Array], Any]:
        """(columns sorted by thread and start, ``HOST_RANGES`` table); ``base`` ns are added to all times."""
        self._compact()
        rows = self._rows.take_all()
        keep = outermost(rows, self.flags(TELLING.match))
        rows = {name: column[keep] for name, column in rows.items()}
        if self.duplicates:
            fresh = np.ones(len(keep), bool)
            fresh[1:] = np.any([column[1:] != column[:-1] for column in rows.values()], axis=0)
            rows = {name: column[fresh] for name, column in rows.items()}
        rows["start"] += base
        rows["end"] += base
        columns: dict[str, Any] = {**rows, "name": dictionary(rows["name"], self.names.strings())}
        return rows, HOST_RANGES.build(columns, stored=True)


def outermost(rows: dict[str, Array], telling: Array) -> Array:
    """Row numbers to keep, sorted by thread, start, longest first; equal rows side by side."""
    order = np.lexsort((rows["name"], -rows["end"], rows["start"], rows["thread"]))
    plain = (rows["kind"] == _KIND["op"]) | (rows["kind"] == _KIND["runtime"])
    thread, end = rows["thread"][order], rows["end"][order]
    work = plain[order]
    nested = np.zeros(len(order), bool)
    edges = np.flatnonzero(np.diff(thread)) + 1
    for low, high in zip([0, *edges], [*edges, len(order)], strict=True):
        at = low + np.flatnonzero(work[low:high])
        reach = np.maximum.accumulate(end[at]) if len(at) else at
        nested[at[1:]] = end[at[1:]] <= reach[:-1]
    if len(telling):
        nested &= ~telling[rows["name"][order]]
    kept: Array = order[~nested]
    return kept


def step_marks(rows: dict[str, Array], names: list[str]) -> Any:
    """``STEP_MARKS`` of the annotations among finished host rows (METHODS b.2)."""
    found = {code: m for code in np.unique(rows["name"]).tolist() if (m := mark(names[code]))}
    enclosing = (rows["kind"] == _KIND["annotation"]) | (rows["kind"] == _KIND["python"])
    at = np.flatnonzero(enclosing & np.isin(rows["name"], list(found)))
    series = Interner()
    marks = [found[c] for c in rows["name"][at].tolist()]
    codes = series.codes([m.series for m in marks])
    source = np.array([MARK_SOURCES.index(m.source) for m in marks], np.int8)
    text = series.strings()
    rank_of = {code: i for i, code in enumerate(sorted(range(len(text)), key=text.__getitem__))}
    alphabetic = np.array([rank_of[c] for c in codes.tolist()], np.int32)
    order = np.lexsort((rows["start"][at], alphabetic, source))
    at, codes, source = at[order], codes[order], source[order]
    seen: dict[int, int] = {}
    step = []
    for i, code in zip(order.tolist(), codes.tolist(), strict=True):
        counted = marks[i].step
        step.append(seen.get(code, 0) if counted is None else counted)
        seen[code] = seen.get(code, 0) + 1
    return STEP_MARKS.build(
        {
            "source": source,
            "series": dictionary(codes, text),
            "step": np.array(step, np.int64),
            "start": rows["start"][at],
            "end": rows["end"][at],
            "thread": rows["thread"][at],
        },
        stored=True,
    )
