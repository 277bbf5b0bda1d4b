"""Fixtures for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of real traces and worked examples beside the checkout; tests are skipped where there is none."""
    for candidate in (ROOT / "../shared", ROOT / "../../shared"):
        if candidate.is_dir():
            return candidate.resolve()
    pytest.skip("no ../shared beside the checkout: real traces are not available here")
