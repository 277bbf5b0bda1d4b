"""Text from traces, made fit to print: untrusted names cannot move the cursor, reverse the line or fill the page."""

from __future__ import annotations

import unicodedata

from traceview import units

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def host(name: str) -> str:
    """A host as people read it: '-' for a stand-in of one that the files do not name ('?rank0')."""
    return units.told_host(name) or "-"


def clean(text: object, limit: int = 200) -> str:
    """``text`` on one line without control, direction or unassigned characters, cut in the middle to ``limit``.

    >>> clean("a\\x1b[31mb"), clean("abcdefghij", 5)
    ('a�[31mb', 'ab…ij')
    """
    raw = str(text)
    if len(raw) > 4 * limit:  # never look at all of a name of megabytes
        raw = raw[: 2 * limit] + raw[-2 * limit :]
    if not raw.isascii() or not raw.isprintable():
        raw = "".join(" " if c in "\n\r\t" else "�" if unicodedata.category(c) in _HIDDEN else c for c in raw)
    if len(raw) <= limit:
        return raw
    tail = (limit - 1) // 2
    return f"{raw[: limit - 1 - tail]}…{raw[len(raw) - tail :] if tail else ''}"
