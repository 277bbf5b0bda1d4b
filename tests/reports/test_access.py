"""Accessibility: axe-core on whole pages, and the contrast of the declared colours."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.results import ALL
from builders.timeline_world import World, build
from traceview_reports import html
from traceview_reports.html.palette import colours

Open = Callable[..., Any]
AXE = gzip.decompress((Path(__file__).parent / "axe-core-4.14.1.min.js.gz").read_bytes()).decode()
GROUPS = ("compute", "comm", "straggler", "pipeline", "staging", "other", "idle", "uncovered")
# Matrices of Machado et al. (2009) for full protanopia, deuteranopia and tritanopia, on linear RGB.
BLIND = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def linear(colour: str) -> list[float]:
    values = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]


def luminance(colour: str) -> float:
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(a: str, b: str) -> float:
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def lab(rgb: list[float]) -> list[float]:
    r, g, b = (min(1.0, max(0.0, v)) for v in rgb)
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


@pytest.mark.parametrize("dark", [False, True])
def test_text_reads_on_every_colour(dark: bool) -> None:
    c = colours(dark=dark)
    pairs = [(f"--g-{g}", f"--g-{g}-ink") for g in GROUPS]
    pairs += [
        (back, text)
        for back in ("--bg", "--panel")
        for text in ("--text", "--dim", "--link", "--bad", "--good", "--warn")
    ]
    assert {p: round(contrast(c[p[0]], c[p[1]]), 2) for p in pairs if contrast(c[p[0]], c[p[1]]) < 4.5} == {}


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("blind", BLIND)
def test_groups_keep_apart_for_everyone(dark: bool, blind: str) -> None:
    c = colours(dark=dark)
    seen = {
        g: lab([sum(m * v for m, v in zip(row, linear(c[f"--g-{g}"]), strict=True)) for row in BLIND[blind]])
        for g in GROUPS
    }
    near = {
        (a, b): round(sum((x - y) ** 2 for x, y in zip(seen[a], seen[b], strict=True)) ** 0.5, 1)
        for i, a in enumerate(GROUPS)
        for b in GROUPS[i + 1 :]
    }
    assert {pair: d for pair, d in near.items() if d < 10} == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["everything_wrong", "one_rank"])
def test_axe_finds_nothing(name: str, theme: str, open_page: Open) -> None:
    check(open_page(html.render(ALL[name](), charts=False), color_scheme=theme, bypass_csp=True))


def test_axe_finds_nothing_with_timeline_and_charts(tmp_path: Path, open_page: Open) -> None:
    run, result, detail = build(tmp_path, World(ranks=2, steps=3, kernels=20))
    page = open_page(html.render(result, run, detail=detail), bypass_csp=True)
    page.wait_for_selector("body[data-ready-timeline]", state="attached")
    page.locator("[data-chart=steps]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-chart=steps][data-done]")
    check(page)


def check(page: Any) -> None:
    page.add_script_tag(content=AXE)
    found = page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
    assert [(v["id"], [n["html"][:160] for n in v["nodes"][:3]]) for v in found] == []
