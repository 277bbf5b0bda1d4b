"""An SQLite export: bulk rows by Arrow's SQLite driver, odd or damaged stretches by the standard library."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from traceview.errors import TraceviewError
from traceview_parsers.nsight.source import BATCH, NULL, Columns, Kind, fill, from_python

_MAX_STRETCHES = 20_000
_STDLIB_BATCH = 8_192
ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What the library raises on damage; the latter where its own message quotes damaged text."""
SMALL = 20_000
"""Rows up to which the standard library reads: loading the driver costs more."""
_TAKE_WHAT_IS_LEFT = "PRAGMA writable_schema = ON"
AGAIN = "export it again with `nsys export --type=sqlite --include-blobs=true --force-overwrite=true`"


def said(error: Exception) -> str:
    """What an error says, in one short line."""
    return " ".join(str(error).split())[:120]


def read_only(path: Path) -> str:
    """URI of a database to be read without locks; nothing is ever written beside it."""
    return f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"


def cut_short(db: sqlite3.Connection) -> bool:
    """Whether the file is shorter than its header says. SQLite then refuses all of it; from here on what is left of
    it can be read (by this setting it takes the pages that are there)."""
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except ERRORS as error:
        if getattr(error, "sqlite_errorname", "") != "SQLITE_CORRUPT":
            raise
        db.execute(_TAKE_WHAT_IS_LEFT)
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return True
    return False


def quoted(identifier: str) -> str:
    """An SQL identifier: ``end`` is a keyword."""
    return '"' + identifier.replace('"', '""') + '"'


_AS_SQL = {
    Kind.INT: "{}",  # NULL is filled in later, which is faster
    Kind.FLOAT: "iif(typeof({0}) = 'text', {0}, coalesce({0}, 0.0) + 0.0)",
    Kind.TEXT: "CAST(coalesce({}, '') AS TEXT)",
    Kind.HEX: "hex(coalesce({}, ''))",
}
_ARROW = {
    Kind.INT: pa.types.is_integer,
    Kind.FLOAT: pa.types.is_floating,
    Kind.TEXT: pa.types.is_string,
    Kind.HEX: pa.types.is_string,
}


class SqliteSource:
    """An SQLite export. Tables and views are read alike."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage: list[str] = []
        self.odd: Counter[str] = Counter()
        self._uri = read_only(path)
        self._db = sqlite3.connect(self._uri, uri=True)
        self._db.text_factory = lambda raw: raw.decode("utf-8", "replace")
        self._bulk: Any = None
        self._most = max(path.stat().st_size, BATCH)
        try:
            self._db.execute("PRAGMA trusted_schema = OFF")
            self._cut = cut_short(self._db)
            if self._cut:
                self.damage.append("the file is cut: it is shorter than its header says")
            listed = "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')"
            found = [row for row in self._db.execute(listed) if isinstance(row[0], str)]
            self._views = {name for name, kind in found if kind == "view"}
            self._columns = {name: self._columns_of(name) for name, _ in found}
        except ERRORS as error:
            self._db.close()
            raise TraceviewError(f"{path}: the SQLite database is damaged ({said(error)}); {AGAIN}") from error

    def _columns_of(self, table: str) -> frozenset[str]:
        try:
            return frozenset(row[1] for row in self._db.execute(f"PRAGMA table_info({quoted(table)})"))
        except sqlite3.DatabaseError as error:
            if table not in self._views:
                raise
            self.damage.append(f"{table}: {said(error)}")  # a view of a table that is gone
            return frozenset()

    def columns(self, table: str) -> frozenset[str]:
        return self._columns.get(table, frozenset())

    def rows(self, table: str, wanted: Sequence[str]) -> list[tuple[Any, ...]]:
        return self._small(table, wanted, f" LIMIT {self._most}")

    def ends(self, table: str, wanted: Sequence[str], rows: int) -> list[tuple[Any, ...]]:
        first = self._small(table, wanted, f" LIMIT {rows}")
        if table in self._views or len(first) < rows:
            return first
        return first + self._small(table, wanted, f" WHERE rowid > (SELECT max(rowid) FROM {quoted(table)}) - {rows}")

    def _small(self, table: str, wanted: Sequence[str], clause: str) -> list[tuple[Any, ...]]:
        have = self.columns(table)
        if not have:
            return []
        select = ", ".join(quoted(c) if c in have else "NULL" for c in wanted)
        found: list[tuple[Any, ...]] = []
        try:
            for row in self._db.execute(f"SELECT {select} FROM {quoted(table)}{clause}"):
                found.append(row)
        except ERRORS as error:
            if "rowid" not in str(error):  # a table WITHOUT ROWID has no last rows
                self.damage.append(f"{table}: {said(error)}")
        return found

    def strings(self, ids: Sequence[int]) -> dict[int, str]:
        found: dict[int, str] = {}
        for first in range(0, len(ids), 500) if {"id", "value"} <= self.columns("StringIds") else ():
            some = ids[first : first + 500]
            marks = ",".join("?" * len(some))
            try:
                told = self._db.execute(f"SELECT id, CAST(value AS TEXT) FROM StringIds WHERE id IN ({marks})", some)
                found.update((i, v) for i, v in told if v is not None)
            except ERRORS as error:
                self.damage.append(f"StringIds: {said(error)}")
                break
        return found

    def count(self, table: str) -> int:
        if not self.columns(table) or table in self._views:
            return 0
        try:
            try:
                return int(self._db.execute(f"SELECT max(rowid) FROM {quoted(table)}").fetchone()[0] or 0)
            except sqlite3.OperationalError:  # a table WITHOUT ROWID
                return int(self._db.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone()[0])
        except ERRORS:
            return 0

    def batches(self, table: str, wanted: Mapping[str, Kind], not_null: str = "") -> Iterator[Columns]:
        have = self.columns(table)
        present = {c: kind for c, kind in wanted.items() if c in have}
        if not present or (not_null and not_null not in have):
            return
        select = ", ".join(f"{_AS_SQL[kind].format(quoted(c))} AS {quoted(c)}" for c, kind in present.items())
        tests = [f"{quoted(not_null)} IS NOT NULL"] if not_null else []
        small = table not in self._views and self.count(table) <= SMALL
        for stretch in self._stretches(table):
            where = " AND ".join([*tests, *stretch])
            sql = f"SELECT {select} FROM {quoted(table)}" + (f" WHERE {where}" if where else "")
            for columns in self._stdlib(table, sql, present, 0) if small else self._select(table, sql, present):
                rows = len(next(iter(columns.values())))
                yield columns | {c: fill(kind, rows) for c, kind in wanted.items() if c not in present}

    def _stretches(self, table: str) -> list[list[str]]:
        """Conditions that cut a table into stretches of ``BATCH`` rows: what is odd or damaged costs its stretch."""
        whole: list[list[str]] = [[]]
        if table in self._views:
            return whole
        try:
            # two queries: asked for both at once, SQLite walks through the whole table
            low, high = (
                self._db.execute(f"SELECT {edge}(rowid) FROM {quoted(table)}").fetchone()[0]
                for edge in ("min", "max")
            )
        except ERRORS:  # a table WITHOUT ROWID, or a damaged one
            return whole
        if low is None:
            return []
        if (high - low) // BATCH > _MAX_STRETCHES:  # row ids with large gaps
            return whole
        return [[f"rowid BETWEEN {first} AND {first + BATCH - 1}"] for first in range(low, high + 1, BATCH)]

    def _select(self, table: str, sql: str, kinds: Mapping[str, Kind]) -> Iterator[Columns]:
        """Rows by the driver; from the first value of another type than the stretch began with, by the library."""
        done = 0
        try:
            for batch in self._stream(sql):
                if not all(_ARROW[kind](batch.schema.field(i).type) for i, kind in enumerate(kinds.values())):
                    break
                if batch.num_rows:
                    columns = {name: _plain(batch.column(i), kinds[name]) for i, name in enumerate(kinds)}
                    done += batch.num_rows
                    self._bound(table, done)
                    yield columns
            else:
                return
        except (OSError, pa.ArrowException, UnicodeDecodeError, _Absent):
            pass
        except Exception as error:
            if not type(error).__module__.startswith("adbc_driver_manager"):
                raise
        yield from self._stdlib(table, sql, kinds, done)

    def _stream(self, sql: str) -> Iterator[Any]:
        """Record batches of a query. Nothing is read ahead, and no thread is started."""
        try:
            import adbc_driver_manager as adbc
            import adbc_driver_sqlite
        except ImportError as error:
            raise _Absent from error
        if self._bulk is None:
            database = adbc_driver_sqlite.connect(self._uri)
            self._bulk = database, adbc.AdbcConnection(database)
            if self._cut:
                with adbc.AdbcStatement(self._bulk[1]) as statement:
                    statement.set_sql_query(_TAKE_WHAT_IS_LEFT)
                    statement.execute_update()
        with adbc.AdbcStatement(self._bulk[1]) as statement:
            statement.set_options(**{"adbc.sqlite.query.batch_rows": str(BATCH)})
            statement.set_sql_query(sql)
            stream, _ = statement.execute_query()
            with pa.RecordBatchReader.from_stream(stream) as reader:
                yield from reader

    def _bound(self, table: str, rows: int) -> None:
        """A view can make more rows than any file holds."""
        if table in self._views and rows > self._most:
            raise TraceviewError(f"{self.path}: the view {table} has more rows than the file has bytes; {AGAIN}")

    def _stdlib(self, table: str, sql: str, kinds: Mapping[str, Kind], skip: int) -> Iterator[Columns]:
        """The same rows by the standard library, from row ``skip`` on, up to the first that is damaged."""
        cursor = self._db.cursor()
        rows: list[tuple[Any, ...]] = []
        done, problem = skip, ""
        try:
            for row in cursor.execute(f"{sql} LIMIT -1 OFFSET {skip}"):
                rows.append(row)
                if len(rows) == _STDLIB_BATCH:
                    done += len(rows)
                    self._bound(table, done)
                    yield self._transposed(table, rows, kinds)
                    rows = []
        except ERRORS as error:
            problem = f"{table}: {said(error)}"
        finally:
            cursor.close()
        if rows:
            yield self._transposed(table, rows, kinds)
        if problem:  # told after the rows before it
            self.damage.append(problem)

    def _transposed(self, table: str, rows: list[tuple[Any, ...]], kinds: Mapping[str, Kind]) -> Columns:
        columns = {}
        for (name, kind), values in zip(kinds.items(), zip(*rows, strict=True), strict=True):
            if kind is Kind.HEX:  # hexadecimal by the query
                columns[name] = pa.array(values, pa.string())
                continue
            columns[name], lost = from_python(values, kind)
            if lost:
                self.odd[f"{table}.{name}"] += lost
        return columns

    def close(self) -> None:
        if self._bulk is not None:
            for handle in reversed(self._bulk):
                handle.close()
            self._bulk = None
        self._db.close()


class _Absent(Exception):
    """The driver is not installed."""


def _plain(column: Any, kind: Kind) -> Any:
    if kind is Kind.INT:
        return (column.fill_null(NULL) if column.null_count else column).to_numpy(zero_copy_only=False)
    if kind is Kind.FLOAT:
        return column.to_numpy(zero_copy_only=False)
    column.validate(full=True)
    return column
