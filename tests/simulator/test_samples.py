"""The committed sample traces are what their script writes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_samples_are_reproduced_byte_by_byte(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_samples", ROOT / "sample_traces/make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    make.main(tmp_path)
    for sample in make.SAMPLES:
        name = sample.__name__
        want = {p.name: p.read_bytes() for p in (ROOT / "sample_traces" / name).iterdir()}
        have = {p.name: p.read_bytes() for p in (tmp_path / name).iterdir()}
        assert want == have, name
