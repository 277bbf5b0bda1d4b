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
_FORM = ("function", "dtype", "peer", "count", "bytes")
_FUNCTION = {name.encode(): i for i, name in enumerate(NCCL_FUNCTIONS)} | {
    b"AllToAll": NCCL_FUNCTIONS.index("AlltoAll"),
    b"AllToAllv": NCCL_FUNCTIONS.index("AlltoAllv"),
}
_OTHER = NCCL_FUNCTIONS.index("other")
_WORDS = (b"opCount", b"sendbuff", b"recvbuff")


class Calls:
    """Calls of a log, in its order. ``spill`` is a file that this object owns."""

    def __init__(self, spill: Path) -> None:
        self.count = 0
        self.comms: list[Comm] = []
        self._code: dict[Comm, int] = {}
        self._known: dict[tuple[bytes, bytes], tuple[int, str, int, str]] = {}
        """(function, arguments) as printed -> place in ``_forms``, pointer, ranks, function"""
        self._forms: list[tuple[int, ...]] = []
        self._rows: tuple[list[int], list[int], list[int]] = [], [], []
        """communicator, opCount, place in ``_forms``"""
        self._spill = spill
        self._file = spill.open("w+b")

    def add(self, ctx: Context, message: bytes) -> bool:
        """Take a ``Name: opCount ..`` message; False if it is not whole."""
        parts = message.split(b" ", 7)
        if len(parts) < 8 or (parts[1], parts[3], parts[5]) != _WORDS:
            return False
        key = parts[0], parts[7]
        known = self._known.get(key) or self._parse(*key)
        if known is None:
            return False
        try:
            opcount = int(parts[2], 16)
        except ValueError:
            return False
        form, pointer, nranks, function = known
        proc = ctx.proc
        comm = proc.by_pointer.get(pointer)
        if comm is None or comm.nranks != nranks:
            comm = self._unseen(ctx, pointer, nranks)
        code = self._code.get(comm)
        if code is None:
            code = self._code[comm] = len(self.comms)
            self.comms.append(comm)
        proc.last, proc.last_function = comm, function
        for column, value in zip(self._rows, (code, opcount, form), strict=True):
            column.append(value)
        return True

    def trim(self) -> None:
        """Write what was taken so far if it is much. To be called between blocks."""
        if len(self._rows[0]) >= _BATCH or len(self._forms) >= _CACHE:
            self._flush()

    def _parse(self, name: bytes, arguments: bytes) -> tuple[int, str, int, str] | None:
        found = grammar.COLL_ARGUMENTS.fullmatch(arguments)
        function = _FUNCTION.get(name[:-1], _OTHER)
        if found is None or not (name.endswith(b":") and name[:-1].replace(b"_", b"").isalnum()):
            return None
        count, dtype, root, nranks = (int(found[i]) for i in (1, 2, 3, 5))
        size = -1
        if dtype < len(grammar.DTYPE_BYTES) and function != _OTHER:
            size = grammar.message_bytes(NCCL_FUNCTIONS[function], count, grammar.DTYPE_BYTES[dtype], nranks)
        known = len(self._forms), found[4].decode(), nranks, NCCL_FUNCTIONS[function]
        self._forms.append((function, dtype if dtype < len(NCCL_DTYPES) else -1, root, count, size))
        self._known[name, arguments] = known
        return known

    @staticmethod
    def _unseen(ctx: Context, pointer: str, nranks: int) -> Comm:
        """A communicator whose Init line is not in the log."""
        comm = Comm(ctx.proc, pointer, sum(c.pointer == pointer for c in ctx.proc.comms), nranks=nranks)
        ctx.proc.comms.append(comm)
        ctx.proc.by_pointer[pointer] = comm
        return comm

    def _flush(self) -> None:
        comm, opcount, form = (np.array(column, np.int64) for column in self._rows)
        rows = np.empty(len(comm), _ROW)
        rows["comm"], rows["opcount"] = comm, opcount
        forms = np.array(self._forms, np.int64).reshape(-1, len(_FORM))
        for i, name in enumerate(_FORM):
            rows[name] = forms[form, i]
        rows.tofile(self._file)
        self.count += len(rows)
        for column in self._rows:
            column.clear()
        self._forms.clear()
        self._known.clear()

    def finish(self) -> int:
        """Number of calls, all of them written."""
        self._flush()
        return self.count

    def batches(self) -> Iterator[Any]:
        """The calls as tables of nccl_calls, a bounded number of rows each."""
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

    def close(self) -> None:
        """Remove the spill file."""
        self._file.close()
        self._spill.unlink(missing_ok=True)
