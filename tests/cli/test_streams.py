"""A terminal that is not UTF-8 gets near characters, not an internal error."""

from __future__ import annotations

import io

from builders.results import ALL
from traceview.cli.streams import tolerant
from traceview_reports import terminal


def test_what_the_encoding_does_not_hold_is_replaced() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    tolerant(stream)
    stream.write("12 µs · −3 → 5 × 2 █▏ name\udc80 日")
    stream.flush()
    assert raw.getvalue() == b"12 us . -3 > 5 x 2 #| name? ?"


def test_the_whole_report_in_a_windows_code_page() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="cp1252")
    tolerant(stream)
    text = terminal.render(ALL["everything_wrong"](), width=80, verbose=True)
    stream.write(text)
    stream.flush()
    assert len(raw.getvalue().decode("cp1252").split("\n")) == len(text.split("\n"))


def test_a_stream_that_cannot_be_told_is_left_alone() -> None:
    stream = io.StringIO()
    tolerant(stream)
    stream.write("µ")
    assert stream.getvalue() == "µ"
