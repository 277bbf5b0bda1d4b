"""Real exports of five nsys versions, read into the declared tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import traceview as tv
from traceview.run import Part
from traceview.schema import COLLECTIVES, GPU_OPS, HOST_RANGES, PART_TABLES
from traceview_parsers import nsight
from traceview_parsers.reader import ReadOptions
from traceview_parsers.registry import find_reader, read_head

FILES = (
    "h100x8_fuser_report",
    "mfu_2gpu_before",
    "mock",
    "nvtx_only_centerformer",
    "saxpy-mpi-cuda_nsys_perlmutter0",
)
SECRET = b"planted-secret-must-not-leak"


@pytest.fixture(scope="module")
def parts(shared_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Part]]:
    out = {}
    for name in FILES:
        path = shared_dir / "traces/nsight" / f"{name}.sqlite"
        folder = tmp_path_factory.mktemp(name)
        assert find_reader(read_head(path), path) is nsight
        out[name] = nsight.read(path, folder, ReadOptions(), None)
        assert sorted(p.name for p in folder.iterdir()) == [p.folder.name for p in out[name]], "scratch is left"
    return out


def tally(table: Any, column: str) -> Counter[Any]:
    return Counter(table[column].to_pylist())


@pytest.mark.parametrize("name", FILES)
def test_tables_are_the_declared_ones_in_order(parts: dict[str, list[Part]], name: str) -> None:
    for part in parts[name]:
        for declared in PART_TABLES:
            declared.validate(part.table(declared))
        ops = part.table(GPU_OPS)
        keys = list(zip(*(ops[c].to_pylist() for c in GPU_OPS.sort), strict=True))
        assert keys == sorted(keys)
        assert all(e >= s for s, e in zip(ops["start"].to_pylist(), ops["end"].to_pylist(), strict=True))
        hosts = part.table(HOST_RANGES)
        keys = list(zip(hosts["thread"].to_pylist(), hosts["start"].to_pylist(), strict=True))
        assert keys == sorted(keys)
        for row in part.table(COLLECTIVES).to_pylist():
            if row["op"] is not None:
                op = ops.slice(row["op"], 1).to_pylist()[0]
                assert (op["start"], op["end"], op["name"]) == (row["start"], row["end"], row["name"])


@pytest.mark.parametrize("name", FILES)
def test_the_environment_stays_in_the_file(parts: dict[str, list[Part]], name: str, shared_dir: Path) -> None:
    assert SECRET in (shared_dir / "traces/nsight" / f"{name}.sqlite").read_bytes()
    for part in parts[name]:
        for file in part.folder.rglob("*"):
            assert SECRET not in file.read_bytes() and b"AWS_SECRET" not in file.read_bytes(), file


def test_two_processes_in_one_report(parts: dict[str, list[Part]]) -> None:
    both = parts["mfu_2gpu_before"]
    assert [(p.meta.pid, p.meta.devices, p.meta.host) for p in both] == [(144, [0], "node-a"), (145, [1], "node-a")]
    ops = [p.table(GPU_OPS) for p in both]
    classes = sum((tally(t, "cls") for t in ops), Counter())
    assert classes["compute"] + classes["comm"] == 4_010
    assert classes["pcie_h2d"] + classes["gpu_d2d"] == 1_020
    assert (classes["comm"], classes["gpu_memset"]) == (66, 269)
    assert sum((tally(t, "mem") for t in ops), Counter())["pageable"] == 34
    kernels = [r for t in ops for r in t.to_pylist() if r["cls"] in ("compute", "comm")]
    assert sum(r["launch_start"] is None for r in kernels) == 24
    assert all(r["launch_start"] <= r["start"] for r in kernels if r["launch_start"] is not None)
    assert all(r["config"] for r in kernels)


def test_absolute_times_come_from_the_utc_start(parts: dict[str, list[Part]]) -> None:
    utc, first_kernel = 1_779_782_330_176_752_435, 60_111_541_307  # of the file: utcEpochNs and min(start)
    assert parts["mfu_2gpu_before"][0].table(GPU_OPS)["start"][0].as_py() == utc + first_kernel


def test_all_to_all_by_the_range_of_torch(parts: dict[str, list[Part]]) -> None:
    for part in parts["mfu_2gpu_before"]:
        found = part.table(COLLECTIVES)
        assert tally(found, "kind") == {"alltoall": 33}
        assert tally(found, "facts") == {"cpu_record": 32, "name": 1}
    said = [w for part in parts["mfu_2gpu_before"] for w in part.meta.source.warnings if "include-blobs" in w]
    assert len(said) == 1


def test_numbers_of_emit_nvtx_do_not_make_names(parts: dict[str, list[Part]]) -> None:
    names = set(parts["mfu_2gpu_before"][0].table(HOST_RANGES)["name"].to_pylist())
    assert "aten::copy_" in names and not any("op_id" in n for n in names) and len(names) < 120


def test_mpi_rank_and_calls(parts: dict[str, list[Part]]) -> None:
    (part,) = parts["saxpy-mpi-cuda_nsys_perlmutter0"]
    assert (part.meta.rank, part.meta.rank_source) == (0, "metadata")
    assert part.meta.device_name == "NVIDIA A100-SXM4-40GB"
    ops = part.table(GPU_OPS)
    assert Counter(zip(ops["cls"].to_pylist(), ops["mem"].to_pylist(), strict=True)) == {
        ("pcie_h2d", "pageable"): 10,
        ("pcie_d2h", "pageable"): 5,
        ("compute", None): 5,
    }
    assert tally(part.table(COLLECTIVES), "kind") == {"send": 10, "recv": 5}
    assert tally(part.table(HOST_RANGES), "kind")["host_comm"] == 15


def test_small_and_single(parts: dict[str, list[Part]]) -> None:
    (mock,) = parts["mock"]
    assert tally(mock.table(GPU_OPS), "cls") == {"compute": 2, "pcie_d2h": 1}
    assert tally(mock.table(GPU_OPS), "mem")["pinned"] == 1
    assert any("legacy" in w for w in mock.meta.source.warnings)
    (fuser,) = parts["h100x8_fuser_report"]
    assert (fuser.meta.rank, fuser.meta.rank_source, fuser.meta.world_size) == (0, "env", 1)
    assert fuser.meta.device_name == "NVIDIA H100 80GB HBM3" and "mlx5_0" in fuser.meta.source.facts["nics"]
    assert fuser.meta.source.facts["env.NCCL_IB_PCI_RELAXED_ORDERING"] == "0"
    assert tally(fuser.table(GPU_OPS), "cls") == {"compute": 19, "gpu_memset": 1, "pcie_d2h": 1}


def test_without_gpu_work_the_remedy_is_said(parts: dict[str, list[Part]]) -> None:
    (part,) = parts["nvtx_only_centerformer"]
    assert part.table(GPU_OPS).num_rows == 0 and part.table(HOST_RANGES).num_rows == 1_824
    assert any("nsys profile -t cuda,nvtx" in w for w in part.meta.source.warnings)


@pytest.mark.parametrize("name", FILES)
def test_the_whole_analysis_adds_up(name: str, shared_dir: Path) -> None:
    result = tv.analyze(tv.open(shared_dir / "traces/nsight" / f"{name}.sqlite", cache=False))
    assert sum(result.budget.leaves_ns.values()) == result.budget.wall_ns > 0
    assert result.run.ranks == ([0, 1] if name.startswith("mfu") else [0])
