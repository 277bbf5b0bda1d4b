"""What the timeline and the export draw of each rank, computed when a rank is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np

from traceview.analysis.types import Decomposition
from traceview.pipeline.values import Across, Frame, Lanes
from traceview.run import Run
from traceview.schema.arrays import to_numpy
from traceview_reports.html.timeline_data import Detail, RankDetail, clock_of, origin_of


class _Ranks(Mapping[int, RankDetail]):
    """A mapping that makes a rank's detail on demand (arrays of one rank at a time)."""

    def __init__(self, run: Run, base: Frame, across: Across, lanes: Lanes) -> None:
        self._first: dict[int, Decomposition] = {}
        for lane in lanes.lanes:
            self._first.setdefault(lane.rank, lane)
        self._make = lru_cache(maxsize=64)(lambda rank: _rank(run, base, across, self._first[rank]))

    def __getitem__(self, rank: int) -> RankDetail:
        if rank not in self._first:
            raise KeyError(rank)
        return self._make(rank)

    def __iter__(self) -> Iterator[int]:
        return iter(self._first)

    def __len__(self) -> int:
        return len(self._first)


def detail_of(run: Run, base: Frame, across: Across, lanes: Lanes) -> Detail:
    """The detail of every rank that has windows; of a rank with several devices the first."""
    ranks = _Ranks(run, base, across, lanes)
    return Detail(ranks=ranks, origin_ns=origin_of(ranks))


def _rank(run: Run, base: Frame, across: Across, lane: Decomposition) -> RankDetail:
    rank = lane.rank
    first = base.first_row[rank]
    own = slice(first, first + run.parts[rank].meta.rows.get("collectives", 0))
    clock, phases, found = across.alignment.base, across.waits.phases, across.waits.instances
    instance = across.matches.instance[own]
    late = np.where(instance >= 0, found.last[instance], -1) if len(found.last) else np.full(len(instance), -1)
    who = to_numpy(base.collectives["rank"])
    waits = phases.wait_end[own] > to_numpy(base.collectives["start"])[own]
    return RankDetail(
        **clock_of(clock, rank),
        host_shift_ns=base.axes[rank].host_shift,
        device=lane.device,
        step=base.windows.step[lane.window],
        step_start=base.windows.start[lane.window],
        step_end=base.windows.end[lane.window],
        wait_end=phases.wait_end[own],
        second=phases.second[own],
        sub=phases.sub[own],
        late_rank=np.where((late >= 0) & waits, who[late], -1).astype(np.int64) if len(who) else late,
        instance=instance,
        segments=lane.segments,
    )
