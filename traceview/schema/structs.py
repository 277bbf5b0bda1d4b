"""Rows given as msgspec structs -> one Arrow table whose types come from the declaration, not from the values."""

from __future__ import annotations

from types import NoneType
from typing import Any, get_args, get_origin

import msgspec
import pyarrow as pa

_PLAIN: dict[Any, Any] = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}


def table_of(rows: list[Any], kind: type[msgspec.Struct]) -> Any:
    """A ``pyarrow.Table`` of the fields of ``kind``, the same schema for any rows; dictionaries become JSON text."""
    columns = {}
    for field in msgspec.structs.fields(kind):
        values = [getattr(row, field.name) for row in rows]
        if get_origin(field.type) is dict:
            values = [msgspec.json.encode(value).decode() for value in values]
        columns[field.name] = pa.array(values, _arrow(field.type))
    return pa.table(columns)


def _arrow(kind: Any) -> Any:
    """int, float, bool and str, each also with None; list of one of them; the rest is text."""
    if get_origin(kind) is list:
        return pa.list_(_arrow(get_args(kind)[0]))
    inner = [k for k in get_args(kind) if k is not NoneType]
    return _PLAIN.get(inner[0] if len(inner) == 1 else kind, pa.string())
