"""Whatever stands in the rows, an export gives valid, sorted tables or one clear error."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from builders.nsight_files import PID, TID, write_sqlite
from traceview.errors import InternalError, TraceviewError
from traceview.schema import GPU_OPS, HOST_RANGES, PART_TABLES
from traceview_parsers import nsight
from traceview_parsers.reader import ReadOptions

VALUES = st.one_of(st.none(), st.integers(-3, 60), st.sampled_from([2**31, 2**40, 2**62, -(2**63), 2**63 - 1]))
TIMES = st.one_of(st.integers(-5, 200), st.none(), st.sampled_from([2**61, -(2**63)]))
PIDS, TIDS = st.sampled_from([PID, PID + (1 << 24), None]), st.sampled_from([TID, TID + 1, PID + (1 << 24) + 3, None])
TEXTS = st.sampled_from(
    [None, "", "step 3", "step 4", "ncclAllReduce", "ncclGroupStart", "ncclGroupEnd", "ncclSend", "nccl:all_to_all",
     "aten::mm, op_id = 4", "MPI_Send", "MPI Rank 1", "Optimizer.step#A", "A=b\nC=d\nE=f", "\x00", "é\ud7ff"]
)  # fmt: skip
SPAN = {"start": TIMES, "end": TIMES}
TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": SPAN
    | {"globalPid": PIDS, "correlationId": VALUES, "demangledName": VALUES, "deviceId": VALUES, "streamId": VALUES}
    | {c: VALUES for c in ("contextId", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")},
    "CUPTI_ACTIVITY_KIND_MEMCPY": SPAN
    | {"globalPid": PIDS, "correlationId": VALUES, "bytes": VALUES, "copyKind": VALUES}
    | {c: VALUES for c in ("srcKind", "dstKind", "srcDeviceId", "dstDeviceId", "deviceId")},
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": SPAN | {"globalPid": PIDS, "graphId": VALUES},
    "CUPTI_ACTIVITY_KIND_RUNTIME": SPAN | {"globalTid": TIDS, "correlationId": VALUES, "nameId": VALUES},
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": {"globalPid": PIDS, "correlationId": VALUES, "syncType": VALUES},
    "NVTX_EVENTS": SPAN
    | {"globalTid": TIDS, "eventType": st.sampled_from([59, 60, 39, 75, None]), "text": TEXTS, "textId": VALUES},
    "TARGET_INFO_SESSION_START_TIME": {"utcEpochNs": VALUES},
    "TARGET_INFO_GPU": {"id": VALUES, "name": TEXTS, "cuDevice": VALUES},
    "TARGET_INFO_GPU_METRICS": {"typeId": VALUES, "metricId": VALUES, "metricName": TEXTS},
    "GPU_METRICS": {"timestamp": VALUES, "typeId": VALUES, "metricId": VALUES, "value": VALUES},
    "DIAGNOSTIC_EVENT": {"severity": VALUES, "text": TEXTS},
}


def rows(columns: dict[str, Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(st.fixed_dictionaries(columns), max_size=6)


@settings(
    max_examples=40,
    phases=[Phase.generate],
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.fixed_dictionaries({}, optional={name: rows(columns) for name, columns in TABLES.items()}))
def test_any_rows(tables: dict[str, Any]) -> None:
    strings = [
        {"id": i, "value": t} for i, t in enumerate(["k", "ncclDevKernel_AllReduce_x", "cudaLaunchKernel_v7000"])
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = write_sqlite(Path(folder) / "a.sqlite", tables | {"StringIds": strings})
        if not tables:
            return
        try:
            parts = nsight.read(path, Path(folder) / "out", ReadOptions(), None)
        except TraceviewError as error:
            assert not isinstance(error, InternalError) and "\n" not in str(error)
            return
        for part in parts:
            for declared in PART_TABLES:
                declared.validate(part.table(declared))
            ops = part.table(GPU_OPS).to_pylist()
            assert ops == sorted(ops, key=lambda r: (r["device"], r["start"], r["end"]))
            assert all(r["start"] <= r["end"] for r in (*ops, *part.table(HOST_RANGES).to_pylist()))
