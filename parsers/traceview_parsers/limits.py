"""What times of a record cannot be, whatever its format: the rules for damaged times that readers share."""

from __future__ import annotations

SPAN_NS = 30 * 86_400 * 1_000_000_000
"""No profiler records for a month: an event further from the middle of the others is damaged."""
MAX_FAR = 0.01
"""A larger share of such events is no damage of a few: the file mixes two clocks."""
OVERFLOW_NS = 1000
"""Records on a stream may overlap by so much; one that runs further into the next is cut at its begin."""
