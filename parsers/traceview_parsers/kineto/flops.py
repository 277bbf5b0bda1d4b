"""FLOPs that operators execute, by the shapes that ``record_shapes`` or ``with_flops`` leave in a trace (METHODS g).

The formulas are those of the profiler's own count; elementwise operators are left out: matrix units do not run them.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Annotated

import msgspec
import numpy as np

from traceview_parsers.kineto.arguments import ArgsDecoder
from traceview_parsers.kineto.columns import Array, Growing
from traceview_parsers.kineto.events import BAD, MISSING, Events

# Matrix products -> which input is the left one; the right one follows.
_PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::_scaled_mm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
_CONV = "aten::conv2d"
_MOST = 1e21
"""no operator has more; above it the shapes are broken"""
_SIZE = Annotated[int, msgspec.Meta(ge=1)]
_SHAPES = tuple[list[_SIZE], list[_SIZE]]
_NONE = msgspec.Raw(b"null")


class FlopArgs(msgspec.Struct, gc=False):
    """Of an operator recorded with shapes."""

    dims: msgspec.Raw = msgspec.field(default=_NONE, name="Input Dims")
    values: msgspec.Raw = msgspec.field(default=_NONE, name="Concrete Inputs")


def counts_flops(name: str) -> bool:
    """Whether FLOPs follow from the shapes of an operator of this name."""
    return name in _PRODUCTS or name == _CONV


def flops_of(name: str, dims: bytes, values: bytes = b"null") -> float:
    """FLOPs of an operator, nan where its shapes do not tell; ``values``: its inputs as text. Both are JSON.

    >>> flops_of("aten::mm", b"[[2, 3], [3, 5]]"), flops_of("aten::addmm", b"[[5], [2, 3], [3, 5]]")
    (60.0, 60.0)
    """
    try:
        at = _PRODUCTS.get(name, 0)
        left, right = msgspec.convert(msgspec.json.decode(dims)[at : at + 2], _SHAPES)
        found = _product(left, right) if name != _CONV else _conv2d(left, right, msgspec.json.decode(values)[3:6])
    except (*BAD, TypeError, ValueError, IndexError, OverflowError, ZeroDivisionError):
        return math.nan
    return float(found) if 0 < found < _MOST else math.nan


_known = lru_cache(maxsize=1 << 14)(flops_of)  # few shapes come again and again


def _product(left: list[int], right: list[int]) -> int:
    """2 m k n of [..., m, k] x [..., k, n]."""
    if left[-1] != right[-2] or left[:-2] != right[:-2]:
        raise ValueError(left, right)
    return 2 * math.prod(left) * right[-1]


def _conv2d(data: list[int], weight: list[int], values: list[str]) -> int:
    """2 x output elements x inputs of each; ``values``: stride, padding, dilation, as text like '[1, 1]'."""
    (n, _, *size), (out, *kernel) = data, weight
    stride, padding, dilation = ([int(t) for t in re.findall(r"-?\d{1,9}", text)] for text in values)
    pixels = 1
    for i, length in enumerate(size):
        s, p, d = (v[i % len(v)] for v in (stride, padding, dilation))
        pixels *= (length + 2 * p - d * (kernel[i + 1] - 1) - 1) // s + 1
    return 2 * n * pixels * out * math.prod(kernel)


class FlopStore:
    """Collects operators with FLOPs."""

    def __init__(self) -> None:
        self._args = ArgsDecoder(FlopArgs)
        self._rows = Growing(thread=np.int64, start=np.int64, end=np.int64, flops=np.float64)

    def add(self, events: Events, thread: Array, start: Array, end: Array) -> None:
        """Add operators that ``counts_flops``; those without shapes tell nothing."""
        args = self._args(events)
        found = [
            _known(str(e.name), bytes(a.dims), bytes(a.values) if e.name == _CONV else b"null")
            for e, a in zip(events, args, strict=True)
        ]
        flops = np.array(found, np.float64)
        at = np.flatnonzero(~np.isnan(flops))
        self._rows.add(len(at), thread=thread[at], start=start[at], end=end[at], flops=flops[at])

    def of_records(self, launch: Array, thread: Array, takes: Array) -> Array | None:
        """FLOPs per GPU record: of the operator around its launch on the first record that it launched, 0 on its
        others, nan where nothing is told; None if nothing is told at all.

        ``launch``: begin of the launch call or MISSING; ``takes``: records that may have FLOPs at all.
        """
        rows = self._rows.take_all()
        if not len(rows["start"]):
            return None
        order = np.lexsort((-rows["end"], rows["start"], rows["thread"]))
        rows = {name: column[order] for name, column in rows.items()}
        out = np.full(len(launch), math.nan)
        takes = takes & (launch != MISSING)
        for own in np.unique(rows["thread"]).tolist():
            low, high = np.searchsorted(rows["thread"], [own, own + 1])
            start, end = rows["start"][low:high], rows["end"][low:high]
            outer = np.append(True, end[1:] > np.maximum.accumulate(end)[:-1])  # an operator inside is part of it
            start, end, flops = start[outer], end[outer], rows["flops"][low:high][outer]
            mine = np.flatnonzero(takes & (thread == own))
            at = np.searchsorted(start, launch[mine], "right") - 1
            inside = (at >= 0) & (launch[mine] < end[np.maximum(at, 0)])
            mine, at = mine[inside], at[inside]
            out[mine] = 0.0
            first = np.unique(at, return_index=True)
            out[mine[first[1]]] = flops[first[0]]
        return out
