"""The charts: drawn by HoloViews, shown by an embedded BokehJS under the same strict policy."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from builders.results import ALL, MS, build
from traceview_reports import html
from traceview_reports.html import charts

Open = Callable[..., Any]


def scroll_through(page: Any) -> None:
    """Bring every chart near the view and wait until it is drawn."""
    for place in page.locator("[data-chart]").all():
        place.scroll_into_view_if_needed()
        page.wait_for_selector(f"[data-chart={place.get_attribute('data-chart')}][data-done]", state="attached")


@pytest.fixture(scope="module")
def slow_page() -> str:
    return html.render(ALL["slow_rank"]())


def test_every_chart_is_drawn_in_both_themes(slow_page: str, open_page: Open) -> None:
    page = open_page(slow_page, viewport={"width": 1200, "height": 500})
    assert page.evaluate("window.Bokeh") is None, "loaded only when a chart comes near"
    scroll_through(page)
    drawn = page.evaluate("[...document.querySelectorAll('[data-chart]')].map(e => e.dataset.chart)")
    assert drawn == ["steps", "heat-compute", "heat-wait", "arrivals", "busbw", "phases", "copies"]
    of = "Bokeh.documents[0].roots()[0]"
    colour = f"[...{of}.references()].find(m => m.type === 'ColumnDataSource').data.color[0]"
    axis = f"[...{of}.references()].find(m => /Axis/.test(m.type)).major_label_text_color"
    assert [page.evaluate(colour), page.evaluate(axis)] == ["#2563a8", "#545b66"]
    page.click("#theme")
    page.wait_for_timeout(50)
    assert [page.evaluate(colour), page.evaluate(axis)] == ["#4a90e2", "#a3adba"]


def test_a_click_on_a_bar_selects_its_step(slow_page: str, open_page: Open) -> None:
    page = open_page(slow_page)
    scroll_through(page)
    place = page.locator("[data-chart=steps]")
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.64, box["y"] + box["height"] * 0.6)
    page.wait_for_selector("tr.sel[data-step]")
    assert re.search(r"#step=\d+$", page.url)
    step = page.url.split("=")[-1]
    assert page.locator("tr.sel[data-step]").first.get_attribute("data-step") == step
    lines = (
        "Bokeh.documents.flatMap(d => d.roots().flatMap(r => [...r.references()]"
        ".filter(m => m.name === 'select-step' && m.visible).map(m => m.location)))"
    )
    assert page.evaluate(lines) == [int(step)] * 3, "the steps and both heat maps show the selection"


def test_a_link_marks_its_rank_and_step_in_the_charts(slow_page: str, open_page: Open) -> None:
    page = open_page(slow_page, "rank=3&step=5")
    scroll_through(page)
    marks = page.evaluate(
        "Bokeh.documents.flatMap(d => d.roots().flatMap(r => [...r.references()]"
        ".filter(m => m.name?.startsWith('select-') && m.visible).map(m => m.name + m.location)))"
    )
    assert sorted(set(marks)) == ["select-rank3", "select-step5"]


def test_charts_show_the_numbers_of_the_tables() -> None:
    result = ALL["slow_rank"]()
    drawn = {d.chart.id: d for d in charts.draw(result)}
    text = json.dumps(drawn["steps"].item)
    assert '"exposed communication"' in text
    cells, fold = charts._fold(np.arange(8, dtype=np.float32).reshape(8, 1))
    assert fold == 1 and len(cells) == 8


@pytest.mark.parametrize(("name", "unit"), [("slow_rank", "ms"), ("many", "s")])
def test_the_time_of_many_members_is_drawn_in_seconds(name: str, unit: str) -> None:
    (chart,) = [d for d in charts.draw(ALL[name]()) if d.chart.id == "phases"]
    assert chart.chart.caption == f"Time in collectives, sum over members, {unit}"


def test_no_rank_vanishes_in_a_heat_map_of_many() -> None:
    cells = np.zeros((2_500, 3), np.float32)
    cells[1_234, 1] = 7
    folded, fold = charts._fold(cells)
    assert fold == 3 and len(folded) == 834 and folded[411, 1] == 7
    drawn = {d.chart.id: d for d in charts.draw(ALL["many"]())}
    assert drawn["heat-compute"].chart.height >= 512 + 90, "a pixel for every rank"


def test_gaps_and_single_values_are_drawn() -> None:
    result = build(3, 4, lambda r, k: {"compute": 10, "wait": 1 if r == 2 else 0})
    result.window_rows = [w for w in result.window_rows if (w.rank, w.step) != (1, 3) and w.step != 2]
    for window in result.window_rows:
        window.late_ns = MS * window.rank
    assert [d.chart.id for d in charts.draw(result)] == ["steps", "heat-compute", "heat-wait", "heat-late"]
    assert [d.chart.id for d in charts.draw(build(1, 1, lambda r, k: {"compute": 1}))] == []


def test_hostile_names_in_charts(open_page: Open) -> None:
    page = open_page(html.render(ALL["hostile"]()))
    scroll_through(page)
    assert page.evaluate("window.PWN") is None
    assert page.locator("img").count() == 0


def test_text_with_math_marks_stays_text() -> None:
    assert charts._label("$$x$$ \\(y\\)") == "x (y)"


def test_a_page_of_512_ranks_with_charts_is_small() -> None:
    assert len(html.render(ALL["many"]()).encode()) < 1_500_000


def test_nothing_is_imported_before_a_chart_is_drawn() -> None:
    code = (
        "import sys, traceview_reports.html, traceview_reports.terminal, traceview_reports.markdown\n"
        "print(sorted({'holoviews', 'bokeh', 'pandas', 'panel'} & set(sys.modules)))"
    )
    path = [p for p in sys.path if p]
    out = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.strip() == "[]"
