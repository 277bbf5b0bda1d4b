"""PyTorch profiler traces (Kineto, Chrome JSON): ``.json`` or ``.json.gz`` as written by ``torch.profiler``."""

from __future__ import annotations

import re
from pathlib import Path

from traceview.run import Part
from traceview_parsers.reader import Progress, ReadOptions

name = "kineto"
version = 5
is_log = False

_OBJECT = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*\{")
_EVENT_ARRAY = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\[\s*(?:\]|\{[^{}]*"(?:ph|ts|cat|name)"\s*:)')
_KEYS = re.compile(rb'"(?:traceEvents|schemaVersion|deviceProperties|baseTimeNanoseconds|distributedInfo)"\s*:')


def sniff(head: bytes, path: Path) -> bool:
    """An object with one of Kineto's keys, or a bare array of events."""
    return bool((_OBJECT.match(head) and _KEYS.search(head)) or _EVENT_ARRAY.match(head))


def read(path: Path, out: Path, options: ReadOptions, progress: Progress | None) -> list[Part]:
    """See ``traceview_parsers.reader.Reader.read``. One file is one process: one part."""
    from traceview_parsers.kineto.reader import read_file

    return [read_file(path, out / "0", options, progress)]
