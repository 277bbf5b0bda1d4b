"""Rows of a batch by process, device or partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

Ints = np.ndarray[Any, np.dtype[np.int64]]


def split(keys: Ints) -> Iterator[tuple[int, Any]]:
    """(key, index of its rows) per distinct key; one key alone costs nothing."""
    if not len(keys):
        return
    if (keys == keys[0]).all():
        yield int(keys[0]), slice(None)
        return
    encoded = pa.array(keys).dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    for code, key in enumerate(encoded.dictionary.to_pylist()):
        yield key, np.flatnonzero(codes == code)
