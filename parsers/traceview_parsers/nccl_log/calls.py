"""Logged calls (COLL): parsed at speed, kept on disk while the log streams by, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from traceview.schema.nccl import NCCL_CALLS, NCCL_DTYPES, NCCL_FUNCTIONS
from traceview_parsers.nccl_log import grammar
from traceview_parsers.nccl_log.state import Comm, Context

_BATCH = 1 << 18
_CACHE = 1 << 16
_ROW = np.dtype(
    [
        ("comm", np.int32),
        ("opcount", np.int64),
        ("function", np.int8),
        ("dtype", np.int8),
        ("peer", np.int32),
        ("count", np.int64),
        ("bytes", np.int64),
    ]
)
_FUNCTION = {name.encode(): i for i, name in enumerate(NCCL_FUNCTIONS)} | {
    b"AllToAll": NCCL_FUNCTIONS.index("AlltoAll"),
    b"AllToAllv": NCCL_FUNCTIONS.index("AlltoAllv"),
}
_OTHER = NCCL_FUNCTIONS.index("other")
_Call = tuple[int, int, int, int, int]  # function, dtype, peer, count, bytes


class Calls:
    """Calls of a log, in its order. ``spill`` is a file that this object owns."""

    def __init__(self, spill: Path) -> None:
        self.count = 0
        self.comms: list[Comm] = []
        self._code: dict[Comm, int] = {}
        self._parsed: dict[tuple[bytes, bytes], tuple[_Call, str, int]] = {}
        self._rows: list[tuple[int, ...]] = []
        self._spill = spill
        self._file = spill.open("w+b")

    def add(self, ctx: Context, message: bytes) -> bool:
        """Take a ``Name: opCount ..`` message; False if it is not whole."""
        found = grammar.COLL.match(message)
        if found is None:
            return False
        name, opcount, arguments = found.groups()
        known = self._parsed.get((name, arguments))
        if known is None:
            known = self._parse(name, arguments)
        call, pointer, nranks = known
        comm = ctx.proc.by_pointer.get(pointer)
        if comm is None or comm.nranks != nranks:
            comm = self._unseen(ctx, pointer, nranks)
        code = self._code.get(comm)
        if code is None:
            code = self._code[comm] = len(self.comms)
            self.comms.append(comm)
        ctx.proc.last, ctx.proc.last_function = comm, NCCL_FUNCTIONS[call[0]]
        self._rows.append((code, int(opcount, 16), *call))
        self.count += 1
        if len(self._rows) >= _BATCH:
            self._flush()
        return True

    def _parse(self, name: bytes, arguments: bytes) -> tuple[_Call, str, int]:
        found = grammar.COLL_ARGUMENTS.fullmatch(arguments)
        assert found is not None  # the message pattern holds this one
        count, dtype, _, root, nranks = (int(found[i]) for i in (1, 2, 3, 4, 6))
        function = _FUNCTION.get(name, _OTHER)
        size = -1
        if dtype < len(grammar.DTYPE_BYTES) and function != _OTHER:
            size = grammar.message_bytes(NCCL_FUNCTIONS[function], count, grammar.DTYPE_BYTES[dtype], nranks)
        known = (function, dtype if dtype < len(NCCL_DTYPES) else -1, root, count, size), found[5].decode(), nranks
        if len(self._parsed) >= _CACHE:
            self._parsed.clear()
        self._parsed[name, arguments] = known
        return known

    @staticmethod
    def _unseen(ctx: Context, pointer: str, nranks: int) -> Comm:
        """A communicator whose Init line is not in the log."""
        comm = Comm(ctx.proc, pointer, sum(c.pointer == pointer for c in ctx.proc.comms), nranks=nranks)
        ctx.proc.comms.append(comm)
        ctx.proc.by_pointer[pointer] = comm
        return comm

    def _flush(self) -> None:
        np.array(self._rows, _ROW).tofile(self._file)
        self._rows.clear()

    def batches(self) -> Iterator[Any]:
        """The calls as tables of nccl_calls, a bounded number of rows each; the spill file is removed at the end."""
        self._flush()
        self._file.seek(0)
        instances = pa.array([c.instance for c in self.comms], pa.string())
        while len(rows := np.fromfile(self._file, _ROW, _BATCH)):
            size = rows["bytes"]
            yield NCCL_CALLS.build(
                {
                    "instance": pa.DictionaryArray.from_arrays(pa.array(rows["comm"]), instances),
                    "bytes": pa.array(size, pa.int64(), mask=size < 0),
                    **{name: np.ascontiguousarray(rows[name]) for name in ("function", "dtype")},
                    **{name: np.ascontiguousarray(rows[name]) for name in ("count", "peer", "opcount")},
                },
                stored=True,
            )
        self._file.close()
        self._spill.unlink()
