"""From a sample's traces to the page: what someone sees who has never used the tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traceview import pipeline
from traceview_reports import html, terminal

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"


@pytest.fixture(scope="module")
def slow() -> Any:
    return pipeline.study(SAMPLES / "slow_rank", cache=False)


def test_the_late_rank_stands_out_in_every_step(slow: Any) -> None:
    late = {(w.rank, w.step): w.late_ns for w in slow.result.window_rows}
    steps = slow.result.run.steps.used
    assert all(late[5, k] > 10_000_000 for k in steps)
    assert all(late[r, k] < 100_000 for r in range(8) if r != 5 for k in steps)


def test_who_what_and_what_to_do_are_on_the_first_screen(slow: Any, open_page: Callable[..., Any]) -> None:
    page = open_page(html.render(slow.result, slow.run, detail=slow.detail))
    page.wait_for_selector("body[data-ready-timeline]", state="attached")
    first = page.locator("#verdict").inner_text()
    for said in ("rank 5 on node-2", "7 others wait", "drain it", "hardware", "GPU-h a day"):
        assert said.lower() in first.lower()
    assert page.locator("[data-chart=heat-late]").count() == 1
    assert page.locator("#t-ranks tbody tr").first.get_attribute("data-rank") == "5"
    for part in ("rank 5 on node-2", "persistent", "Owner: hardware."):
        assert part in terminal.render(slow.result, width=200)
