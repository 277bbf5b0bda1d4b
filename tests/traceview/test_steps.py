"""Which marks are the steps of a run, and which steps are left out (METHODS b.1, b.2)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenarios import load_extras
from tiny import EMPTY_COLLECTIVES, EMPTY_HOST, MAIN, gpu, host, step_marks
from traceview.analysis.ops import NONE
from traceview.analysis.periods import find_period, step_begins, step_phase
from traceview.analysis.steps import FIRST, StepInputs, choose_marks, disagreement, step_of
from traceview.analysis.types import Marks
from traceview.config import DEFAULT
from traceview.errors import TraceviewError
from traceview.schema import STEP_MARKS


def inputs(
    marks: Any = None,
    cover: dict[int, tuple[int, int]] | None = None,
    ops: dict[int, Any] | None = None,
    ranges: dict[int, Any] | None = None,
) -> StepInputs:
    return StepInputs(
        step_marks=STEP_MARKS.empty() if marks is None else marks,
        cover=cover or {0: (0, 1000)},
        gpu_ops=lambda r: (ops or {}).get(r, gpu()),
        host_ranges=lambda r: (ranges or {}).get(r, EMPTY_HOST),
        collectives=lambda r: EMPTY_COLLECTIVES,
    )


def profiler(rank: int, *steps: int, length: int = 100) -> list[tuple[Any, ...]]:
    return [(rank, "profiler_step", "ProfilerStep", k, i * length, (i + 1) * length) for i, k in enumerate(steps)]


def used(marks: Marks) -> list[int]:
    return sorted(set(marks.step.tolist()) - set(marks.excluded))


def launches(*times: int) -> Any:
    return gpu(*({"cls": "compute", "s": t + 1, "e": t + 2, "ls": t} for t in times))


def test_profiler_steps_come_first_and_the_first_step_is_left_out() -> None:
    marks = step_marks(
        *profiler(0, 5, 6, 7, 8), *((0, "optimizer", "Optimizer.step#SGD", i, i, i + 1) for i in range(4))
    )
    found = choose_marks(inputs(marks))
    assert (found.source, found.step.tolist(), found.start.tolist()) == (
        "profiler_step",
        [5, 6, 7, 8],
        [0, 100, 200, 300],
    )
    assert found.excluded == {5: FIRST}
    assert not found.estimated


def test_three_steps_are_all_kept_and_metrics_are_estimates() -> None:
    found = choose_marks(inputs(step_marks(*profiler(0, 1, 2, 3))))
    assert used(found) == [1, 2, 3]
    assert found.estimated
    assert "only 3 whole steps" in found.notes[-1]


def test_last_step_with_few_launches_is_left_out_and_says_so() -> None:
    ops = {0: launches(*range(0, 400, 10), 401, 402, 403)}
    found = choose_marks(inputs(step_marks(*profiler(0, 0, 1, 2, 3, 4)), ops=ops))
    assert found.excluded == {4: "incomplete: 3 launches on rank 0, the median step has 10", 0: FIRST}


def test_last_step_that_the_record_does_not_reach_is_left_out() -> None:
    found = choose_marks(inputs(step_marks(*profiler(0, 0, 1, 2, 3, 4)), cover={0: (0, 450)}))
    assert used(found) == [1, 2, 3]
    assert "ends before it" in found.excluded[4]


def test_a_rank_without_marks_and_disagreeing_steps_are_noted() -> None:
    marks = step_marks(*profiler(0, 1, 2, 3, 4, 5), *profiler(1, 1, 2, 3, 4))
    found = choose_marks(inputs(marks, cover=dict.fromkeys((0, 1, 2), (0, 1000))))
    assert any("ranks 2 have no step marks" in n for n in found.notes)
    assert any("ranks disagree on steps: 5" in n for n in found.notes)


def test_counting_range_that_covers_the_record_beats_the_optimizer() -> None:
    rows = [(0, "range", "iteration", i, i * 200, i * 200 + 150) for i in range(5)]
    rows += [(0, "optimizer", "Optimizer.step#SGD", i, i * 200 + 140, i * 200 + 150) for i in range(5)]
    found = choose_marks(inputs(step_marks(*rows)))
    assert (found.source, found.step.tolist()) == ("range", [0, 1, 2, 3, 4])
    assert "'iteration'" in found.notes[0]


@pytest.mark.parametrize(
    "rows",
    [
        [(0, "range", "iteration", i, i * 50, i * 50 + 40) for i in range(5)],  # covers 240 of 1000
        [(0, "range", "batch", i % 2, i * 200, i * 200 + 190) for i in range(5)],  # does not count
    ],
)
def test_range_that_covers_little_or_does_not_count_is_no_step(rows: list[tuple[Any, ...]]) -> None:
    assert choose_marks(inputs(step_marks(*rows))).source == "all"


def test_gradient_accumulation_is_one_step_per_optimizer_step() -> None:
    rows = [(0, "range", "micro_step", i, i * 50, i * 50 + 50) for i in range(20)]
    rows += [(0, "optimizer", "Optimizer.step#Adam", i, i * 200 + 190, i * 200 + 199) for i in range(5)]
    found = choose_marks(inputs(step_marks(*rows)))
    assert found.source == "optimizer"
    assert found.start.tolist() == [0, 199, 399, 599, 799, 999]
    assert found.end.tolist() == [199, 399, 599, 799, 999, 1000]
    assert found.excluded == {5: "incomplete: after the last optimizer step of rank 0", 0: FIRST}


def test_rarest_of_several_optimizers() -> None:
    rows = [(0, "optimizer", "Optimizer.step#Disc", i, i * 100 + 90, i * 100 + 99) for i in range(9)]
    rows += [(0, "optimizer", "Optimizer.step#Gen", i, i * 300 + 290, i * 300 + 299) for i in range(3)]
    assert "Gen" in choose_marks(inputs(step_marks(*rows))).notes[0]


def test_user_pattern_wins_and_its_group_is_the_number() -> None:
    ranges = {0: host(*(("annotation", i * 100, i * 100 + 90, MAIN, f"train[{i + 40}]") for i in range(5)))}
    marks = step_marks(*profiler(0, 1, 2, 3, 4))
    found = choose_marks(inputs(marks, ranges=ranges), pattern=r"train\[(\d+)\]")
    assert (found.source, found.step.tolist(), found.excluded) == ("range", [40, 41, 42, 43, 44], {40: FIRST})


def test_nested_matches_of_a_pattern_count_once() -> None:
    ranges = {0: host(*(("op", b, b + d, MAIN, "work") for b in (0, 100, 200, 300) for d in (90, 40)))}
    found = choose_marks(inputs(ranges=ranges), pattern="^work$")
    assert (found.step.tolist(), found.end.tolist()) == ([0, 1, 2, 3], [90, 190, 290, 390])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern": "nowhere"}, "no host range matches 'nowhere'"),
        ({"pattern": "("}, "no regular expression"),
        ({"source": "optimizer"}, "no step marks of source 'optimizer'"),
    ],
)
def test_what_the_user_asked_for_and_is_not_there_is_an_error(options: dict[str, str], message: str) -> None:
    with pytest.raises(TraceviewError, match=message.replace("(", r"\(")):
        choose_marks(inputs(), **options)


def test_without_any_sign_of_steps_there_is_one_window() -> None:
    found = choose_marks(inputs(cover={0: (5, 95), 3: (7, 90)}, ops={0: launches(10, 50)}))
    assert (found.source, found.rank.tolist(), found.start.tolist(), found.end.tolist()) == (
        "all",
        [0, 3],
        [5, 7],
        [95, 90],
    )
    assert found.thread.tolist() == [MAIN, NONE]
    assert not found.excluded
    assert "no statistics per step" in found.notes[0]


def test_without_steps_the_ranges_that_recur_are_named() -> None:
    rows = [("forward", 10 * i, 10 * i + 5) for i in range(3)] + [("io", 10 * i + 6, 10 * i + 8) for i in range(4)]
    table = host(*(("annotation", start, end, MAIN, name) for name, start, end in [*rows, ("once", 0, 90)]))
    (note,) = choose_marks(inputs(cover={0: (0, 95)}, ranges={0: table})).notes
    assert note.endswith("; ranges that recur, one of which may be the step (--step-range): 'forward' 3, 'io' 4")


@pytest.mark.parametrize("name", ["P1", "P1b", "P1c"])
def test_period_is_that_of_the_step_not_of_the_layer(shared_dir: Path, name: str) -> None:
    case = next(p for p in load_extras(shared_dir)["period"] if p["id"] == name)
    sequence = list(case["unit"] * case["repeat"])
    for index, symbol in case.get("replace", {}).items():
        sequence[int(index)] = symbol
    found = find_period(np.array([ord(c) for c in sequence]), DEFAULT)
    assert found == (case["expect"], ord("B"))


@pytest.mark.parametrize(
    "text",
    [
        "A" * 60,  # one kind of operation tells no step
        ("AR" * 50 + "B") * 2,  # two periods are too few, and the layer is no step
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 2,
        "",
        "AB",
    ],
)
def test_no_period_where_there_is_none(text: str) -> None:
    assert find_period(np.array([ord(c) for c in text], np.int64), DEFAULT) is None


def test_warm_up_operations_do_not_hide_the_period() -> None:
    text = "WVWWV" + "ABACAD" * 40
    assert find_period(np.array([ord(c) for c in text]), DEFAULT) == (6, ord("B"))


def test_steps_begin_after_the_largest_gap() -> None:
    anchors, times = np.array([2, 6, 10]), np.array([0, 1, 2, 3, 50, 51, 52, 53, 100, 101, 102, 103, 150])
    phase = step_phase(anchors, 4, times)
    assert step_begins(anchors, 4, phase, len(times)).tolist() == [0, 4, 8, 12]


def test_ranks_with_the_same_operations_begin_their_steps_with_the_same_one() -> None:
    """Rank 1 pauses in the middle of its steps longer than between them: its steps still begin with 'a'."""
    ops, cover = {}, {}
    for rank, pause in ((0, 0), (1, 150)):
        times = [k * 200 + i * 5 + pause * (i > 2) for k in range(5) for i in range(5)]
        rows = zip(times, ["a", "b", "c", "b", "d"] * 5, strict=True)
        ops[rank] = gpu(*({"cls": "compute", "s": t + 3, "e": t + 6, "ls": t, "name": n} for t, n in rows), rank=rank)
        cover[rank] = (0, 1000)
    found = choose_marks(inputs(cover=cover, ops=ops))
    assert found.source == "period"
    assert found.start[found.rank == 1].tolist() == found.start[found.rank == 0].tolist()


def test_unmarked_trace_is_cut_by_the_period_of_its_kernels() -> None:
    # 2 ops of a step that began before the record, 4 whole steps of 5 ops, 2 ops of one that was cut
    times = [k * 100 + i * 5 for k in range(6) for i in range(5)][3:-3]
    names = (["a", "b", "c", "b", "d"] * 6)[3:-3]
    ops = gpu(
        *({"cls": "compute", "s": t + 3, "e": t + 6, "ls": t, "name": n} for t, n in zip(times, names, strict=True))
    )
    found = choose_marks(inputs(cover={0: (10, 520)}, ops={0: ops}))
    assert found.source == "period"
    assert found.step.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.start.tolist() == [10, 100, 200, 300, 400, 500]
    assert found.end.tolist() == [100, 200, 300, 400, 500, 520]
    assert found.excluded == {5: "incomplete: rank 0 ends inside it", 0: FIRST}
    assert set(found.thread.tolist()) == {MAIN}


def test_a_million_operations_are_searched_in_a_second() -> None:
    step = np.concatenate([np.tile([1, 2], 500), [3]])
    begin = time.process_time()
    assert find_period(np.tile(step, 1000), DEFAULT) == (1001, 3)
    assert time.process_time() - begin < 1


def test_step_of_a_host_time() -> None:
    marks = choose_marks(inputs(step_marks(*profiler(0, 4, 5, 6))))
    assert step_of(marks, 0, np.array([-1, 0, 99, 100, 299, 300])).tolist() == [NONE, 4, 4, 5, 6, NONE]
    assert step_of(marks, 1, np.array([0])).tolist() == [NONE]
    # host time between neighbouring steps belongs to the earlier one, between captures to none
    apart = [(0, "profiler_step", "ProfilerStep", k, b, b + 80) for k, b in ((4, 0), (5, 100), (9, 300))]
    marks = choose_marks(inputs(step_marks(*apart)))
    assert step_of(marks, 0, np.array([90, 179, 180, 250, 300])).tolist() == [4, 5, NONE, NONE, 9]


def test_members_of_one_instance_in_different_steps_are_noted() -> None:
    instance = np.array([0, 1, -1, 0, 1, 2])
    assert disagreement(np.array([3, 4, 4, 3, 4, -1]), instance) == []
    assert disagreement(np.array([3, 4, 4, 3, 5, -1]), instance) == [
        "ranks disagree on steps: 1 of 2 collectives are in different steps on their ranks"
    ]
