"""Where rows come from: an SQLite file or a folder of Parquet files, read by the schema found in it.

No table and no column is taken for granted: an absent table has no rows, an absent column is NULL, an unknown
column is ignored. Bulk rows come as columns of at most ``BATCH`` rows, so memory does not grow with the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceview.errors import TraceviewError

BATCH = 65_536
_MAX_STRETCHES = 20_000
_STDLIB_BATCH = 8_192
SMALL = 20_000
"""Rows up to which the standard library reads: each query of connectorx leaves three threads behind for good."""
NULL = -(2**62)
"""NULL of an integer column; no id and no time of a report comes near."""

LATEST = 2**60
"""No session time of a report lies beyond this (36 years); one that does is damage, and NULL is beyond too."""

Columns = dict[str, Any]
"""Column name -> numpy int64 / float64 array, or ``pyarrow`` string array ('' for NULL)."""


class Kind(Enum):
    """What is wanted of a column, whatever type it is stored with."""

    INT = "int"
    FLOAT = "float"
    TEXT = "text"
    HEX = "hex"  # bytes as hexadecimal text


class Source(Protocol):
    """The tables of one export."""

    path: Path
    damage: list[str]
    """Tables that could not be read to their end, with the reason."""

    def columns(self, table: str) -> frozenset[str]:
        """Columns of a table; empty if there is no such table."""

    def rows(self, table: str, wanted: Sequence[str]) -> list[tuple[Any, ...]]:
        """All rows of a small table in stored order; None for a NULL and for an absent column."""

    def batches(self, table: str, wanted: Mapping[str, Kind], not_null: str = "") -> Iterator[Columns]:
        """Rows of a large table; ``not_null`` keeps the rows in which that column has a value."""

    def strings(self, ids: Sequence[int]) -> dict[int, str]:
        """The texts of these ids of the string table, and no others."""

    def count(self, table: str) -> int:
        """About how many rows a table has (for progress)."""

    def close(self) -> None:
        """Give files back."""


def _name(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'  # `end` is a keyword of SQL


_AS_SQL = {
    Kind.INT: f"coalesce({{}}, {NULL})",
    Kind.FLOAT: "CAST(coalesce({}, 0.0) AS REAL)",
    Kind.TEXT: "CAST(coalesce({}, '') AS TEXT)",
    Kind.HEX: "hex(coalesce({}, ''))",
}


def _fill(kind: Kind, rows: int) -> Any:
    """An absent column."""
    if kind is Kind.INT:
        return np.full(rows, NULL, np.int64)
    return np.zeros(rows) if kind is Kind.FLOAT else pa.array([""]).take(pa.array(np.zeros(rows, np.int32)))


class SqliteSource:
    """An SQLite export, opened read-only and without locks; nothing is ever written beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: list[str] = []
        self._uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
        self._db = sqlite3.connect(self._uri, uri=True)
        self._db.text_factory = lambda raw: raw.decode("utf-8", "replace")
        try:
            found = self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            self._columns = {
                name: frozenset(row[1] for row in self._db.execute(f"PRAGMA table_info({_name(name)})"))
                for (name,) in found
            }
        except sqlite3.Error as error:
            self._db.close()
            raise TraceviewError(
                f"{path}: the SQLite database is damaged ({error}); export it again with "
                f"`nsys export --type=sqlite --include-blobs=true --force-overwrite=true`"
            ) from error

    def columns(self, table: str) -> frozenset[str]:
        return self._columns.get(table, frozenset())

    def rows(self, table: str, wanted: Sequence[str]) -> list[tuple[Any, ...]]:
        have = self.columns(table)
        if not have:
            return []
        select = ", ".join(_name(c) if c in have else "NULL" for c in wanted)
        try:
            return self._db.execute(f"SELECT {select} FROM {_name(table)}").fetchall()
        except sqlite3.Error as error:
            self.damage.append(f"{table}: {error}")
            return []

    def strings(self, ids: Sequence[int]) -> dict[int, str]:
        found: dict[int, str] = {}
        for first in range(0, len(ids), 500) if "value" in self.columns("StringIds") else ():
            some = ids[first : first + 500]
            marks = ",".join("?" * len(some))
            try:
                found.update(self._db.execute(f"SELECT id, value FROM StringIds WHERE id IN ({marks})", some))
            except sqlite3.Error as error:
                self.damage.append(f"StringIds: {error}")
                break
        return found

    def count(self, table: str) -> int:
        if not self.columns(table):
            return 0
        try:
            return int(self._db.execute(f"SELECT max(rowid) FROM {_name(table)}").fetchone()[0] or 0)
        except sqlite3.Error:  # a table WITHOUT ROWID, or a damaged one
            return 0

    def batches(self, table: str, wanted: Mapping[str, Kind], not_null: str = "") -> Iterator[Columns]:
        have = self.columns(table)
        present = {c: kind for c, kind in wanted.items() if c in have}
        if not present or (not_null and not_null not in have):
            return
        select = ", ".join(f"{_AS_SQL[kind].format(_name(c))} AS {_name(c)}" for c, kind in present.items())
        tests = [f"{_name(not_null)} IS NOT NULL"] if not_null else []
        small = self.count(table) <= SMALL
        for stretch in self._stretches(table):
            where = " AND ".join([*tests, *stretch])
            sql = f"SELECT {select} FROM {_name(table)}" + (f" WHERE {where}" if where else "")
            for columns in self._stdlib(table, sql, present, 0) if small else self._select(table, sql, present):
                rows = len(next(iter(columns.values())))
                yield columns | {c: _fill(kind, rows) for c, kind in wanted.items() if c not in present}

    def _stretches(self, table: str) -> list[list[str]]:
        """Conditions that cut a table into stretches of ``BATCH`` rows.

        connectorx reads ahead without limit, so each query must be small for memory to be bounded.
        """
        try:
            low, high = self._db.execute(f"SELECT min(rowid), max(rowid) FROM {_name(table)}").fetchone()
        except sqlite3.Error:  # a table WITHOUT ROWID, or a damaged one
            return [[]]
        if low is None:
            return []
        if (high - low) // BATCH > _MAX_STRETCHES:  # row ids with large gaps
            return [[]]
        return [[f"rowid BETWEEN {first} AND {first + BATCH - 1}"] for first in range(low, high + 1, BATCH)]

    def _select(self, table: str, sql: str, kinds: Mapping[str, Kind]) -> Iterator[Columns]:
        done = 0
        stream = _connectorx(self._uri, sql)
        while stream is not None:
            try:
                batch = next(stream, None)
            except BaseException as error:
                # connectorx panics (not an Exception) on a value of another type than the column's first one
                if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                    raise
                break
            if batch is None:
                return
            if batch.num_rows:
                done += batch.num_rows
                yield {name: _plain(batch.column(i), kinds[name]) for i, name in enumerate(kinds)}
        yield from self._stdlib(table, sql, kinds, done)

    def _stdlib(self, table: str, sql: str, kinds: Mapping[str, Kind], skip: int) -> Iterator[Columns]:
        """The same rows by the standard library, from row ``skip`` on, up to the first that is damaged."""
        cursor = self._db.cursor()
        rows: list[tuple[Any, ...]] = []
        try:
            for row in cursor.execute(f"{sql} LIMIT -1 OFFSET {skip}"):
                rows.append(row)
                if len(rows) == _STDLIB_BATCH:
                    yield _transposed(rows, kinds)
                    rows = []
        except sqlite3.Error as error:
            self.damage.append(f"{table}: {error}")
        finally:
            cursor.close()
        if rows:
            yield _transposed(rows, kinds)

    def close(self) -> None:
        self._db.close()


def _connectorx(uri: str, sql: str) -> Any:
    """An iterator of record batches, or None where connectorx cannot be used."""
    try:
        import connectorx
    except ImportError:
        return None
    try:
        return iter(
            connectorx.read_sql(f"sqlite://{quote(uri, safe='/')}", sql, return_type="arrow_stream", batch_size=BATCH)
        )
    except Exception:  # a query it cannot type; the standard library says what is wrong
        return None


def _plain(column: Any, kind: Kind) -> Any:
    if kind is Kind.INT and not pa.types.is_integer(column.type):  # what was stored is no number
        return _from_python(tuple(column.to_pylist()), kind)
    if kind is Kind.INT or kind is Kind.FLOAT:
        return column.to_numpy(zero_copy_only=False)
    return column


def _transposed(rows: list[tuple[Any, ...]], kinds: Mapping[str, Kind]) -> Columns:
    pairs = zip(kinds.items(), zip(*rows, strict=True), strict=True)
    return {name: _from_python(values, kind) for (name, kind), values in pairs}


def _from_python(values: tuple[Any, ...], kind: Kind) -> Any:
    if kind is Kind.INT:
        return np.array([v if isinstance(v, int) else NULL for v in values], np.int64)
    return np.array(values, np.float64) if kind is Kind.FLOAT else pa.array(values, pa.string())


class ParquetSource:
    """A ``parquetdir`` export: one Parquet file per table."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.damage: list[str] = []
        self._files = {p.stem: p for p in sorted(folder.glob("*.parquet"))}
        self._columns = lru_cache(maxsize=None)(self._read_columns)

    def _file(self, table: str) -> Any:
        from pyarrow import parquet

        try:
            return parquet.ParquetFile(self._files[table], memory_map=False)
        except (OSError, pa.ArrowException) as error:
            self.damage.append(f"{table}: {error}")
            return None

    def _read_columns(self, table: str) -> frozenset[str]:
        file = self._file(table) if table in self._files else None
        return frozenset(file.schema_arrow.names) if file else frozenset()

    def columns(self, table: str) -> frozenset[str]:
        return self._columns(table)

    def strings(self, ids: Sequence[int]) -> dict[int, str]:
        if "value" not in self.columns("StringIds"):
            return {}
        wanted = pa.array(ids, pa.int64())
        found: dict[int, str] = {}
        for batch in self._file("StringIds").iter_batches(batch_size=BATCH, columns=["id", "value"]):
            kept = batch.filter(pc.is_in(pc.cast(batch.column("id"), pa.int64()), wanted))
            found.update(zip(kept.column("id").to_pylist(), kept.column("value").to_pylist(), strict=True))
        return found

    def count(self, table: str) -> int:
        return int(self._file(table).metadata.num_rows) if self.columns(table) else 0

    def rows(self, table: str, wanted: Sequence[str]) -> list[tuple[Any, ...]]:
        present = [c for c in wanted if c in self.columns(table)]
        if not present:
            return []
        read = self._file(table).read(columns=present)
        lists = {c: read[c].to_pylist() for c in present}
        nothing = [None] * read.num_rows
        return list(zip(*(lists.get(c, nothing) for c in wanted), strict=True))

    def batches(self, table: str, wanted: Mapping[str, Kind], not_null: str = "") -> Iterator[Columns]:
        present = [c for c in wanted if c in self.columns(table)]
        if not present or (not_null and not_null not in self.columns(table)):
            return
        read = self._file(table).iter_batches(batch_size=BATCH, columns=[*present, *([not_null] if not_null else [])])
        for batch in read:
            kept = batch.filter(batch.column(not_null).is_valid()) if not_null else batch
            if kept.num_rows:
                yield {
                    c: _coerce(kept.column(c), kind) if c in present else _fill(kind, kept.num_rows)
                    for c, kind in wanted.items()
                }

    def close(self) -> None:
        """Nothing is kept open between reads."""


def _coerce(column: Any, kind: Kind) -> Any:
    """What ``_AS_SQL`` says, for a column of a Parquet file."""
    if kind is Kind.INT:
        wrapped = pc.cast(column, pa.int64(), safe=False)  # unsigned ids wrap as they do in SQLite
        return wrapped.fill_null(NULL).to_numpy(zero_copy_only=False)
    if kind is Kind.FLOAT:
        return pc.cast(column, pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    if kind is Kind.TEXT:
        return pc.cast(column, pa.string()).fill_null("")
    raw = pc.cast(column, pa.binary())  # flagged as text although it is bytes
    return pa.array([(v or b"").hex().upper() for v in raw.to_pylist()], pa.string())


def open_source(path: Path) -> Source:
    """The export at ``path`` (file or folder). TraceviewError if it cannot be opened."""
    return ParquetSource(path) if path.is_dir() else SqliteSource(path)
