"""A chunk that does not decode, taken event by event: as it is, mended, or given up with its place and reason."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from traceview_parsers.kineto.events import BAD, Events
from traceview_parsers.kineto.repair import repairs

CUT = re.compile(rb"\}\s*,\s*(?=[{n])")  # between two events, or inside arguments: the decoder decides
MAX_MEND = 2 << 20  # mending takes many times the memory of its text
JOIN = 16  # pieces tried together before one is given up

_ARRAY_END = re.compile(rb'\}\s*\](?=\s*(?:,\s*"|\}\s*\Z|\Z))')
_EVENT = re.compile(rb'\{\s*"?(?:ph|cat|name|pid|tid|ts|dur|id|args)"?\s*:')


@dataclass
class Salvaged:
    """``used``: where the text ends that need not be read again. ``closed``: the array of events ends there."""

    events: Events = field(default_factory=list)
    repaired: int = 0
    lost: list[tuple[int, int, str]] = field(default_factory=list)
    """(begin, end, reason) within the text."""
    used: int = 0
    closed: bool = False


def salvage(text: bytes, decode: Callable[[bytes], Events], last: bool) -> Salvaged:
    """Take ``text`` (events with commas between) apart.

    An event whose end may be in the next block is left for later, unless the file ends here (``last``).
    """
    out = Salvaged(used=len(text))
    cuts = [(m.start() + 1, m.end()) for m in CUT.finditer(text)]
    starts = [0, *(c[1] for c in cuts)]
    ends = [*(c[0] for c in cuts), len(text)]
    at = 0
    while at < len(starts) and not out.closed:
        taken = _take(out, text, starts[at], ends[at : at + JOIN], decode)
        if not taken:
            if at + JOIN >= len(starts) and not last:
                out.used = starts[at]
                break
            end = _closing(text, starts[at], ends[at]) if last else None
            if end is not None:
                out.closed, out.used = True, end
            _lose(out, text, starts[at], ends[at] if end is None else end - 1, decode)
        at += taken or 1
    return out


def _take(out: Salvaged, text: bytes, start: int, ends: list[int], decode: Callable[[bytes], Events]) -> int:
    """Add the event that begins at ``start``; returns how many pieces it took, 0 if it cannot be had."""
    if _add(out, text[start : ends[0]], decode):
        return 1
    for count, end in enumerate(ends[1:], 2):
        if _add(out, text[start:end], decode, repair=False):
            return count
    for found in _ARRAY_END.finditer(text, start, ends[-1]):
        if _add(out, text[start : found.start() + 1], decode):
            out.closed, out.used = True, found.end()
            return 1
    return 0


def _add(out: Salvaged, piece: bytes, decode: Callable[[bytes], Events], repair: bool = True) -> bool:
    """Decode a piece and add its events; a part of an event's arguments is no event."""
    piece = b"[%b]" % piece
    for mended, candidate in enumerate(
        itertools.chain([piece], repairs(piece) if repair and len(piece) <= MAX_MEND else [])
    ):
        try:
            events = decode(candidate)
        except BAD:
            continue
        if any(e.ph is None for e in events) and piece not in (b"[{}]", b"[null]"):
            return False
        out.events += events
        out.repaired += mended > 0
        return True
    return False


def _closing(text: bytes, start: int, end: int) -> int | None:
    """Where the array ends after a piece that is lost: what follows must be sound metadata."""
    for found in _ARRAY_END.finditer(text, start):
        if found.start() >= end:
            break
        foot = text[found.end() :].strip().removeprefix(b",")
        try:
            msgspec.json.decode(b"{" + (foot or b"}"))
        except BAD:
            continue
        return found.end()
    return None


def _lose(out: Salvaged, text: bytes, start: int, end: int, decode: Callable[[bytes], Events]) -> None:
    """Note a piece as lost; what follows and does not begin like an event belongs to it."""
    if out.lost and not _EVENT.match(text, start) and text[out.lost[-1][1] : start].strip(b", \r\n\t") == b"":
        first, _, reason = out.lost[-1]
        out.lost[-1] = (first, end, reason)
    else:
        out.lost.append((start, end, _reason(text[start:end], decode)))


def _reason(piece: bytes, decode: Callable[[bytes], Events]) -> str:
    try:
        decode(b"[%b]" % piece)
    except BAD as error:
        return str(error)[:200]
    return "no event"
