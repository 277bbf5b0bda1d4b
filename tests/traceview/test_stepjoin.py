"""Steps marked in two ways: one where they begin together, by time or by number, else left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from traceview import units
from traceview.analysis.stepjoin import joined
from traceview.analysis.types import Marks
from traceview.config import DEFAULT

UTC = 1_700_000_000_000_000_000
STEP = 100_000_000


def marks(source: str, rank: int, numbers: range, first: int) -> Marks:
    step = np.array(numbers, np.int64)
    start = first + (step - step[0]) * STEP
    return Marks(source, np.full(len(step), rank), step, start, start + STEP, np.full(len(step), 5))


@pytest.mark.parametrize("late", [0, 20_000_000, -20_000_000])
def test_by_time(late: int) -> None:
    ours = marks("profiler_step", 0, range(10, 14), UTC)
    theirs = marks("range", 2, range(500, 508), UTC - 2 * STEP + late)
    found = joined(ours, theirs, DEFAULT)
    assert (found.source, found.anchored) == ("profiler_step", True)
    assert list(zip(found.rank.tolist(), found.step.tolist(), strict=True)) == [
        *((0, n) for n in range(10, 14)), *((2, n) for n in range(8, 16))
    ]  # fmt: skip
    assert found.start[found.rank == 2].tolist() == theirs.start.tolist()
    assert any("ranks 2: steps are marked by range" in n and "nearest step in time" in n for n in found.notes)


@pytest.mark.parametrize("off", [2, -2, 50])
def test_numbers_that_contradict_the_time_anchor_nothing(off: int) -> None:
    """A clock that is off by steps, or two ways of counting: nobody can tell."""
    theirs = marks("range", 2, range(10, 14), UTC + off * STEP)
    found = joined(marks("profiler_step", 0, range(10, 14), UTC), theirs, DEFAULT)
    assert found.step[found.rank == 2].tolist() == [10, 11, 12, 13] and not found.anchored
    assert any(
        f"although they begin {units.time(abs(off) * STEP)} apart: matched by order alone" in n for n in found.notes
    )


def test_short_steps_of_other_numbers_anchor_nothing() -> None:
    config = replace(DEFAULT, step_join_clock_ns=STEP)  # a quarter of a step is less
    theirs = marks("range", 2, range(500, 504), UTC)
    assert not joined(marks("profiler_step", 0, range(10, 14), UTC), theirs, config).anchored


def test_too_far_apart_in_time() -> None:
    ours = marks("profiler_step", 0, range(10, 14), UTC)
    found = joined(ours, marks("range", 2, range(50, 54), UTC + 40_000_000), DEFAULT)
    assert set(found.rank.tolist()) == {0} and any("left out" in n for n in found.notes)
    found = joined(ours, marks("range", 2, range(10, 14), UTC + 40_000_000), DEFAULT)  # the numbers agree
    assert found.step[found.rank == 2].tolist() == [10, 11, 12, 13]


def test_by_number_without_a_common_time() -> None:
    found = joined(marks("profiler_step", 0, range(10, 14), UTC), marks("range", 2, range(12, 16), 7), DEFAULT)
    assert found.step[found.rank == 2].tolist() == [12, 13, 14, 15]
    assert any("with equal numbers" in n for n in found.notes)
    found = joined(marks("profiler_step", 0, range(10, 14), UTC), marks("range", 2, range(0, 4), 7), DEFAULT)
    assert set(found.rank.tolist()) == {0}
