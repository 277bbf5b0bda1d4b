"""The page with its timeline: one selection for all sections, links into it, a size that holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from builders.timeline_world import World, build
from traceview.errors import TraceviewError
from traceview.result import Finding, Where
from traceview_reports import html

Open = Callable[..., Any]
VIEW = "document.getElementById('tv-tl-root').traceview.state.view"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    run, result, detail = build(tmp_path_factory.mktemp("world"), World(ranks=4, steps=3, kernels=40))
    late = detail.ranks[2]
    where = Where(2, int(late.step[1]), int(late.step_start[1]), int(late.step_end[1]))
    result.findings = [Finding("late", "rank 2 is late", 1, "waits", "proved", ["one"], "look", where)]
    return run, result, detail


@pytest.fixture(scope="module")
def whole(world: Any) -> str:
    run, result, detail = world
    return html.render(result, run, detail=detail)


def test_a_card_leads_to_its_window(world: Any, whole: str, open_page: Open) -> None:
    _, result, detail = world
    page = open_page(whole)
    page.wait_for_selector("body[data-ready-timeline]", state="attached")
    where = result.findings[0].where
    t0, t1 = detail.view(where.rank, where.start_ns, where.end_ns)
    page.locator(".card a").first.click()
    for _ in range(200):
        view = page.evaluate(VIEW)
        if abs(view[0] - t0) < 0.1 * (t1 - t0) and abs(view[1] - t1) < 0.1 * (t1 - t0):
            break
        page.wait_for_timeout(20)
    else:
        raise AssertionError(f"view stayed {view}, wanted {t0} {t1}")
    assert page.locator("#timeline h2").is_visible()
    assert page.locator("#sel").inner_text().startswith(f"selected: rank 2, step {where.step}")


def test_charts_timeline_and_tables_live_under_one_policy(whole: str, open_page: Open) -> None:
    page = open_page(whole, f"rank=1&step={1}", color_scheme="dark")
    page.wait_for_selector("body[data-ready-timeline]", state="attached")
    page.locator("[data-chart=steps]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-chart=steps][data-done]")
    assert page.locator("header nav a", has_text="Timeline").count() == 1


def test_the_timeline_gives_way_until_the_page_fits(world: Any) -> None:
    run, result, detail = world
    full = html.render(result, run, detail=detail, charts=False)
    limit = len(full.encode()) - 4_000
    less = html.render(result, run, detail=detail, charts=False, max_bytes=limit)
    assert len(less.encode()) <= limit
    assert "tv-tl-meta" in less
    with pytest.raises(TraceviewError, match="leave out the charts"):
        html.render(result, run, detail=detail, charts=False, max_bytes=50_000)
