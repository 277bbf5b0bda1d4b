"""NCCL ranges and their payloads: which kernel they belong to, and what they tell of it."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

import traceview as tv
from builders.nsight_files import PID, TID, call, kernel, strings, write_parquet, write_sqlite
from traceview.run import Part
from traceview.schema import COLLECTIVES
from traceview_parsers import nsight
from traceview_parsers.reader import ReadOptions

COMM = 0xF00D_0000_0000_0001  # above 2**63: ids are unsigned
SIZE, PEER, RANKS = "Message size [bytes]", "Peer rank", "No. of ranks"
NAME = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<(unsigned long)4096>)"
# Three generations of schemas: without communicator (NCCL 2.20), with it (2.25), with other ids and order (2.28).
GENERATIONS: dict[str, dict[str, tuple[int, list[tuple[str, int, int | None]]]]] = {
    "2.20": {
        "ncclAllGather": (0x1000003, [(SIZE, 22, None)]),
        "ncclCommInitRank": (0x1000000, [("No. of ranks", 5, None), ("Rank", 5, 4), ("CUDA device", 5, 8)]),
    },
    "2.25": {
        "ncclAllGather": (0x1000004, [("NCCL communicator ID", 18, None), (SIZE, 22, 8)]),
        "ncclCommInitRank": (
            0x1000000,
            [("NCCL communicator ID", 18, None), ("No. of ranks", 5, 8), ("Rank", 5, 12), ("CUDA device", 5, 16)],
        ),
    },
    "2.28": {
        "ncclAllGather": (0x1000014, [(SIZE, 22, None), ("new field", 18, 8), ("NCCL communicator ID", 18, 16)]),
        "ncclCommInitRank": (
            0x1000001,
            [("Rank", 5, None), ("No. of ranks", 5, 4), ("NCCL communicator ID", 18, 8), ("new", 19, 16)],
        ),
    },
}
VALUES = {"NCCL communicator ID": COMM, SIZE: 1000, "Rank": 1, "No. of ranks": 4, "CUDA device": 1}


def blob(schema: int, fields: list[tuple[str, int, int | None]], values: dict[str, int]) -> bytes:
    body = bytearray(32)
    for name, kind, offset in fields:
        struct.pack_into("<Q" if kind in (18, 22) else "<i", body, offset or 0, values.get(name, 0))
    return struct.pack("<QQQQ", 1, schema, len(body), 32) + bytes(body)


def schema_rows(generation: str) -> list[dict[str, Any]]:
    rows = [
        {"domainId": 1, "schemaId": schema, "idx": i, "type": kind, "name": name, "offset": offset}
        for schema, fields in GENERATIONS[generation].values()
        for i, (name, kind, offset) in enumerate(fields)
    ]
    return rows * 2  # once per process, without a process id


def nvtx(start: int, end: int, text: str, **more: Any) -> dict[str, Any]:
    return {"start": start, "end": end, "eventType": 59, "text": text, "globalTid": TID, "domainId": 1} | more


def encode(name: str, generation: str, encoding: str) -> dict[str, Any]:
    schema, fields = GENERATIONS[generation][name]
    raw = blob(schema, fields, VALUES)
    if encoding == "json":
        return {"jsonText": json.dumps({"payload": [{f: VALUES.get(f, 0) for f, _, _ in fields}]})}
    return {"binaryData": raw if encoding == "blob" else raw.hex() if encoding == "hex" else "0x" + raw.hex().upper()}


def read(folder: Path, tables: dict[str, Any], parquet: bool = False) -> Part:
    path = write_parquet(folder / "p", tables) if parquet else write_sqlite(folder / "a.sqlite", tables)
    (part,) = nsight.read(path, folder / "out", ReadOptions(), None)
    return part


@pytest.mark.parametrize("generation", sorted(GENERATIONS))
@pytest.mark.parametrize("encoding", ["blob", "hex", "0x", "json", "parquet"])
def test_all_gather_in_bytes_of_the_whole(generation: str, encoding: str, tmp_path: Path) -> None:
    as_stored = "blob" if encoding == "parquet" else encoding
    rows = [nvtx(1, 5, "ncclCommInitRank", **encode("ncclCommInitRank", generation, as_stored))]
    rows += [nvtx(10, 20, "ncclAllGather", **encode("ncclAllGather", generation, as_stored))]
    tables = strings(NAME, "cudaLaunchKernelExC_v11060") | {
        "NVTX_EVENTS": rows,
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": schema_rows(generation),
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(30, 40, 10, 1)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(12, 14, 13, 1)],
    }  # fmt: skip
    part = read(tmp_path, tables, encoding == "parquet")
    (row,) = part.table(COLLECTIVES).to_pylist()
    assert (row["kind"], row["facts"]) == ("allgather", "payload")
    assert (row["bytes"], row["group_size"]) == (4 * 1000, 4)
    id_told = generation != "2.20"
    assert row["comm_id"] == row["group"] == (f"{COMM:#x}" if id_told else None)
    assert (part.meta.rank, part.meta.rank_source, part.meta.world_size) == (1, "payload", 4)


def test_without_ids_and_with_two_communicators_sizes_are_not_guessed(tmp_path: Path) -> None:
    inits = [nvtx(1 + r, 2 + r, "ncclCommInitRank", **payload(nranks=n, rank=r)) for n, r in ((8, 3), (2, 1))]
    tables = strings(NAME, "cudaLaunchKernelExC_v11060") | {
        "NVTX_EVENTS": [*inits, nvtx(10, 20, "ncclAllGather", **payload(size=10))],
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(30, 40, 10, 1)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(12, 14, 13, 1)],
    }  # fmt: skip
    part = read(tmp_path, tables)
    (row,) = part.table(COLLECTIVES).to_pylist()
    assert (row["kind"], row["bytes"], row["group_size"]) == ("allgather", None, None)
    assert (part.meta.rank, part.meta.world_size) == (3, 8)


# --- groups


def payload(**values: int) -> dict[str, Any]:
    names = {
        "comm": "NCCL communicator ID",
        "size": SIZE,
        "peer": PEER,
        "root": "Root",
        "nranks": RANKS,
        "rank": "Rank",
    }
    return {"jsonText": json.dumps({names[k]: v for k, v in values.items()})}


INIT = nvtx(1, 2, "ncclCommInitRank", **payload(comm=7, nranks=2, rank=0))
OTHER = nvtx(3, 4, "ncclCommInitRank", **payload(comm=8, nranks=2, rank=0))


def grouped(*calls: tuple[str, dict[str, int]]) -> list[dict[str, Any]]:
    """A group whose closing call spans [90, 99]."""
    rows = [nvtx(10, 11, "ncclGroupStart"), nvtx(90, 99, "ncclGroupEnd")]
    return rows + [nvtx(12 + 2 * i, 13 + 2 * i, name, **payload(**v)) for i, (name, v) in enumerate(calls)]


def rows_of(tmp_path: Path, ranges: list[dict[str, Any]], kernels: int = 1) -> list[dict[str, Any]]:
    tables = strings(NAME, "cudaLaunchKernelExC_v11060") | {
        "META_DATA_CAPTURE": [{"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": 'WORLD_SIZE="2"'}],
        "NVTX_EVENTS": [INIT, OTHER, *ranges],
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(100 + 10 * i, 105 + 10 * i, 10, i + 1) for i in range(kernels)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(91 + i, 92 + i, 13, i + 1) for i in range(kernels)],
    }  # fmt: skip
    found: list[dict[str, Any]] = read(tmp_path, tables).table(COLLECTIVES).to_pylist()
    return found


def test_a_group_of_one_kind_is_one_coalesced_call(tmp_path: Path) -> None:
    reduces = [("ncclAllReduce", {"comm": 7, "size": 100}), ("ncclAllReduce", {"comm": 7, "size": 50})]
    (row,) = rows_of(tmp_path, grouped(*reduces))
    assert (row["kind"], row["bytes"], row["coalesced"], row["p2p"]) == ("allreduce", 150, 2, False)


def test_sends_and_receives_with_everyone_are_an_all_to_all(tmp_path: Path) -> None:
    pairs = [(f"nccl{way}", {"comm": 7, "size": 64, "peer": p}) for p in (0, 1) for way in ("Send", "Recv")]
    (row,) = rows_of(tmp_path, grouped(*pairs))
    assert (row["kind"], row["bytes"], row["p2p"]) == ("alltoall", 128, False)
    assert (row["elems_in"], row["elems_out"]) == (128, 128)
    (tmp_path / "v").mkdir()
    pairs[0][1]["size"] = 32
    (row,) = rows_of(tmp_path / "v", grouped(*pairs))
    assert (row["kind"], row["bytes"]) == ("alltoallv", 128)
    assert (row["elems_in"], row["elems_out"]) == (96, 128)


@pytest.mark.parametrize(
    ("ways", "moved"),
    [
        ([("Send", 0), ("Send", 1), ("Recv", 1)], (128, 64)),
        ([("Send", 0), ("Send", 1)], (128, 0)),
        ([("Recv", 1)], (0, 64)),
    ],
)
def test_an_all_to_all_of_torch_leaves_out_the_empty_parts(
    tmp_path: Path, ways: list[tuple[str, int]], moved: tuple[int, int]
) -> None:
    pairs = [(f"nccl{way}", {"comm": 7, "size": 64, "peer": p}) for way, p in ways]
    (row,) = rows_of(tmp_path, [nvtx(5, 100, "nccl:all_to_all"), *grouped(*pairs)])
    assert (row["kind"], row["p2p"], row["src"], row["dst"]) == ("alltoallv", False, None, None)
    assert (row["elems_in"], row["elems_out"], row["bytes"]) == (*moved, max(moved))


def test_a_native_all_to_all_is_even(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, grouped(("ncclAlltoAll", {"comm": 7, "size": 64})))
    assert (row["kind"], row["elems_in"], row["elems_out"], row["bytes"]) == ("alltoall", 128, 128, 128)


def test_a_pair_with_one_peer_stays_point_to_point(tmp_path: Path) -> None:
    pair = [("ncclSend", {"comm": 7, "size": 64, "peer": 1}), ("ncclRecv", {"comm": 7, "size": 32, "peer": 1})]
    (row,) = rows_of(tmp_path, grouped(*pair))
    assert (row["kind"], row["bytes"], row["p2p"], row["src"], row["dst"]) == ("sendrecv", 64, True, 1, 1)


def test_a_lone_send_knows_both_ends(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, [nvtx(90, 99, "ncclSend", **payload(comm=7, size=64, peer=1))])
    assert (row["kind"], row["src"], row["dst"], row["members"]) == ("send", 0, 1, "0-1")


def test_a_broadcast_knows_its_root(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, [nvtx(90, 99, "ncclBroadcast", **payload(comm=7, size=64, root=1))])
    assert (row["kind"], row["src"], row["dst"], row["bytes"]) == ("broadcast", 1, None, 64)


def test_several_kernels_of_a_group(tmp_path: Path) -> None:
    calls = [("ncclAllReduce", {"comm": 7, "size": 1}), ("ncclAllReduce", {"comm": 8, "size": 2})]
    calls.append(("ncclAllReduce", {"comm": 7, "size": 4}))
    by_comm = rows_of(tmp_path, grouped(*calls), kernels=2)
    assert [(r["comm_id"], r["bytes"], r["coalesced"]) for r in by_comm] == [("0x7", 5, 2), ("0x8", 2, 1)]
    (tmp_path / "each").mkdir()
    each = rows_of(tmp_path / "each", grouped(*calls), kernels=3)
    assert [(r["comm_id"], r["bytes"]) for r in each] == [("0x7", 1), ("0x8", 2), ("0x7", 4)]
    (tmp_path / "odd").mkdir()
    unsure = rows_of(tmp_path / "odd", grouped(*calls), kernels=4)
    assert {(r["facts"], r["bytes"]) for r in unsure} == {("name", None)}


def test_a_group_cut_by_the_begin_of_the_capture(tmp_path: Path) -> None:
    rows = grouped(("ncclAllReduce", {"comm": 7, "size": 9}))[1:]  # without its ncclGroupStart
    rows += [nvtx(100, 101, "ncclGroupEnd")]
    (row,) = rows_of(tmp_path, rows)
    assert row["facts"] == "name"  # the call counts for a launch of its own, not for the group's


def test_kernels_without_launch_or_range_have_only_their_name(tmp_path: Path) -> None:
    names = [
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)",
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
    ]
    tables = strings(*names) | {"CUPTI_ACTIVITY_KIND_KERNEL": [kernel(1, 2, 10, 1), kernel(3, 4, 13, 2)]}
    rows = read(tmp_path, tables).table(COLLECTIVES).to_pylist()
    assert [(r["kind"], r["facts"]) for r in rows] == [("reduce_scatter", "name"), ("allreduce", "name")]


def test_ranks_that_contradict_each_other_are_not_used(tmp_path: Path) -> None:
    other = PID + (1 << 24)
    twin = INIT | {"globalTid": other | 5}
    tables = strings(NAME) | {
        "NVTX_EVENTS": [INIT, twin],
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(1, 2, 10, 1), kernel(1, 2, 10, 1, globalPid=other)],
    }  # fmt: skip
    path = write_sqlite(tmp_path / "a.sqlite", tables)
    parts = nsight.read(path, tmp_path / "out", ReadOptions(), None)
    assert [p.meta.rank for p in parts] == [None, None]
    assert any("claim the same rank" in w for w in parts[0].meta.source.warnings)


def test_ranks_of_a_communicator_that_is_not_the_job(tmp_path: Path) -> None:
    """Two reports of ranks 0 of two tensor-parallel groups: their names tell the ranks of the job."""
    for name in ("rep.0.sqlite", "rep.1.sqlite"):
        pid = PID + (int(name[4]) << 24)
        tables = strings(NAME) | {
            "NVTX_EVENTS": [INIT | {"globalTid": pid | 5}],
            "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(1, 20, 10, 1, globalPid=pid)],
        }  # fmt: skip
        write_sqlite(tmp_path / name, tables)
    run = tv.open(tmp_path, cache=False)
    assert [(r, run.parts[r].meta.rank_source) for r in run.ranks] == [(0, "name"), (1, "name")]
    assert any("parts of the job" in p for p in run.problems)


def test_members_are_not_told_where_the_world_is_not(tmp_path: Path) -> None:
    tables = strings(NAME, "cudaLaunchKernelExC_v11060") | {
        "NVTX_EVENTS": [INIT, nvtx(90, 99, "ncclBroadcast", **payload(comm=7, size=64, root=1))],
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(100, 105, 10, 1)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(91, 92, 13, 1)],
    }  # fmt: skip
    (row,) = read(tmp_path, tables).table(COLLECTIVES).to_pylist()
    assert (row["members"], row["src"], row["group_size"], row["comm_id"]) == (None, None, 2, "0x7")


@pytest.mark.parametrize(
    ("values", "column", "expected"),
    [
        ({"size": 2**60}, "bytes", None),
        ({"size": -5}, "bytes", None),
        ({"size": 2**50}, "bytes", 2**50),
        ({"peer": 2**40}, "dst", None),
    ],
)
def test_values_that_none_can_be_are_not_told(
    values: dict[str, int], column: str, expected: int | None, tmp_path: Path
) -> None:
    call_ = nvtx(90, 99, "ncclSend" if "peer" in values else "ncclAllReduce", **payload(comm=7, **values))
    tables = strings(NAME, "cudaLaunchKernelExC_v11060") | {
        "NVTX_EVENTS": [INIT, call_],
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(100, 105, 10, 1)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(91, 92, 13, 1)],
    }  # fmt: skip
    part = read(tmp_path, tables)
    (row,) = part.table(COLLECTIVES).to_pylist()
    assert row[column] == expected
    assert any("NVTX_EVENTS.payload" in w for w in part.meta.source.warnings) == (expected is None)


@pytest.mark.parametrize(
    "init", [{"nranks": 2**31 - 1, "rank": 0}, {"nranks": 4, "rank": 4}, {"nranks": -1, "rank": 0}]
)
def test_a_world_that_none_can_be_is_not_told(init: dict[str, int], tmp_path: Path) -> None:
    tables = strings(NAME) | {
        "NVTX_EVENTS": [nvtx(1, 2, "ncclCommInitRank", **payload(comm=7, **init))],
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(100, 105, 10, 1)],
    }  # fmt: skip
    part = read(tmp_path, tables)
    assert (part.meta.rank, part.meta.world_size) == (None, None)


def test_payload_schemas_of_odd_types(tmp_path: Path) -> None:
    """Numbers as reals and as text, places that no struct has: what is whole is used."""
    odd = [r | {"offset": None if r["offset"] is None else float(r["offset"])} for r in schema_rows("2.25")]
    odd += [{"domainId": 1, "schemaId": "x", "idx": "y", "type": None, "name": None, "offset": -(2**40)}]
    schema, fields = GENERATIONS["2.25"]["ncclCommInitRank"]
    tables = strings(NAME) | {
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": odd,
        "NVTX_EVENTS": [nvtx(1, 2, "ncclCommInitRank", binaryData=blob(schema, fields, VALUES))],
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(100, 105, 10, 1)],
    }  # fmt: skip
    assert read(tmp_path, tables).meta.rank == 1
