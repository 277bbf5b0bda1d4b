"""What the timeline is given: clocks, groups of pieces, focus."""

from __future__ import annotations

import numpy as np
import pytest

from traceview.analysis.phases import CODE
from traceview.analysis.timebase import TimeBase
from traceview.analysis.types import Segments
from traceview.errors import TraceviewError
from traceview_reports.html.timeline_data import (
    GROUP_NAMES,
    GROUP_OF_PHASE,
    Detail,
    Focus,
    RankDetail,
    clock_of,
    origin_of,
    parse_focus,
)


def test_common_axis_has_offset_drift_and_the_host_shift_only_for_host_stamps():
    rank = RankDetail(offset_ns=-50, drift=1e-3, t_ref_ns=1_000, host_shift_ns=7)
    assert rank.common(np.array([1_000, 3_000])).tolist() == [950, 2_952]
    assert rank.common_host(np.array([993])).tolist() == [950]


def test_the_clock_is_that_of_the_time_base_also_where_it_was_stepped():
    base = TimeBase.identity(2)
    base.shift[1], base.drift[1], base.pivot[1] = 40, 2e-6, 1_000
    base.jumps[1] = (np.array([5_000_000]), np.array([-300]))
    local = np.array([1_000, 4_999_999, 5_000_000, 9_000_000])
    rank = RankDetail(**clock_of(base, 1))
    assert rank.common(local).tolist() == base.to_true(np.ones(4, np.int64), local).tolist()
    assert RankDetail(**clock_of(base, 0)).common(local).tolist() == local.tolist()


def test_common_axis_is_exact_for_epoch_stamps():
    stamp = 1_790_000_000_123_456_789
    assert RankDetail(offset_ns=3).common(np.array([stamp])).tolist() == [stamp + 3]


@pytest.mark.parametrize(
    ("phase", "group"),
    [
        ("compute.fused_comm", "compute"),
        ("gpu_opaque", "compute"),
        ("comm_host", "exposed communication"),
        ("comm_wait.nxn", "straggler wait"),
        ("comm_wait.p2p", "pipeline wait"),
        ("pcie_d2h.pinned", "PCIe staging"),
        ("idle_host:gc", "idle"),
        ("uncovered", "uncovered"),
    ],
)
def test_every_phase_has_the_group_of_the_budget(phase, group):
    assert GROUP_NAMES[GROUP_OF_PHASE[CODE[phase]]] == group
    assert len(GROUP_OF_PHASE) == len(CODE)


def test_pieces_are_segments_of_positive_length_since_the_origin():
    rank = RankDetail(offset_ns=5, segments=Segments(np.array([10, 20, 20, 30]), np.array([0, 1, 2], np.int8)))
    assert [a.tolist() for a in rank.pieces(10)] == [[5, 15], [15, 25], [0, 2]]
    assert len(RankDetail().pieces(0)[0]) == 0


def test_a_window_becomes_a_view_since_the_origin():
    ranks = {
        0: RankDetail(step_start=np.array([1_000])),
        1: RankDetail(offset_ns=-400, segments=Segments(np.array([1_300, 1_400]), np.zeros(1, np.int8))),
    }
    detail = Detail(ranks, origin_of(ranks))
    assert detail.origin_ns == 900
    assert detail.view(1, 1_300, 1_500) == (0, 200)


@pytest.mark.parametrize(
    ("text", "want"), [("rank=3", Focus(3)), ("step=4", Focus(None, 4)), ("rank=1, step=2", Focus(1, 2))]
)
def test_focus_is_read(text, want):
    assert parse_focus(text) == want


@pytest.mark.parametrize("text", ["", "rank", "rank=x", "host=3", "rank=-1"])
def test_focus_of_another_shape_is_an_error_that_names_it(text):
    with pytest.raises(TraceviewError, match="focus"):
        parse_focus(text)


def test_focus_covers_every_step_of_a_rank():
    assert Focus(rank=3).covers(3, 9) and not Focus(rank=3).covers(4, 9)
