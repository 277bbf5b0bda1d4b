"""The facts that traces/README.md lists for the real files, and every broken twin of them."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from traceview import schema
from traceview.errors import TraceviewError
from traceview.run import Part
from traceview_parsers import kineto
from traceview_parsers.reader import ReadOptions

GPU = {"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"}


@pytest.fixture(scope="session")
def torch_dir(shared_dir: Path) -> Path:
    return shared_dir / "traces" / "torch"


@pytest.fixture(scope="session")
def read(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Reads a file once a session."""
    done: dict[Path, Part] = {}

    def once(path: Path) -> Part:
        if path not in done:
            done[path] = kineto.read(path, tmp_path_factory.mktemp("part"), ReadOptions(), None)[0]
        return done[path]

    return once


def events(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    found = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return found["traceEvents"] if isinstance(found, dict) else found


REAL = [
    "a100_rank0of2_nccl_metadata.json.gz",
    "mi300_rank0of8_rccl.json.gz",
    "torch19_resnet50_worker0.pt.trace.json.gz",
    "cpu_gloo_rank34of300.json.gz",
    "vit_cudagraph_nosteps.json.gz",
    "h100_bert_small.json.gz",
    "mi250_minitoy.json.gz",
    "generated/ddp4_shapes/rank3.json.gz",
    "generated/fsdp2_4/rank1.json.gz",
    "torchrec_resnet18_2ranks/host-a_85866_1698107929560561434.pt.trace.json.gz",
]


@pytest.mark.parametrize("name", REAL)
def test_counts_and_times_equal_those_of_a_plain_json_load(name: str, torch_dir: Path, read: Any) -> None:
    path = torch_dir / name
    plain = [e for e in events(path) if e.get("cat") in GPU]
    part = read(path)
    ops = part.table(schema.GPU_OPS)
    assert part.meta.source.events == len(events(path))
    assert Counter(ops["name"].to_pylist()) == Counter(e["name"] for e in plain)
    took = sum((ops["end"].to_numpy() - ops["start"].to_numpy()).tolist())
    assert took == sum(round(e["dur"] * 1000) for e in plain)
    source = part.meta.source
    assert (source.repaired, source.quarantined, source.dropped, source.truncated) == (0, 0, 0, False)
    assert "unknown_categories" not in source.facts


def marks(part: Part, source: str) -> list[int]:
    table = part.table(schema.STEP_MARKS).to_pylist()
    return [row["step"] for row in table if row["source"] == source]


def test_torchrec(torch_dir: Path, read: Any) -> None:
    for rank, path in enumerate(sorted((torch_dir / "torchrec_resnet18_2ranks").iterdir())):
        part = read(path)
        meta = part.meta
        assert (meta.rank, meta.rank_source, meta.world_size, meta.host) == (rank, "metadata", 2, "host-a")
        assert (meta.pid, meta.devices, meta.vendor) == (85866 + rank, [rank], "NVIDIA")
        assert meta.source.schema_class == "B2"
        assert meta.source.facts["external_id"] == "equals correlation"
        assert marks(part, "profiler_step") == [1, 2, 3]
        comms = part.table(schema.COLLECTIVES)
        assert comms["kind"].to_pylist() == ["alltoall"] * 12  # from the nccl:all_to_all range around the launch
        assert set(comms["facts"].to_pylist()) == {"cpu_record"}
        assert comms["bytes"].null_count == 12
        assert part.table(schema.GPU_OPS)["launch_start"].null_count == 0


def test_a100_collectives_have_their_facts(torch_dir: Path, read: Any) -> None:
    part = read(torch_dir / "a100_rank0of2_nccl_metadata.json.gz")
    comms = part.table(schema.COLLECTIVES)
    assert Counter(comms["kind"].to_pylist()) == {"allreduce": 15, "broadcast": 6}
    assert set(comms["facts"].to_pylist()) == {"kernel_args"}
    assert set(comms["members"].to_pylist()) == {"0-1"}
    first = comms.to_pylist()[0]
    assert (first["group"], first["group_desc"], first["group_size"]) == ("0", "default_pg", 2)
    assert (first["dtype"], first["elems_in"], first["bytes"]) == ("Float", 53120, 4 * 53120)
    op = part.table(schema.GPU_OPS).to_pylist()[first["op"]]
    assert (op["cls"], op["start"], op["end"]) == ("comm", first["start"], first["end"])
    # "ts": 4458676522690.655 after baseTimeNanoseconds, to the nanosecond
    hosts = part.table(schema.HOST_RANGES).to_pylist()
    starts = {h["start"] for h in hosts if h["name"] == "autograd::engine::evaluate_function: DivBackward1"}
    assert 1711964646000000000 + 4458676522690655 in starts
    assert marks(part, "profiler_step") == [4, 5, 6]
    assert part.meta.groups == {"0": "0-1"}
    assert part.meta.source.schema_class == "D0"
    assert "left out 4181 records" in part.meta.source.warnings[0]


def test_mi300(torch_dir: Path, read: Any) -> None:
    part = read(torch_dir / "mi300_rank0of8_rccl.json.gz")
    assert (part.meta.rank, part.meta.world_size, part.meta.devices, part.meta.vendor) == (0, 8, [2], "AMD")
    comms = part.table(schema.COLLECTIVES)
    assert comms.num_rows == 17
    assert set(comms["name"].to_pylist()) == {"ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"}
    assert set(comms["members"].to_pylist()) == {"0-7"}  # its only group
    assert marks(part, "profiler_step") == [15, 16, 17]  # of the host, not the garbage copies on the GPU


def test_torch19(torch_dir: Path, read: Any) -> None:
    part = read(torch_dir / "torch19_resnet50_worker0.pt.trace.json.gz")
    assert part.meta.source.schema_class == "A"
    assert marks(part, "profiler_step") == [5, 6, 7, 8, 9, 10]
    ops = part.table(schema.GPU_OPS)
    assert set(ops["stream"].to_pylist()) == {7}
    assert (ops["end"].to_numpy() == ops["start"].to_numpy()).any()
    assert part.table(schema.COUNTERS)["name"].unique().to_pylist() == ["memory.delta"]
    kinds = Counter(part.table(schema.HOST_RANGES)["kind"].to_pylist())
    assert kinds["annotation"] == 18 and kinds["data"] == 6


def test_gloo(torch_dir: Path, read: Any) -> None:
    part = read(torch_dir / "cpu_gloo_rank34of300.json.gz")
    assert (part.meta.rank, part.meta.world_size, part.meta.devices) == (34, 300, [])
    assert len(part.meta.groups) == 11 and set(part.meta.groups.values()) == {"0-299"}
    assert marks(part, "profiler_step") == [551, 552, 553, 554, 555]
    comms = part.table(schema.COLLECTIVES).to_pylist()
    assert len(comms) == 10 and {c["device"] for c in comms} == {-1} and {c["op"] for c in comms} == {None}
    assert comms[0]["bytes"] == 4 * comms[0]["elems_in"]
    kinds = Counter(part.table(schema.HOST_RANGES)["kind"].to_pylist())
    assert kinds["host_comm"] == 10 and kinds["data"] == 10
    assert part.table(schema.GPU_OPS).num_rows == 0


def test_cuda_graph(torch_dir: Path, read: Any) -> None:
    part = read(torch_dir / "vit_cudagraph_nosteps.json.gz")
    ops = part.table(schema.GPU_OPS)
    kernels = [r for r in ops.to_pylist() if r["cls"] == "compute"]
    shared = Counter(r["correlation"] for r in kernels)
    assert len(kernels) == 635 and sum(n for n in shared.values() if n > 1) == 625
    assert all(r["launch_start"] is not None for r in kernels)
    assert part.table(schema.STEP_MARKS).num_rows == 0


def test_h100(torch_dir: Path, read: Any) -> None:
    part = read(torch_dir / "h100_bert_small.json.gz")
    assert part.meta.source.schema_class == "D1"
    assert part.meta.source.facts["record_shapes"] == "1"
    assert set(part.table(schema.COUNTERS)["name"].unique().to_pylist()) == {"memory.allocated", "memory.reserved"}


def test_mi250(torch_dir: Path, read: Any) -> None:
    part = read(torch_dir / "mi250_minitoy.json.gz")
    ops = [r for r in part.table(schema.GPU_OPS).to_pylist() if r["cls"] == "pcie_h2d"]
    assert len(ops) == 2 and {r["mem"] for r in ops} == {"unknown"}
    assert marks(part, "profiler_step") == [1, 2]


def test_fsdp_gloo_sizes_count_what_all_give(torch_dir: Path, read: Any) -> None:
    part = read(torch_dir / "generated/fsdp2_4/rank1.json.gz")
    comms = part.table(schema.COLLECTIVES).to_pylist()
    assert Counter(c["kind"] for c in comms) == {"allgather": 42, "allreduce": 24}
    assert all(c["members"] == "0-3" and c["group_size"] == 4 for c in comms)
    gather = next(c for c in comms if c["kind"] == "allgather")
    assert gather["bytes"] == 4 * 4 * gather["elems_in"]


# file -> (its intact twin, repaired, quarantined, dropped, truncated)
V100 = "no_distributedInfo.json"
BROKEN = {
    "Infinity_literal.json": (V100, 16, 0, 0),
    "control_char_in_name.json": (V100, 2, 0, 0),
    "duplicated_events.json": (V100, 0, 0, 500),
    "latin1_bytes.json": (V100, 164, 0, 0),
    "null_and_empty_events.json": (V100, 0, 0, 0),
    "ts_dur_strings.json": (V100, 0, 0, 0),
    "unescaped_quote_in_name.json": (V100, 1, 0, 0),
    "windows_bad_escape.json": (V100, 3, 0, 0),
    "array_form.json": ("bom_utf8.json", 0, 0, 0),
    "array_form_unclosed.json": ("bom_utf8.json", 0, 0, 0),
    "corrupt_crc.json.gz": ("bom_utf8.json", 0, 0, 0),
    "gz_named_json.json": ("bom_utf8.json", 0, 0, 0),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_keep_every_intact_event(name: str, torch_dir: Path, read: Any) -> None:
    twin, repaired, quarantined, dropped = BROKEN[name]
    part, whole = read(torch_dir / "broken" / name), read(torch_dir / "broken" / twin)
    source = part.meta.source
    assert (source.repaired, source.quarantined, source.dropped) == (repaired, quarantined, dropped)
    assert not source.truncated and not source.losses
    assert part.meta.rows == whole.meta.rows
    here, there = part.table(schema.GPU_OPS), whole.table(schema.GPU_OPS)
    assert here["name"].to_pylist() == there["name"].to_pylist()
    shift = here["start"].to_numpy() - there["start"].to_numpy()
    assert (shift == shift[0]).all()  # a bare array has no base time


@pytest.mark.parametrize("name", ["empty.json", "object_without_traceEvents.json"])
def test_nothing_usable_is_one_clear_line(name: str, torch_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(TraceviewError, match=r"no traceEvents inside") as caught:
        kineto.read(torch_dir / "broken" / name, tmp_path, ReadOptions(), None)
    assert "\n" not in str(caught.value)
