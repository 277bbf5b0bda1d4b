"""Runs over time: what was kept of each, and when the step time changed (METHODS i.4)."""

from __future__ import annotations

from traceview.history.store import Store
from traceview.history.trend import Changed, Entry, Trend, trends

__all__ = ["Changed", "Entry", "Store", "Trend", "trends"]
