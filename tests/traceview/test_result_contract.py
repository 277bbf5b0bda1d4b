"""The keys of the result document that others rely on: additions are allowed, renames are not."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import traceview as tv
from traceview.result import SCHEMA
from traceview.schema import GROUPS, LEAVES

SAMPLES = Path(__file__).parents[2] / "sample_traces"
RELIED_ON = {
    "": "schema tool_version verdict run budget windows metrics collectives stragglers clock findings quality",
    "verdict": "headline confidence",
    "run": "name world_size ranks missing_ranks hosts sources steps",
    "run.steps": "source used excluded",
    "run.steps.excluded": "step reason",
    "budget": "wall_ns leaves_ns sub_ns shares",
    "windows": "rank device step start_ns end_ns leaves_ns sub_ns",
    "metrics.step_time": "value unit n basis quality",
    "collectives": "group kind size_class n matched wait_ns transfer_ns exposed_ns algbw busbw tier peak efficiency",
    "stragglers": "rank host blame_ns origin_blame_ns blame_inclusive_ns late_steps steps kind cause cause_terms_ns",
    "clock": "t_ref_ns hosts ranks",
    "clock.hosts": "host offset_ns drift_ppm sigma_ns bound_ns grade violations component",
    "clock.ranks": "rank eta_ns host_axis_shift_ns",
    "findings": "id title saving_ns_per_step basis confidence evidence advice where",
    "findings.where": "rank step start_ns end_ns",
    "quality": "repaired quarantined dropped unmatched_kernels negative_launches unclassified warnings",
}


@pytest.fixture(scope="module")
def result() -> tv.Result:
    return tv.analyze(tv.open(SAMPLES / "slow_rank", cache=False))


@pytest.fixture(scope="module")
def document(result: tv.Result) -> Any:
    return json.loads(result.to_json())


@pytest.mark.parametrize("place", RELIED_ON)
def test_every_key_is_there(document: Any, place: str) -> None:
    found = [document]
    for key in filter(None, place.split(".")):
        found = [x for value in found for x in (value[key] if isinstance(value[key], list) else [value[key]])]
    assert found
    for value in found:
        assert set(RELIED_ON[place].split()) <= value.keys()


def test_the_keys_mean_what_they_say(document: Any) -> None:
    budget, windows = document["budget"], document["windows"]
    assert (document["schema"], document["tool_version"]) == (SCHEMA, tv.__version__)
    assert sum(budget["leaves_ns"].values()) == budget["wall_ns"]
    assert budget["wall_ns"] == sum(w["end_ns"] - w["start_ns"] for w in windows)
    assert all(sum(w["leaves_ns"].values()) == w["end_ns"] - w["start_ns"] for w in windows)
    assert all(w["leaves_ns"].keys() <= set(LEAVES) for w in [*windows, budget])
    assert list(budget["shares"]) == list(GROUPS)
    assert math.isclose(sum(budget["shares"].values()), 1)
    assert {w["rank"] for w in windows} == set(document["run"]["ranks"])
    for row in document["ranks"]:
        assert row["late_ns"] == sum(w["late_ns"] for w in windows if w["rank"] == row["rank"])
    (late,) = document["stragglers"]
    counts = [(a["last"], a["n"]) for a in document["arrivals"] if a["rank"] == late["rank"]]
    assert counts == [(late["last_count"], late["collectives"])] == [(27, 27)]  # 3 in each of 9 used steps
    assert {w["step"] for w in windows} == set(document["run"]["steps"]["used"])
    assert sorted(r for ranks in document["run"]["hosts"].values() for r in ranks) == document["run"]["ranks"]
    assert [(s["rank"], s["kind"], s["cause"]) for s in document["stragglers"]] == [
        (5, "persistent", "compute_slower")
    ]
    assert {"step_time", "goodput", "overlap_transfer", "overlap_comm", "exposed_share"} <= document["metrics"].keys()
    assert {m["quality"] for m in document["metrics"].values()} <= {
        "proved",
        "estimated",
        "lower_bound",
        "upper_bound",
        "unavailable",
    }


def test_it_comes_back_as_it_was(result: tv.Result) -> None:
    assert tv.Result.from_json(result.to_json()) == result


@pytest.mark.parametrize("name", ["collectives", "stragglers"])
def test_tables_have_one_schema_with_and_without_rows(result: tv.Result, name: str) -> None:
    full = getattr(result, name)()
    assert full.num_rows > 0
    assert pa.null() not in full.schema.types
    none = tv.Result.from_json(result.to_json())
    setattr(none, f"{name.removesuffix('s')}_rows", [])
    assert getattr(none, name)().schema == full.schema
