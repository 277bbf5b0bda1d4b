"""The cache: hit, miss, damage, two at once, no home."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from traceview import schema
from traceview_parsers import ReadOptions, open_run
from traceview_parsers.cache import Store, key, location
from traceview_parsers.discover import discover

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def root(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("TRACEVIEW_CACHE", str(path))
    return path


def stamps(root: Path) -> dict[str, int]:
    return {str(p.relative_to(root)): p.stat().st_mtime_ns for p in root.rglob("*.arrow")}


def test_second_run_reads_nothing_again(root: Path, write: Write) -> None:
    path = write("rank0.json", 0, 1)
    first = open_run([path])
    made = stamps(root)
    second = open_run([path])
    assert made and stamps(root) == made
    assert second.table(schema.GPU_OPS, 0) == first.table(schema.GPU_OPS, 0)


def test_the_key_is_the_content_the_name_and_the_options(tmp_path: Path, write: Write) -> None:
    (item,) = discover([write("rank0.json", 0, 1)]).inputs
    keys = {
        key(item, ReadOptions()),
        key(item, ReadOptions(with_python=True)),
        key(item, ReadOptions(data_names=("x",))),
    }
    assert len(keys) == 3
    before = key(item, ReadOptions())
    data = bytearray(item.path.read_bytes())
    data[len(data) // 2] ^= 1
    item.path.write_bytes(data)
    assert key(item, ReadOptions()) != before
    data[len(data) // 2] ^= 1
    item.path.write_bytes(data)
    assert key(item, ReadOptions()) == before
    item.path.rename(tmp_path / "other.json")
    (renamed,) = discover([tmp_path / "other.json"]).inputs
    assert key(renamed, ReadOptions()) != before


@pytest.mark.parametrize("damage", ["entry", "part", "table", "cut"])
def test_a_damaged_entry_is_made_again(root: Path, write: Write, damage: str) -> None:
    path = write("rank0.json", 0, 1)
    expected = open_run([path]).table(schema.GPU_OPS, 0).to_pylist()
    (entry,) = root.iterdir()
    if damage == "entry":
        (entry / "entry.json").write_text("{")
    elif damage == "part":
        next(entry.rglob("part.json")).write_text("{}")
    elif damage == "table":
        next(entry.rglob("gpu_ops.arrow")).unlink()
    else:
        os.truncate(next(entry.rglob("gpu_ops.arrow")), 100)
    assert open_run([path]).table(schema.GPU_OPS, 0).to_pylist() == expected


def test_without_cache_nothing_is_kept(root: Path, write: Write) -> None:
    code = (
        "import sys; from traceview_parsers import open_run\n"
        "print(open_run([sys.argv[1]], cache=False).parts[0].folder)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", code, str(write("rank0.json", 0, 1))]
    folder = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout.strip()
    assert folder and not Path(folder).parent.exists()
    assert list(root.iterdir()) == []


def test_two_processes_at_once(root: Path, write: Write) -> None:
    code = (
        "import sys; from traceview_parsers import open_run\n"
        "print(open_run([sys.argv[1]]).parts[0].meta.rows['gpu_ops'])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", code, str(write("rank0.json", 0, 1))]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(3)]
    assert [p.communicate()[0].strip() for p in running] == ["1"] * 3
    assert len(list(root.iterdir())) == 1


def test_the_loser_discards_its_own(root: Path, write: Write) -> None:
    run = open_run([write("rank0.json", 0, 1)])
    (entry,) = root.iterdir()
    parts = Store().make(entry.name, lambda work: [])
    assert [p.folder for p in parts] == [run.parts[0].folder]
    assert list(root.iterdir()) == [entry]


def test_a_failed_read_leaves_nothing(root: Path) -> None:
    def fail(work: Path) -> list[object]:
        (work / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Store().make("k", fail)  # type: ignore[arg-type]
    assert list(root.iterdir()) == []


def test_no_place_for_a_cache_is_said(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRACEVIEW_CACHE", str(tmp_path / "file" / "cache"))
    run = open_run([write("rank0.json", 0, 1)])
    assert run.ranks == [0] and "no cache can be kept there" in run.problems[0]


def test_location(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEVIEW_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert location() == Path("/x/traceview")


def test_the_oldest_go_first(root: Path) -> None:
    for i, name in enumerate("abc"):
        (root / name).mkdir()
        (root / name / "f").write_bytes(bytes(10))
        os.utime(root / name, (i, i))
    Store().trim(20)
    assert sorted(p.name for p in root.iterdir()) == ["b", "c"]
