"""What a file says of its communication, collected chunk by chunk: facts on kernels, records, ranges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from traceview_parsers.kineto.arguments import ArgsDecoder, GpuArgs, TensorArgs
from traceview_parsers.kineto.columns import Array, Growing, Interner
from traceview_parsers.kineto.events import Events, integers

TEXT = ("collective", "group", "group_desc", "ranks", "dtype", "in_splits", "out_splits", "comm_id")
NUMBERS = ("elems_in", "elems_out", "group_size", "first", "stride", "rank", "src", "dst", "seq")

# PyTorch's element types -> bytes.
DTYPE_BYTES = {
    "float": 4,
    "double": 8,
    "half": 2,
    "bfloat16": 2,
    "long": 8,
    "longint": 8,
    "int": 4,
    "short": 2,
    "char": 1,
    "byte": 1,
    "bool": 1,
    "unsignedchar": 1,
    "complexfloat": 8,
    "complexdouble": 16,
    "complexhalf": 4,
}
# "Collective name" of PyTorch, without underscores and suffixes -> kind.
_KIND_OF = {
    "allreduce": "allreduce",
    "allgather": "allgather",
    "allgatherbase": "allgather",
    "allgatherintotensor": "allgather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "alltoall": "alltoall",
    "alltoallbase": "alltoallv",
    "alltoallv": "alltoallv",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "recv",
    "recvanysource": "recv",
    "barrier": "barrier",
}
_SUFFIXES = ("coalesced", "oop", "sparse")
_RANGES = ("nccl:", "rccl:", "hccl:", "c10d::")  # ranges on the host whose name tells the collective
RECORD = "record_param_comms"
_NOT_A_COLLECTIVE = "wait"


def kind_of(collective: str) -> str | None:
    """Kind of a recorded collective name (``_allgather_base``, ``all_to_allv``, ``nccl:all_reduce``), or None.

    >>> kind_of("_reduce_scatter_base"), kind_of("allreduce_coalesced"), kind_of("c10d::allgather_"), kind_of("wait")
    ('reduce_scatter', 'allreduce', 'allgather', None)
    """
    name = collective.rsplit(":", 1)[-1].lower().replace("_", "")
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return _KIND_OF.get(name)


def dtype_bytes(dtype: str) -> int | None:
    """Bytes of one element; all 8-bit floats are 1.

    >>> dtype_bytes("BFloat16"), dtype_bytes("Float8_e4m3fn"), dtype_bytes("c10::Half"), dtype_bytes("?")
    (2, 1, 2, None)
    """
    name = dtype.rsplit("::", 1)[-1].lower().replace(" ", "")
    return 1 if name.startswith(("float8", "qint8", "quint8")) else DTYPE_BYTES.get(name)


class CommStore:
    """Collects what the file says of its communication; ``kineto.collectives`` makes the table of it."""

    def __init__(self) -> None:
        facts = dict.fromkeys(TEXT, np.int32) | dict.fromkeys(NUMBERS, np.int64)
        when = dict.fromkeys(("thread", "start", "end"), np.int64)
        self.text = {name: Interner() for name in TEXT}
        self.names = Interner()  # of host ranges
        self.kernels = Growing(row=np.int64, **facts)
        self.records = Growing(**when, **facts)
        self.ranges = Growing(**when, name=np.int32)
        self.host = Growing(**when, name=np.int32, elements=np.int64, bytes=np.int64, dtype=np.int32)
        self.default_rank: int | None = None
        self._args = ArgsDecoder(GpuArgs)
        self._tensors = ArgsDecoder(TensorArgs)

    def add_kernels(self, first_row: int, args: list[Any]) -> None:
        """Facts on GPU records; row numbers count from ``first_row``."""
        at = [i for i, a in enumerate(args) if a.collective and a.collective != _NOT_A_COLLECTIVE]
        if at:
            self._note_rank([args[i] for i in at])
            self.kernels.add(len(at), row=np.array(at) + first_row, **self._facts([args[i] for i in at]))

    def add_records(self, events: Events, thread: Array, start: Array, end: Array) -> None:
        """``record_param_comms`` ops."""
        args = self._args(events)
        at = [i for i, a in enumerate(args) if a.collective != _NOT_A_COLLECTIVE]
        facts = self._facts([args[i] for i in at])
        self.records.add(len(at), thread=thread[at], start=start[at], end=end[at], **facts)

        self._note_rank([args[i] for i in at])

    def _note_rank(self, args: list[Any]) -> None:
        """``Rank`` is the rank in the group, but the root or the peer for some kinds."""
        if self.default_rank is None:
            symmetric = ("allreduce", "allgather", "reduce_scatter", "alltoall", "alltoallv", "barrier")
            ranks = (
                a.rank for a in args if a.group_desc == "default_pg" and kind_of(a.collective or "") in symmetric
            )
            self.default_rank = next((r for r in ranks if r is not None and r >= 0), None)

    def add_ranges(self, events: Events, thread: Array, start: Array, end: Array) -> None:
        """Ranges whose name tells a collective that is launched inside."""
        names = self.names.codes([e.name for e in events])
        self.ranges.add(len(events), thread=thread, start=start, end=end, name=names)

    def add_host(self, events: Events, thread: Array, start: Array, end: Array) -> None:
        """Collectives that run on the host (gloo, MPI, UCC)."""
        sizes = [_tensor_size(a.dims, a.types) for a in self._tensors(events)]
        self.host.add(
            len(events),
            thread=thread,
            start=start,
            end=end,
            name=self.names.codes([e.name for e in events]),
            elements=integers([s[0] for s in sizes]),
            bytes=integers([s[1] for s in sizes]),
            dtype=self.text["dtype"].codes([s[2] for s in sizes]),
        )

    def _facts(self, args: list[Any]) -> dict[str, Array]:
        out = {name: integers([getattr(a, name) for a in args]) for name in NUMBERS}
        for name in TEXT:
            out[name] = self.text[name].codes([_plain(getattr(a, name)) for a in args])
        return out


def tells_collective(name: str) -> bool:
    """Whether a host range of this name encloses the launch of a collective."""
    return name.startswith(_RANGES) and kind_of(name) is not None


def _plain(value: Any) -> str | None:
    if isinstance(value, int):
        return f"{value:x}" if value > 2**31 else str(value)
    return value if value is None or isinstance(value, str) else str(value)


def _tensor_size(dims: Any, types: Any) -> tuple[int | None, int | None, str | None]:
    """(elements, bytes, dtype) of all input tensors; None where the file does not say, or types are mixed."""
    if not isinstance(dims, list) or not isinstance(types, list):
        return None, None, None
    elements, count, dtypes = 0, 0, set()
    for shape, dtype in zip(dims, types, strict=False):
        for tensor in shape if shape and isinstance(shape[0], list) else [shape]:
            if tensor and all(isinstance(d, int) for d in tensor):
                elements += math.prod(tensor)
                dtypes.add(dtype)
                count += 1
    if not count or len(dtypes) != 1:
        return (elements or None), None, None
    dtype = str(dtypes.pop())
    size = dtype_bytes(dtype)
    return elements, None if size is None else elements * size, dtype
