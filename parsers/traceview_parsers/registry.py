"""The formats traceview reads: what a reader is, and the one ordered list of them.

A reader is a module (``traceview_parsers.kineto``, ...) with the members of ``Reader``. Content decides which one
reads a file, never the suffix. How to add a format: ``parsers/README.md``.
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from traceview.errors import TraceviewError
from traceview.run import Part

HEAD_BYTES = 64 * 1024
Progress = Callable[[int, int], None]
"""Called with (bytes of the file read, bytes of the file)."""


@dataclass(frozen=True)
class ReadOptions:
    """What a user may choose on reading. Part of the cache key, so every field must have a stable ``repr``."""

    with_python: bool = False
    """Keep Python function calls as host ranges (half of the events of a trace with stacks)."""
    data_names: tuple[str, ...] = ()
    """More regular expressions for ranges in which a thread waits for input data."""
    rank_regex: str | None = None
    """Takes the rank out of a path; group ``rank`` or the first group."""
    convert: bool = False
    """May run the vendor's exporter on raw reports (writes beside the cache, never beside the input)."""


class Reader(Protocol):
    """One format."""

    name: str
    """Goes into ``SourceMeta.format`` and into ``inspect``."""
    version: int
    """Raise it when the tables made of the same file change: old cache entries are then not used."""
    is_log: bool
    """Parts of a log go to ``Run.logs``; others are ranks."""

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether this input is of the format, by its first 64 KiB (unpacked if gzip).

        ``path`` is for formats whose input is a folder (``head`` is empty then) and for reading a header deeper in.
        """

    def read(self, path: Path, out: Path, options: ReadOptions, progress: Progress | None) -> list[Part]:
        """Read ``path`` into part folders under the existing, empty folder ``out``.

        Raises TraceviewError if nothing in it can be used: one line with the reason and what to do.
        """


def readers() -> tuple[Reader, ...]:
    """All readers, asked in this order; the first whose ``sniff`` says yes reads the file."""
    from traceview_parsers import kineto, nccl_log, nccl_topo, nsight

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
