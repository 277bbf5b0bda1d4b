"""Databases that another program writes, or whose writer was interrupted; cut files; folders without write rights."""

from __future__ import annotations

import os
import shutil
import sqlite3
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import traceview as tv
from builders.nsight_files import SESSION, TID, UTC, kernel, strings, write_sqlite
from traceview.errors import TraceviewError
from traceview.run import Part
from traceview.schema import GPU_OPS
from traceview_parsers import nsight
from traceview_parsers.nsight import sqlite as sqlite_module
from traceview_parsers.reader import ReadOptions

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
TABLES = strings("k") | SESSION | {KERNEL: [kernel(1000 * i, 1000 * i + 500, 10, i) for i in range(1, 4)]}
LATER = kernel(9000, 9500, 10, 9)


def read(path: Path) -> Part:
    (part,) = nsight.read(path, path.parent / "out", ReadOptions(), None)
    return part


def starts(part: Part) -> list[int]:
    return [t - UTC for t in part.table(GPU_OPS)["start"].to_pylist()]


def insert(db: sqlite3.Connection, row: dict[str, Any]) -> None:
    names = ", ".join(f'"{c}"' for c in row)
    db.execute(f"INSERT INTO {KERNEL} ({names}) VALUES ({', '.join('?' * len(row))})", list(row.values()))


def copied(folder: Path, source: Path, *suffixes: str) -> Path:
    """What is left on disk of a writer that was killed at this moment."""
    folder.mkdir()
    for suffix in ("", *suffixes):
        shutil.copyfile(f"{source}{suffix}", folder / f"x.sqlite{suffix}")
    return folder / "x.sqlite"


def test_rows_in_a_write_ahead_log_are_read(tmp_path: Path) -> None:
    live = write_sqlite(tmp_path / "live.sqlite", TABLES)
    db = sqlite3.connect(live, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    insert(db, LATER)
    path = copied(tmp_path / "left", live, "-wal")
    db.close()
    before = {p.name: p.read_bytes() for p in path.parent.iterdir()}
    part = read(path)
    assert starts(part) == [1000, 2000, 3000, 9000]
    assert any("x.sqlite-wal was merged into a temporary copy" in w for w in part.meta.source.warnings)
    shutil.rmtree(path.parent / "out")
    assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == before


def test_the_log_is_part_of_what_the_cache_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEVIEW_CACHE", str(tmp_path / "cache"))
    live = write_sqlite(tmp_path / "live.sqlite", TABLES)
    db = sqlite3.connect(live, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    insert(db, LATER)
    path = copied(tmp_path / "left", live, "-wal")
    db.close()
    assert len(starts(tv.open(path).parts[0])) == 4
    path.with_name("x.sqlite-wal").unlink()
    assert len(starts(tv.open(path).parts[0])) == 3


def test_an_export_that_is_all_in_the_log(tmp_path: Path) -> None:
    live = tmp_path / "live.sqlite"
    db = sqlite3.connect(live, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("ATTACH ? AS whole", [str(write_sqlite(tmp_path / "whole.sqlite", TABLES))])
    for table in TABLES:
        db.execute(f"CREATE TABLE {table} AS SELECT * FROM whole.{table}")
    path = copied(tmp_path / "left", live, "-wal")
    db.close()
    assert tv.open(path, cache=False).ranks == [0]
    assert starts(read(path)) == [1000, 2000, 3000]


def test_an_interrupted_transaction_is_rolled_back_in_a_copy(tmp_path: Path) -> None:
    live = write_sqlite(tmp_path / "live.sqlite", TABLES)
    db = sqlite3.connect(live, isolation_level=None)
    db.execute("PRAGMA cache_size = 1")
    db.execute("BEGIN")
    db.execute(f"DELETE FROM {KERNEL}")
    for i in range(400):  # enough to be written before the commit
        insert(db, LATER | {"start": 10_000 + i})
    path = copied(tmp_path / "left", live, "-journal")
    db.execute("ROLLBACK")
    db.close()
    before = path.read_bytes()
    part = read(path)
    assert starts(part) == [1000, 2000, 3000] and path.read_bytes() == before
    assert any("x.sqlite-journal was merged" in w for w in part.meta.source.warnings)


def test_a_database_being_written_is_refused(tmp_path: Path) -> None:
    path = write_sqlite(tmp_path / "x.sqlite", TABLES)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    insert(db, LATER)
    with pytest.raises(TraceviewError, match=r"x.sqlite: another program is writing this database; try again when"):
        read(path)
    db.execute("ROLLBACK")
    db.close()
    assert starts(read(path)) == [1000, 2000, 3000]


@pytest.mark.parametrize("mode", ["DELETE", "WAL", "PERSIST"])
def test_a_folder_without_write_rights(tmp_path: Path, mode: str) -> None:
    folder = tmp_path / "ro"
    folder.mkdir()
    path = write_sqlite(folder / "x.sqlite", TABLES)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA journal_mode = {mode}")
    insert(db, LATER)
    db.close()
    os.chmod(folder, 0o555)
    try:
        (part,) = nsight.read(path, tmp_path / "out", ReadOptions(), None)
    finally:
        os.chmod(folder, 0o755)
    assert starts(part) == [1000, 2000, 3000, 9000] and not any("merged" in w for w in part.meta.source.warnings)


@pytest.mark.parametrize("small", [-1, 20_000])
def test_a_cut_file_keeps_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    monkeypatch.setattr(sqlite_module, "SMALL", small)
    monkeypatch.setattr(sqlite_module, "BATCH", 500)
    many = [kernel(1000 * i, 1000 * i + 500, 10, i) for i in range(1, 4001)]
    marks = [{"start": 1000, "end": 4_100_000, "eventType": 59, "text": "all of it", "globalTid": TID}]
    path = write_sqlite(tmp_path / "x.sqlite", strings("k") | SESSION | {"NVTX_EVENTS": marks, KERNEL: many})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    part = read(path)
    kept = starts(part)
    assert 500 < len(kept) < 3000 and kept == [1000 * i for i in range(1, len(kept) + 1)]
    source = part.meta.source
    assert source.truncated and any("shorter than its header says" in w for w in source.warnings)
    assert part.meta.holes == [(UTC + kept[-1], UTC + 4_100_000)]  # not idle: nobody knows
    result = tv.analyze(tv.open(path, cache=False))
    assert result.budget.leaves_ns["uncovered"] > 0.4 * result.budget.wall_ns


def test_damage_in_the_middle_is_a_hole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_module, "BATCH", 500)
    path = write_sqlite(tmp_path / "x.sqlite", strings("k") | SESSION | {
        KERNEL: [kernel(1000 * i, 1000 * i + 500, 10, i) for i in range(1, 4001)]
    })  # fmt: skip
    raw = bytearray(path.read_bytes())
    middle = len(raw) // 2 // 4096 * 4096
    raw[middle : middle + 4096] = b"\xff" * 4096
    path.write_bytes(bytes(raw))
    part = read(path)
    kept = starts(part)
    (hole,) = part.meta.holes
    gap = [(a, b) for a, b in pairwise(kept) if b - a > 1000]
    assert [(hole[0] - UTC, hole[1] - UTC)] == gap and part.meta.source.truncated
