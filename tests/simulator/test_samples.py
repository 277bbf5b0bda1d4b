"""The committed sample traces are what their script writes."""

from __future__ import annotations

import gzip
import importlib.util
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import traceview as tv

ROOT = Path(__file__).resolve().parents[2]


def content(path: Path) -> bytes | list[str]:
    """What a file says: compressors and database versions differ between machines."""
    if path.suffix == ".sqlite":
        with sqlite3.connect(path) as db:
            lines = list(db.iterdump())
        db.close()
        return lines
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def contents(folder: Path) -> dict[str, bytes | list[str]]:
    """File name -> content."""
    return {p.name: content(p) for p in folder.iterdir()}


EXPECTED = {
    "slow_rank": ("slow", "Rank 5 on node-2 computes 1.35x slower than its peers"),
    "exposed_comm": ("slow", "exposed communication, most of it allgather"),
    "host_staged": ("slow", "passes host memory: GPUDirect RDMA is off"),
    "healthy": ("healthy", "Healthy"),
    "hot_expert": ("slow", "Rank 6 on node-2 gets 1.64x the mean tokens of expert group 301; 7 others wait"),
    "nsight_before": ("healthy", "Healthy"),
    "nsight_after": ("healthy", "Healthy"),
}


@pytest.fixture(scope="module")
def make() -> Any:
    """The script that writes the samples, as a module."""
    spec = importlib.util.spec_from_file_location("make_samples", ROOT / "sample_traces/make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_sample_is_reproduced(tmp_path: Path, make: Any, name: str) -> None:
    (write,) = (sample for sample in make.SAMPLES if sample.__name__ == name)
    write(tmp_path / name)
    assert contents(ROOT / "sample_traces" / name) == contents(tmp_path / name)


def test_every_sample_is_expected(make: Any) -> None:
    assert {sample.__name__ for sample in make.SAMPLES} == EXPECTED.keys()


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_samples_give_the_verdict_of_their_readme(name: str) -> None:
    result = tv.analyze(tv.open(ROOT / "sample_traces" / name, cache=False, workers=1))
    status, words = EXPECTED[name]
    assert result.verdict.status == status
    assert words in result.verdict.headline
    assert [s.rank for s in result.straggler_rows] == {"slow_rank": [5], "hot_expert": [6]}.get(name, [])
