"""Steps of ranks whose traces mark them in another way than the others (ProfilerStep here, NVTX ranges there)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceview import units
from traceview.analysis.types import Ints, Marks
from traceview.config import Config
from traceview.units import ranks as rank_list

_ABSOLUTE_NS = 10**17


def joined(marks: Marks, others: Marks, config: Config) -> Marks:
    """``marks`` with those of the ``others``' ranks, renumbered by the step that is nearest in time.

    The hosts' clocks must agree within a part of a step; where they cannot (no absolute times), equal numbers count
    if both have some. Without either the others keep no steps.
    """
    who = f"ranks {rank_list(np.unique(others.rank).tolist())}"
    shift, off = _shift(marks, others)
    limit = config.step_join_max * _length(marks)
    if shift is not None and off <= limit:
        how = f"numbered by the nearest step in time, {units.time(off)} off"
    elif shift is None and np.isin(others.step, marks.step).any():
        shift, how = 0, "taken by their numbers"
    else:
        note = f"{who}: steps are marked by {others.source} and fit none of the {marks.source} in time: left out"
        return replace(marks, notes=[*marks.notes, note])
    step, start = np.append(marks.step, others.step + (shift or 0)), np.append(marks.start, others.start)
    rank = np.append(marks.rank, others.rank)
    order = np.lexsort((start, rank))
    note = f"{who}: steps are marked by {others.source}, the others' by {marks.source}; {how}"
    return replace(
        marks,
        rank=rank[order],
        step=step[order],
        start=start[order],
        end=np.append(marks.end, others.end)[order],
        thread=np.append(marks.thread, others.thread)[order],
        notes=[*marks.notes, *others.notes, note],
    )


def _shift(marks: Marks, others: Marks) -> tuple[int | None, int]:
    """(what to add to the others' numbers, ns that the steps then are apart); None without absolute times."""
    if min(int(marks.start.min()), int(others.start.min())) < _ABSOLUTE_NS:
        return None, 0
    number, start = _typical(marks)
    after = np.clip(np.searchsorted(start, others.start), 1, max(len(start) - 1, 1))
    after = np.minimum(after, len(start) - 1)
    before = np.maximum(after - 1, 0)
    near = np.where(np.abs(start[after] - others.start) < np.abs(start[before] - others.start), after, before)
    shifts, count = np.unique(number[near] - others.step, return_counts=True)
    shift = int(shifts[np.argmax(count)])
    at = np.searchsorted(number, others.step + shift)
    at = np.minimum(at, len(number) - 1)
    shared = number[at] == others.step + shift
    return shift, int(np.median(np.abs(start[at] - others.start)[shared]))


def _typical(marks: Marks) -> tuple[Ints, Ints]:
    """(step numbers, ascending; the median start of each over the ranks)."""
    number = np.unique(marks.step)
    return number, np.array([int(np.median(marks.start[marks.step == n])) for n in number.tolist()], np.int64)


def _length(marks: Marks) -> int:
    """Median step length, ns."""
    return int(np.median(marks.end - marks.start))
