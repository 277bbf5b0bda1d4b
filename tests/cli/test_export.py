"""``traceview export``: a window for Perfetto."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from traceview.cli import entry


def test_one_step_of_two_ranks(slow_rank: Path, tmp_path: Path) -> None:
    out = tmp_path / "w.json.gz"
    assert entry(["export", str(slow_rank), "-o", str(out), "--ranks", "4-5", "--step", "3", "-q"]) == 0
    events = json.loads(gzip.decompress(out.read_bytes()))["traceEvents"]
    assert any(e["ph"] == "X" for e in events)


def test_what_is_not_there_is_refused(slow_rank: Path, tmp_path: Path) -> None:
    for option in (["--step", "999"], ["--ranks", "77"], ["--ranks", "x"]):
        assert entry(["export", str(slow_rank), "-o", str(tmp_path / "w.json"), *option]) == 2
    assert list(tmp_path.iterdir()) == []
