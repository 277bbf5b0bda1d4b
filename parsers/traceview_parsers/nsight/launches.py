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

Ints = np.ndarray[Any, np.dtype[np.int64]]
_CALL = np.dtype([("id", "i8"), ("start", "i8"), ("end", "i8"), ("thread", "i4")])
_BITS = 18
_KEPT = 4


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
        calls = calls[ids > 0]
        parts = calls["id"] >> _BITS
        for part in np.unique(parts).tolist():
            self._present.add(part)
            with (self._folder / f"calls{part}").open("ab") as file:
                file.write(np.ascontiguousarray(calls[parts == part]).data)

    def find(self, ids: Ints) -> Launches:
        """The calls of these ids."""
        out = np.zeros(len(ids), _CALL)
        found = np.zeros(len(ids), np.bool_)
        parts = ids >> _BITS
        for part in np.unique(parts[ids > 0]).tolist():
            if part not in self._present:
                continue
            calls = self._load(part)
            rows = np.flatnonzero(parts == part)
            at = np.minimum(np.searchsorted(calls["id"], ids[rows]), len(calls) - 1)
            hit = calls["id"][at] == ids[rows]
            out[rows[hit]] = calls[at[hit]]
            found[rows[hit]] = True
        return Launches(out["start"], out["end"], out["thread"].astype(np.int64), found)

    def _load(self, part: int) -> Any:
        if part in self._loaded:
            self._loaded.move_to_end(part)
            return self._loaded[part]
        calls = np.fromfile(self._folder / f"calls{part}", _CALL)
        if not (calls["id"][1:] > calls["id"][:-1]).all():
            calls = calls[np.lexsort((-calls["end"], calls["start"], calls["id"]))]
            calls = calls[np.diff(calls["id"], prepend=-1) != 0]
        self._loaded[part] = calls
        if len(self._loaded) > _KEPT:
            self._loaded.popitem(last=False)
        return calls
