"""Events that are no valid JSON: mended where the intent is plain, else refused with a reason.

What producers really write wrongly: bare nan and inf, backslashes of Windows paths, raw control
characters, quotes inside names, bytes that are no UTF-8, a missing quote before a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[^"]+|"', re.S)
_NOT_A_NUMBER = re.compile(rb"([:\[,]\s*)[+-]?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.I)
_LAST_COMMA = re.compile(rb",(\s*[}\]])")
_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_CONTROL = re.compile(rb"[\x00-\x1f]")
_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_OPEN_KEY = re.compile(rb'([{,]\s*)(\w+)"(\s*:)')
_NAME = re.compile(
    rb'("name"\s*:\s*")(.*?)("\s*(?:,\s*"(?:pid|tid|cat|ph|ts|dur|args|id|s|bp)"\s*:|\}\s*\]?\s*\Z))', re.S
)
_QUOTE = re.compile(rb'\\.|"', re.S)


def repairs(text: bytes) -> Iterator[bytes]:
    """Texts that the broken one may have been meant as, the least changed first.

    >>> next(repairs(b'{"dur": inf}')), list(repairs(b'{"name": "a"b", "dur": 1}'))[-1]
    (b'{"dur": null}', b'{"name": "a\\\\"b", "dur": 1}')
    """
    text = text.decode("utf-8", "replace").encode()
    yield _mend(text)
    yield _mend(_OPEN_KEY.sub(rb'\1"\2"\3', text))
    yield _mend(_NAME.sub(lambda m: m[1] + _QUOTE.sub(_quote, m[2]) + m[3], text, count=1))


def _mend(text: bytes) -> bytes:
    """Valid JSON keeps its meaning; strings and what is between them have faults of their own."""
    return b"".join(_string(t) if t[:1] == b'"' else _between(t) for t in _TOKEN.findall(text))


def _between(text: bytes) -> bytes:
    return _LAST_COMMA.sub(rb"\1", _NOT_A_NUMBER.sub(rb"\1null", text))


def _string(text: bytes) -> bytes:
    text = _ESCAPE.sub(lambda m: m[0] if len(m[0]) > 1 else b"\\\\", text)
    text = _SURROGATE.sub(lambda m: m[0] if len(m[0]) > 6 else b"\\ufffd", text)
    return _CONTROL.sub(lambda m: b"\\u%04x" % m[0][0], text)


def _quote(found: re.Match[bytes]) -> bytes:
    return b'\\"' if found[0] == b'"' else found[0]
