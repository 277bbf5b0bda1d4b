"""A real Chromium for the tests of the page. A page that asks for anything but itself, or logs an error, fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless browser; without one the tests are skipped, but fail in CI."""
    if not CHROMIUM.exists():
        message = f"no browser at {CHROMIUM}: apt-get install chromium, or set CHROMIUM"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """``open_page(html, fragment="", **context options) -> page``, ready. Complaints fail the test at its end."""
    complaints: list[str] = []
    with ExitStack() as stack:

        def opened(html: str, fragment: str = "", **options: Any) -> Any:
            path = tmp_path / "report.html"
            path.write_text(html, encoding="utf-8")
            context = chromium.new_context(offline=True, **({"viewport": {"width": 1400, "height": 900}} | options))
            stack.callback(context.close)
            page = context.new_page()
            page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
            page.on("console", lambda m: complaints.append(f"console: {m.text}") if m.type == "error" else None)
            page.on("request", lambda r: None if r.url == path.as_uri() else complaints.append(f"request: {r.url}"))
            page.goto(path.as_uri())
            if fragment:
                page.goto(f"{path.as_uri()}#{fragment}")
            if options.get("java_script_enabled", True):
                page.wait_for_selector("body[data-ready]", state="attached")
            return page

        yield opened
    assert not complaints
