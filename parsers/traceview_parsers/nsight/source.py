"""Where rows come from: an SQLite file or a folder of Parquet files, read by the schema found in it.

No table and no column is taken for granted: an absent table has no rows, an absent column is NULL, an unknown
column is ignored, a value of another type is NULL and counted. Bulk rows come as columns of at most ``BATCH`` rows,
so memory does not grow with the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

BATCH = 65_536
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
    odd: Counter[str]
    """Values that are none of the type that is wanted, by 'table.column': read as NULL."""

    def columns(self, table: str) -> frozenset[str]:
        """Columns of a table; empty if there is no such table."""

    def rows(self, table: str, wanted: Sequence[str]) -> list[tuple[Any, ...]]:
        """All rows of a small table in stored order; None for a NULL and for an absent column."""

    def ends(self, table: str, wanted: Sequence[str], rows: int) -> list[tuple[Any, ...]]:
        """Up to ``rows`` rows from the begin of a table and as many from its end."""

    def batches(self, table: str, wanted: Mapping[str, Kind], not_null: str = "") -> Iterator[Columns]:
        """Rows of a large table; ``not_null`` keeps the rows in which that column has a value."""

    def strings(self, ids: Sequence[int]) -> dict[int, str]:
        """The texts of these ids of the string table, and no others."""

    def count(self, table: str) -> int:
        """About how many rows a table has (for progress)."""

    def close(self) -> None:
        """Give files back."""


def fill(kind: Kind, rows: int) -> Any:
    """An absent column."""
    if kind is Kind.INT:
        return np.full(rows, NULL, np.int64)
    return np.zeros(rows) if kind is Kind.FLOAT else pa.array([""]).take(pa.array(np.zeros(rows, np.int32)))


def from_python(values: Sequence[Any], kind: Kind) -> tuple[Any, int]:
    """(column of these values, how many of them are not of the kind and became NULL)."""
    if kind is Kind.INT:
        numbers = [integer(v) for v in values]
        lost = sum(n is None and v is not None for n, v in zip(numbers, values, strict=True))
        return np.array([NULL if n is None else n for n in numbers], np.int64), lost
    if kind is Kind.FLOAT:
        reals = [real(v) for v in values]
        lost = sum(n is None and v is not None for n, v in zip(reals, values, strict=True))
        return np.array([n or 0.0 for n in reals], np.float64), lost
    if kind is Kind.HEX:
        return pa.array([_hex(v) for v in values], pa.string()), 0
    return pa.array([text(v) for v in values], pa.string()), 0


def integer(value: Any) -> int | None:
    """A value as an int64: whole numbers and their text too; None for anything else.

    >>> [integer(v) for v in (7, "7", 7.0, 7.5, "x", None, 2**63, b"7")]
    [7, 7, 7, None, None, None, None, None]
    """
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.lstrip("-").isdecimal() and len(value) < 20 else None
    elif isinstance(value, float):
        value = int(value) if value.is_integer() else None
    return int(value) if isinstance(value, int) and -(2**63) <= value < 2**63 else None


def real(value: Any) -> float | None:
    """A value as a finite float, None if it is none."""
    try:
        number = float(value) if isinstance(value, int | float | str) else float("nan")
    except (ValueError, OverflowError):
        return None
    return number if np.isfinite(number) else None


def text(value: Any) -> str:
    """A value as text, '' for NULL; bytes that are no UTF-8 are replaced."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _hex(value: Any) -> str:
    raw = value if isinstance(value, bytes) else text(value).encode("utf-8", "replace")
    return raw.hex().upper()


def open_source(path: Path) -> Source:
    """The export at ``path`` (file or folder). TraceviewError if it cannot be opened."""
    from traceview_parsers.nsight.parquet import ParquetSource
    from traceview_parsers.nsight.sqlite import SqliteSource

    return ParquetSource(path) if path.is_dir() else SqliteSource(path)
