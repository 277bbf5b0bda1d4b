"""The exported window: valid Chrome trace JSON, exact times on the common axis, nothing lost."""

from __future__ import annotations

import gzip
import json

import pytest

from builders.timeline_world import World, build
from traceview.errors import TraceviewError
from traceview.schema import GPU_OPS, HOST_RANGES
from traceview_reports import perfetto


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return build(tmp_path_factory.mktemp("world"), World(ranks=3, steps=3, kernels=8, late=1, slow=3.0))


def ns(text: float | str) -> int:
    whole, _, part = str(text).partition(".")
    return int(whole) * 1000 + int(part.ljust(3, "0"))


def read(path):
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    document = json.loads(text, parse_float=str)
    return document, document["traceEvents"]


@pytest.fixture(scope="module")
def whole(world, tmp_path_factory):
    path = tmp_path_factory.mktemp("out") / "run.json"
    count = perfetto.export(*world, path)
    document, events = read(path)
    assert count == sum(e["ph"] == "X" for e in events)
    return document, events


def test_every_record_of_every_rank_is_there_on_the_common_axis(world, whole):
    run, _, detail = world
    _, events = whole
    derived = {"wait", "transfer", "unresolved", "step"}
    for rank in run.ranks:
        shift = detail.ranks[rank].offset_ns - detail.origin_ns
        records = [r for t in (GPU_OPS, HOST_RANGES) for r in run.parts[rank].table(t).to_pylist()]
        want = sorted((r["start"] + shift, r["end"] - r["start"], r["name"]) for r in records)
        mine = [
            e for e in events if e["ph"] == "X" and e["pid"] == rank and e["tid"] >= 10 and e["cat"] not in derived
        ]
        assert sorted((ns(e["ts"]), ns(e["dur"]), e["name"]) for e in mine) == want


def test_slices_of_a_thread_nest_or_stand_apart(whole):
    by_thread = {}
    for e in whole[1]:
        if e["ph"] == "X":
            by_thread.setdefault((e["pid"], e["tid"]), []).append((ns(e["ts"]), -ns(e["dur"])))
    for slices in by_thread.values():
        stack = []
        for start, negative in sorted(slices):
            while stack and stack[-1] <= start:
                stack.pop()
            assert not stack or start - negative <= stack[-1]
            stack.append(start - negative)


def test_waits_and_transfers_fill_their_collective(whole):
    _, events = whole
    parents = [e for e in events if e.get("cat") == "comm"]
    parts = [e for e in events if e.get("cat") in ("wait", "transfer", "unresolved") and e["ph"] == "X"]
    assert sum(ns(e["dur"]) for e in parents) == sum(ns(e["dur"]) for e in parts)
    wait = next(e for e in parts if e["cat"] == "wait" and e["pid"] == 0 and e["args"]["late_rank"] == 1)
    assert wait["name"] == "waits for rank 1"
    parent = next(e for e in parents if e["pid"] == 0 and e["ts"] == wait["ts"])
    assert parent["args"]["members"] == "0-2" and parent["args"]["wait_ns"] == ns(wait["dur"])


def test_arrows_lead_from_the_wait_to_the_late_ranks_record(whole):
    _, events = whole
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    assert begins and begins.keys() == ends.keys()
    records = {(e["pid"], e["tid"], e["ts"]) for e in events if e.get("cat") == "comm"}
    for number, begin in begins.items():
        end = ends[number]
        assert begin["pid"] != end["pid"] == 1 and end["bp"] == "e"
        assert (end["pid"], end["tid"], end["ts"]) in records and (begin["pid"], begin["tid"], begin["ts"]) in records
        assert ns(begin["ts"]) < ns(end["ts"])


def test_causes_steps_and_names_of_tracks(world, whole):
    _, events = whole
    detail = world[2]
    pieces = [e for e in events if e["ph"] == "X" and e["tid"] == 2 and e["pid"] == 0]
    bounds = detail.ranks[0].segments.bounds
    assert sum(ns(e["dur"]) for e in pieces) == bounds[-1] - bounds[0]
    assert {"idle_data", "idle_launch", "comm_wait.nxn"} <= {e["name"] for e in pieces}
    assert {e["cat"] for e in pieces} >= {"compute", "straggler wait", "idle"}
    steps = [e for e in events if e.get("cat") == "step" and e["pid"] == 0]
    assert [e["name"] for e in steps] == ["step 0", "step 1", "step 2"]
    assert steps[0]["args"] == {"not used": "the first"}
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {
        f"rank {r} (node-000)" for r in range(3)
    }
    assert "compute" in {e["args"]["name"] for e in events if e["name"] == "thread_name"}


def test_a_window_of_some_ranks_gzipped(world, tmp_path):
    detail = world[2]
    step = detail.view(0, int(detail.ranks[0].step_start[1]), int(detail.ranks[0].step_end[1]))
    path = tmp_path / "step.json.gz"
    perfetto.export(*world, path, ranks=[0, 2], window=step)
    document, events = read(path)
    assert document["otherData"]["origin_ns"] == str(detail.origin_ns)
    slices = [e for e in events if e["ph"] == "X"]
    assert {e["pid"] for e in slices} == {0, 2}
    assert all(ns(e["ts"]) < step[1] and ns(e["ts"]) + ns(e["dur"]) > step[0] for e in slices)
    assert not [e for e in events if e["ph"] in "sf"], "the late rank is not in the window"
    assert list(tmp_path.iterdir()) == [path], "no temporary file is left"


def test_what_cannot_be_exported_is_said(world, tmp_path):
    with pytest.raises(TraceviewError, match="rank 7 is not in this run; it has 0-2"):
        perfetto.export(*world, tmp_path / "x.json", ranks=[7])
    with pytest.raises(TraceviewError, match="window"):
        perfetto.export(*world, tmp_path / "x.json", window=(5, 5))
    with pytest.raises(TraceviewError, match=r"absent/x\.json: cannot be written"):
        perfetto.export(*world, tmp_path / "absent" / "x.json")
    assert not list(tmp_path.iterdir())
