"""A private cache for every test, and a sample of the project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[2] / "sample_traces"


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEVIEW_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def slow_rank() -> Iterator[Path]:
    """The sample with one slow rank."""
    yield SAMPLES / "slow_rank"
