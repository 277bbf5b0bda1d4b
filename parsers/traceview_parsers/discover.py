"""Paths, folders and globs -> inputs, each with the reader that takes it; and what was left aside, and why."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from traceview.errors import TraceviewError
from traceview.run import SourceMeta
from traceview_parsers import unusable
from traceview_parsers.reader import Reader
from traceview_parsers.registry import find_reader, read_head


@dataclass(frozen=True)
class Input:
    """A file (or a folder that is one input) and its reader."""

    path: Path
    reader: Reader
    bytes: int


@dataclass
class Found:
    """``unread``: inputs that were named or look like traces, and cannot be used. ``skipped``: other files."""

    inputs: list[Input] = field(default_factory=list)
    unread: list[SourceMeta] = field(default_factory=list)
    skipped: list[Path] = field(default_factory=list)


def discover(paths: Sequence[str | Path]) -> Found:
    """Inputs under ``paths``, in the order given, folders recursively and sorted, each file once.

    Raises TraceviewError for a path that does not exist or a glob that matches nothing.
    """
    found = Found()
    seen: set[str] = set()
    for given in paths:
        for path, named in _expand(given):
            real = os.path.realpath(path)
            if real not in seen:
                seen.add(real)
                _sort(found, path, named)
    return found


def _expand(given: str | Path) -> Iterator[tuple[Path, bool]]:
    """(path, whether the user named it)."""
    path = Path(given)
    if not str(given) or "\0" in str(given):
        raise TraceviewError("an empty path was given; name the files or the folder of the traces")
    if os.path.isdir(path):
        yield from _walk(path)
    elif os.path.lexists(path):
        yield path, True
    else:
        matches = sorted(glob.glob(str(given), recursive=True))
        if not matches:
            _refuse_without_rights(path)
            raise TraceviewError(f"{given}: no such file or folder; check the path")
        for match in matches:
            yield from _walk(Path(match)) if os.path.isdir(match) else [(Path(match), True)]


def _refuse_without_rights(path: Path) -> None:
    """TraceviewError if a path only seems not to exist because its folder may not be searched."""
    try:
        path.stat()
    except PermissionError as error:
        raise TraceviewError(f"{path}: cannot be read ({error.strerror}); check the rights of its folders") from error
    except OSError:
        return


def _walk(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Files of a folder; a folder that is itself an input (a Parquet export) comes as one."""
    if find_reader(b"", folder):
        yield folder, True
        return
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        yield folder, True  # reported like a file that cannot be read
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if os.path.isdir(entry):  # unlike Path.is_dir, never raises
            if not entry.is_symlink():
                yield from _walk(entry)
        else:
            yield entry, False


def _sort(found: Found, path: Path, named: bool) -> None:
    if (shown := os.fsencode(path).decode(errors="replace")) != str(path):
        found.unread.append(_unread(Path(shown), f"{shown}: its name is no UTF-8; rename it"))
        return
    try:
        head = read_head(path)
    except TraceviewError as error:
        found.unread.append(_unread(path, str(error)))
        return
    reader = find_reader(head, path)
    if reader:
        found.inputs.append(Input(path, reader, _size(path)))
        return
    why = unusable.reason(head, path)
    if named or (why and unusable.worth_telling(path)):
        what = why or "is of no known format; `traceview inspect` lists what can be read"
        found.unread.append(_unread(path, f"{path}: {what}"))
    else:
        found.skipped.append(path)


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    return path.stat().st_size


def _unread(path: Path, why: str) -> SourceMeta:
    return SourceMeta(path=str(path), format="", warnings=[why])
