"""How a table is declared: columns with type, unit and meaning; building and checking of tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from traceview.errors import InternalError
from traceview.schema.arrays import from_numpy, from_strings, to_numpy

I64, I32, F64, BOOL, STR = pa.int64(), pa.int32(), pa.float64(), pa.bool_(), pa.string()
NAME = pa.dictionary(pa.int32(), pa.string())  # an open set of names
CODE = pa.dictionary(pa.int8(), pa.string())  # a closed, declared set of names


@dataclass(frozen=True)
class Column:
    """One column: ``unit`` is ns, bytes, elements or empty; ``values`` are the declared values of a CODE column."""

    name: str
    type: Any
    doc: str
    unit: str = ""
    nullable: bool = False
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A declared table. ``per_part``: stored per process without ``rank`` (see the module's text)."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    sort: tuple[str, ...] = ()
    per_part: bool = False

    def arrow(self, *, stored: bool = False) -> Any:
        """The ``pyarrow.Schema``; ``stored=True`` leaves out the rank column of a per-part table."""
        skip = "rank" if stored and self.per_part else ""
        return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in self.columns if c.name != skip])

    def empty(self, *, stored: bool = False) -> Any:
        """A table of no rows."""
        schema = self.arrow(stored=stored)
        return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)

    def build(self, columns: dict[str, Any], *, stored: bool = False) -> Any:
        """A ``pyarrow.Table`` from arrays by name; nullable columns that are not given are null.

        CODE columns may be given as numpy int8 codes into their declared values (negative = null).
        Raises InternalError for a column that is missing or not declared.
        """
        schema = self.arrow(stored=stored)
        strange = set(columns) - set(schema.names)
        if strange:
            raise InternalError(f"table {self.name}: columns {sorted(strange)} are not declared")
        rows = max((len(v) for v in columns.values()), default=0)
        arrays = [self._array(f, columns.get(f.name), rows) for f in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _array(self, field: Any, values: Any, rows: int) -> Any:
        if values is None:
            if not field.nullable:
                raise InternalError(f"table {self.name}: column {field.name} is missing")
            return pa.nulls(rows, field.type)
        declared = next(c for c in self.columns if c.name == field.name).values
        if declared and isinstance(values, np.ndarray) and values.dtype.kind == "i":
            return pa.DictionaryArray.from_arrays(from_numpy(values, pa.int8(), values < 0), from_strings(declared))
        if isinstance(values, np.ndarray) and field.type in (I64, I32, F64, BOOL):
            return from_numpy(values, field.type)
        if isinstance(values, pa.ChunkedArray | pa.Array):
            return values if values.type == field.type else values.cast(field.type)
        return pa.array(values, field.type)

    def validate(self, table: Any, *, stored: bool = True) -> Any:
        """Return ``table`` if its columns and types are the declared ones; InternalError names what differs."""
        want = self.arrow(stored=stored)
        if table.schema.names != want.names:
            raise InternalError(f"table {self.name}: columns are {table.schema.names}, declared {want.names}")
        for field in want:
            have = table.schema.field(field.name)
            if have.type != field.type:
                raise InternalError(f"table {self.name}.{field.name}: {have.type}, declared {field.type}")
            if not field.nullable and table[field.name].null_count:
                raise InternalError(f"table {self.name}.{field.name}: nulls where none may be")
        return table


def codes(column: Any, values: tuple[str, ...]) -> np.ndarray[Any, np.dtype[np.int8]]:
    """int8 codes of a CODE column into ``values`` (-1 = null), whatever order its dictionary has."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(column, pa.ChunkedArray):  # no chunk at all
        return np.empty(0, np.int8)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    index = {v: i for i, v in enumerate(values)}
    remap = np.array([index.get(v, -1) for v in column.dictionary.to_pylist()] + [-1], np.int8)
    indices = to_numpy(column.indices, len(remap) - 1)
    out: np.ndarray[Any, np.dtype[np.int8]] = remap[indices]
    return out
