"""A chunk that does not decode, taken event by event: as it is, mended, or given up with its place and reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from traceview_parsers.kineto.events import Events
from traceview_parsers.kineto.repair import mend

CUT = re.compile(rb"\}\s*,\s*(?=[{n])")  # between two events, or inside arguments: the decoder decides
BAD = (msgspec.DecodeError, UnicodeDecodeError)
JOIN = 16  # pieces tried together before one is given up

_ARRAY_END = re.compile(rb'\}\s*\](?=\s*(?:,\s*"|\}|\Z))')


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

    The last piece may go on in the next block: it is left for later unless the file ends here (``last``).
    """
    out = Salvaged(used=len(text))
    cuts = [(m.start() + 1, m.end()) for m in CUT.finditer(text)]
    starts = [0, *(c[1] for c in cuts)]
    ends = [*(c[0] for c in cuts), len(text)]
    at = 0
    while at < len(starts):
        taken = _take(out, text, starts[at], ends[at : at + JOIN], decode)
        if out.closed:
            return out
        if not taken:
            if at + 1 == len(starts) and not last:
                out.used = starts[at]
                return out
            out.lost.append((starts[at], ends[at], _reason(text[starts[at] : ends[at]], decode)))
        at += taken or 1
    return out


def _take(out: Salvaged, text: bytes, start: int, ends: list[int], decode: Callable[[bytes], Events]) -> int:
    """Add the event that begins at ``start``; returns how many pieces it took, 0 if it cannot be had."""
    if _add(out, text[start : ends[0]], decode):
        return 1
    for found in _ARRAY_END.finditer(text, start, ends[0] + 1):
        if _add(out, text[start : found.start() + 1], decode):
            out.closed, out.used = True, found.end()
            return 1
    for count, end in enumerate(ends[1:], 2):
        if _add(out, text[start:end], decode, repair=False):
            return count
    return 0


def _add(out: Salvaged, piece: bytes, decode: Callable[[bytes], Events], repair: bool = True) -> bool:
    piece = b"[%b]" % piece
    try:
        out.events += decode(piece)
        return True
    except BAD:
        if not repair:
            return False
    try:
        out.events += decode(mend(piece))
    except BAD:
        return False
    out.repaired += 1
    return True


def _reason(piece: bytes, decode: Callable[[bytes], Events]) -> str:
    try:
        decode(b"[%b]" % piece)
    except BAD as error:
        return str(error)[:200]
    return "no event"
