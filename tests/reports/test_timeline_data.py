"""What the timeline is given: clocks, groups of pieces, focus."""

from __future__ import annotations

import numpy as np
import pytest

from traceview.errors import TraceviewError
from traceview.schema import LEAVES
from traceview_reports.html.timeline_data import GROUP_NAMES, Detail, Focus, RankDetail, origin_of, parse_focus


def test_common_axis_has_offset_drift_and_the_host_shift_only_for_host_stamps():
    rank = RankDetail(offset_ns=-50, drift=1e-3, t_ref_ns=1_000, host_shift_ns=7)
    assert rank.common(np.array([1_000, 3_000])).tolist() == [950, 2_952]
    assert rank.common_host(np.array([993])).tolist() == [950]


def test_common_axis_is_exact_for_epoch_stamps():
    stamp = 1_790_000_000_123_456_789
    assert RankDetail(offset_ns=3).common(np.array([stamp])).tolist() == [stamp + 3]


def test_every_leaf_has_the_group_of_the_schema_and_a_p2p_wait_is_a_pipeline_wait():
    n = len(LEAVES)
    plain = RankDetail(piece_leaf=np.arange(n, dtype=np.int8))
    names = [GROUP_NAMES[g] for g in plain.piece_group]
    assert names[LEAVES.index("compute")] == "compute"
    assert names[LEAVES.index("comm_wait")] == "straggler wait"
    assert names[LEAVES.index("comm_host")] == "exposed communication"
    assert names[LEAVES.index("uncovered")] == "uncovered"
    split = RankDetail(piece_leaf=np.arange(n, dtype=np.int8), piece_sub=np.ones(n, np.int8))
    assert GROUP_NAMES[split.piece_group[LEAVES.index("comm_wait")]] == "pipeline wait"


def test_a_window_becomes_a_view_since_the_origin():
    ranks = {
        0: RankDetail(step_start=np.array([1_000])),
        1: RankDetail(offset_ns=-400, piece_start=np.array([1_300])),
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
