"""The formats traceview reads: the one ordered list of them.

Content decides which reader reads a file, never the suffix. How to add a format: ``parsers/README.md``.
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from pathlib import Path

from traceview.errors import TraceviewError
from traceview_parsers import kineto, nccl_log, nccl_topo, nsight
from traceview_parsers.reader import Reader

HEAD_BYTES = 64 * 1024


def readers() -> tuple[Reader, ...]:
    """All readers, asked in this order; the first whose ``sniff`` says yes reads the file."""
    return (kineto, nsight, nccl_topo, nccl_log)


def read_head(path: Path) -> bytes:
    """The first 64 KiB of a file, unpacked if it is gzip (by content); b"" for a folder or an empty file.

    Raises TraceviewError if the file cannot be opened.
    """
    try:
        if path.is_dir():
            os.listdir(path)
            return b""
        if not stat.S_ISREG(path.stat().st_mode):
            raise TraceviewError(f"{path}: is a pipe or a device; write it to a file first")
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise TraceviewError(
            f"{path}: cannot be read ({error.strerror or error}); check the path and rights"
        ) from error
    if head[:2] != b"\x1f\x8b":
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
    except (zlib.error, gzip.BadGzipFile):
        return head


def find_reader(head: bytes, path: Path) -> Reader | None:
    """The reader of an input, or None."""
    return next((r for r in readers() if r.sniff(head, path)), None)
