"""Fixtures for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("traceview", deadline=None)  # wall time says nothing on a busy machine
settings.load_profile("traceview")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of real traces and worked examples beside the checkout; tests are skipped where there is none."""
    for candidate in (ROOT / "../shared", ROOT / "../../shared"):
        if candidate.is_dir():
            return candidate.resolve()
    pytest.skip("no ../shared beside the checkout: real traces are not available here")
