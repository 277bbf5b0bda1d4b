"""Which events belong to one record: one damaged digit of a time must not stretch it over years."""

from __future__ import annotations

import numpy as np

from traceview_parsers.kineto.columns import Array
from traceview_parsers.kineto.events import MISSING, Events, to_ns
from traceview_parsers.limits import SPAN_NS


class Vicinity:
    """Tells times near the middle of a file's first events from those that cannot be of the same record."""

    def __init__(self) -> None:
        self._middle: int | None = None
        self.far = 0

    @property
    def unknown(self) -> bool:
        """Nothing has been learnt yet."""
        return self._middle is None

    def look(self, events: Events) -> None:
        """Learn where the record is from the activities of a first chunk."""
        times = to_ns([e.ts for e in events if e.dur is not None])
        times = times[(times != MISSING) & (times != 0)]
        if len(times):
            self._middle = int(np.median(times))

    def near(self, start: Array, end: Array) -> Array:
        """Mask of the intervals near the others; time 0 means "not collected" and is told apart later."""
        if self._middle is None:
            return np.ones(len(start), np.bool_)
        uncollected = (start == 0) & (end == 0)
        near: Array = uncollected | ((start >= self._middle - SPAN_NS) & (end <= self._middle + SPAN_NS))
        return near
