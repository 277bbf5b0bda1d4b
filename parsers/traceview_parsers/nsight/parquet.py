"""A ``parquetdir`` export: one Parquet file per table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceview_parsers.nsight.source import BATCH, NULL, Columns, Kind, fill, from_python
from traceview_parsers.nsight.sqlite import said

_UNREADABLE = (OSError, pa.ArrowException, UnicodeDecodeError)


class ParquetSource:
    """Tables are the files of the folder; a damaged one costs its rows from the damage on."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.damage: list[str] = []
        self.odd: Counter[str] = Counter()
        self._files = {p.stem: p for p in sorted(folder.glob("*.parquet"))}
        self._columns = lru_cache(maxsize=None)(self._read_columns)

    def _file(self, table: str) -> Any:
        from pyarrow import parquet

        return parquet.ParquetFile(self._files[table], memory_map=False)

    def _read_columns(self, table: str) -> frozenset[str]:
        if table not in self._files:
            return frozenset()
        try:
            return frozenset(self._file(table).schema_arrow.names)
        except _UNREADABLE as error:
            self._damaged(table, error)
            return frozenset()

    def _damaged(self, table: str, error: Exception) -> None:
        self.damage.append(f"{table}: {said(error)}")

    def columns(self, table: str) -> frozenset[str]:
        return self._columns(table)

    def _read(self, table: str, columns: Iterable[str]) -> Iterator[Any]:
        """Record batches up to the first that is damaged."""
        try:
            yield from self._file(table).iter_batches(batch_size=BATCH, columns=list(columns))
        except _UNREADABLE as error:
            self._damaged(table, error)

    def strings(self, ids: Sequence[int]) -> dict[int, str]:
        if not {"id", "value"} <= self.columns("StringIds"):
            return {}
        wanted = np.array(ids, np.int64)
        found: dict[int, str] = {}
        for batch in self._read("StringIds", ("id", "value")):
            known = self._column("StringIds", "id", batch.column("id"), Kind.INT)
            at = np.flatnonzero(np.isin(known, wanted))
            values = batch.column("value").take(pa.array(at))
            texts = self._column("StringIds", "value", values, Kind.TEXT)
            found.update(zip(known[at].tolist(), texts.to_pylist(), strict=True))
        return found

    def count(self, table: str) -> int:
        return int(self._file(table).metadata.num_rows) if self.columns(table) else 0

    def rows(self, table: str, wanted: Sequence[str]) -> list[tuple[Any, ...]]:
        present = [c for c in wanted if c in self.columns(table)]
        return [row for batch in self._read(table, present) for row in _tuples(batch, wanted)] if present else []

    def ends(self, table: str, wanted: Sequence[str], rows: int) -> list[tuple[Any, ...]]:
        present = [c for c in wanted if c in self.columns(table)]
        if not present:
            return []
        found: list[tuple[Any, ...]] = []
        try:
            file = self._file(table)
            groups = file.metadata.num_row_groups
            for group in sorted({0, groups - 1}) if groups else ():
                whole = file.read_row_group(group, columns=present)
                found += _tuples(whole.slice(0, rows), wanted)
                found += _tuples(whole.slice(max(len(whole) - rows, rows)), wanted)
        except _UNREADABLE:
            pass  # told when the table is read
        return found

    def batches(self, table: str, wanted: Mapping[str, Kind], not_null: str = "") -> Iterator[Columns]:
        present = [c for c in wanted if c in self.columns(table)]
        if not present or (not_null and not_null not in self.columns(table)):
            return
        for batch in self._read(table, {*present, *([not_null] if not_null else [])}):
            kept = batch.filter(batch.column(not_null).is_valid()) if not_null else batch
            if kept.num_rows:
                yield {
                    c: self._column(table, c, kept.column(c), kind) if c in present else fill(kind, kept.num_rows)
                    for c, kind in wanted.items()
                }

    def _column(self, table: str, name: str, column: Any, kind: Kind) -> Any:
        values, lost = _coerce(column, kind)
        if lost:
            self.odd[f"{table}.{name}"] += lost
        return values

    def close(self) -> None:
        """Nothing is kept open between reads."""


def _tuples(batch: Any, wanted: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows of a batch; None for a column that it lacks."""
    have = batch.schema.names
    lists = {c: _python(batch.column(c)) for c in wanted if c in have}
    nothing = [None] * batch.num_rows
    return list(zip(*(lists.get(c, nothing) for c in wanted), strict=True))


def _python(column: Any) -> list[Any]:
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [None if v is None else v.decode("utf-8", "replace") for v in column.cast(pa.binary()).to_pylist()]


def _coerce(column: Any, kind: Kind) -> tuple[Any, int]:
    """(a column as the kind wants it, how many values are not of the kind and became NULL)."""
    stored = column.type
    try:
        if kind is Kind.INT and pa.types.is_integer(stored):
            wrapped = pc.cast(column, pa.int64(), safe=False)  # unsigned ids wrap as they do in SQLite
            return wrapped.fill_null(NULL).to_numpy(zero_copy_only=False), 0
        if kind is Kind.TEXT and pa.types.is_string(stored):
            column.validate(full=True)
            return column.fill_null(""), 0
        if kind is Kind.HEX and pa.types.is_string(stored):  # flagged as text although it is bytes
            column = pc.cast(column, pa.binary())
    except pa.ArrowException:
        pass
    return from_python(_python(column), kind)
