"""The colours of the page, read from the one stylesheet that declares them."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_BLOCK = re.compile(r"(?P<selector>:root(?:\[data-theme=\"dark\"\])?)\s*\{(?P<body>[^}]*)\}")


def asset(name: str) -> str:
    """Text of a file in ``assets``, with LF line ends (the CSP hashes are over exactly this text)."""
    return (files("traceview_reports") / "assets" / name).read_text(encoding="utf-8").replace("\r\n", "\n")


@cache
def colours(*, dark: bool = False) -> dict[str, str]:
    """Variable -> colour of one theme, e.g. ``{'--g-compute': '#2563a8', ...}``."""
    return dict(re.findall(r"(--[\w-]+):\s*([^;]+);", _blocks()[dark]))


@cache
def stylesheet() -> str:
    """``page.css`` plus what follows from its two themes: dark by the system's wish, light on paper."""
    light, dark = _blocks()
    return (
        asset("page.css")
        + f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme]) {{{dark}}} }}\n"
        + f"@media print {{ :root, :root[data-theme], :root:not([data-theme]) {{{light}}} }}\n"
    )


def _blocks() -> tuple[str, str]:
    light, dark = (m["body"] for m in _BLOCK.finditer(asset("page.css")))
    return light, dark
