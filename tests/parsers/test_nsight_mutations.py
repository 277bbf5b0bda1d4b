"""Exports changed at random: whatever is left gives valid tables, or one clear line; never a defect."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simulator import Job, simulate, write_nsight
from traceview.errors import InternalError, TraceviewError
from traceview.schema import GPU_OPS, PART_TABLES
from traceview_parsers import nsight
from traceview_parsers.nsight import sqlite as sqlite_module
from traceview_parsers.reader import ReadOptions
from traceview_parsers.registry import find_reader, read_head

EXTREME = (
    None, -1, 0, 2**31, 2**62, -(2**63), 2**63 - 1, 1.5, float("inf"), "", "text", "12", b"\x00\xff", "9" * 30,
    "A=b\nTOKEN=x\nPATH=/y",
)  # fmt: skip
SEEDS = 60


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node of a simulated job with metrics and payloads."""
    job = Job(layout="fsdp", ranks=2, steps=2, layers=1)
    return write_nsight(simulate(job), tmp_path_factory.mktemp("sim"), metrics=True)[0]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def rebuilt(db: sqlite3.Connection, table: str, columns: list[str], make: str) -> None:
    db.execute(f"ALTER TABLE {quoted(table)} RENAME TO {quoted('old ' + table)}")
    db.execute(make)
    listed = ",".join(map(quoted, columns))
    if not make.startswith("CREATE VIEW"):
        db.execute(f"INSERT INTO {quoted(table)} ({listed}) SELECT {listed} FROM {quoted('old ' + table)}")


def drop(db: sqlite3.Connection, rng: random.Random, table: str, columns: list[str]) -> None:
    db.execute(f"DROP TABLE {quoted(table)}")


def drop_column(db: sqlite3.Connection, rng: random.Random, table: str, columns: list[str]) -> None:
    if len(columns) > 1 and table != "StringIds":
        db.execute(f"ALTER TABLE {quoted(table)} DROP COLUMN {quoted(rng.choice(columns))}")


def values(db: sqlite3.Connection, rng: random.Random, table: str, columns: list[str]) -> None:
    some = rng.choice(("", " WHERE rowid % 3 = 0", " WHERE rowid = 1"))
    change = f"UPDATE OR IGNORE {quoted(table)} SET {quoted(rng.choice(columns))} = ?{some}"
    value = rng.choice(EXTREME)
    if table != "StringIds" or isinstance(value, str):
        db.execute(change, [value])


def affinity(db: sqlite3.Connection, rng: random.Random, table: str, columns: list[str]) -> None:
    kind = rng.choice(("TEXT", "REAL", "BLOB"))
    rebuilt(db, table, columns, f"CREATE TABLE {quoted(table)} ({','.join(f'{quoted(c)} {kind}' for c in columns)})")


def view(db: sqlite3.Connection, rng: random.Random, table: str, columns: list[str]) -> None:
    rebuilt(db, table, columns, f"CREATE VIEW {quoted(table)} AS SELECT * FROM {quoted('old ' + table)}")


def without_rowid(db: sqlite3.Connection, rng: random.Random, table: str, columns: list[str]) -> None:
    db.execute(f"ALTER TABLE {quoted(table)} RENAME TO {quoted('old ' + table)}")
    listed = ",".join(map(quoted, columns))
    db.execute(f"CREATE TABLE {quoted(table)} (own_key INTEGER PRIMARY KEY, {listed}) WITHOUT ROWID")
    db.execute(f"INSERT INTO {quoted(table)} SELECT rowid, {listed} FROM {quoted('old ' + table)}")


Change = Callable[[sqlite3.Connection, random.Random, str, list[str]], None]
CHANGES: tuple[Change, ...] = (drop, drop_column, values, values, values, affinity, view, without_rowid)


def change_rows(path: Path, rng: random.Random) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous = OFF")
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in rng.sample(tables, 3):
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({quoted(table)})")]
        rng.choice(CHANGES)(db, rng, table, columns)
    db.close()


def change_bytes(path: Path, rng: random.Random) -> None:
    raw = bytearray(path.read_bytes())
    if rng.random() < 0.4:
        raw = raw[: rng.choice((0, 1, 50, 100, 4096, len(raw) // 3, len(raw) // 2, len(raw) - 1))]
    else:
        for _ in range(rng.choice((1, 30, 1000))):
            raw[rng.randrange(100, len(raw))] = rng.randrange(256)
    path.write_bytes(bytes(raw))


@pytest.mark.parametrize("small", [-1, 20_000])
def test_changed_exports(export: Path, small: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_module, "SMALL", small)
    outcomes = {"read": 0, "refused": 0}
    for seed in range(SEEDS // 2):
        rng = random.Random(seed * 2 + (small < 0))
        path = tmp_path / f"{seed}.sqlite"
        shutil.copyfile(export, path)
        (change_bytes if seed % 3 == 0 else change_rows)(path, rng)
        outcomes[outcome(path, tmp_path / f"out{seed}")] += 1
    assert outcomes["read"] > outcomes["refused"] > 0


def outcome(path: Path, out: Path) -> str:
    if find_reader(read_head(path), path) is not nsight:
        return "refused"  # by discovery: no longer of this kind
    try:
        parts: list[Any] = nsight.read(path, out, ReadOptions(), None)
    except TraceviewError as error:
        assert not isinstance(error, InternalError) and "\n" not in str(error)
        return "refused"
    for part in parts:
        for declared in PART_TABLES:
            declared.validate(part.table(declared))
        ops = part.table(GPU_OPS).select(["device", "start", "end"]).to_pylist()
        assert ops == sorted(ops, key=lambda r: (r["device"], r["start"], r["end"]))
        assert all(r["start"] <= r["end"] for r in ops)
    return "read"
