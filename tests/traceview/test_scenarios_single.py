"""The worked examples: leaves, windows and companions of METHODS j, to the nanosecond."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scenarios import THREAD, Scenario, load
from traceview.analysis.decompose import RankRecord, decompose, op_phases
from traceview.analysis.launches import LaunchAxis
from traceview.analysis.ops import Ops
from traceview.analysis.types import Decomposition, Windows
from traceview.analysis.windows import concat, device_windows
from traceview.schema import LEAVES

IDS = [f"S{n:02}" for n in range(1, 10)] + ["S10a", "S10b", "S10c", "S11", "S12", "S13a", "S13b"]
IDS += [f"S{n}" for n in range(14, 20)]


@pytest.fixture(scope="module")
def scenarios(shared_dir: Path) -> dict[str, Scenario]:
    return load(shared_dir)


def windows_of(s: Scenario) -> Windows:
    if not s.has_steps:
        return s.windows()
    return concat([device_windows(s.marks(), r, Ops.of(s.gpu_ops(r))) for r in s.ranks])


def run(s: Scenario, rank: int) -> tuple[Decomposition, LaunchAxis, Windows]:
    windows = windows_of(s)
    table = s.collectives()
    ranks = table["rank"].to_pylist()
    first = sum(r < rank for r in ranks)
    ops = s.gpu_ops(rank)
    phases = op_phases(len(ops), table.slice(first, ranks.count(rank)), s.simple_phases(), first)
    record = RankRecord(rank, ops, s.host_ranges(rank), phases, cover=s.cover(rank), thread=THREAD)
    (one,), axis = decompose(record, windows)
    return one, axis, windows


def leaves(one: Decomposition, i: int) -> dict[str, int]:
    return {leaf: int(ns) for leaf, ns in zip(LEAVES, one.leaves[i], strict=True) if ns}


@pytest.mark.parametrize("name", IDS)
def test_leaves(scenarios: dict[str, Scenario], name: str) -> None:
    s = scenarios[name]
    for rank in s.ranks:
        one, _, windows = run(s, rank)
        for i, row in enumerate(one.window):
            want = s.expect_leaves().get((rank, int(windows.step[row])))
            if want is not None:
                assert leaves(one, i) == {leaf: ns for leaf, ns in want.items() if ns}, (rank, int(windows.step[row]))


METRIC = {"staging": "staging_busy"}


@pytest.mark.parametrize("name", ["S03", "S05", "S11"])
def test_companions_and_windows(scenarios: dict[str, Scenario], name: str) -> None:
    s = scenarios[name]
    for (rank, step), wanted in s.expect_metrics().items():
        one, _, windows = run(s, rank)
        i = [int(windows.step[row]) for row in one.window].index(step)
        got: dict[str, Any] = {m: int(ns[i]) for m, ns in one.companions.items()}
        got["window"] = [int(windows.start[one.window[i]]), int(windows.end[one.window[i]])]
        assert {m: got[METRIC.get(m, m)] for m in wanted} == wanted


def test_metrics_are_asserted_wherever_they_exist(scenarios: dict[str, Scenario]) -> None:
    assert [s.id for s in scenarios.values() if s.raw["expect_metrics"]] == ["S03", "S05", "S11"]
    assert sorted(scenarios) == sorted(IDS)


def test_s07_counts_one_negative_launch(scenarios: dict[str, Scenario]) -> None:
    _, axis, _ = run(scenarios["S07"], 0)
    assert (axis.negative, axis.launches, axis.unmatched) == (1, 2, 0)


def test_wait_pieces_name_the_row_that_waits(scenarios: dict[str, Scenario]) -> None:
    one, _, _ = run(scenarios["S04"], 0)
    w = one.waits
    assert (w.start.tolist(), w.end.tolist(), w.row.tolist()) == ([10_000], [15_000], [0])
    hidden, _, _ = run(scenarios["S03"], 0)
    assert len(hidden.waits.row) == 0


def test_exposed_time_of_operations_sums_to_the_leaves(scenarios: dict[str, Scenario]) -> None:
    one, _, _ = run(scenarios["S04"], 0)
    assert one.exposed.tolist() == [0, 0, 25_000]  # B ends last: it owns what it shares with A
    staging, _, _ = run(scenarios["S11"], 0)
    assert staging.exposed.tolist() == [20_000, 0, 10_000, 0, 0]
