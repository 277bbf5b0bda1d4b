"""Writing outputs: never over an existing file without --force, never over an input, never half a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from traceview import files
from traceview.cli.streams import give_up
from traceview.errors import TraceviewError


def refuse_existing(paths: Sequence[str | None], force: bool) -> None:
    """TraceviewError if an output exists, is a folder, or is named twice (checked before the work, not after it)."""
    given = [path for path in paths if path is not None]
    if "" in given:
        raise TraceviewError("an empty name was given for an output; name a file")
    if given.count("-") > 1:
        raise TraceviewError("'-' is named for two outputs, and stdout holds one; name a file for the other")
    named = [path for path in given if path != "-"]
    real = [os.path.realpath(path) for path in named]
    twice = next((path for path, r in zip(named, real, strict=True) if real.count(r) > 1), None)
    if twice and not files.is_special(Path(twice)):
        raise TraceviewError(f"{twice}: is named for two outputs; name two files")
    for path in named:
        if os.path.isdir(path):
            raise TraceviewError(f"{path}: is a folder; name a file in it")
        if os.path.exists(path) and not force and not files.is_special(Path(path)):
            raise TraceviewError(f"{path}: exists; use --force to overwrite it")
        if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            raise TraceviewError(f"{path}: its folder does not exist; make it first")


def refuse_folder(path: str | None, force: bool) -> None:
    """TraceviewError if this folder may not be replaced: only one that holds nothing but tables ever is."""
    if not path or not os.path.lexists(path):
        refuse_existing([path], force)
        return
    if not force:
        raise TraceviewError(f"{path}: exists; use --force to replace it")
    if not os.path.isdir(path) or os.path.islink(path) or any(not f.endswith(".parquet") for f in os.listdir(path)):
        raise TraceviewError(f"{path}: holds more than tables, so it is not replaced; name a new folder")


def refuse_inputs(paths: Sequence[str | None], run: Any) -> None:
    """TraceviewError if an output would replace a file that was read, also with --force."""
    refuse_sources(paths, [p.meta.source.path for p in [*run.parts.values(), *run.logs]])


def refuse_sources(paths: Sequence[str | None], read: Sequence[str]) -> None:
    """The same, of paths that were read."""
    sources = {os.path.realpath(path) for path in read}
    for path in paths:
        if path and path != "-" and any(s == (r := os.path.realpath(path)) or s.startswith(r + "/") for s in sources):
            raise TraceviewError(f"{path}: is an input; name another file for the output")


def write(path: str, data: bytes) -> None:
    """Write to a temporary name beside the file, then rename; '-' is stdout."""
    if path == "-":
        with _may_be_closed():
            sys.stdout.buffer.write(data + (b"" if data.endswith(b"\n") else b"\n"))
            sys.stdout.buffer.flush()
        return
    with files.replacing(Path(path)) as out:
        out.write(data)


def say(text: str) -> None:
    """Text for the reader at stdout. One who left (`| head`) ends neither the files asked for nor the exit status."""
    with _may_be_closed():
        sys.stdout.write(text)
        sys.stdout.flush()


@contextmanager
def _may_be_closed() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        give_up(sys.stdout)
