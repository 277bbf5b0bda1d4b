"""The viewer in a real browser, on a page as strict as the report's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from builders.timeline_page import page as page_around
from builders.timeline_world import KERNELS, World, build
from traceview.analysis.phases import CODE
from traceview.analysis.types import Segments
from traceview.run import Run
from traceview.schema import GPU_OPS
from traceview_reports.html.timeline import timeline_section
from traceview_reports.html.timeline_data import Budget, Detail, RankDetail, origin_of

Open = Callable[..., Any]
VIEW = "document.getElementById('tv-tl-root').traceview"
HOSTILE = (
    "evil</script><img src=x onerror=window.PWN=1>",
    "line\u2028and\u2029separator<!--<script>",
    "x" * 4096,
    "&amp;'\"`${1}",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return build(tmp_path_factory.mktemp("world"), World(ranks=4, steps=3, kernels=40))


@pytest.fixture(scope="module")
def plain(world):
    run, result, detail = world
    return page_around(timeline_section(result, run, detail))


@pytest.fixture
def ready(open_page: Open):
    def opened(html: str, fragment: str = "", **options: Any) -> Any:
        page = open_page(html, fragment, **options)
        page.wait_for_selector("body[data-ready-timeline]", state="attached")
        return page

    return opened


def until(page, expression: str, holds: Callable[[Any], bool], within_s: float = 10) -> Any:
    """Evaluate until it holds: a loaded machine may take many frames."""
    for _ in range(int(within_s / 0.02)):
        found = page.evaluate(expression)
        if holds(found):
            return found
        page.wait_for_timeout(20)
    raise AssertionError(f"{expression} stayed {found!r}")


def view(page) -> list[float]:
    return page.evaluate(f"{VIEW}.state.view")


def place(page, rank: int, name: str) -> tuple[float, float]:
    """Page coordinates of the middle of the first visible event of this name."""
    x, y = page.evaluate(
        f"""([rank, name]) => {{ const t = {VIEW}, S = t.state;
        for (const r of S.rows) {{ if (!r.lane || r.rank !== rank) continue;
          for (let k = 0; k < r.lane.n; k++) {{
            const id = r.lane.ids ? r.lane.ids[k] : r.lane.s + k;
            if (r.lane.key === "idle" || S.meta.names[r.lane.chunk.name[id]] !== name) continue;
            if (r.lane.ts[k] < S.view[0]) continue;
            return [t.xOf(r.lane.ts[k] + r.lane.du[k] / 2), 42 + r.y + r.h / 2 - S.scroll]; }} }} }}""",
        [rank, name],
    )
    box = page.locator("#tv-tl-canvas").bounding_box()
    return box["x"] + x, box["y"] + y


def test_click_shows_the_detail_of_a_waiting_collective_and_leads_to_the_late_rank(plain, ready):
    page = ready(plain)
    page.mouse.click(*place(page, 0, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"))
    text = page.locator("#tv-tl-detail").inner_text()
    for words in ("straggler wait, for rank 2", "correlation", "default_pg", "bfloat16", "0-3 (4 ranks)", "50 MB"):
        assert words in text
    page.get_by_role("button", name="Go to rank 2").click()
    assert "rank\n2 on node-000" in page.locator("#tv-tl-detail").inner_text()
    assert page.evaluate(f"{VIEW}.state.selected.rank") == 2


def test_a_kernel_names_the_operator_that_launched_it(plain, ready):
    page = ready(plain)
    page.evaluate(f"{VIEW}.setView(700000, 900000)")
    page.mouse.click(*place(page, 1, "flash_fwd_kernel"))
    text = page.locator("#tv-tl-detail").inner_text()
    assert "aten::scaled_dot_product_attention" in text and "30.0 µs" in text and "ns)" in text


def test_keys_zoom_pan_step_and_reset(plain, ready):
    page = ready(plain)
    page.locator("#tv-tl-canvas").focus()
    whole = view(page)
    page.keyboard.press("w")
    zoomed = view(page)
    assert zoomed[1] - zoomed[0] == pytest.approx((whole[1] - whole[0]) * 0.7)
    page.keyboard.press("d")
    assert view(page)[0] > zoomed[0]
    page.keyboard.press("a")
    assert view(page)[0] == pytest.approx(zoomed[0])
    page.keyboard.press("s")
    page.keyboard.press("[")
    first = view(page)
    page.keyboard.press("]")
    assert view(page)[0] > first[0]
    page.keyboard.press("[")
    assert view(page) == pytest.approx(first)
    page.keyboard.press("0")
    assert view(page) == pytest.approx(whole)
    page.keyboard.press("?")
    assert page.locator("#tv-tl-help").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#tv-tl-help").is_hidden()
    page.keyboard.press("g")
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    assert page.evaluate(f"{VIEW}.state.step") == 2


def test_the_list_of_keys_opens_from_anywhere_and_goes_away(plain, ready):
    page = ready(plain)
    keys = page.locator("#tv-tl-help")
    page.keyboard.press("?")  # the focus is on the page, not on the canvas
    assert keys.is_visible()
    page.keyboard.press("Escape")
    assert keys.is_hidden()
    page.locator("#tv-tl-keys").click()
    assert keys.is_visible()
    page.keyboard.press("Escape")  # the focus is on the button
    assert keys.is_hidden()
    page.locator("#tv-tl-keys").click()
    page.mouse.click(3, 3)
    assert keys.is_hidden()
    page.locator("#tv-tl-search").focus()
    page.keyboard.press("?")
    assert keys.is_hidden() and page.locator("#tv-tl-search").input_value() == "?"


def test_events_are_selected_from_the_keyboard(plain, ready):
    page = ready(plain)
    page.locator("#tv-tl-canvas").focus()
    chosen = f"(() => {{ const s = {VIEW}.state.selected; return [s.rank, s.id] }})()"
    page.keyboard.press(".")
    first = page.evaluate(chosen)
    page.keyboard.press(".")
    assert page.evaluate(chosen) == [first[0], first[1] + 1]
    page.keyboard.press(",")
    assert page.evaluate(chosen) == first
    assert page.locator("#tv-tl-detail h3").inner_text() in KERNELS
    page.keyboard.press(">")
    assert "ncclDevKernel_AllReduce" in page.locator("#tv-tl-detail h3").inner_text()
    page.keyboard.press("<")
    assert page.locator("#tv-tl-detail h3").inner_text() in KERNELS


def test_search_finds_counts_and_walks_hits(plain, ready):
    page = ready(plain)
    page.locator("#tv-tl-canvas").focus()
    page.keyboard.press("/")
    page.keyboard.type("FLASH_fwd")
    hits = page.locator("#tv-tl-hits")
    hits.get_by_text("120 events").wait_for()
    page.keyboard.press("Enter")
    assert "1 of 120" in hits.inner_text()
    assert "flash_fwd_kernel" in page.locator("#tv-tl-detail h3").inner_text()
    page.locator("#tv-tl-canvas").focus()
    page.keyboard.press("n")
    assert "2 of 120" in hits.inner_text()
    page.keyboard.press("p")
    page.keyboard.press("p")
    assert "120 of 120" in hits.inner_text()
    page.get_by_role("button", name="Next hit").click()
    assert "1 of 120" in hits.inner_text()
    page.locator("#tv-tl-canvas").focus()
    page.keyboard.press("f")
    chosen = page.evaluate(f"{VIEW}.state.chunks.get({VIEW}.state.selected.rank).du[{VIEW}.state.selected.id]")
    assert view(page)[1] - view(page)[0] == pytest.approx(3 * chosen)
    page.locator("#tv-tl-search").fill("no such kernel")
    hits.get_by_text("none").wait_for()
    assert page.get_by_role("button", name="Next hit").is_hidden()


def test_wheel_zooms_at_the_pointer_once_clicked_and_drag_pans(plain, ready):
    page = ready(plain)
    box = page.locator("#tv-tl-canvas").bounding_box()
    x, y = box["x"] + 700, box["y"] + 240
    before = view(page)
    page.mouse.move(x, y)
    page.mouse.wheel(0, -300)
    assert view(page) == before, "the page scrolls, not the timeline"
    page.mouse.click(x, y)
    box = page.locator("#tv-tl-canvas").bounding_box()
    at = (700 - 236) / (box["width"] - 236)
    under = before[0] + at * (before[1] - before[0])
    page.mouse.move(box["x"] + 700, box["y"] + 240)
    page.mouse.wheel(0, -300)
    after = until(page, f"{VIEW}.state.view", lambda v: v[1] - v[0] < before[1] - before[0])
    assert after[0] + at * (after[1] - after[0]) == pytest.approx(under, rel=0.01)
    page.mouse.down()
    page.mouse.move(box["x"] + 600, box["y"] + 240, steps=3)
    page.mouse.up()
    assert view(page)[0] > after[0]


def test_shift_drag_measures_with_the_shares_of_the_rank(plain, ready):
    page = ready(plain)
    box = page.locator("#tv-tl-canvas").bounding_box()
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 400, box["y"] + 55)
    page.mouse.down()
    page.mouse.move(box["x"] + 600, box["y"] + 55, steps=3)
    page.mouse.up()
    page.keyboard.up("Shift")
    text = page.locator("#tv-tl-detail").inner_text()
    assert "Measured:" in text and "exact" in text and "compute" in text
    shown = page.locator("#tv-tl-detail dd").all_inner_texts()[2:]
    assert sum(float(t.split(" %")[0]) for t in shown) == pytest.approx(100, abs=0.3)


def test_deep_link_opens_the_window_and_the_event(world, plain, ready):
    page = ready(plain, "t=1000000-2000000&rank=3&step=0")
    assert view(page) == pytest.approx([980_000, 2_020_000])
    assert page.evaluate(f"[{VIEW}.state.rank, {VIEW}.state.step]") == [3, 0]
    page.mouse.click(*place(page, 3, "layer_norm_kernel"))
    link = until(page, "location.hash", lambda h: "sel=" in h)
    assert "rank=3" in link
    again = ready(plain, link[1:])
    assert again.locator("#tv-tl-detail h3").inner_text() == "layer_norm_kernel"


def test_a_selection_elsewhere_moves_the_view_and_one_here_is_told(plain, ready):
    page = ready(plain)
    page.evaluate("window.told = []; document.addEventListener('tv:select', (e) => told.push(e.detail))")
    page.evaluate("document.dispatchEvent(new CustomEvent('tv:select', {detail: {step: 2, rank: 1}}))")
    until(page, f"{VIEW}.state.step", lambda step: step == 2)
    steps = page.evaluate(f"{VIEW}.state.meta.steps.list")
    assert view(page)[0] == pytest.approx(steps[2]["t0"], abs=(steps[2]["t1"] - steps[2]["t0"]) * 0.02)
    assert page.evaluate("told.length") == 1, "following is not answered"
    page.mouse.click(*place(page, 1, "sm90_xmma_gemm_bf16"))
    told = page.evaluate("told[1]")
    assert (told["rank"], told["step"], told["source"]) == (1, 2, "timeline") and told["t1"] > told["t0"]


def test_hostile_names_do_nothing(tmp_path, ready):
    run, result, detail = build(tmp_path, World(ranks=1, steps=1, kernels=16, late=0, names=HOSTILE))
    html = page_around(timeline_section(result, run, detail))
    page = ready(html)
    page.evaluate(f"{VIEW}.setView(600000, 1200000)")
    page.locator("#tv-tl-search").fill("onerror")
    page.locator("#tv-tl-hits").get_by_text("4 events").wait_for()
    page.keyboard.press("Enter")
    assert page.locator("#tv-tl-detail h3").inner_text() == HOSTILE[0]
    page.locator("#tv-tl-table summary").click()
    page.locator("#tv-tl-rows tr").first.wait_for()
    assert page.locator("#tv-tl-rows tr").count() > 4
    page.mouse.move(*place(page, 0, HOSTILE[0]))
    assert page.evaluate("window.PWN") is None
    assert page.locator("img").count() == 0
    assert "x" * 500 not in page.content()


def test_the_table_lists_the_longest_events_of_the_view_and_selects_them(plain, ready):
    page = ready(plain)
    page.locator("#tv-tl-table summary").click()
    rows = page.locator("#tv-tl-rows tr")
    rows.first.wait_for()
    assert rows.count() == 20
    assert "ncclDevKernel_AllReduce" in rows.first.inner_text()
    rows.first.get_by_role("button").click()
    assert "ncclDevKernel_AllReduce" in page.locator("#tv-tl-detail h3").inner_text()


def test_the_first_view_is_that_of_the_steps_and_0_shows_the_whole_record(world, ready):
    run, result, detail = world
    long = {}
    for rank, mine in detail.ranks.items():
        bounds = np.concatenate(([mine.segments.bounds[0] - 50_000_000], mine.segments.bounds))
        phase = np.concatenate(([CODE["uncovered"]], mine.segments.phase)).astype(np.int8)
        long[rank] = replace(mine, segments=Segments(bounds, phase))
    page = ready(page_around(timeline_section(result, run, Detail(long, origin_of(long)))))
    assert view(page)[0] == pytest.approx(50_000_000, rel=0.01)
    page.locator("#tv-tl-canvas").focus()
    page.keyboard.press("0")
    assert view(page)[0] == 0


def test_theme_follows_the_page(plain, ready):
    page = ready(plain)
    corner = (
        f"(() => {{ const d = {VIEW}.draw; return [...d.ctx.getImageData(2, d.h - 2, 1, 1).data].slice(0, 3) }})()"
    )
    light = page.evaluate(corner)
    page.evaluate("document.documentElement.style.setProperty('--bg', '#102030')")
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert light == [255, 255, 255]
    until(page, corner, lambda c: c == [16, 32, 48])


def test_what_is_not_embedded_is_striped_with_the_command(world, ready):
    run, result, detail = world
    page = ready(page_around(timeline_section(result, run, detail, Budget(events=150))), "rank=0&step=1")
    notes = page.evaluate(f"{VIEW}.state.rows.filter((r) => r.note).map((r) => [r.rank, r.note])")
    assert [0, "missing"] in notes
    lanes = page.evaluate(f"{VIEW}.state.rows.filter((r) => r.lane).map((r) => r.rank)")
    assert set(lanes) == {2}
    assert "--focus rank=R,step=S" in page.locator(".tl-lead").inner_text()


def test_host_lanes_and_raw_streams_on_demand(plain, ready):
    page = ready(plain)
    lanes = f"{VIEW}.state.rows.filter((r) => r.lane && r.rank === 0).map((r) => r.lane.label)"
    meaning = ["compute", "allreduce", "reduce-scatter", "copies", "idle causes"]
    assert page.evaluate(lanes) == meaning
    page.locator("#tv-tl-host").check()
    assert page.evaluate(lanes) == [*meaning, "thread 1", "thread 1"], "the runtime call is nested in its operator"
    page.locator("#tv-tl-streams").check()
    assert page.evaluate(lanes)[:3] == ["stream 7", "stream 9", "stream 20"]
    page.locator("#tv-tl-idle").uncheck()
    assert "idle causes" not in page.evaluate(lanes)
    page.mouse.click(*place(page, 0, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"))
    assert "straggler wait" in page.locator("#tv-tl-detail").inner_text()


def test_a_run_without_ranks_says_so(world, ready):
    page = ready(page_around(timeline_section(world[1], Run("empty", {}), Detail({}, 0))))
    assert "Nothing was recorded" in page.locator(".tl-lead").inner_text()
    page.locator("#tv-tl-canvas").focus()
    for key in ("w", "]", ".", "m", "f", "n", "Enter", "0", "Escape"):
        page.keyboard.press(key)
    assert page.evaluate(f"{VIEW}.state.rows.length") == 0


def test_a_rank_without_steps_segments_or_collectives_is_drawn(world, ready):
    run, result, _ = world
    bare = RankDetail()
    found = Detail({0: bare, 1: bare}, int(run.parts[0].table(GPU_OPS)["start"].to_numpy().min()))
    page = ready(page_around(timeline_section(result, run, found)))
    page.locator("#tv-tl-search").fill("flash")
    page.locator("#tv-tl-hits").get_by_text("60 events").wait_for()
    page.keyboard.press("Enter")
    assert "flash_fwd_kernel" in page.locator("#tv-tl-detail h3").inner_text()


def test_many_ranks_are_one_row_each_and_open_on_click(tmp_path, ready):
    run, result, detail = build(tmp_path, World(ranks=20, steps=2, kernels=10))
    page = ready(page_around(timeline_section(result, run, detail)))
    assert page.evaluate(f"{VIEW}.state.rows.length") == 20
    page.get_by_role("button", name="Open all").click()
    until(page, f"{VIEW}.state.rows.length", lambda n: n >= 40)  # a rank is decoded when it comes into view
    page.get_by_role("button", name="Close all").click()
    until(page, f"{VIEW}.state.rows.length", lambda n: n == 20)
    width = view(page)[1] - view(page)[0]
    page.get_by_role("button", name="Zoom in").click()
    assert view(page)[1] - view(page)[0] == pytest.approx(width / 2)
    page.locator("#tv-tl-sort").select_option("straggler")
    assert page.evaluate(f"{VIEW}.state.rows[0].rank") == 2
    box = page.locator("#tv-tl-canvas").bounding_box()
    page.mouse.click(box["x"] + 40, box["y"] + 52)
    until(page, f"{VIEW}.state.rows.length", lambda n: n > 22)


def test_utilisation_drawn_at_low_zoom_is_exact(plain, ready):
    page = ready(plain)
    told, want = page.evaluate(
        f"""(() => {{ const S = {VIEW}.state, lane = S.rows.find((r) => r.lane && r.lane.key === "compute").lane;
        const a = S.view[0], b = a + (S.view[1] - a) / 3;
        let busy = 0;
        for (let k = 0; k < lane.n; k++)
          busy += Math.max(0, Math.min(b, lane.ts[k] + lane.du[k]) - Math.max(a, lane.ts[k]));
        {VIEW}.setView(a, b);
        const v = S.view, share = {VIEW}.laneShares(lane, 700, 0, lane.n)[0];
        return [share.reduce((s, x) => s + x, 0) / 700 * (v[1] - v[0]), busy] }})()"""
    )
    assert told == pytest.approx(want, rel=1e-3)


def test_without_decompression_a_message_is_shown(world, open_page: Open):
    run, result, detail = world
    section = timeline_section(result, run, detail)
    old = replace(section, scripts=("delete window.DecompressionStream;", *section.scripts))
    page = open_page(page_around(old))
    assert page.locator("#tv-tl-old").is_visible()
