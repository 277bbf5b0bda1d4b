"""traceview: where every step's time went, who made the others wait, and what to fix first.

>>> import traceview as tv
>>> tv.__version__
'0.1.0'
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

# Loaded on first use: `traceview --help` must not import numpy, pyarrow or polars.
_LAZY = {
    "open": "traceview.pipeline",
    "analyze": "traceview.pipeline",
    "to_pandas": "traceview.pipeline",
    "to_polars": "traceview.pipeline",
    "to_html": "traceview.pipeline",
    "what_if": "traceview.pipeline",
    "Result": "traceview.result",
    "Run": "traceview.run",
    "TraceviewError": "traceview.errors",
}
__all__ = ["Result", "Run", "TraceviewError", "analyze", "open", "to_html", "to_pandas", "to_polars", "what_if"]


def __dir__() -> list[str]:
    return [*globals(), *__all__]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'traceview' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
