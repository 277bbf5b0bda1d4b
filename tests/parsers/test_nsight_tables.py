"""Rows in, declared tables out: small exports, each showing one rule of the format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders.nsight_files import PID, SESSION, TID, UTC, Tables, call, kernel, strings, write_parquet, write_sqlite
from traceview.errors import TraceviewError
from traceview.run import Part
from traceview.schema import COLLECTIVES, COUNTERS, GPU_OPS, HOST_RANGES, STEP_MARKS
from traceview_parsers import nsight
from traceview_parsers.reader import ReadOptions
from traceview_parsers.registry import find_reader, read_head

KERNEL, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMCPY, NVTX = "CUPTI_ACTIVITY_KIND_MEMCPY", "NVTX_EVENTS"


def parts_of(tmp_path: Path, tables: Tables, name: str = "x.sqlite") -> list[Part]:
    path = write_sqlite(tmp_path / name, tables)
    assert find_reader(read_head(path), path) is nsight
    return nsight.read(path, tmp_path / "out", ReadOptions(), None)


def one(tmp_path: Path, tables: Tables, name: str = "x.sqlite") -> Part:
    (part,) = parts_of(tmp_path, tables, name)
    return part


def ops(part: Part) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = part.table(GPU_OPS).to_pylist()
    return rows


def test_a_minimal_export_of_2020(tmp_path: Path) -> None:
    part = one(tmp_path, strings("k(int)") | {KERNEL: [kernel(5, 9, 10, 1)]})
    (row,) = ops(part)
    assert (row["start"], row["end"], row["name"], row["config"]) == (5, 9, "k(int)", "1,1,1 32,1,1")
    assert row["launch_start"] is None and row["stream"] == 7
    assert part.meta.source.schema_class == "nsys before 2022"
    assert any("no UTC time" in w for w in part.meta.source.warnings)


def test_launch_is_the_outermost_call_of_the_same_process(tmp_path: Path) -> None:
    other = PID + (1 << 24)
    tables = SESSION | strings("k", "cudaLaunchKernel_v7000", "cuLaunchKernel") | {
        KERNEL: [kernel(50, 60, 10, 4), kernel(55, 58, 10, 4, globalPid=other, deviceId=1)],
        RUNTIME: [call(31, 38, 16, 4), call(30, 40, 13, 4), call(20, 22, 13, 4, other | 9)],
    }  # fmt: skip
    first, second = parts_of(tmp_path, tables)
    (row,), (elsewhere,) = ops(first), ops(second)
    assert (row["launch_start"], row["launch_end"], row["launch_thread"]) == (UTC + 30, UTC + 40, 5)
    assert (elsewhere["launch_start"], elsewhere["launch_thread"]) == (UTC + 20, 9)
    assert (first.meta.pid, second.meta.pid, second.meta.devices) == (77, 78, [1])
    assert first.table(HOST_RANGES)["name"].to_pylist() == ["cudaLaunchKernel", "cuLaunchKernel"]


@pytest.mark.parametrize(
    ("copy", "cls", "mem"),
    [
        ((1, 0, 2), "pcie_h2d", "pageable"),
        ((1, 1, 2), "pcie_h2d", "pinned"),
        ((2, 2, 1), "pcie_d2h", "pinned"),
        ((2, 2, 7), "pcie_d2h", "unknown"),
        ((8, 2, 2), "gpu_d2d", None),
        ((10, 2, 2), "peer_copy", None),
        ((11, 7, 7), "pcie_h2d", "unknown"),
        ((12, 7, 7), "pcie_d2h", "unknown"),
        ((9, 0, 1), "gpu_other", None),
        ((0, 1, 2), "pcie_h2d", "pinned"),
        ((99, 7, 7), "gpu_other", None),
    ],
)
def test_copy_kinds(copy: tuple[int, int, int], cls: str, mem: str | None, tmp_path: Path) -> None:
    row = {"start": 1, "end": 2, "globalPid": PID, "deviceId": 0, "bytes": 64}
    row |= dict(zip(("copyKind", "srcKind", "dstKind"), copy, strict=True))
    (found,) = ops(one(tmp_path, {"StringIds": [], MEMCPY: [row]}))
    assert (found["cls"], found["mem"], found["bytes"]) == (cls, mem, 64)


def test_a_copy_between_devices_is_a_peer_copy_and_communication(tmp_path: Path) -> None:
    row = {"start": 1, "end": 2, "globalPid": PID, "copyKind": 8, "srcKind": 2, "dstKind": 2, "bytes": 8}
    part = one(tmp_path, {"StringIds": [], MEMCPY: [row | {"srcDeviceId": 0, "dstDeviceId": 1}]})
    assert ops(part)[0]["cls"] == "peer_copy"
    assert part.table(COLLECTIVES).num_rows == 1


def test_the_enumerations_of_the_file_win(tmp_path: Path) -> None:
    row = {"start": 1, "end": 2, "globalPid": PID, "copyKind": 1, "srcKind": 5, "dstKind": 2, "bytes": 8}
    table = {"ENUM_CUDA_MEM_KIND": [{"id": 5, "name": "CUDA_MEMOPR_MEMORY_KIND_PINNED", "label": "Pinned"}]}
    assert ops(one(tmp_path, {"StringIds": [], MEMCPY: [row]} | table))[0]["mem"] == "pinned"


def test_graphs_memsets_and_broken_times(tmp_path: Path) -> None:
    graph = {"start": 10, "end": 90, "globalPid": PID, "graphId": 3, "streamId": 7, "correlationId": 2}
    tables = strings("k") | {
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [graph],
        "CUPTI_ACTIVITY_KIND_MEMSET": [{"start": 1, "end": 2, "globalPid": PID, "bytes": 4, "memKind": 2}],
        KERNEL: [kernel(0, 0, 10, 1), kernel(200, 150, 10, 1), kernel(300, 310, 10, 0)],
    }  # fmt: skip
    part = one(tmp_path, tables)
    rows = ops(part)
    assert [r["cls"] for r in rows] == ["gpu_memset", "gpu_opaque", "compute", "compute"]
    assert rows[1]["name"] == "CUDA graph 3" and rows[0]["name"] == "Memset (Device)"
    assert (rows[2]["start"], rows[2]["end"]) == (200, 200) and rows[3]["correlation"] is None
    assert (part.meta.source.dropped, part.meta.source.repaired) == (1, 1)
    assert any("--cuda-graph-trace=node" in w for w in part.meta.source.warnings)


def test_streams_of_several_contexts_are_kept_apart(tmp_path: Path) -> None:
    part = one(tmp_path, strings("k") | {KERNEL: [kernel(1, 2, 10, 1), kernel(3, 4, 10, 2, contextId=2)]})
    assert len(set(part.table(GPU_OPS)["stream"].to_pylist())) == 2


def test_devices_of_one_process_the_busiest_first(tmp_path: Path) -> None:
    kernels = [kernel(1, 2, 10, 1), kernel(1, 2, 10, 2, deviceId=3), kernel(3, 4, 10, 3, deviceId=3)]
    part = one(
        tmp_path, strings("k") | {KERNEL: kernels, "TARGET_INFO_GPU": [{"id": 3, "name": "B200", "cuDevice": 3}]}
    )
    assert (part.meta.devices, part.meta.device_name) == ([3, 0], "B200")
    assert part.table(GPU_OPS)["device"].to_pylist() == [0, 3, 3]


def test_what_is_true_of_the_file_is_said_once(tmp_path: Path) -> None:
    other = PID + (1 << 24)
    first, second = parts_of(
        tmp_path, strings("k") | {KERNEL: [kernel(1, 2, 10, 1), kernel(1, 2, 10, 1, globalPid=other)]}
    )
    assert first.meta.source.warnings and not second.meta.source.warnings


def test_what_names_sizes_and_tables_lack_is_told(tmp_path: Path) -> None:
    copy = {k: v for k, v in kernel(5, 9, 10, 3).items() if not k.startswith(("grid", "block", "demangled"))}
    tables = {
        KERNEL: [kernel(1, 2, 10, 1), kernel(3, 4, 99, 2)],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [copy | {"bytes": 2**62}],
    }
    part = one(tmp_path, strings("k") | tables)
    assert [r["name"] for r in ops(part)][:2] == ["k", "(no name)"] and ops(part)[2]["bytes"] is None
    told = " ".join(part.meta.source.warnings)
    assert (
        "the table of strings lacks, shown as '(no name)': 1" in told and "CUPTI_ACTIVITY_KIND_MEMCPY.bytes 1" in told
    )
    (bare,) = parts_of(tmp_path, strings("k") | {"CUPTI_ACTIVITY_KIND_MEMCPY": [copy]}, "y.sqlite")
    assert any("no kernels in the file" in w for w in bare.meta.source.warnings)


def test_an_export_without_its_strings_has_no_names(tmp_path: Path) -> None:
    part = one(tmp_path, {KERNEL: [kernel(1, 2, 10, 1)], "META_DATA_EXPORT": [{"name": "A", "value": "b"}]})
    assert [r["name"] for r in ops(part)] == ["(no name)"]
    path = tmp_path / "x.sqlite"
    assert find_reader(read_head(path), path) is nsight
    assert any("the table of strings lacks" in w for w in part.meta.source.warnings)


def test_nvtx_names_kinds_and_ranges_without_end(tmp_path: Path) -> None:
    rows = [
        {"start": -9, "end": None, "eventType": 75, "text": "mine", "globalTid": TID, "domainId": 1},
        {"start": -5, "end": 50, "eventType": 59, "textId": 10, "globalTid": TID},
        {"start": 1, "end": 2, "eventType": 59, "text": "aten::add, seq = 4, op_id = 9", "globalTid": TID},
        {"start": 3, "end": 4, "eventType": 59, "text": "aten::add, op_id = 10", "globalTid": TID},
        {"start": 5, "end": 6, "eventType": 60, "text": "data_loading", "globalTid": TID, "endGlobalTid": TID + 1},
        {"start": 7, "end": None, "eventType": 59, "text": "never closed", "globalTid": TID},
        {"start": 8, "end": None, "eventType": 34, "text": "a mark", "globalTid": TID},
        {"start": 9, "end": 10, "eventType": 59, "text": "MPI_Allreduce", "globalTid": TID},
    ]
    part = one(tmp_path, SESSION | strings("outer") | {NVTX: rows, KERNEL: [kernel(20, 60, 10, 1)]})
    found = {(r["name"], r["kind"], r["start"] - UTC, r["end"] - UTC) for r in part.table(HOST_RANGES).to_pylist()}
    assert found == {
        ("outer", "annotation", -5, 50),
        ("aten::add", "op", 1, 2),
        ("aten::add", "op", 3, 4),
        ("data_loading", "data", 5, 6),
        ("never closed", "annotation", 7, 60),
        ("MPI_Allreduce", "host_comm", 9, 10),
    }
    assert any("1 ranges or calls never ended" in w for w in part.meta.source.warnings)
    assert part.meta.source.facts["nvtx_domains"] == "mine"
    assert [(r["kind"], r["op"], r["device"]) for r in part.table(COLLECTIVES).to_pylist()] == [
        ("allreduce", None, -1)
    ]


def test_steps_by_counter_and_optimizer(tmp_path: Path) -> None:
    def mark(start: int, text: str) -> dict[str, Any]:
        return {"start": start, "end": start + 5, "eventType": 59, "text": text, "globalTid": TID}

    rows = [mark(10, "iteration 3"), mark(20, "iteration 4"), mark(14, "Optimizer.step#AdamW.step, op_id = 7")]
    rows += [mark(24, "Optimizer.step#AdamW.step, op_id = 12"), mark(30, "layer norm")]
    found = one(tmp_path, strings("k") | {NVTX: rows}).table(STEP_MARKS).to_pylist()
    assert [(r["source"], r["series"], r["step"], r["start"]) for r in found] == [
        ("range", "iteration", 3, 10),
        ("range", "iteration", 4, 20),
        ("optimizer", "Optimizer.step#AdamW.step", 0, 14),
        ("optimizer", "Optimizer.step#AdamW.step", 1, 24),
    ]


def test_calls_that_block(tmp_path: Path) -> None:
    sync = {"start": 1, "end": 2, "globalPid": PID, "correlationId": 8, "syncType": 3}
    wait = {"start": 1, "end": 2, "globalPid": PID, "correlationId": 9, "syncType": 2}
    tables = strings("k", "cudaMemcpyAsync_v3020", "cudaStreamWaitEvent_v3020", "cudaEventSynchronize_v3020") | {
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [sync, wait],
        RUNTIME: [call(1, 2, 13, 8), call(3, 4, 16, 9), call(5, 6, 19, 10), call(7, None, 13, 11)],
        KERNEL: [kernel(1, 9, 10, 8)],
    }  # fmt: skip
    part = one(tmp_path, tables)
    assert part.table(HOST_RANGES)["kind"].to_pylist() == ["sync", "runtime", "sync", "runtime"]
    assert part.table(HOST_RANGES)["end"].to_pylist()[-1] == 9  # never returned: clipped at the end


def test_operating_system_calls_and_overhead(tmp_path: Path) -> None:
    tables = strings("poll", "Buffer flush") | {
        "OSRT_API": [call(1, 2, 10, 0)],
        "PROFILER_OVERHEAD": [call(3, 4, 13, 0)],
    }  # fmt: skip
    part = one(tmp_path, tables)
    assert [(r["name"], r["kind"]) for r in part.table(HOST_RANGES).to_pylist()] == [
        ("poll", "runtime"),
        ("Buffer flush", "overhead"),
    ]


def test_mpi_calls_in_tables_of_their_own(tmp_path: Path) -> None:
    rows = [
        {"start": 5, "end": 9, "globalTid": TID, "textId": 13},
        {"start": 1, "end": 2, "globalTid": TID, "textId": 16},
    ]
    tables = strings("k", "MPI_Allreduce", "MPI_Init") | {
        KERNEL: [kernel(1, 2, 10, 1)],
        "MPI_COLLECTIVES_EVENTS": rows[:1],
        "MPI_OTHER_EVENTS": rows[1:],
    }  # fmt: skip
    part = one(tmp_path, tables)
    assert part.table(HOST_RANGES)["kind"].to_pylist() == ["annotation", "host_comm"]
    assert part.table(COLLECTIVES)["kind"].to_pylist() == ["allreduce"]


def test_processes_without_gpu_work_are_no_ranks(tmp_path: Path) -> None:
    worker = (PID + (9 << 24)) | 3
    osrt = [call(1, 2, 10, 0, worker + (i << 24)) for i in range(40)]
    with_gpu = {KERNEL: [kernel(1, 2, 10, 1)], "OSRT_API": osrt}
    (part,) = parts_of(tmp_path, strings("k") | with_gpu)
    assert any("40 processes without GPU work" in w for w in part.meta.source.warnings)
    (tmp_path / "b").mkdir()
    ranged = {NVTX: [{"start": 1, "end": 2, "eventType": 59, "text": "x", "globalTid": TID}], "OSRT_API": osrt}
    (part,) = parts_of(tmp_path / "b", strings("k") | ranged)
    assert part.meta.pid == 77


def test_metrics_become_counters(tmp_path: Path) -> None:
    tables = strings("k") | {
        KERNEL: [kernel(1, 9, 10, 8)],
        "TARGET_INFO_GPU": [{"id": 4, "name": "H100", "cuDevice": 4}],
        "TARGET_INFO_CUDA_DEVICE": [{"gpuId": 4, "cudaId": 0, "pid": 77}],
        "TARGET_INFO_GPU_METRICS": [
            {"typeId": 0x7A00000004, "metricId": 2, "metricName": "PCIe RX Throughput [Throughput %]"}
        ],
        "GPU_METRICS": [
            {"timestamp": 30, "typeId": 0x7A00000004, "metricId": 2, "value": 55},
            {"timestamp": 20, "typeId": 0x7A00000004, "metricId": 2, "value": 44},
            {"timestamp": 20, "typeId": 0x7A00000004, "metricId": 3, "value": 1},
        ],
        "TARGET_INFO_NETWORK_METRICS": [
            {"metricsListId": 1, "metricsIdx": 0, "name": "IB: Bytes sent", "unit": "bytes"}
        ],
        "TARGET_INFO_NIC_INFO": [{"nicId": 3, "name": "mlx5_0"}],
        "NIC_ID_MAP": [{"nicId": 3, "globalId": 900}],
        "NET_NIC_METRIC": [
            {"start": 1, "end": 5, "metricsListId": 1, "metricsIdx": 0, "globalId": 900, "value": 4096},
            {"start": 1, "end": 6, "metricsListId": 1, "metricsIdx": 0, "globalId": 901, "value": 8},
        ],
    }  # fmt: skip
    found = one(tmp_path, tables).table(COUNTERS).to_pylist()
    assert [(r["name"], r["device"], r["time"], r["value"], r["unit"]) for r in found] == [
        ("gpu.PCIe RX Throughput", 0, 20, 44.0, "%"),
        ("gpu.PCIe RX Throughput", 0, 30, 55.0, "%"),
        ("nic.IB: Bytes sent", -1, 6, 8.0, "bytes"),
        ("nic.mlx5_0.IB: Bytes sent", -1, 5, 4096.0, "bytes"),
    ]


def test_diagnostics_are_quality(tmp_path: Path) -> None:
    said = [
        (2, "Not all CUDA events might have been collected."),
        (1, "Profiling has started."),
        (3, "A=b\nC=d\nE=f"),
    ]
    events = [{"severity": s, "text": t} for s, t in said]
    part = one(tmp_path, strings("k") | {KERNEL: [kernel(1, 2, 10, 1)], "DIAGNOSTIC_EVENT": events})
    assert [w for w in part.meta.source.warnings if w.startswith("nsys:")] == [
        "nsys: Not all CUDA events might have been collected."
    ]


def test_unknown_columns_and_empty_tables_do_not_matter(tmp_path: Path) -> None:
    odd = kernel(1, 2, 10, 1) | {"kernel_name": "added by a user", 'quote"d': 3}
    part = one(tmp_path, strings("k") | {KERNEL: [odd], NVTX: [], "GPU_METRICS": [], 'odd "table"': [{"a": 1}]})
    assert len(ops(part)) == 1


def test_a_schema_of_the_future_is_refused(tmp_path: Path) -> None:
    tables = strings("k") | {"META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "4.0.0"}]}
    with pytest.raises(TraceviewError, match=r"schema 4\.0\.0; this traceview knows schemas up to 3\."):
        parts_of(tmp_path, tables)


def test_nothing_recorded_says_how_to_record(tmp_path: Path) -> None:
    with pytest.raises(TraceviewError, match="nsys profile -t cuda,nvtx"):
        parts_of(tmp_path, strings("k") | {NVTX: []})
    assert list((tmp_path / "out").iterdir()) == []


def test_parquet_gives_the_same(tmp_path: Path) -> None:
    tables = SESSION | strings("k", "cudaLaunchKernel_v7000") | {
        KERNEL: [kernel(50, 60, 10, 4), kernel(70, 90, 10, 5)],
        RUNTIME: [call(31, 38, 13, 4), call(61, 62, 13, 5)],
        NVTX: [{"start": 1, "end": 99, "eventType": 59, "text": "step 1", "globalTid": TID, "textId": None}],
    }  # fmt: skip
    by_sqlite = one(tmp_path, tables)
    folder = write_parquet(tmp_path / "x_pqtdir", tables)
    assert find_reader(b"", folder) is nsight
    (by_parquet,) = nsight.read(folder, tmp_path / "out2", ReadOptions(), None)
    for declared in (GPU_OPS, HOST_RANGES, STEP_MARKS):
        assert by_parquet.table(declared).to_pylist() == by_sqlite.table(declared).to_pylist()
