"""The pages of compare, gate, history and of a report with a baseline, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from builders.results import ALL, EVIL
from builders.versus import MS, comparison, decision, entry, hostile, trend
from traceview.config import DEFAULT
from traceview.history import trends
from traceview.pipeline.against import against
from traceview.result import Result
from traceview_reports import definitions, history, html, markdown, terminal, versus, views_versus
from traceview_reports.html import trend as trend_page
from traceview_reports.html import versus as versus_page

from .test_access import check

Open = Callable[..., Any]
WORDS = {"PASS": "SAME", "FAIL": "SLOWER", "INCONCLUSIVE": "UNSURE"}


def slower() -> Any:
    """A comparison and what the gate says of it."""
    c = comparison({"compute": (70 * MS, 73 * MS), "straggler wait": (0, 12 * MS), "idle": (5 * MS, 4 * MS)})
    return c, decision([[75, 76, 75, 74, 75]], [[89, 88, 89, 90, 89]], 0.187)


def beside(name: str, base: str) -> Result:
    """A built result beside another."""
    result = ALL[name]()
    against(result, [ALL[base]()], DEFAULT)
    return result


def course() -> Any:
    """A job that became slower at its 11th run, with a host that was late twice; and one of few runs."""
    first = [entry(i, 100 + i % 3 + 15 * (i >= 10), culprits=["node-7"] if i in (3, 12) else []) for i in range(20)]
    return trends([*first, entry(0, 70, "other"), entry(1, 71, "other")])


def hostile_course() -> Any:
    evil = {"name": EVIL, "label": EVIL, "gpu": EVIL, "culprits": [EVIL], "headline": EVIL}
    runs = [entry(i, 100 + 20 * (i >= 10), EVIL, **evil) for i in range(20)]
    return trends([*runs, *(entry(100 + i, 90, EVIL, world_size=None, gpu="") for i in range(3))])


PAGES: dict[str, Callable[[], str]] = {
    "gate": lambda: versus_page.render(*slower()),
    "hostile gate": lambda: versus_page.render(*hostile()),
    "refused": lambda: versus_page.refused((EVIL, "after"), "NOT COMPARABLE", f"world size: 8 and {EVIL}"),
    "history": lambda: trend_page.render(course()),
    "hostile history": lambda: trend_page.render(hostile_course()),
    "report": lambda: html.render(beside("slow_rank", "healthy"), charts=False),
}


def fits(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


@pytest.mark.parametrize(
    ("name", "theme"),
    [
        *((name, "light") for name in PAGES if name != "report"),
        ("gate", "dark"),
        ("history", "dark"),
        ("report", "dark"),
    ],
)
def test_axe_finds_nothing(name: str, theme: str, open_page: Open) -> None:
    page = open_page(PAGES[name](), color_scheme=theme, bypass_csp=True)
    page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    check(page)
    assert page.evaluate("window.PWN") is None and fits(page)


@pytest.mark.parametrize("name", PAGES)
def test_phone_and_paper(name: str, open_page: Open) -> None:
    text = PAGES[name]()
    assert text.count("</script>") == text.count("<script") and "<img" not in text
    page = open_page(text, viewport={"width": 390, "height": 844})
    assert fits(page)
    page.set_viewport_size({"width": 703, "height": 1000})
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    all_ = "[...document.querySelectorAll('.drawn svg, table')]"
    wide = "e => e.getBoundingClientRect().right > innerWidth + 1"
    assert page.evaluate(f"{all_}.filter({wide}).map(e => e.id || e.parentElement.className)") == []


def test_the_outcome_needs_no_script(open_page: Open) -> None:
    c, d = slower()
    page = open_page(versus_page.render(c, d, WORDS), java_script_enabled=False)
    assert page.locator(".badge").inner_text() == "SLOWER"
    assert page.locator("h1").inner_text() == "Step time 75.0 ms → 89.0 ms, +18.7 %"
    shown = page.locator("#verdict").inner_text()
    for line in versus.lines(c, d)[1:]:
        assert line.text in shown
    assert "+18.7 %" in page.locator(".tile").first.inner_text()
    assert "fails over 5.0 %, passes up to 3.0 %" in page.locator(".tile").first.inner_text()
    assert page.locator("#f-strip .lane").count() == 3 and page.locator("#f-waterfall .lane").count() == 5
    assert page.locator("#t-groups tfoot td").all_text_contents() == ["sum", "75.0 ms", "89.0 ms", "+14.0 ms"]
    assert "rank 3 is late" in page.locator("#t-findings-table").inner_text()
    assert page.locator("#t-times-table tbody tr").count() == 10


def test_bars_on_the_screen_add_up(open_page: Open) -> None:
    page = open_page(versus_page.render(*slower()))
    boxes = page.evaluate(
        "[...document.querySelectorAll('#f-waterfall rect')].map(r => r.getBoundingClientRect())"
        ".map(b => [b.left, b.right])"
    )
    base, wait, compute, idle, candidate = boxes
    assert wait[0] == pytest.approx(base[1], abs=0.5) and compute[0] == pytest.approx(wait[1], abs=0.5)
    assert idle[1] == pytest.approx(compute[1], abs=0.5) and candidate[1] == pytest.approx(idle[0], abs=0.5)


def test_colours_follow_the_theme(open_page: Open) -> None:
    page = open_page(versus_page.render(*slower()), color_scheme="light")
    of = "getComputedStyle(document.querySelector('#f-waterfall rect.whole')).fill"
    light = page.evaluate(of)
    page.click("#theme")
    assert page.evaluate(of) != light


def test_every_column_is_defined() -> None:
    c, d = slower()
    (first, _) = course()
    shown = [
        *versus.views(c),
        *(f(d) for f in (views_versus.runs, views_versus.step_times)),
        views_versus.findings(c),
        views_versus.different(["x"]),
        *(f(first) for f in (history.runs, history.changes, history.again)),
        history.jobs([first]),
    ]
    assert [(v.id, col.label) for v in shown for col in v.columns if not definitions.of(col.define)] == []


def test_the_report_beside_a_baseline(open_page: Open) -> None:
    result = beside("healthy", "slow_rank")
    page = open_page(html.render(result, charts=False))
    d = result.against.decision
    told = page.locator(".tile", has_text="step time").inner_text()
    assert f"{d.change * 100:+.1f} %: FAIL, threshold {d.threshold * 100:.1f} %" in told
    assert "points, baseline" in page.locator(".tile", has_text="goodput").first.inner_text()
    cells = page.locator("#t-against-groups tbody td").all_text_contents()
    plain, marked = terminal.render(result, width=200, verbose=True), markdown.render(result)
    groups = [g for g in result.against.comparison.groups if g.baseline_ns or g.candidate_ns]
    assert len(cells) == 4 * len(groups) > 0
    for name, change in zip(cells[::4], cells[3::4], strict=True):
        assert f"| {name} |" in marked and f"| {change} |" in marked and name in plain and change in plain
    assert "Against the baseline" in plain and "Against the baseline" in marked
    assert page.locator("nav a", has_text="Baseline").count() == 1


def test_a_report_that_could_not_be_compared_says_why(open_page: Open) -> None:
    result, base = ALL["slow_rank"](), ALL["healthy"]()
    base.run.world_size = 4096
    against(result, [base], DEFAULT)
    page = open_page(html.render(result, charts=False))
    assert "4096" in page.locator("#against").inner_text()
    assert page.locator("#f-strip").count() == 0 and page.locator(".delta").count() == 0
    assert "4096" in terminal.render(result, width=200, verbose=True)


def test_a_report_without_a_baseline_has_no_trace_of_one() -> None:
    text = html.render(ALL["healthy"](), charts=False)
    assert 'id="against"' not in text and ".flow" not in text


def test_the_course_of_jobs(open_page: Open) -> None:
    page = open_page(trend_page.render(course()), java_script_enabled=False)
    assert page.locator(".badge").inner_text() == "CHANGED"
    assert page.locator("h1").inner_text() == "The step time of 1 of 2 jobs changed"
    assert page.locator("#t-jobs tbody tr").count() == 2
    change = page.locator("#t-changes-0 tbody td").all_text_contents()
    assert change[:7] == ["1", "11", "run-10", "c10", "101 ms", "116 ms", "+14.9 %"] and "compute +10" in change[7]
    assert page.locator("#t-again-0 tbody td").all_text_contents() == ["node-7", "2", "10.0", "13"]
    assert page.locator("#t-runs-0 tbody tr").count() == 20
    assert "from 10 on" in page.locator("#job-1 .intro").inner_text()
    assert "+14.9 %" in page.locator("#f-times-0 text").all_text_contents()[-7]


@pytest.mark.parametrize(("count", "word"), [(3, "TOO FEW RUNS"), (20, "STEADY")])
def test_one_job(count: int, word: str, open_page: Open) -> None:
    page = open_page(trend_page.render([trend([100.0 + i % 3 for i in range(count)], job="llama")]))
    assert page.locator(".badge").inner_text() == word
    assert page.locator("h1").inner_text().startswith("llama: ")


def test_thousands_of_runs_are_small() -> None:
    text = trend_page.render(trends([entry(i, 100 + i % 9, headline="x" * 150) for i in range(5000)]))
    assert len(text) < 1_000_000
    many = trend_page.render(trends([entry(i, 100, f"job-{k}") for k in range(60) for i in range(30)]))
    assert many.count('id="job-') == 25 and len(many) < 2_000_000
