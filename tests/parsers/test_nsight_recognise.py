"""Files that are not exports: named, with the command that helps. Ranks, environment, conversion."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from builders.nsight_files import PID, TID, kernel, strings, write_sqlite
from traceview.errors import TraceviewError
from traceview.run import Part
from traceview_parsers import nsight
from traceview_parsers.nsight.environment import allowed, is_launcher
from traceview_parsers.nsight.names import REMOVED, clean
from traceview_parsers.reader import ReadOptions
from traceview_parsers.registry import find_reader, read_head

RAW = b"NVIDIA Tegra Profiler Report 2025@1@3@140-251335620677v0 and more" + bytes(100)
OLD_RAW = b"NVIDIA Tegra Profiler Report 1." + bytes(5000) + b"2021.3.2.4-abc"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.nsys-rep", RAW, r"written by nsys 2025\.1\.3\.140.*nsys export --type=sqlite --include-blobs=true -o"),
        ("renamed.bin", RAW, r"raw Nsight Systems report"),
        ("old one.qdrep", OLD_RAW, r"written by nsys 2021\.3\.2\.4.*'[^']*old one\.sqlite'"),
        ("a.qdstrm", b"\x01\x02stream" * 9, r"QdstrmImporter -i"),
        ("a.sqlite", bytes(4096), r"interrupted export.*nsys export"),
        ("a.sqlite", b"", r"empty"),
        ("a.sqlite", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", r"git lfs pull"),
        ("a.nsys-rep", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", r"git lfs pull"),
        ("a.sqlite", b"SQLite format 3\0" + b"\x10\x00junk" * 100, r"damaged or truncated.*nsys export"),
    ],
)
def test_what_is_no_export_is_explained(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert find_reader(read_head(path), path) is nsight
    with pytest.raises(TraceviewError, match=says) as error:
        nsight.read(path, tmp_path / "out", ReadOptions(), None)
    assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        (("StringTable", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"), "nvprof"),
        (("dlprof_dldb", "other"), "DLProf"),
    ],
)
def test_databases_of_other_profilers(tables: tuple[str, ...], says: str, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as db:
        for table in tables:
            db.execute(f"CREATE TABLE {table} (a INTEGER)")
    db.close()
    assert find_reader(read_head(path), path) is nsight
    with pytest.raises(TraceviewError, match=f"{says} database.*nsys profile"):
        nsight.read(path, tmp_path / "out", ReadOptions(), None)


def test_damage_that_breaks_the_names_of_tables_is_one_line(tmp_path: Path) -> None:
    """The library's own message then quotes bytes that are no text."""
    path = write_sqlite(tmp_path / "a.sqlite", strings("k") | {"CUPTI_ACTIVITY_KIND_KERNEL": [kernel(1, 2, 10, 1)]})
    raw = path.read_bytes()
    assert raw.count(b"StringIds") and raw.count(b"CREATE TABLE")
    path.write_bytes(raw.replace(b"StringIds", b"String\xff\xfe\xfd").replace(b"CREATE TABLE", b"CREATE T\xc2BLE"))
    assert find_reader(read_head(path), path) is nsight
    with pytest.raises(TraceviewError, match=r"damaged.*nsys export") as error:
        nsight.read(path, tmp_path / "out", ReadOptions(), None)
    assert "\n" not in str(error.value)


def test_other_databases_are_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE runs (a INTEGER)")
    db.close()
    assert find_reader(read_head(path), path) is None
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/trace.parquet").write_bytes(b"PAR1")
    assert find_reader(b"", tmp_path / "parts") is None


def fake_nsys(folder: Path, version: str, body: str) -> None:
    folder.mkdir()
    program = folder / "nsys"
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then echo "NVIDIA Nsight Systems version {version}"; exit; fi\n{body}\n'
    )
    program.chmod(0o755)


def test_conversion_by_the_nsys_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = write_sqlite(tmp_path / "real.db", strings("k") | {"CUPTI_ACTIVITY_KIND_KERNEL": [kernel(1, 2, 10, 1)]})
    raw = tmp_path / "in" / "a b.nsys-rep"
    raw.parent.mkdir()
    raw.write_bytes(RAW)
    take_output = 'while [ "$1" != -o ]; do shift; done; cp ' + f"'{export}'" + ' "$2"'
    fake_nsys(tmp_path / "bin", "2025.3.1.90-2", take_output)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    (part,) = nsight.read(raw, tmp_path / "out", ReadOptions(convert=True), None)
    assert part.meta.rows["gpu_ops"] == 1 and part.meta.source.path == str(raw)
    assert [p.name for p in raw.parent.iterdir()] == ["a b.nsys-rep"]


@pytest.mark.parametrize(
    ("version", "body", "says"),
    [
        ("2024.6.2.25", "exit 0", r"2025\.1\.3\.140, but the nsys on PATH is 2024\.6\.2\.25"),
        ("2025.3.1.90", "echo broken report >&2; exit 3", r"`nsys export` failed \(broken report\)"),
    ],
)
def test_conversion_that_cannot_be(
    version: str, body: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tmp_path / "a.nsys-rep"
    raw.write_bytes(RAW)
    fake_nsys(tmp_path / "bin", version, body)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(TraceviewError, match=says):
        nsight.read(raw, tmp_path / "out", ReadOptions(convert=True), None)


def test_conversion_without_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = tmp_path / "a.nsys-rep"
    raw.write_bytes(RAW)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TraceviewError, match="not on PATH"):
        nsight.read(raw, tmp_path / "out", ReadOptions(convert=True), None)


# --- environment and secrets


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("RANK", "3", True),
        ("NCCL_ALGO", "Ring,Tree", True),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", True),
        ("NCCL_DEBUG_FILE", "/home/me/log", False),  # a path is no harmless value
        ("NCCL_AUTH_TOKEN", "abc", False),
        ("AWS_SECRET_ACCESS_KEY", "abc", False),
        ("HOME", "x", False),
        ("NCCL_X", "a" * 121, False),
        ("NCCL_X", "a b", False),
    ],
)
def test_only_harmless_settings_are_kept(name: str, value: str, kept: bool) -> None:
    assert allowed(name, value) is kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("PATH=/bin\nHOME=/root\nAWS_SECRET_ACCESS_KEY=x", False),
        ("HOME=/root\n\nPATH=/bin", False),
        ("AWS_SECRET_ACCESS_KEY=x", False),
        ("export HF_TOKEN=abc", False),
        ("aten::add(a=1)", True),
        ("tokens = 512", True),
        ("line one\nline two", True),
    ],
)
def test_environments_are_no_names(text: str, kept: bool) -> None:
    assert clean(text) == (text if kept else REMOVED)


def test_an_environment_as_a_name_goes_nowhere(tmp_path: Path) -> None:
    text = "PATH=/bin\nHOME=/root\nKEY=planted"
    tables = strings(text, "TOKEN=planted") | {
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(1, 2, 10, 1)],
        "NVTX_EVENTS": [{"start": 1, "end": 2, "eventType": 59, "textId": 13, "text": text, "globalTid": TID}],
        "TARGET_INFO_SYSTEM_ENV": [{"name": "DeviceEnvironment", "value": text + "\nNCCL_DEBUG=planted_not"}],
    }  # fmt: skip
    (part,) = nsight.read(write_sqlite(tmp_path / "a.sqlite", tables), tmp_path / "out", ReadOptions(), None)
    for file in part.folder.rglob("*"):
        assert b"planted" not in file.read_bytes().replace(b"planted_not", b"")
    assert part.meta.source.facts["env.NCCL_DEBUG"] == "planted_not"


@pytest.mark.parametrize(
    ("command", "starts"),
    [
        (["torchrun", "--nproc_per_node=2", "train.py"], True),
        (["python3", "-m", "torch.distributed.run", "train.py"], True),
        (["/usr/bin/mpirun", "-n", "8", "x"], True),
        (["python", "train.py"], False),
    ],
)
def test_launchers(command: list[str], starts: bool) -> None:
    assert is_launcher(command) is starts


# --- ranks


def read_one(tmp_path: Path, name: str, command: str, env: list[str], processes: int = 1) -> list[Part]:
    kernels = [kernel(1, 2, 10, 1, globalPid=PID + (i << 24)) for i in range(processes)]
    capture = [{"name": "PROCESS_0:COMMAND", "value": command}]
    capture += [{"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": e} for e in env]
    tables = strings("k") | {"CUPTI_ACTIVITY_KIND_KERNEL": kernels, "META_DATA_CAPTURE": capture}
    return nsight.read(write_sqlite(tmp_path / name, tables), tmp_path / "out", ReadOptions(), None)


@pytest.mark.parametrize(
    ("name", "command", "env", "rank", "source"),
    [
        ("a.sqlite", "python", ['RANK="3"', 'WORLD_SIZE="8"'], 3, "env"),
        ("a.sqlite", "python", ['SLURM_PROCID="5"'], 5, "env"),
        ("a.sqlite", "torchrun", ['RANK="3"'], None, ""),
        ("rep.7.sqlite", "torchrun", [], 7, "name"),
        ("job_rank2.sqlite", "python", [], 2, "name"),
        ("report1.sqlite", "python", [], None, ""),
    ],
)
def test_rank_of_one_process(
    name: str, command: str, env: list[str], rank: int | None, source: str, tmp_path: Path
) -> None:
    (part,) = read_one(tmp_path, name, command, env)
    assert (part.meta.rank, part.meta.rank_source) == (rank, source)


def test_the_launcher_s_rank_is_nobody_s_among_several(tmp_path: Path) -> None:
    parts = read_one(tmp_path, "rep.7.sqlite", "python", ['RANK="0"'], processes=2)
    assert [(p.meta.rank, p.meta.pid) for p in parts] == [(None, 77), (None, 78)]


def test_mpi_ranks_table(tmp_path: Path) -> None:
    other = PID + (1 << 24)
    tables = strings("k") | {
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(1, 2, 10, 1), kernel(1, 2, 10, 1, globalPid=other)],
        "MPI_RANKS": [{"globalTid": TID, "rank": 4}, {"globalTid": other + 3, "rank": 2}],
    }  # fmt: skip
    parts = nsight.read(write_sqlite(tmp_path / "a.sqlite", tables), tmp_path / "out", ReadOptions(), None)
    assert [(p.meta.rank, p.meta.rank_source) for p in parts] == [(4, "metadata"), (2, "metadata")]
