"""Steps of ranks whose traces mark them in another way than the others (ProfilerStep here, NVTX ranges there)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from traceview import units
from traceview.analysis.instances import by_value
from traceview.analysis.types import Ints, Marks
from traceview.config import Config
from traceview.run import ABSOLUTE_NS
from traceview.units import ranks as rank_list


def joined(marks: Marks, others: Marks, config: Config) -> Marks:
    """``marks`` with those of the ``others``' ranks, under one numbering.

    Equal numbers that are nearest in time as well are the same step. Without absolute times equal numbers count. If
    numbers and times disagree, the numbers stay, and matching does not rely on them (``anchored``). If no numbers
    are equal, the step that is nearest in time counts, if they begin within a part of a step of each other; matching
    relies on that only if the part is longer than the clocks of two hosts may differ. Else the others have no steps.
    """
    who = f"ranks {rank_list(np.unique(others.rank).tolist())}"
    shift, off = _shift(marks, others)
    limit = int(config.step_join_max * _length(marks))
    equal = float(np.mean(np.isin(others.step, marks.step)))
    anchored = True
    near = shift == 0 and 2 * off <= _length(marks)
    if near or (shift is None and equal):
        how = "with equal numbers"
    elif shift is not None and equal >= config.step_join_equal:
        apart = units.time(_apart(marks, others))
        how = f"with equal numbers, although they begin {apart} apart: matched by order alone"
        shift, anchored = 0, False
    elif shift is not None and off <= limit:
        anchored = limit >= config.step_join_clock_ns
        how = f"numbered by the nearest step in time, {units.time(off)} off"
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
        anchored=anchored,
    )


def _shift(marks: Marks, others: Marks) -> tuple[int | None, int]:
    """(what to add to the others' numbers, ns that the steps then are apart); None without absolute times."""
    if min(int(marks.start.min()), int(others.start.min())) < ABSOLUTE_NS:
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


def _apart(marks: Marks, others: Marks) -> int:
    """How far steps of equal numbers begin apart, ns."""
    number, start = _typical(marks)
    shared = np.isin(others.step, number)
    return int(np.median(np.abs(start[np.searchsorted(number, others.step[shared])] - others.start[shared])))


def _typical(marks: Marks) -> tuple[Ints, Ints]:
    """(step numbers, ascending; the median start of each over the ranks)."""
    middle = [(step, int(np.median(marks.start[own]))) for step, own in by_value(marks.step)]
    number, start = np.array(middle, np.int64).T
    return number, start


def _length(marks: Marks) -> int:
    """Median step length, ns."""
    return int(np.median(marks.end - marks.start))
