"""The page in a real browser: verdict, bar, themes, keyboard, hostile names, phone, paper."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from builders.results import ALL
from traceview.result import Result
from traceview_reports import html, markdown, terminal
from traceview_reports.tables import parts
from traceview_reports.verdict import claim, lines

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def page_of() -> Callable[[str], str]:
    """HTML of a built result, made once."""
    made: dict[str, str] = {}

    def of(name: str) -> str:
        if name not in made:
            made[name] = html.render(ALL[name](), charts=False)
        return made[name]

    return of


@pytest.mark.parametrize("name", ALL)
def test_verdict_and_bar(name: str, page_of: Callable[[str], str], open_page: Open) -> None:
    page = open_page(page_of(name))
    result = ALL[name]()
    shown = page.locator(".legend b").all_text_contents()
    assert sum(round(float(t.removesuffix(" %")) * 10) for t in shown) == 1000
    widths = page.evaluate("[...document.querySelectorAll('.bar a')].map(a => a.getBoundingClientRect().width)")
    assert len(widths) == len([p for p in parts(result) if p.ns])
    assert abs(sum(widths) + 2 * (len(widths) - 1) - page.locator(".bar").bounding_box()["width"]) < 2
    if name != "hostile":
        assert page.locator("h1").text_content() == claim(result)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("window.PWN") is None


def test_the_first_screen_needs_no_script(page_of: Callable[[str], str], open_page: Open) -> None:
    page = open_page(page_of("slow_rank"), java_script_enabled=False)
    text = page.locator("#verdict").text_content()
    for line in lines(ALL["slow_rank"]()):
        assert line.label in text
        rest = line.text.partition(";")[2] if line.label == "CAUSE" else line.text  # the headline is not repeated
        assert rest.strip() in text
    assert page.locator("#theme").is_hidden()
    box = page.locator("#fix h2").bounding_box()
    assert box["y"] < 700, "what to fix is on the first screen"


def test_terminal_markdown_page_and_json_say_the_same(page_of: Callable[[str], str], open_page: Open) -> None:
    result = Result.from_json(ALL["slow_rank"]().to_json())
    page = open_page(page_of("slow_rank"))
    plain = re.sub(r"\s+", " ", terminal.render(result, width=200, verbose=True))
    marked = markdown.render(result)
    for part in parts(result):
        if not part.ns:
            continue
        assert f"{part.group} {part.percent} %" in plain
        assert f"| {part.group} | {part.percent} % |" in marked
        assert f"{part.group} {part.percent} %" in page.locator(".legend").text_content()
        assert abs(result.budget.shares[part.group] * 100 - float(part.percent)) < 0.1
    cells = page.locator("#t-stragglers tbody td").all_text_contents()
    for text in ("4.06", "persistent", "10/10"):
        assert text in plain and text in marked and text in cells
    first = page.locator("#t-steps tbody tr").first.locator("td").all_text_contents()
    assert re.search(r" 1 559 ms .* 76\.3 10\.7 9\.1 1\.1 0\.2 2\.7 ", plain)
    assert [t for t in first if t in ("559 ms", "76.3", "10.7", "9.1", "1.1", "0.2", "2.7")] == [
        *("559 ms", "76.3", "10.7", "9.1", "1.1", "0.2", "2.7")
    ]
    assert "−58.0 ms a step" in plain and "−58.0 ms a step" in marked
    assert page.locator(".gain").first.text_content() == "−58.0 ms a step"


def test_theme_follows_the_system_and_the_button(page_of: Callable[[str], str], open_page: Open) -> None:
    page = open_page(page_of("slow_rank"), color_scheme="dark")

    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    assert background() == "rgb(15, 20, 26)"
    page.click("#theme")
    assert background() == "rgb(255, 255, 255)"


def test_dark_without_script(page_of: Callable[[str], str], open_page: Open) -> None:
    page = open_page(page_of("healthy"), color_scheme="dark", java_script_enabled=False)
    assert page.locator("body").evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(15, 20, 26)"


def test_sorting_and_filtering(page_of: Callable[[str], str], open_page: Open) -> None:
    page = open_page(page_of("many"))
    page.locator("#t-ranks th", has_text="compute").locator("button").click()
    assert page.locator("#t-ranks th", has_text="compute").get_attribute("aria-sort") == "descending"
    assert page.locator("#t-ranks tbody tr").first.get_attribute("data-rank") == "331"
    page.locator("#t-ranks th", has_text="compute").locator("button").click()
    assert page.locator("#t-ranks tbody tr").last.get_attribute("data-rank") == "331"
    page.locator("[data-filter=t-ranks]").fill("node-041")
    assert page.locator("#t-ranks tbody tr:visible").count() == 1


def test_a_link_selects_in_every_section(page_of: Callable[[str], str], open_page: Open) -> None:
    page = open_page(page_of("slow_rank"), "rank=3&step=5")
    assert page.locator("#t-ranks tr.sel").get_attribute("data-rank") == "3"
    assert page.locator("#t-steps tr.sel").get_attribute("data-step") == "5"
    assert page.locator("#sel").inner_text().startswith("selected: rank 3, step 5")
    page.locator("#sel button").click()
    assert page.locator("tr.sel").count() == 0


def test_card_link_tells_the_selection(page_of: Callable[[str], str], open_page: Open) -> None:
    page = open_page(page_of("slow_rank"))
    page.evaluate("document.addEventListener('tv:select', e => { window.got = e.detail })")
    page.locator(".card a").first.click()
    page.wait_for_selector("#sel:not([hidden])")
    assert page.evaluate("[window.got.rank, window.got.step]") == [3, 5]


def test_definitions_by_keyboard(page_of: Callable[[str], str], open_page: Open) -> None:
    page = open_page(page_of("slow_rank"))
    page.keyboard.press("Tab")
    assert page.locator(".skip").evaluate("e => e === document.activeElement")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.locator("#tip").is_visible():
            break
    assert len(page.locator("#tip").inner_text()) > 20
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


def test_the_ticket_can_be_taken(page_of: Callable[[str], str], open_page: Open) -> None:
    page = open_page(page_of("slow_rank"))
    page.locator(".ticket summary").click()
    page.locator("[data-copy]").click()
    page.wait_for_selector("#copied:not(:empty)")
    assert "traceview analyze traces/ --focus rank=3" in page.locator("#ticket").inner_text()


def test_hostile_names_do_nothing(page_of: Callable[[str], str], open_page: Open) -> None:
    text = page_of("hostile")
    assert "<img" not in text and text.count("</script>") == text.count("<script")
    page = open_page(text)
    assert page.evaluate("window.PWN") is None
    assert page.locator("img").count() == 0
    assert "evil</script>" in page.locator("#kernels").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("name", ["slow_rank", "everything_wrong", "hostile"])
def test_phone_width(name: str, page_of: Callable[[str], str], open_page: Open) -> None:
    page = open_page(page_of(name), viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_paper_is_light_and_whole(page_of: Callable[[str], str], open_page: Open) -> None:
    page = open_page(page_of("slow_rank"), color_scheme="dark", viewport={"width": 703, "height": 1000})
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    wide = page.evaluate(
        "[...document.querySelectorAll('table, .bar, .tile, .card')].filter("
        "e => e.offsetParent && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.id || e.className)"
    )
    assert not wide


def test_paper_is_light_also_on_canvas(page_of: Callable[[str], str], open_page: Open) -> None:
    page = open_page(page_of("slow_rank"), color_scheme="dark")
    page.emulate_media(media="print")
    page.wait_for_selector("html[data-theme=light]", state="attached")
    page.emulate_media(media="screen")
    page.wait_for_selector("html[data-theme=dark]", state="attached")


def test_every_section_without_data_says_why(page_of: Callable[[str], str], open_page: Open) -> None:
    page = open_page(page_of("one_rank"))
    for section in ("stragglers", "communication", "memory", "timeline", "clocks"):
        assert page.locator(f"#{section} .empty").count() >= 1, section


def test_many_ranks_stay_small(page_of: Callable[[str], str]) -> None:
    assert len(page_of("many").encode()) < 1_000_000


def test_too_large_is_an_error_that_says_so() -> None:
    with pytest.raises(html.page.TraceviewError, match=r"more than 10\.0 kB"):
        html.render(ALL["healthy"](), charts=False, max_bytes=10_000)


def test_writing_is_atomic(tmp_path: Any) -> None:
    path = tmp_path / "r.html"
    html.write(path, ALL["healthy"](), charts=False)
    assert path.read_text().endswith("</html>") or path.read_text().endswith("</html>\n")
    with pytest.raises(html.page.TraceviewError, match=r"missing/r\.html: cannot be written"):
        html.write(tmp_path / "missing" / "r.html", ALL["healthy"](), charts=False)
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
