"""What the reports say of MFU and of the ceiling that goodput leaves."""

from __future__ import annotations

import re

import pytest

from builders.results import build, leaves
from traceview.result import Metric, Result
from traceview_reports import html, markdown, terminal, verdict

BASIS = "6 N, attention not counted, N = 7e+09, 4e+06 tokens; dense bf16 peak 989 TFLOP/s of NVIDIA H100 80GB HBM3"


def healthy(**metrics: Metric) -> Result:
    value = build(2, 3, lambda rank, step: leaves(compute=60, idle_host=40))
    value.metrics |= metrics
    return value


def known() -> Result:
    return healthy(
        mfu=Metric(0.412, "fraction", 3, BASIS, "estimated"),
        mfu_of_compute=Metric(0.687, "fraction", 3, "", "estimated"),
        goodput_ceiling=Metric(593e12, "FLOP/s", 6, f"goodput x {BASIS}", "upper_bound"),
    )


def test_every_report_says_the_number_with_its_basis() -> None:
    for text in (terminal.render(known(), width=160), markdown.render(known()), html.render(known(), charts=False)):
        plain = re.sub(r"\s+", " ", text).replace("&#34;", '"')
        assert "41.2 %" in plain and "dense bf16 peak 989 TFLOP/s" in plain


def test_the_line_of_the_verdict_and_the_tiles() -> None:
    (line,) = [line for line in verdict.lines(known()) if line.label == "MFU"]
    assert line.text == f"≈ 41.2 %: {BASIS}. While it computes 68.7 %; goodput leaves at most 60.0 %"
    first, second = verdict.tiles(known())[:2]
    assert first.note.startswith("leaves 593 TFLOP/s a GPU: goodput x")
    assert (second.label, second.value, second.note) == ("MFU", "≈ 41.2 %", BASIS)


def test_executed_flops_stand_in_with_their_own_name() -> None:
    hfu = Metric(0.31, "fraction", 6, "64.3 % of the compute time", "lower_bound")
    (tile,) = [t for t in verdict.tiles(healthy(hfu=hfu)) if t.define == "hfu"]
    assert (tile.label, tile.value) == ("HFU, recomputation counted", "≥ 31.0 %")
    both = healthy(**known().metrics | {"hfu": hfu})
    assert "hfu" not in [t.define for t in verdict.tiles(both)]


def test_published_marks_only_beside_a_number() -> None:
    assert "Published MFU" in html.render(known(), charts=False)
    page = html.render(
        healthy(mfu=Metric(None, "fraction", 3, "no dense peak is known", "unavailable")), charts=False
    )
    assert "Published MFU" not in page and "No MFU: no dense peak is known." in page


@pytest.mark.parametrize("metrics", [{}, {"mfu": Metric(None, "fraction", 0, "", "unavailable")}])
def test_without_a_number_no_line(metrics: dict[str, Metric]) -> None:
    assert "MFU" not in [line.label for line in verdict.lines(healthy(**metrics))]
    assert "MFU" not in [tile.label for tile in verdict.tiles(healthy(**metrics))]
