"""Launch calls by correlation id, on disk in partitions, so that the join needs little memory.

Correlation ids of a process grow with time and GPU rows are asked for in time order: a batch of GPU rows needs one
or two partitions. Several calls may share an id (a runtime call and the driver call inside it): the earliest, and
of those the outermost, is the launch (reference: NVTX and CUPTI nest that way).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from traceview_parsers.nsight.split import split

Ints = np.ndarray[Any, np.dtype[np.int64]]
_CALL = np.dtype([("id", "i8"), ("start", "i8"), ("end", "i8"), ("thread", "i4")])
_BITS = 17
_KEPT = 3


@dataclass(frozen=True)
class Launches:
    """Per row asked for: the call; ``found`` false = no call with that id was recorded."""

    start: Ints
    end: Ints
    thread: Ints
    found: Any


class LaunchIndex:
    """Calls of one process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._present: set[int] = set()
        self._loaded: OrderedDict[int, Any] = OrderedDict()

    def add(self, ids: Ints, start: Ints, end: Ints, thread: Ints) -> None:
        """Add calls; ids below 1 are no ids."""
        calls = np.empty(len(ids), _CALL)
        calls["id"], calls["start"], calls["end"], calls["thread"] = ids, start, end, thread
        for part, index in split(ids >> _BITS):
            mine = calls[index][calls["id"][index] > 0] if part <= 0 else calls[index]
            if part >= 0 and len(mine):
                self._present.add(part)
                with (self._folder / f"calls{part}").open("ab") as file:
                    file.write(np.ascontiguousarray(mine).data)

    def find(self, ids: Ints) -> Launches:
        """The calls of these ids."""
        out = np.zeros(len(ids), _CALL)
        found = np.zeros(len(ids), np.bool_)
        for part, index in split(ids >> _BITS):
            if part not in self._present:
                continue
            calls, known = self._load(part)
            at = np.minimum(np.searchsorted(known, ids[index]), len(known) - 1)
            hit = known[at] == ids[index]
            out[index] = calls[at]
            found[index] = hit
        out[~found] = np.zeros(1, _CALL)
        return Launches(out["start"], out["end"], out["thread"].astype(np.int64), found)

    def _load(self, part: int) -> Any:
        if part in self._loaded:
            self._loaded.move_to_end(part)
            return self._loaded[part]
        calls = np.fromfile(self._folder / f"calls{part}", _CALL)
        if not (calls["id"][1:] > calls["id"][:-1]).all():
            calls = calls[np.lexsort((-calls["end"], calls["start"], calls["id"]))]
            calls = calls[np.diff(calls["id"], prepend=-1) != 0]
        self._loaded[part] = calls, np.ascontiguousarray(calls["id"])
        if len(self._loaded) > _KEPT:
            self._loaded.popitem(last=False)
        return self._loaded[part]
