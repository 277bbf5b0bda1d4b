"""``traceview inspect``: contents and what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
