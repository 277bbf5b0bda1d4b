"""The thresholds."""

from __future__ import annotations

import re
from pathlib import Path

import traceview
from traceview.config import DEFAULT


def test_every_threshold_is_read_somewhere() -> None:
    folder = Path(traceview.__file__).parent
    code = "".join(p.read_text() for p in folder.rglob("*.py") if p.name != "config.py")
    read = set(re.findall(r"config\.(\w+)", code))
    assert DEFAULT.as_dict().keys() - read == set()
    assert read - {"as_dict"} <= DEFAULT.as_dict().keys() | {"Config", "DEFAULT"}
