"""What is put into the page beside its text: data that cannot run, BokehJS packed, the policy that admits it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup


def data_element(name: str, value: Any) -> Markup:
    """``value`` as JSON in a script element that no browser runs. Nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup('<script type="application/json" id="{}">{}</script>').format(name, Markup(text))


@cache
def bokeh_js() -> str:
    """BokehJS of the installed package: the version that wrote the documents."""
    from bokeh.util.paths import static_path

    return (Path(static_path()) / "js" / "bokeh.min.js").read_text(encoding="utf-8")


@cache
def bokeh_element() -> Markup:
    """BokehJS, gzip and base64, in an element that no browser runs."""
    packed = base64.b64encode(gzip.compress(bokeh_js().encode(), 9, mtime=0)).decode()
    return Markup(f'<script type="text/plain" id="bokeh-gz">{packed}</script>')


def policy(scripts: Iterable[str]) -> str:
    """No request, and no script but those with these hashes (over the exact text of the elements)."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
