"""Events that are no valid JSON: mended where the intent is plain, else refused with a reason.

What producers really write wrongly (KINETO section 9): bare nan and inf, backslashes of Windows paths, raw control
characters, quotes inside names, bytes that are no UTF-8, a missing quote before a key.
"""

from __future__ import annotations

import re

_NOT_A_NUMBER = re.compile(rb"([:\[,]\s*)[+-]?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.I)
_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_NAME = re.compile(rb'("name"\s*:\s*")(.*?)("\s*(?:,\s*"(?:pid|tid|cat|ph|ts|dur|args|id|s|bp)"\s*:|\}\s*\Z))', re.S)
_QUOTE = re.compile(rb'\\.|"', re.S)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.S)
_CONTROL = re.compile(rb"[\x00-\x1f]")
_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_OPEN_KEY = re.compile(rb'([{,]\s*)(\w+)"(\s*:)')
_LAST_COMMA = re.compile(rb",(\s*[}\]])")


def mend(text: bytes) -> bytes:
    """The text of one event (or of the metadata) with known faults mended; valid JSON is not changed in meaning.

    >>> mend(b'{"name": "a"b", "dur": inf}')
    b'{"name": "a\\\\"b", "dur": null}'
    """
    text = text.decode("utf-8", "replace").encode()
    text = _NOT_A_NUMBER.sub(rb"\1null", text)
    text = _ESCAPE.sub(lambda m: m.group() if len(m.group()) > 1 else b"\\\\", text)
    text = _SURROGATE.sub(lambda m: m.group() if len(m.group()) > 6 else b"\\ufffd", text)
    text = _NAME.sub(lambda m: m.group(1) + _quoted(m.group(2)) + m.group(3), text, count=1)
    text = _STRING.sub(lambda m: _CONTROL.sub(lambda c: b"\\u%04x" % c.group()[0], m.group()), text)
    return _LAST_COMMA.sub(rb"\1", _OPEN_KEY.sub(rb'\1"\2"\3', text))


def _quoted(value: bytes) -> bytes:
    return _QUOTE.sub(lambda m: b'\\"' if m.group() == b'"' else m.group(), value)
