"""``traceview analyze``: options of MFU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from traceview.cli import entry
from traceview.result import Result


def test_the_number_comes_with_its_basis(slow_rank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.json"
    options = ["--params", "0.7B", "--tokens-per-step", "16k", "--json", str(out)]
    assert entry(["analyze", str(slow_rank), *options]) == 0
    result = Result.load(out)
    value = result.metrics["mfu"]
    seconds = sum(s.wall_ns for s in result.step_rows) / len(result.step_rows) / 1e9
    assert value.value == pytest.approx(6 * 0.7e9 * 16_000 / seconds / 8 / 312e12)
    line = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert f"MFU {value.value * 100:.1f} %: 6 N, attention not counted" in line
    assert "dense bf16 peak 312 TFLOP/s of NVIDIA A100-SXM4-80GB" in line


def test_without_the_flops_the_ceiling_alone(slow_rank: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    assert entry(["analyze", str(slow_rank), "--json", str(out), "-q"]) == 0
    metrics = Result.load(out).metrics
    assert metrics["mfu"].value is None
    assert metrics["goodput_ceiling"].value == pytest.approx((metrics["goodput"].value or 0) * 312e12)


@pytest.mark.parametrize(
    "options",
    [
        ["--params", "-7B", "--tokens-per-step", "1"],
        ["--params", "0", "--tokens-per-step", "1"],
        ["--params", "1e99", "--tokens-per-step", "1"],
        ["--params", "nan", "--tokens-per-step", "1"],
        ["--params", "7X", "--tokens-per-step", "1"],
        ["--params", "7B"],
        ["--flops-per-step", "inf"],
        ["--precision", "fp12"],
        ["--peak-flops", "989Q"],
        ["--layers", "3"],
    ],
)
def test_nonsense_is_one_line(options: list[str], slow_rank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["analyze", str(slow_rank), "--no-cache", *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("traceview: ") and error.count("\n") == 1
