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


def to_numpy(column: Any) -> np.ndarray[Any, Any]:
    """A number column (array or chunked) without nulls as a read-only numpy array."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if any(c.null_count for c in chunks):
        raise InternalError("a column with nulls has no plain numpy form")
    pieces = [_values(c) for c in chunks if len(c)]
    if not pieces:
        return np.empty(0, _NUMPY[column.type])
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _values(chunk: Any) -> np.ndarray[Any, Any]:
    data = chunk.buffers()[1]
    if chunk.type == pa.bool_():
        whole = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").view(np.bool_)
    else:
        whole = np.frombuffer(data, _NUMPY[chunk.type])
    return whole[chunk.offset : chunk.offset + len(chunk)]
