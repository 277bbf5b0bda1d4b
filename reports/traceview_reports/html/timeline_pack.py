"""Columns to text: byte planes, gzip, base64. The reader is ``assets/timeline_decode.js``.

A column of n integers is stored as its lowest bytes, then its second lowest, and so on: equal high bytes compress
to nothing, so six planes (78 hours in ns) cost no more than three where nothing is that long.
"""

from __future__ import annotations

import base64
import gzip
from typing import Any

import msgspec
import numpy as np

from traceview.analysis.types import Ints
from traceview.errors import InternalError

Columns = tuple[tuple[str, int], ...]
# name, byte planes. Every event has EVENT; those of GPU lanes come first and have GPU too; of these the
# communication comes first and has COMM too.
EVENT: Columns = (("gap", 6), ("dur", 6), ("name", 3), ("kind", 1))
GPU: Columns = (("stream", 2), ("corr", 6), ("delay", 6), ("op", 3), ("bytes", 6))
COMM: Columns = (("wait", 6), ("phase", 1), ("late", 3), ("inst", 5), ("seq", 6), ("fact", 3))

_LEVEL = 6  # measured: level 9 gains 0.2 % for three times the time


def planes(values: Ints, count: int) -> bytes:
    """Non-negative integers (n,) as ``count`` planes of n bytes, the lowest first. InternalError if one is larger."""
    values = np.ascontiguousarray(values, "<i8")
    if len(values) and (values.min() < 0 or int(values.max()) >> (8 * count)):
        raise InternalError(f"timeline: {int(values.min())}..{int(values.max())} does not fit {count} byte planes")
    return np.ascontiguousarray(values.view(np.uint8).reshape(-1, 8)[:, :count].T).tobytes()


def pack(columns: Columns, values: dict[str, Ints]) -> bytes:
    """The declared columns, one after the other."""
    return b"".join(planes(values[name], count) for name, count in columns)


def zigzag(values: Ints) -> Ints:
    """Signed to unsigned with small results for small sizes: 0, -1, 1, -2 -> 0, 1, 2, 3."""
    out: Ints = np.where(values < 0, -2 * values - 1, 2 * values)
    return out


def deltas(values: Ints) -> Ints:
    """Zigzag of the differences, the first against 0."""
    return zigzag(np.diff(values, prepend=np.int64(0)))


def text(raw: bytes) -> str:
    """gzip and base64."""
    return base64.b64encode(gzip.compress(raw, _LEVEL, mtime=0)).decode("ascii")


def script_data(element_id: str, raw: bytes) -> str:
    """A script element that is never executed; base64 holds no character that HTML could read."""
    return f'<script type="text/plain" id="{element_id}">{text(raw)}</script>\n'


def json_bytes(value: Any) -> bytes:
    """JSON, UTF-8."""
    return msgspec.json.encode(value)
