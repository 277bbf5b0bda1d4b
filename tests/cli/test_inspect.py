"""``traceview inspect``: contents and what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders.nsight_files import SESSION, kernel, strings, write_sqlite
from traceview.cli import entry


def test_it_tells_contents_and_lacks(slow_rank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["inspect", str(slow_rank)]) == 0
    text = capsys.readouterr().out
    assert "8 of 8 ranks" in text and "rank 5 (metadata) on node-2" in text
    assert "the NCCL log" in text and "NCCL_DEBUG=INFO" in text


def test_a_missing_rank_is_named(slow_rank: Path, tmp_path: Path) -> None:
    out = tmp_path / "i.json"
    files = sorted(str(p) for p in slow_rank.iterdir())[:3]
    assert entry(["inspect", *files, "--json", str(out)]) == 0
    found = json.loads(out.read_bytes())
    assert found["missing_ranks"] == [3, 4, 5, 6, 7]
    assert "ranks" in [lack["what"] for lack in found["lacks"]]


def test_a_report_of_nsys_gets_recipes_of_nsys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_sqlite(
        tmp_path / "x.sqlite", strings("k") | SESSION | {"CUPTI_ACTIVITY_KIND_KERNEL": [kernel(1, 2, 10, 1)]}
    )
    assert entry(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    assert "rank 0 (order): nsight" in text and "torch.cuda.nvtx.range_push" in text
    assert "calls of the operating system" in text and "prof.step()" not in text and "ProfilerActivity" not in text
