"""Readers: trace files in, the declared tables of traceview.schema out.

>>> from traceview_parsers import ReadOptions, open_run  # doctest: +SKIP
>>> run = open_run(["traces/"])  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any

__all__ = ["ReadOptions", "open_run"]


def __getattr__(name: str) -> Any:
    """Loaded on first use: naming the package must not import pyarrow."""
    if name == "open_run":
        from traceview_parsers.ingest import open_run

        return open_run
    if name == "ReadOptions":
        from traceview_parsers.reader import ReadOptions

        return ReadOptions
    raise AttributeError(f"module 'traceview_parsers' has no attribute {name!r}")
