"""The committed sample traces are what their script writes."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def contents(folder: Path) -> dict[str, bytes]:
    """File name -> bytes, unpacked: compressors differ between machines."""
    return {
        p.name: gzip.decompress(p.read_bytes()) if p.suffix == ".gz" else p.read_bytes() for p in folder.iterdir()
    }


def test_samples_are_reproduced(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_samples", ROOT / "sample_traces/make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    make.main(tmp_path)
    for sample in make.SAMPLES:
        name = sample.__name__
        assert contents(ROOT / "sample_traces" / name) == contents(tmp_path / name), name
