"""numpy and strings -> Arrow, and back, by their buffers.

``pyarrow.array`` and ``Array.to_numpy`` import pandas where it is installed (0.2 to 0.3 s of a process that may take
one); these do not, and copy nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from traceview.errors import InternalError

_NUMPY: dict[Any, Any] = {
    pa.int8(): np.dtype(np.int8),
    pa.int32(): np.dtype(np.int32),
    pa.int64(): np.dtype(np.int64),
    pa.float64(): np.dtype(np.float64),
    pa.bool_(): np.dtype(np.bool_),
}


def from_numpy(values: np.ndarray[Any, Any], kind: Any = None, missing: Any = None) -> Any:
    """An Arrow array of ``kind`` (default: that of ``values``); null where ``missing`` (bool per row) is set.

    Raises InternalError if a value does not fit ``kind``.
    """
    kind = pa.from_numpy_dtype(values.dtype) if kind is None else kind
    wanted = np.ascontiguousarray(values, _NUMPY[kind])
    if wanted.dtype != values.dtype and not np.can_cast(values.dtype, wanted.dtype):
        wrong = wanted != values
        if (wrong if missing is None else wrong & ~missing).any():
            raise InternalError(f"a value of {values.dtype} does not fit {kind}")
    data = np.packbits(wanted, bitorder="little") if kind == pa.bool_() else wanted
    valid = None if missing is None or not missing.any() else np.packbits(~missing, bitorder="little")
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(values), buffers)


def from_strings(values: Sequence[str]) -> Any:
    """An Arrow string array; what is no UTF-8 is replaced."""
    encoded = [v.encode("utf-8", "replace") for v in values]
    ends = np.fromiter(accumulate(map(len, encoded), initial=0), np.int32, len(encoded) + 1)
    return pa.Array.from_buffers(
        pa.string(), len(encoded), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    )


def to_numpy(column: Any, null: Any = None) -> np.ndarray[Any, Any]:
    """A number column (array or chunked) as a read-only numpy array; ``null`` stands for nulls.

    Raises InternalError for nulls if nothing is to stand for them.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    pieces = [_values(c, null) for c in chunks if len(c)]
    if not pieces:
        return np.empty(0, _NUMPY[column.type])
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _values(chunk: Any, null: Any) -> np.ndarray[Any, Any]:
    valid, data = chunk.buffers()
    values = _bits(data, chunk) if chunk.type == pa.bool_() else _cut(np.frombuffer(data, _NUMPY[chunk.type]), chunk)
    if not chunk.null_count:
        return values
    if null is None:
        raise InternalError("a column with nulls has no plain numpy form")
    return np.where(_bits(valid, chunk), values, values.dtype.type(null))


def _bits(buffer: Any, chunk: Any) -> np.ndarray[Any, Any]:
    return _cut(np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little").view(np.bool_), chunk)


def _cut(whole: np.ndarray[Any, Any], chunk: Any) -> np.ndarray[Any, Any]:
    return whole[chunk.offset : chunk.offset + len(chunk)]
