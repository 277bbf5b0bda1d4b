"""The events of a file, chunk by chunk, in bounded memory; what stands around them; what could not be kept.

Blocks of 1 MB are cut at an event boundary and decoded as one list. A wrong cut leaves braces or quotes unbalanced,
so the decode fails; then the chunk is taken event by event (``salvage``). The decoder itself says where the array of
events ends: no text search can be misled by brackets in names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from traceview.errors import TraceviewError
from traceview.run import Loss
from traceview_parsers.gz import MAGIC, Unpacked
from traceview_parsers.kineto.events import BAD, EXACT, FAST, WHOLE, Events, is_beyond_float
from traceview_parsers.kineto.salvage import CUT, salvage
from traceview_parsers.reader import Progress

BLOCK = 1 << 20
MAX_EVENT = 16 << 20
MAX_AROUND = 64 << 20  # metadata before and after the events
MAX_LOSSES = 1000  # kept with their place; more are only counted

_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BOM = b"\xef\xbb\xbf"


class EventStream:
    """Iterate to get lists of events; ``head`` and ``foot`` are complete after the last one.

    ``head``/``foot``: JSON text before and after the events (b"" for a bare array). ``repaired``, ``quarantined``,
    ``losses``, ``truncated``, ``warnings``: what was not as it should be.
    """

    def __init__(self, path: Path, progress: Progress | None = None, block: int = BLOCK) -> None:
        self.path = path
        self._block = block
        self.head = b""
        self.foot = b""
        self.repaired = 0
        self.quarantined = 0
        self.truncated = False
        self.losses: list[Loss] = []
        self.warnings: list[str] = []
        self._progress = progress
        self._decoder: Any = FAST
        self._closed = False
        self._offset = 0  # of the text not yet decoded, in the unpacked file

    def __iter__(self) -> Iterator[Events]:
        blocks = self._blocks()
        text = self._find_events(blocks)
        for block in blocks:
            if self._closed:
                self._keep_foot(block)
                continue
            text += block
            cut = _last_cut(text)
            if cut is None and len(text) < MAX_EVENT:
                continue
            end, following = cut or (len(text), len(text))
            events, used = self._decode(text[:end], last=cut is None)
            used = following if used == end and not self._closed else used
            self._offset += used
            text = text[used:]
            if self._closed:
                self._keep_foot(text)
            yield events
        if not self._closed:
            yield self._finish(text)

    # --- bytes

    def _blocks(self) -> Iterator[bytes]:
        with self.path.open("rb", buffering=0) as raw:
            size = os.fstat(raw.fileno()).st_size
            packed = Unpacked(raw, self._block) if raw.read(2) == MAGIC else None
            raw.seek(0)
            for block in packed or iter(lambda: raw.read(self._block), b""):
                if self._progress:
                    self._progress(raw.tell(), size)
                yield block
        if packed and packed.problem:
            self.truncated = "checksum" not in packed.problem
            self.warnings.append(packed.problem)

    # --- text

    def _find_events(self, blocks: Iterator[bytes]) -> bytes:
        """Read up to the begin of the events; returns what was read beyond."""
        head = b""
        for block in blocks:
            head += block
            start = head.removeprefix(_BOM).lstrip()
            if start[:1] == b"[":
                self._offset = len(head) - len(start) + 1
                return start[1:]
            if found := _EVENTS_KEY.search(head):
                self.head = head[: found.start()].removeprefix(_BOM)
                self._offset = found.end()
                return head[found.end() :]
            if len(head) > MAX_AROUND:
                break
        raise TraceviewError(f"{self.path}: no traceEvents inside: not a trace of torch.profiler")

    def _keep_foot(self, text: bytes) -> None:
        if len(self.foot) + len(text) > MAX_AROUND:
            if not self.truncated:
                self.warnings.append(f"more than {MAX_AROUND >> 20} MB follow the end of the events: not read")
            self.truncated = True
            return
        self.foot += text

    def _finish(self, text: bytes) -> Events:
        """The last text of a file whose events may or may not be closed."""
        text = text.rstrip().removesuffix(b",")
        before = len(self.losses)
        events, used = self._decode(text, last=True)
        if self._closed:
            self._keep_foot(text[used:])
            return events
        if self.head or len(self.losses) > before:
            self.truncated = True
        self.warnings.append("the array of events is not closed: the writer was stopped, or left it open")
        return events

    # --- events

    def _decode(self, text: bytes, last: bool) -> tuple[Events, int]:
        """Events of ``text`` and the length that is done with; ``_closed`` is set if the array ends inside."""
        try:
            return self._strict(b"[%b]" % text), len(text)
        except BAD as error:
            found = _TRAILING.search(str(error))
        end = int(found.group(1)) if found else 0
        for _ in range(2):  # the place is that of the bracket, or of what follows it
            end = text.rfind(b"]", 0, end)
            if end < 0:
                break
            try:
                events = self._strict(b"[%b]" % text[:end])
            except BAD:
                continue
            self._closed = True
            return events, end + 1
        saved = salvage(text, self._strict, last)
        self.repaired += saved.repaired
        self.quarantined += len(saved.lost)
        for start, stop, reason in saved.lost[: MAX_LOSSES - len(self.losses)]:
            self.losses.append(Loss(self._offset + start, stop - start, reason))
        self._closed = saved.closed
        return saved.events, saved.used

    def _strict(self, chunk: bytes) -> Events:
        """Decode with the cheapest decoder that loses no digit of the times of this file."""
        events: list[Any]
        if self._decoder is FAST:
            events = self._decoder.decode(chunk)
            if is_beyond_float(events):
                self._decoder = WHOLE
        if self._decoder is WHOLE:
            try:
                events = self._decoder.decode(chunk)
            except msgspec.ValidationError:
                self._decoder = EXACT
        if self._decoder is EXACT:
            events = self._decoder.decode(chunk)
        return [e for e in events if e is not None] if None in events else events


def _last_cut(text: bytes) -> tuple[int, int] | None:
    """(end of the last whole event, begin of the next) by the last boundary in the text."""
    window = 1 << 13
    while True:
        low = max(0, len(text) - window)
        found = None
        for found in CUT.finditer(text, low):  # noqa: B007 - the last one is wanted
            pass
        if found:
            return found.start() + 1, found.end()
        if not low:
            return None
        window *= 16
