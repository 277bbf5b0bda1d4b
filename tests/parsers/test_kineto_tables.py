"""Events in, rows out: one rule of the reader at a time, on traces of a few events. Times in µs unless named ns."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traceview import schema
from traceview.errors import TraceviewError
from traceview.run import Part
from traceview_parsers import kineto
from traceview_parsers.reader import ReadOptions

BASE = 1_767_189_312_000_000_000
Read = Callable[..., Part]
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SENDRECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def run(events: list[dict[str, Any]], options: ReadOptions | None = None, **keys: Any) -> Part:
        path, out = tmp_path / "t.json", tmp_path / "out"
        path.write_text(json.dumps({"traceEvents": events, "baseTimeNanoseconds": BASE, **keys}))
        out.mkdir(exist_ok=True)
        return kineto.read(path, out, options or ReadOptions(), None)[0]

    return run


def span(cat: str, name: str, ts: float, dur: float, tid: Any = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 10, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name: str, ts: float, dur: float, correlation: int = 0, stream: int = 7, **args: Any) -> dict[str, Any]:
    own = {"device": 0, "stream": stream, "correlation": correlation}
    return {**span("kernel", name, ts, dur, stream, **(own | args)), "pid": 0}


def launch(ts: float, correlation: int, tid: int = 1) -> dict[str, Any]:
    return span("cuda_runtime", "cudaLaunchKernel", ts, 2, tid, correlation=correlation)


def rows(part: Part, table: schema.Table) -> list[dict[str, Any]]:
    return part.table(table).to_pylist()


# --- GPU records


def test_times_are_ns_after_the_base_and_launches_are_linked(read: Read) -> None:
    part = read([kernel("gemm", 9.001, 50.003, 5, grid=[1, 2, 3], block=[4, 5, 6]), launch(2.5, 5)])
    (op,) = rows(part, schema.GPU_OPS)
    assert (op["start"], op["end"]) == (BASE + 9_001, BASE + 59_004)
    assert (op["launch_start"], op["launch_end"], op["launch_thread"]) == (BASE + 2_500, BASE + 4_500, 1)
    assert (op["cls"], op["config"], op["correlation"], op["device"], op["stream"]) == (
        "compute",
        "1,2,3 4,5,6",
        5,
        0,
        7,
    )
    assert (part.meta.cover_start, part.meta.cover_end) == (BASE + 2_500, BASE + 59_004)


def test_one_graph_launch_has_many_kernels_and_correlation_0_links_nothing(read: Read) -> None:
    graph = span("cuda_runtime", "cudaGraphLaunch", 1, 3, correlation=9)
    zero = span("cuda_runtime", "cudaLaunchKernel", 0, 1, correlation=0)
    part = read([graph, zero, kernel("a", 10, 5, 9), kernel("b", 15, 5, 9), kernel("c", 20, 5, 0)])
    assert [op["launch_start"] for op in rows(part, schema.GPU_OPS)] == [BASE + 1000, BASE + 1000, None]
    assert [op["correlation"] for op in rows(part, schema.GPU_OPS)] == [9, 9, None]


def test_a_duration_that_runs_past_the_next_start_is_clipped_and_counted(read: Read) -> None:
    part = read([kernel("bad", 10, 9000, 1), kernel("next", 30, 5, 2), kernel("other", 20, 5, 3, stream=8)])
    assert [(op["name"], op["end"] - BASE) for op in rows(part, schema.GPU_OPS)] == [
        ("bad", 30_000),
        ("other", 25_000),
        ("next", 35_000),
    ]
    facts = part.meta.source.facts
    assert (facts["clipped_overflows"], facts["clipped_overflow_ns"]) == ("1", "8980000")
    assert part.meta.source.repaired == 1


@pytest.mark.parametrize("second", [1, 2])
def test_overlap_within_a_graph_or_of_a_microsecond_stays(read: Read, second: int) -> None:
    start = 15 if second == 1 else 19.5
    part = read([kernel("a", 10, 10, 1), kernel("b", start, 10, second)])
    assert [op["end"] - op["start"] for op in rows(part, schema.GPU_OPS)] == [10_000, 10_000]


def test_records_that_were_not_collected_are_dropped_and_unfinished_ones_have_no_length(read: Read) -> None:
    part = read(
        [kernel("lost", 0, 0, 1), kernel("open", 10, -1, 2), kernel("empty", 20, 0, 3)], baseTimeNanoseconds=0
    )
    assert [(op["name"], op["end"] - op["start"]) for op in rows(part, schema.GPU_OPS)] == [("open", 0), ("empty", 0)]
    source = part.meta.source
    assert (source.dropped, source.repaired) == (1, 1)
    assert (source.facts["empty_gpu_records"], source.facts["negative_durations"]) == ("1", "1")


def test_repeated_events_count_once(read: Read) -> None:
    events = [kernel("a", 10, 5, 1), launch(1, 1), span("user_annotation", "x", 0, 30), span("cpu_op", "op", 0.5, 9)]
    part = read(events + events)
    assert part.meta.rows["gpu_ops"] == 1
    assert [h["name"] for h in rows(part, schema.HOST_RANGES)] == ["x", "op"]
    assert part.meta.source.dropped == 4


def test_a_peer_copy_has_no_device_of_its_own(read: Read) -> None:
    copy = span(
        "gpu_memcpy", "Memcpy PtoP (Device -> Device)", 5, 2, 9, fromDevice=1, inDevice=1, toDevice=2, bytes=64
    )
    (op,) = rows(read([{**copy, "pid": 1}]), schema.GPU_OPS)
    assert (op["cls"], op["device"], op["stream"], op["bytes"]) == ("peer_copy", 1, 9, 64)


def test_strange_argument_types_cost_only_themselves(read: Read) -> None:
    odd = kernel("copy", 10, 5, 1)
    odd |= {"cat": "gpu_memcpy", "name": "Memcpy HtoD (Host -> Device)"}
    odd["args"] = {"device": "0", "stream": "stream 3", "correlation": "1", "bytes": "4096", "External id": [1]}
    big = kernel("k", 20, 5, 2**70)
    part = read([odd, big, launch(1, 1)])
    first, second = rows(part, schema.GPU_OPS)
    assert (first["bytes"], first["stream"], first["mem"], first["cls"]) == (4096, 3, "unknown", "pcie_h2d")
    assert first["launch_start"] == BASE + 1000 and second["correlation"] is None


# --- collectives

FACTS = {
    "Collective name": "allreduce",
    "In msg nelems": 100,
    "Out msg nelems": 100,
    "dtype": "BFloat16",
    "Process Group Name": "5",
    "Process Group Description": "tp",
    "Process Group Ranks": "[0, 2]",
    "Group size": 2,
}


def record(ts: float, dur: float, tid: int = 1, **facts: Any) -> dict[str, Any]:
    return span("cpu_op", "record_param_comms", ts, dur, tid, **{**FACTS, **facts})


def test_facts_on_the_kernel_come_first(read: Read) -> None:
    part = read([kernel(ALLREDUCE, 50, 9, 1, **FACTS, Seq=3), launch(5, 1), record(0, 20, **{"In msg nelems": 7})])
    (row,) = rows(part, schema.COLLECTIVES)
    assert row == {
        **{"op": 0, "device": 0, "stream": 7, "start": BASE + 50_000, "end": BASE + 59_000},
        **{"launch_start": BASE + 5000, "kind": "allreduce", "group": "5", "group_desc": "tp", "members": "0,2"},
        **{"group_size": 2, "seq": 3, "p2p": False, "src": None, "dst": None, "dtype": "BFloat16", "elems_in": 100},
        **{"elems_out": 100, "bytes": 200, "in_splits": None, "out_splits": None, "coalesced": 1, "comm_id": None},
        **{"facts": "kernel_args", "name": ALLREDUCE},
    }


def test_else_from_the_record_that_contains_the_launch(read: Read) -> None:
    outer = record(0, 20, **{"In msg nelems": 7, "Seq": 4})
    other_thread = record(4, 4, tid=2, **{"In msg nelems": 8})
    part = read([outer, other_thread, launch(5, 1), kernel(ALLREDUCE, 50, 9, 1), kernel(ALLREDUCE, 70, 9, 0)])
    first, second = rows(part, schema.COLLECTIVES)
    assert (first["elems_in"], first["seq"], first["facts"]) == (7, 4, "cpu_record")
    assert (second["kind"], second["facts"], second["group"]) == ("allreduce", "name", None)


def test_a_batch_of_sends_and_receives_is_launched_after_its_records(read: Read) -> None:
    send = {"Collective name": "send", "In msg nelems": 30, "Dst Rank": 2}
    recv = {"Collective name": "recv", "In msg nelems": 10, "Out msg nelems": 10, "Src Rank": 2}
    part = read([record(0, 2, **send), record(3, 2, **recv), launch(6, 1), kernel(SENDRECV, 50, 9, 1)])
    (row,) = rows(part, schema.COLLECTIVES)
    assert (row["kind"], row["coalesced"], row["elems_in"], row["bytes"], row["p2p"]) == ("sendrecv", 2, 40, 80, True)
    assert (row["group"], row["src"], row["dst"], row["facts"]) == ("5", None, None, "cpu_record")


def test_else_from_the_range_around_the_launch(read: Read) -> None:
    part = read([span("user_annotation", "nccl:all_to_all", 0, 20), launch(5, 1), kernel(SENDRECV, 50, 9, 1)])
    (row,) = rows(part, schema.COLLECTIVES)
    assert (row["kind"], row["facts"], row["p2p"]) == ("alltoall", "cpu_record", False)


def test_waits_are_no_collectives(read: Read) -> None:
    wait = record(0, 20, **{"Collective name": "wait", "Group size": 1, "Process Group Ranks": "[]"})
    part = read([wait, launch(5, 1), kernel(ALLREDUCE, 50, 9, 1)])
    assert rows(part, schema.COLLECTIVES)[0]["facts"] == "name"


@pytest.mark.parametrize(
    ("name", "given", "got", "size"),
    [
        ("allreduce", 8, 8, 8),
        ("_allgather_base", 8, 32, 32),
        ("_reduce_scatter_base", 32, 8, 32),
        ("all_to_all", 32, 32, 32),
        ("broadcast", 8, 8, 8),
        ("gather", 8, 0, 16),
        ("scatter", 0, 8, 16),
        ("barrier", 1, 1, None),
        ("send", 8, 8, 8),
    ],
)
def test_message_size_is_that_of_the_kind(read: Read, name: str, given: int, got: int, size: int | None) -> None:
    facts = FACTS | {"Collective name": name, "In msg nelems": given, "Out msg nelems": got, "dtype": "Byte"}
    (row,) = rows(read([kernel(SENDRECV, 1, 1, 1, **facts)]), schema.COLLECTIVES)
    assert row["bytes"] == size


@pytest.mark.parametrize("name", ["all_to_all", "all_to_allv"])
@pytest.mark.parametrize(("splits", "kind"), [("[]", "alltoall"), ("[4, 4]", "alltoallv"), ("[4, 5]", "alltoallv")])
def test_an_all_to_all_without_splits_is_even(read: Read, name: str, splits: str, kind: str) -> None:
    facts = FACTS | {"Collective name": name, "In split size": splits, "Out split size": splits}
    (row,) = rows(read([kernel(SENDRECV, 1, 1, 1, **facts)]), schema.COLLECTIVES)
    assert (row["kind"], row["in_splits"]) == (kind, splits)


@pytest.mark.parametrize(("given", "got", "size"), [(8, 24, 24), (24, 8, 24), (0, 8, 8), (0, 0, None)])
def test_an_uneven_all_to_all_tells_both_totals_however_its_splits_are_cut(
    read: Read, given: int, got: int, size: int | None
) -> None:
    cut = f"[{', '.join('1' * 30)}, ...]"
    facts = FACTS | {"Collective name": "all_to_allv", "In msg nelems": given, "Out msg nelems": got, "dtype": "Byte"}
    facts |= {"In split size": cut, "Out split size": cut}
    (row,) = rows(read([kernel(SENDRECV, 1, 1, 1, **facts)]), schema.COLLECTIVES)
    assert (row["elems_in"], row["elems_out"], row["bytes"]) == (given, got, size)


@pytest.mark.parametrize(
    ("facts", "config", "members"),
    [
        ({"Process Group Ranks": "[0, 8, 16]"}, [], "0,8,16"),
        ({"Process Group Ranks": [0, 1]}, [], "0-1"),
        ({"Process Group Ranks": "[0, 8, ...]", "Global rank start": 0, "Global rank stride": 8}, [], "0,8,16"),
        ({"Process Group Ranks": "[0, ...]"}, [("5", [0, 1, 2]), ("6", [3])], "0-2"),
        ({"Process Group Ranks": "[0, ...]"}, [("5", "[0, 1, 2]"), ("6", [3])], "0-2"),
        ({"Process Group Ranks": None, "Process Group Name": None}, [("a", [0, 1, 2]), ("b", [0, 1, 2])], "0-2"),
        ({"Process Group Ranks": None, "Process Group Name": None}, [("a", [0, 1, 2]), ("b", [0])], None),
    ],
)
def test_members_of_a_group(read: Read, facts: dict[str, Any], config: list[Any], members: str | None) -> None:
    groups = {"pg_config": [{"pg_name": name, "ranks": ranks} for name, ranks in config]}
    part = read([kernel(ALLREDUCE, 1, 1, 1, **{**FACTS, "Group size": 3, **facts})], distributedInfo=groups)
    (row,) = rows(part, schema.COLLECTIVES)
    assert (row["members"], row["group_size"]) == (members, 3)


def test_the_root_is_the_rank_of_rooted_kinds_and_peers_are_global(read: Read) -> None:
    facts = FACTS | {"Process Group Ranks": "[4, 6]", "Rank": 1}
    named = [
        {"Collective name": "broadcast"},
        {"Collective name": "reduce"},
        {"Collective name": "send", "Dst Rank": 6},
    ]
    part = read([kernel(SENDRECV, 10 * i, 1, i + 1, **(facts | more)) for i, more in enumerate(named)])
    assert [(r["src"], r["dst"]) for r in rows(part, schema.COLLECTIVES)] == [(6, None), (None, 6), (None, 6)]


def test_rank_out_of_the_default_group(read: Read) -> None:
    default = {"Process Group Description": "default_pg"}
    part = read(
        [
            record(0, 1, Rank=0, **default | {"Collective name": "broadcast"}),
            record(2, 1, Rank=1),
            record(4, 1, Rank=5, **default),
        ]
    )
    assert (part.meta.rank, part.meta.rank_source) == (5, "default_pg")
    part = read([kernel(ALLREDUCE, 1, 1, 1, **FACTS | default, Rank=3)])
    assert (part.meta.rank, part.meta.rank_source) == (3, "default_pg")


def test_host_collectives(read: Read) -> None:
    event = span("user_annotation", "gloo:all_gather", 5, 9, 3, **{"Input Dims": [[[2, 3], [4]], []]})
    event["args"]["Input type"] = ["c10::Half", ""]
    part = read([event], distributedInfo={"pg_config": [{"pg_name": "0", "ranks": [0, 1]}]})
    (row,) = rows(part, schema.COLLECTIVES)
    assert (row["kind"], row["device"], row["op"], row["stream"]) == ("allgather", -1, None, 3)
    assert (row["elems_in"], row["bytes"], row["dtype"], row["members"]) == (10, 40, "c10::Half", "0-1")
    assert [h["kind"] for h in rows(part, schema.HOST_RANGES)] == ["host_comm"]


# --- host


def test_only_what_matters_of_the_host_is_kept(read: Read) -> None:
    part = read(
        [
            span("cpu_op", "aten::linear", 0, 100),
            span("cpu_op", "aten::mm", 10, 50),
            span("cpu_op", "aten::mm", 10, 50, tid=2),
            span("cpu_op", "aten::item", 70, 10),
            span("cuda_runtime", "cudaStreamSynchronize", 72, 5, correlation=3),
            launch(20, 1),
            span("cuda_runtime", "cudaMalloc", 30, 5, correlation=2),
            span("user_annotation", "inner", 5, 90),
            span("gpu_user_annotation", "inner", 5, 90),
            span("cuda_sync", "Stream Sync", 5, 90),
            span("Trace", "PyTorch Profiler (0)", 0, 500, "PyTorch Profiler"),
            span("overhead", "Buffer Flush", 110, 5, -1),
            span("python_function", "f", 0, 90),
        ]
    )
    kept = [(h["thread"], h["kind"], h["name"]) for h in rows(part, schema.HOST_RANGES)]
    assert kept == [
        (-1, "overhead", "Buffer Flush"),
        (1, "op", "aten::linear"),
        (1, "annotation", "inner"),
        (1, "runtime", "cudaMalloc"),
        (1, "sync", "aten::item"),
        (1, "sync", "cudaStreamSynchronize"),
        (2, "op", "aten::mm"),
    ]
    assert part.meta.cover_end == BASE + 500_000
    assert part.meta.source.facts.keys() & {"unknown_categories"} == set()


def test_python_on_request_and_own_data_ranges(read: Read) -> None:
    events = [span("python_function", "train.py(3): step", 0, 90), span("user_annotation", "my_feed", 0, 5)]
    options = ReadOptions(with_python=True, data_names=("^my_feed$",))
    kinds = {h["name"]: h["kind"] for h in rows(read(events, options), schema.HOST_RANGES)}
    assert kinds == {"train.py(3): step": "python", "my_feed": "data"}


def test_step_marks(read: Read) -> None:
    names = ["ProfilerStep#7", "Optimizer.step#SGD.step", "ProfilerStep#8", "Optimizer.step#SGD.step", "iteration 3"]
    part = read([span("user_annotation", name, 10 * i, 9) for i, name in enumerate(names)])
    found = [(m["source"], m["series"], m["step"], m["start"] - BASE) for m in rows(part, schema.STEP_MARKS)]
    assert found == [
        ("profiler_step", "ProfilerStep", 7, 0),
        ("profiler_step", "ProfilerStep", 8, 20_000),
        ("range", "iteration", 3, 40_000),
        ("optimizer", "Optimizer.step#SGD.step", 0, 10_000),
        ("optimizer", "Optimizer.step#SGD.step", 1, 30_000),
    ]


def test_memory_and_allocator_calls_are_counters(read: Read) -> None:
    memory = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 10, "tid": 1, "ts": 4}
    gpu = {"Bytes": 8, "Total Allocated": 100, "Total Reserved": 300, "Device Type": 1, "Device Id": 0}
    host = {"Bytes": -4, "Device Type": 0, "Device Id": -1}
    part = read(
        [{**memory, "args": gpu}, {**memory, "ts": 5, "args": gpu}, span("cuda_runtime", "cudaMalloc", 1, 2.5)]
    )
    found = [(c["name"], c["device"], c["time"] - BASE, c["value"], c["unit"]) for c in rows(part, schema.COUNTERS)]
    assert found == [
        ("alloc.cudaMalloc", -1, 1000, 2500.0, "ns"),
        ("memory.allocated", 0, 4000, 100.0, "bytes"),
        ("memory.allocated", 0, 5000, 100.0, "bytes"),
        ("memory.reserved", 0, 4000, 300.0, "bytes"),
        ("memory.reserved", 0, 5000, 300.0, "bytes"),
    ]
    part = read([{**memory, "args": host}, span("cpu_op", "a", 1, 1)])
    assert [(c["name"], c["device"], c["value"]) for c in rows(part, schema.COUNTERS)] == [("memory.delta", -1, -4.0)]


# --- around the events


def test_nothing_left_out_is_silent(read: Read) -> None:
    part = read(
        [
            span("dynamo_timed", "x", 0, 5),
            span("cpu_op", "a", 0, 5),
            {**span("cpu_op", "b", 0, 5, 2), "pid": 11},
            {"ph": "X", "cat": "cpu_op", "name": "no time"},
        ],
        INFO=["x] Record counts: Out-of-range = 12, Blocklisted runtime = 0, CUPTI stopped early? = 1"],
        username="somebody",
    )
    source = part.meta.source
    assert source.facts["unknown_categories"] == "dynamo_timed 1" and source.facts["events_without_time"] == "1"
    assert source.dropped == 1
    said = " | ".join(source.warnings)
    assert "left out 12 records" in said and "CUPTI stopped early" in said and "unknown categories" in said
    assert "events of 2 processes in one file" in said
    assert "somebody" not in (part.folder / "part.json").read_text()


def test_metadata(read: Read) -> None:
    part = read(
        [kernel("k", 1, 1, 1), {**kernel("k", 5, 9, 2, device=3), "pid": 3}],
        distributedInfo={"rank": "2", "world_size": 8, "backend": "nccl", "nccl_version": "2.21.5"},
        deviceProperties=[{"id": 0, "name": "A"}, {"id": 3, "name": "NVIDIA H100 80GB HBM3"}],
        host_name="node-7",
        with_stack=1,
    )
    meta = part.meta
    assert (meta.rank, meta.world_size, meta.backend, meta.host) == (2, 8, "nccl", "node-7")
    assert (meta.devices, meta.device_name, meta.vendor) == ([3, 0], "NVIDIA H100 80GB HBM3", "NVIDIA")
    assert meta.source.facts["with_stack"] == "1" and meta.source.schema_class == "D2"


def test_no_activity_is_one_clear_line(read: Read) -> None:
    with pytest.raises(TraceviewError, match="1 events, but none of them is an activity; record with"):
        read([{"ph": "M", "name": "process_name", "pid": 1, "args": {}}])


@pytest.mark.parametrize("near", [True, False])
@pytest.mark.parametrize("stamp", ["1770932723233667381", "1770932723233", None])
def test_a_lost_base_is_told_by_the_stamp_in_the_name_or_the_date(
    tmp_path: Path, stamp: str | None, near: bool
) -> None:
    quarter, late = 1767189312, 30.0 if near else 40 * 86400.0
    events = json.dumps([span("cpu_op", "a", (1770932723 - quarter - late) * 1e6 + 0.25, 2)])
    path = tmp_path / (f"node_7.{stamp}.pt.trace.json" if stamp else "rank0.json")
    path.write_text('{"traceEvents": ' + events[:-1] + ', {"ph": ')  # cut: what follows the events is missing
    os.utime(path, (1770932723, 1770932723) if stamp is None else (0, 0))
    part = kineto.read(path, tmp_path / "out", ReadOptions(), None)[0]
    assert part.meta.source.truncated
    started = part.meta.cover_start or 0
    assert started == round((1770932723 - late - (0 if near else quarter)) * 1e9) + 250
    said = " ".join(part.meta.source.warnings)
    assert ("the base of its times is lost" in said) == near and ("relative to a start" in said) != near


def test_absolute_microseconds_without_base(read: Read) -> None:
    events = [span("cpu_op", "a", 1712195495519695.8, 2.25), span("cpu_op", "b", 1712195495519799, 1)]
    part = read(events, baseTimeNanoseconds=0)
    assert [(h["start"], h["end"]) for h in rows(part, schema.HOST_RANGES)] == [
        (1712195495519695800, 1712195495519698050),
        (1712195495519799000, 1712195495519800000),
    ]
