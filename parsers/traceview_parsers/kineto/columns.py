"""Columns that grow chunk by chunk, and names as numbers."""

from __future__ import annotations

import itertools
import tempfile
from typing import Any

import numpy as np
import pyarrow as pa

from traceview.schema.arrays import from_numpy, from_strings

Array = np.ndarray[Any, Any]


class Interner(dict[Any, int]):
    """Value -> number, in order of first sight."""

    def __missing__(self, key: Any) -> int:
        number = len(self)
        self[key] = number
        return number

    def codes(self, values: list[Any]) -> Array:
        """int32 numbers of the values."""
        return np.fromiter(map(self.__getitem__, values), np.int32, len(values))

    def strings(self) -> list[str]:
        """The values as text, by number; None is ''."""
        return [v if isinstance(v, str) else "" if v is None else str(v) for v in self]


class Growing:
    """Columns of one length; ``add`` appends, ``take`` hands a whole column out and forgets it.

    More than ``SPILL_ROWS`` rows wait in unnamed temporary files, so that memory does not grow with the trace.
    """

    SPILL_ROWS = 1 << 16

    def __init__(self, **types: Any) -> None:
        self._types = types
        self._pieces: dict[str, list[Array]] = {name: [] for name in types}
        self._files: dict[str, Any] = {}
        self._fresh = 0
        self.rows = 0

    def add(self, rows: int, **columns: Any) -> None:
        """Append ``rows`` rows; a scalar is repeated."""
        for name, kind in self._types.items():
            value = columns[name]
            whole = isinstance(value, np.ndarray)
            self._pieces[name].append(value.astype(kind, copy=False) if whole else np.full(rows, value, kind))
        self.rows += rows
        self._fresh += rows
        if self._fresh > self.SPILL_ROWS:
            self._spill()

    def _spill(self) -> None:
        for name, pieces in self._pieces.items():
            if name not in self._files:
                self._files[name] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by take
            self._files[name].write(np.concatenate(pieces).data)
            pieces.clear()
        self._fresh = 0

    def take(self, name: str) -> Array:
        """The column as one array."""
        pieces, self._pieces[name] = self._pieces[name], []
        if name in self._files:
            with self._files.pop(name) as file:
                file.seek(0)
                pieces = [np.fromfile(file, self._types[name]), *pieces]
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else np.empty(0, self._types[name])

    def take_all(self) -> dict[str, Array]:
        """All columns; the store is empty afterwards."""
        self.rows = self._fresh = 0
        return {name: self.take(name) for name in self._types}


def dictionary(codes: Array, names: list[str], missing: bool = False) -> Any:
    """int32 codes into ``names`` -> Arrow dictionary of the names in use; ``missing``: negative codes are null."""
    used = np.zeros(len(names) + 1, bool)
    used[codes] = True
    used[-1] = False
    renumber = (np.cumsum(used) - 1).astype(np.int32)
    values = from_strings(list(itertools.compress(names, used[:-1].tolist())))
    return pa.DictionaryArray.from_arrays(from_numpy(renumber[codes], missing=codes < 0 if missing else None), values)


def nullable(values: Array, missing: Any = -1) -> Any:
    """An Arrow array in which ``missing`` is null."""
    return from_numpy(values, missing=values == missing)
