"""Roll-ups keep every nanosecond."""

from __future__ import annotations

import pytest

from traceview.analysis import rollup
from traceview.config import DEFAULT
from traceview.errors import InternalError

from .results import MS, result, window


def test_budget_steps_and_ranks_sum_to_the_windows() -> None:
    windows = [
        window(r, k, compute=50 + r, comm_wait__nxn=10, comm_transfer__nxn=5) for r in range(3) for k in range(4)
    ]
    wall = sum(w.end_ns - w.start_ns for w in windows)
    value = result(windows)
    assert value.budget.wall_ns == wall == sum(value.budget.leaves_ns.values())
    assert sum(value.budget.shares.values()) == pytest.approx(1)
    assert sum(sum(s.leaves_ns.values()) for s in value.step_rows) == wall
    assert sum(sum(r.leaves_ns.values()) for r in value.rank_rows) == wall


def test_a_window_that_does_not_add_up_is_an_internal_error() -> None:
    bad = window(0, 0, compute=10)
    bad.end_ns += 1
    with pytest.raises(InternalError, match="do not sum"):
        rollup.check([bad])
    bad = window(0, 0, comm_wait__nxn=10)
    bad.sub_ns["comm_wait.p2p"] = 1
    with pytest.raises(InternalError, match="sub-leaves"):
        rollup.check([bad])


def test_step_time_is_the_lower_median_over_ranks() -> None:
    rows = rollup.steps([window(0, 1, compute=10), window(1, 1, compute=30)], DEFAULT)
    assert (rows[0].wall_ns, rows[0].min_ns, rows[0].max_ns, rows[0].slowest_rank) == (10 * MS, 10 * MS, 30 * MS, 1)


def test_the_last_recorded_step_is_no_outlier_since_it_runs_until_the_gpu_is_empty() -> None:
    windows = [window(0, k, compute=130 if k in (3, 7) else 100) for k in range(8)]
    assert [r.step for r in rollup.steps(windows, DEFAULT) if r.outlier] == [3, 7]
    assert [r.step for r in rollup.steps(windows, DEFAULT, 7) if r.outlier] == [3]
