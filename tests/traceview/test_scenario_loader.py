"""The loader of the worked examples: declared tables in nanoseconds, and nothing lost on the way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scenarios import Scenario, load
from traceview.analysis.types import P2P, UNRESOLVED
from traceview.schema import COLLECTIVES, GPU_OPS, HOST_RANGES, LEAVES


@pytest.fixture(scope="module")
def scenarios(shared_dir: Path) -> dict[str, Scenario]:
    return load(shared_dir)


def test_every_scenario_gives_valid_tables(scenarios: dict[str, Scenario]) -> None:
    assert len(scenarios) == 22
    for s in scenarios.values():
        for rank in s.ranks:
            assert len(GPU_OPS.validate(s.gpu_ops(rank), stored=False)) == len(s.raw["ranks"][str(rank)]["gpu"])
            HOST_RANGES.validate(s.host_ranges(rank), stored=False)
        collectives = COLLECTIVES.validate(s.collectives(), stored=False)
        assert len(collectives) == len(s.instances) == len(s.matches().instance) == len(s.simple_phases().second)


def test_expected_leaves_are_known_and_sum_to_the_given_window(scenarios: dict[str, Scenario]) -> None:
    for s in scenarios.values():
        for (rank, _), leaves in s.expect_leaves().items():
            assert set(leaves) <= set(LEAVES)
            if not s.has_steps:
                begin, end = s.cover(rank)
                assert sum(leaves.values()) == end - begin


def test_times_are_nanoseconds_and_rows_are_sorted(scenarios: dict[str, Scenario]) -> None:
    ops = scenarios["S06"].gpu_ops(0)
    assert ops["start"].to_pylist() == [0, 50_000, 50_000, 55_000, 60_000]
    assert ops["launch_start"].to_pylist() == [-9_000, 41_000, 42_000, 50_000, 44_000]
    assert scenarios["S06"].collectives()["op"].to_pylist() == [3]


def test_partial_instance_is_not_full_and_unresolved(scenarios: dict[str, Scenario]) -> None:
    s = scenarios["S08"]
    assert not s.matches().full.any()
    assert set(s.simple_phases().second) == {UNRESOLVED}
    assert s.simple_phases().wait_end.tolist() == [30_000] * 3


def test_point_to_point_rows_name_sender_and_receiver(scenarios: dict[str, Scenario]) -> None:
    s = scenarios["S10b"]
    table = s.collectives()
    assert (table["src"].to_pylist(), table["dst"].to_pylist()) == ([0, 0], [1, 1])
    assert table["kind"].to_pylist() == ["send", "recv"]
    assert np.all(s.simple_phases().sub == P2P)
    assert s.simple_phases().wait_end.tolist() == [30_000, 30_000]
