"""A database as its last writer left it: locked, or with a log beside it that the writer did not merge."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from traceview.errors import TraceviewError
from traceview_parsers.nsight.sqlite import AGAIN, ERRORS, read_only, said

_JOURNAL = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
_WAL_BYTES = slice(18, 20)
"""of the header: 2 and 2 in a database that uses a write-ahead log"""


def beside(path: Path, suffix: str) -> Path | None:
    """The log of a database, None if it has none that holds anything."""
    log = path.resolve().with_name(path.resolve().name + suffix)
    return log if log.is_file() and log.stat().st_size else None


def settled(path: Path, folder: Path) -> tuple[Path, list[str]]:
    """(the database to read, what to tell). With a log beside it that is a copy in ``folder`` with the log merged.

    The file and its folder are left as they are. TraceviewError if a program is writing the database.
    """
    wal = beside(path, "-wal")
    if wal is not None:
        return _merged(path, wal, folder)
    journal = beside(path, "-journal")
    if journal is not None and _head(journal, 8) != _JOURNAL:
        journal = None  # its writer is done with it
    problem = _probe(path)
    if problem == "SQLITE_BUSY" or (journal is not None and not problem):
        raise TraceviewError(f"{path}: another program is writing this database; try again when its export is done")
    return (path, []) if journal is None else _merged(path, journal, folder)


def _head(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def _probe(path: Path) -> str:
    """The name of the error on opening the database with locks, '' if there is none."""
    if _head(path, 20)[_WAL_BYTES] == b"\2\2":
        return ""  # opening one with a write-ahead log would write beside it
    uri = read_only(path).removesuffix("&immutable=1")
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=0)) as db:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except ERRORS as error:
        return getattr(error, "sqlite_errorname", "SQLITE_CORRUPT")
    return ""


def _merged(path: Path, log: Path, folder: Path) -> tuple[Path, list[str]]:
    copy = folder / f"{path.stem}.sqlite"
    shutil.copyfile(path, copy)
    shutil.copyfile(log, copy.with_name(copy.name + log.name.removeprefix(path.resolve().name)))
    try:
        with closing(sqlite3.connect(copy, timeout=0)) as db:
            db.execute("PRAGMA journal_mode = DELETE")
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except ERRORS as error:
        raise TraceviewError(f"{path}: {log.name} cannot be merged into it ({said(error)}); {AGAIN}") from error
    return copy, [f"the export was interrupted: {log.name} was merged into a temporary copy; rows may be missing"]
