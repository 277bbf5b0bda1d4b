"""The columns of ``gpu_ops`` that the per-rank analysis reads, as numpy arrays; and how a nullable column is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from traceview.analysis.types import Bools, Codes, Ints
from traceview.schema import GPU_CLASSES, MEM_KINDS, codes
from traceview.schema.arrays import to_numpy

NONE: int = int(np.iinfo(np.int64).min)
"""What a null of an integer column becomes."""
HOST_DEVICE = -1
"""Device of the windows of a rank without GPU operations."""
CLS = {name: code for code, name in enumerate(GPU_CLASSES)}


def ints(table: Any, name: str) -> Ints:
    """An integer column as int64; nulls become ``NONE``."""
    column = table[name]
    wide = column.cast(pa.int64()) if column.null_count else column
    out: Ints = to_numpy(wide, NONE).astype(np.int64, copy=False)
    return out


def names(table: Any, name: str) -> tuple[Ints, list[str]]:
    """A NAME column as (index per row, -1 = null; the texts)."""
    if not table.num_rows:
        return np.empty(0, np.int64), []
    column = table[name].unify_dictionaries().combine_chunks()
    index = to_numpy(column.indices, -1).astype(np.int64)
    return index, column.dictionary.to_pylist()


@dataclass(frozen=True)
class Ops:
    """GPU records of one rank, one element per row of its ``gpu_ops`` table; times in ns."""

    device: Ints
    start: Ints
    end: Ints
    cls: Codes
    fused: Bools
    mem: Codes
    """code into MEM_KINDS, -1 = not told"""
    launch: Ints
    """begin of the launch call, NONE = unknown"""
    thread: Ints
    """launching thread, NONE = unknown"""

    def __len__(self) -> int:
        return len(self.start)

    @classmethod
    def of(cls, table: Any) -> Ops:
        """From a ``gpu_ops`` table of one rank, with or without its rank column."""
        return cls(
            device=ints(table, "device"),
            start=ints(table, "start"),
            end=ints(table, "end"),
            cls=codes(table["cls"], GPU_CLASSES),
            fused=to_numpy(table["fused_comm"]),
            mem=codes(table["mem"], MEM_KINDS),
            launch=ints(table, "launch_start"),
            thread=ints(table, "launch_thread"),
        )

    def take(self, rows: Ints) -> Ops:
        """Some rows."""
        return Ops(**{name: column[rows] for name, column in vars(self).items()})

    @property
    def launched(self) -> Bools:
        """Rows whose launch call is known."""
        out: Bools = self.launch != NONE
        return out

    def on_gpu_axis(self, host_shift: int) -> Ops:
        """The same with launch times moved by ``host_shift`` ns, METHODS a.5."""
        if not host_shift:
            return self
        return replace(self, launch=np.where(self.launched, self.launch + host_shift, NONE))
