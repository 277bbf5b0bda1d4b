"""Figures of comparisons and trends: bars that add up, dots where their values are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from builders.versus import MS, comparison, decision, trend
from traceview.schema import GROUPS
from traceview_reports.html.figures import WIDTH, Scale, scale_of
from traceview_reports.html.figures_trend import parts, step_times
from traceview_reports.html.figures_versus import strip, waterfall


def bar(shapes: Markup) -> tuple[float, float]:
    """(left, right) of the bar of a row."""
    found = re.search(r'<rect x="([\d.]+)" y="6" width="([\d.]+)"', shapes)
    assert found
    return float(found[1]), float(found[1]) + float(found[2])


def places(shapes: Markup, css: str) -> list[tuple[float, float]]:
    """Points of the path of a class."""
    found = re.findall(rf'<path d="([^"]*)" class="{css}"/>', shapes)
    return [(float(x), float(y)) for d in found for x, y in re.findall(r"M([\d.]+) ([\d.]+)", d)]


def test_the_waterfall_goes_from_one_mean_to_the_other():
    """50 + 25 of compute + 25 of idle = 100: bars of 500, 250 and 250 units, 1,000 in all."""
    got = waterfall(comparison({"compute": (40 * MS, 65 * MS), "idle": (10 * MS, 35 * MS)}))
    assert [lane.label for lane in got.lanes] == ["baseline", "compute", "idle", "candidate"]
    assert [bar(lane.shapes) for lane in got.lanes] == [(0, 500), (500, 750), (750, 1000), (0, 1000)]
    assert [lane.value for lane in got.lanes] == ["50.0 ms", "+25.0 ms", "+25.0 ms", "100 ms"]
    assert "compute +25.0 ms, idle +25.0 ms" in got.label and got.note == ""


def test_small_changes_are_seen_and_the_cut_axis_is_told():
    got = waterfall(comparison({"compute": (100 * MS, 101 * MS)}))
    assert got.note == "the axis begins at 99.0 ms"
    assert bar(got.lanes[1].shapes) == (500, 1000)
    assert "tear" in got.lanes[0].shapes and "tear" not in got.lanes[1].shapes
    assert got.ticks[0] == (0.0, "99 ms") and got.ticks[-1] == (100.0, "101 ms")


def test_nothing_changed():
    got = waterfall(comparison({"compute": (MS, MS)}))
    assert [bar(lane.shapes) for lane in got.lanes] == [(0, WIDTH), (0, WIDTH)]
    assert "no group changed" in got.label
    assert waterfall(comparison({})).lanes[0].value == "0"


pairs = st.dictionaries(
    st.sampled_from(list(GROUPS)), st.tuples(st.integers(0, 10**11), st.integers(0, 10**11)), min_size=1
)


@given(pairs)
def test_each_bar_begins_where_the_last_one_ends(groups: dict[str, tuple[int, int]]):
    """Up or down, to a hundredth of a unit; a hair stands for less than a unit."""
    c = comparison(groups)
    lanes = waterfall(c).lanes
    at = bar(lanes[0].shapes)[1] if c.baseline_mean_ns else 0.0
    scale = (bar(lanes[-1].shapes)[1] - at) / ((c.candidate_mean_ns - c.baseline_mean_ns) or 1)
    for lane, change in zip(lanes[1:-1], [g for g in c.groups if g.delta_ns], strict=True):
        left, right = bar(lane.shapes)
        begin, end = (left, right) if change.delta_ns > 0 else (right, left)
        if right - left > 1:
            assert begin == pytest.approx(at, abs=1.1)
            at = end
        else:
            at += change.delta_ns * scale
        assert -0.1 <= left <= right <= WIDTH + 1.1


def test_every_step_is_a_dot_at_its_time():
    c = comparison({"compute": (100 * MS, 110 * MS)})
    got = strip(c, decision([[100, 102, 98]], [[110, 112, 108]], 0.10))
    assert [lane.label for lane in got.lanes] == ["baseline", "candidate", "change, as judged"]
    before, after = (places(lane.shapes, f"dots {lane.label}") for lane in got.lanes[:2])
    assert [y for _, y in before] == [5, 13, 21]
    unit = (before[1][0] - before[0][0]) / 2  # a ms
    assert after[0][0] - before[0][0] == pytest.approx(10 * unit, abs=0.3)
    left, right = re.findall(
        r'<rect x="([\d.]+)" y="0" width="([\d.]+)" height="26" class="allowed"', got.lanes[0].shapes
    )[0]
    assert float(left) == pytest.approx(before[0][0], abs=0.1) and float(right) == pytest.approx(3 * unit, abs=0.1)
    assert 'class="unsure"' in got.lanes[0].shapes and 'class="bad"' in got.lanes[2].shapes
    assert [lane.value for lane in got.lanes] == ["100 ms", "110 ms", "+10.0 %"]
    assert "to 5.0 % chance may explain it" in got.note


def test_runs_are_rows_and_many_runs_share_one():
    c = comparison({"compute": (100 * MS, 110 * MS)})
    got = strip(c, decision([[100, 101]] * 20, [[110, 111]] * 3, 0.10))
    labels = [lane.label for lane in got.lanes]
    assert labels[0] == "baseline 1" and labels[11:14] == ["baseline 12", "baseline, 8 more", "candidate 1"]
    assert len(labels) == 13 + 3 + 1


def test_a_document_without_step_times_still_has_its_page():
    d = decision([[100]], [[110]], 0.10)
    d.baseline.step_ns, d.candidate.step_ns = [], []
    assert len(strip(comparison({"compute": (100 * MS, 110 * MS)}), d).lanes) == 1


def test_single_ones_far_off_do_not_flatten_the_rest():
    scale, beyond = scale_of([100.0] * 50 + [101.0] * 49 + [900.0])
    assert beyond == 1 and scale.high < 140 and scale.at(900) == WIDTH
    scale, beyond = scale_of([100.0] * 99 + [900.0], must=[900.0])
    assert beyond == 0 and scale.high >= 900


@given(st.lists(st.integers(1, 10**13), min_size=1, max_size=60), st.booleans())
def test_a_scale_holds_what_it_shows(values: list[int], zero: bool):
    scale, beyond = scale_of(values, must=values[:1], zero=zero)
    assert 0 <= scale.low < scale.high and beyond < max(len(values), 1)
    assert 0 <= scale.at(values[0]) <= WIDTH
    ticks = scale.ticks()
    assert len(ticks) <= 7 and len({text for _, text in ticks}) == len(ticks)


def test_ticks_are_round_and_of_one_unit():
    assert [text for _, text in Scale(0, 100 * MS).ticks()] == ["0 ms", "20 ms", "40 ms", "60 ms", "80 ms", "100 ms"]
    assert [text for _, text in Scale(990 * MS, 1010 * MS).ticks(2)] == ["0.99 s", "1 s", "1.01 s"]


STEP = [*[100.0] * 10, *[120.0] * 10]


def test_the_course_has_a_dot_a_run_and_a_line_a_change():
    got = step_times(trend(STEP), "t")
    seen = places(got.shapes, "dots")
    assert [x for x, _ in seen] == [25 + 50 * i for i in range(20)]
    assert len({y for _, y in seen[:10]}) == len({y for _, y in seen[10:]}) == 1 and seen[0][1] > seen[10][1]
    assert [x for x, _ in places(got.shapes, "change")] == [500]
    assert [y for _, y in places(got.shapes, "median")] == pytest.approx([seen[0][1], seen[10][1]], abs=0.1)
    assert "1 c10 +20.0 %" in [w.text for w in got.words]
    assert "change 1 at run 11: c10 +20.0 %" in got.label


def test_a_run_far_off_stands_at_the_edge():
    got = step_times(trend([100.0, 101.0] * 20 + [900.0, 100.0]), "t")
    assert len(places(got.shapes, "dots far")) == 1 and "1 run outside" in got.note


def test_the_parts_are_stacked_without_a_gap():
    got = parts(trend([90.0, 60.0]), "p")
    corners = {
        css: [tuple(map(float, m)) for m in re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)H([\d.]+)V[\d.]+z", d)]
        for d, css in re.findall(r'<path d="([^"]*)" class="(g-\w+)"', got.shapes)
    }
    for compute, idle in zip(corners["g-compute"], corners["g-idle"], strict=True):
        assert compute[1] == 234 and idle[1] == compute[2]  # idle stands on compute, which stands on the ground
    whole = [234 - idle[2] for idle in corners["g-idle"]]
    assert whole[1] == pytest.approx(whole[0] * 60 / 90, abs=0.05)
    assert got.legend == [("compute", "compute"), ("idle", "idle")]


def test_thousands_of_runs_share_bars():
    got = parts(trend([100.0 + i % 7 for i in range(5000)]), "p")
    assert got.note == "a bar is the mean of 13 runs"
    assert got.shapes.count("z") <= 2 * 400 and len(got.shapes) < 60_000


def test_the_numbers_of_few_runs_stand_below_their_dots():
    got = step_times(trend([100.0] * 6), "t")
    assert [w.text for w in got.words] == ["run 1", "2", "3", "4", "5", "6"]
    assert [10 * w.x for w in got.words] == pytest.approx([x for x, _ in places(got.shapes, "dots")], abs=0.1)
    assert {w.anchor for w in got.words} == {"middle"}
    many = step_times(trend([100.0] * 200), "t").words
    assert (many[0].anchor, many[-1].anchor) == ("start", "end"), "none leaves the plot"


@pytest.mark.parametrize("count", [1, 2, 9])
def test_few_runs_are_drawn_too(count: int):
    got = step_times(trend([100.0] * count), "t")
    assert len(places(got.shapes, "dots")) == count
    assert [w.text for w in got.words][:1] == ["run 1"]
