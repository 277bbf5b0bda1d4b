"""What may be waiting when peers are missing."""

from __future__ import annotations

import numpy as np

from traceview.analysis.estimate import waiting_at_least
from traceview.analysis.types import TRANSFER, UNRESOLVED, Phases
from traceview.schema import COLLECTIVES


def table(durations: list[int], sizes: list[int]) -> object:
    n = len(durations)
    start = np.arange(n) * 1000
    return COLLECTIVES.build(
        {
            "rank": np.zeros(n, np.int32),
            "device": np.zeros(n, np.int32),
            "stream": np.zeros(n, np.int64),
            "start": start,
            "end": start + np.array(durations),
            "kind": ["allreduce"] * n,
            "p2p": np.zeros(n, bool),
            "bytes": np.array(sizes),
            "coalesced": np.ones(n, np.int32),
            "facts": ["kernel_args"] * n,
            "name": ["nccl"] * n,
        }
    )


def phases(second: list[int]) -> Phases:
    n = len(second)
    return Phases(np.zeros(n, np.int64), np.array(second, np.int8), np.zeros(n, np.int8), np.zeros(n, bool))


def test_what_is_exposed_beyond_the_smallest_of_the_class_is_waiting() -> None:
    rows = table([10, 30, 50, 100, 100], [8, 8, 8, 99, 99])
    exposed = np.array([10, 5, 50, 100, 100])
    found = waiting_at_least(rows, phases([UNRESOLVED] * 5), exposed, np.ones(5, bool))
    assert found == (0 + 0 + 40, 3)  # the class of size 99 has two members only


def test_resolved_and_unused_rows_do_not_count() -> None:
    rows = table([10, 30, 50], [8, 8, 8])
    exposed = np.array([10, 30, 50])
    assert waiting_at_least(rows, phases([TRANSFER] * 3), exposed, np.ones(3, bool)) == (0, 0)
    assert waiting_at_least(rows, phases([UNRESOLVED] * 3), exposed, np.zeros(3, bool)) == (0, 0)
