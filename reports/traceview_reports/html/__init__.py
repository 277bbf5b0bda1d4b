"""The HTML report: one self-contained file that opens offline."""

from traceview_reports.html.page import render, write

__all__ = ["render", "write"]
