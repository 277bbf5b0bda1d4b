"""METHODS h.1: savings in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from traceview.analysis.savings import no_straggler


@pytest.mark.parametrize(
    ("step", "waits", "want"),
    [(45, [10, 10, 10, 0], (35, 37.5, 35)), (70, [15, 0], (55, 62.5, 55))],
)
def test_worked_examples(step, waits, want):
    got = no_straggler(step, np.array(waits))
    assert (got.replace, got.rebalance, got.best) == want


def test_nobody_waits_and_nobody_there():
    assert no_straggler(45, np.zeros(0, np.int64)) is None
    assert no_straggler(45, np.zeros(3, np.int64)).best == 45
