"""The simulator's Kineto files, key by key and type by type, against real torch files of the same schema class."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from simulator import CudaGraphs, Job, PageableCopies, simulate, write_kineto

# Arguments that torch writes and that no real file at hand has (newer builds, graphs, point to point).
NEWER = {
    "Rank",
    "Seq",
    "Global rank start",
    "Global rank stride",
    "Src Rank",
    "Dst Rank",
    "graph id",
    "graph node id",
}
NEWER_TOP = {"cuda_runtime_version", "cuda_driver_version", "cupti_version", "trace_id", "host_name", "traceEvents"}
# Written only with an option that the simulator does not use, or by a newer build than the class's first.
OPTIONAL_ARGS = {"Input Dims", "Input type", "Input Strides", "Concrete Inputs", "Sequence number", "Fwd thread id"}
OPTIONAL_TOP = {"record_shapes", "INFO", "trace_id", "host_name"}
REAL = {
    "D2": ("generated/ddp4_shapes/rank0.json.gz", "a100_rank0of2_nccl_metadata.json.gz"),
    "D0": ("a100_rank0of2_nccl_metadata.json.gz",),
    "B3": ("torchrec_resnet18_2ranks/host-a_85866_1698107929560561434.pt.trace.json.gz",),
}


def read(path: Path) -> dict[str, Any]:
    """A trace file as a value."""
    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)


def kind(value: Any) -> str:
    """JSON type; times may be integers or decimals in every class."""
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type(value).__name__


def shapes(doc: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Events by (phase, category)."""
    out: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for event in doc["traceEvents"]:
        label = event.get("cat") or (event["name"] if event["ph"] in "iM" else "")
        out.setdefault((event["ph"], label), []).append(event)
    return out


def collective(event: dict[str, Any]) -> bool:
    """Carries the facts of a collective."""
    return event.get("args", {}).get("Collective name") not in (None, "wait")


def keys(events: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Type names of each event key and argument."""
    out: dict[str, set[str]] = {}
    for event in events:
        for k, v in event.items():
            out.setdefault(k, set()).add(kind(v))
        for k, v in event.get("args", {}).items():
            out.setdefault(f"args.{k}", set()).add(kind(v))
    return out


def always(events: list[dict[str, Any]]) -> set[str]:
    """Keys and arguments that every event has."""
    one = [set(e) | {f"args.{a}" for a in e.get("args", {})} for e in events]
    return set.intersection(*one)


@pytest.mark.parametrize("schema", sorted(REAL))
def test_events_look_like_those_of_torch(schema: str, shared_dir: Path, tmp_path: Path) -> None:
    sim = simulate(Job(layout="tp", tp=2, ranks=4, steps=2, faults=(PageableCopies(),)))
    ours = shapes(read(write_kineto(sim, tmp_path, schema)[0]))
    theirs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name in REAL[schema]:
        for label, events in shapes(read(shared_dir / "traces/torch" / name)).items():
            theirs.setdefault(label, []).extend(events)
    for label, events in ours.items():
        assert label in theirs, label
        for facts in (False, True):
            mine = [e for e in events if collective(e) is facts]
            real = [e for e in theirs[label] if collective(e) is facts]
            if not mine:
                continue
            have, want = keys(mine), keys(real)
            for key, types in have.items():
                if key.removeprefix("args.") not in NEWER:
                    assert key in want, (label, key)
                    assert types <= want[key], (label, key, types, want[key])
            missing = always(real) - set(have) - {f"args.{a}" for a in OPTIONAL_ARGS}
            assert not missing, (label, missing)


@pytest.mark.parametrize("schema", sorted(REAL))
def test_top_level_looks_like_that_of_torch(schema: str, shared_dir: Path, tmp_path: Path) -> None:
    ours = read(write_kineto(simulate(Job(steps=2)), tmp_path, schema)[0])
    theirs = read(shared_dir / "traces/torch" / REAL[schema][0])
    assert set(theirs) - set(ours) <= OPTIONAL_TOP
    for key in set(ours) - NEWER_TOP:
        if key in theirs:
            assert kind(ours[key]) == kind(theirs[key]), key
        else:
            assert key in {"displayTimeUnit"}, key
    for key, value in theirs["distributedInfo"].items():
        assert kind(ours["distributedInfo"][key]) == kind(value), key
    for mine, real in zip(
        ours["distributedInfo"].get("pg_config", []), theirs["distributedInfo"].get("pg_config", []), strict=True
    ):
        assert {k: kind(v) for k, v in mine.items()} == {k: kind(v) for k, v in real.items()}


def test_times_of_class_b_are_whole_microseconds_of_the_epoch(tmp_path: Path) -> None:
    doc = read(write_kineto(simulate(Job(steps=2, tick=1000)), tmp_path, "B3")[0])
    times = [e[k] for e in doc["traceEvents"] for k in ("ts", "dur") if k in e]
    assert {type(t) for t in times} == {int}
    assert "baseTimeNanoseconds" not in doc


def test_graph_nodes_share_the_correlation_of_their_launch(tmp_path: Path) -> None:
    sim = simulate(Job(steps=2, faults=(CudaGraphs("node"),)))
    events = read(write_kineto(sim, tmp_path)[0])["traceEvents"]
    graphed = [e["args"]["correlation"] for e in events if "graph id" in e.get("args", {})]
    calls = [e["args"]["correlation"] for e in events if e["name"] == "cudaGraphLaunch"]
    assert len(graphed) == 2 * 18
    assert sorted(set(graphed)) == sorted(calls)


@pytest.mark.parametrize(("gz", "pretty"), [(False, True), (False, False), (True, True)])
def test_the_same_seed_gives_the_same_bytes(gz: bool, pretty: bool, tmp_path: Path) -> None:
    job = Job(layout="fsdp", ranks=2, steps=2, seed=7)
    first = write_kineto(simulate(job), tmp_path / "a", gz=gz, pretty=pretty)
    again = write_kineto(simulate(job), tmp_path / "b", gz=gz, pretty=pretty)
    assert [p.name for p in first] == [p.name for p in again]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]
    other = write_kineto(simulate(Job(layout="fsdp", ranks=2, steps=2, seed=8)), tmp_path / "c", gz=gz, pretty=pretty)
    assert first[0].read_bytes() != other[0].read_bytes()
