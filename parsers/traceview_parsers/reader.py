"""What a reader of one format must offer, and what it is told.

A reader is a module (``traceview_parsers.kineto``, ...) with the members of ``Reader``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from traceview.run import Part

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
    """May run the vendor's exporter on raw reports (into a temporary folder, never beside the input)."""


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
