"""Reading tables: fallback, damage, odd paths, and rows that come back sorted from disk."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.nsight_files import kernel, strings, write_parquet, write_sqlite
from traceview.errors import TraceviewError
from traceview.schema import GPU_OPS
from traceview_parsers import nsight
from traceview_parsers.nsight import spill as spill_module
from traceview_parsers.nsight import sqlite as sqlite_module
from traceview_parsers.nsight.launches import LaunchIndex
from traceview_parsers.nsight.source import NULL, Kind, open_source
from traceview_parsers.nsight.spill import SortedSpill
from traceview_parsers.nsight.sqlite import SqliteSource
from traceview_parsers.reader import ReadOptions

WANTED = {"a": Kind.INT, "t": Kind.TEXT, "b": Kind.HEX, "f": Kind.FLOAT, "gone": Kind.INT}
ROWS = [{"a": 1, "t": None, "b": b"\x00\xff"}, {"a": None, "t": "é", "b": "00ff"}, {"a": 2**62, "t": "x", "b": None}]


@pytest.fixture(autouse=True)
def _tables_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bulk path, whatever the number of rows."""
    monkeypatch.setattr(sqlite_module, "SMALL", -1)


def all_rows(path: Path, not_null: str = "") -> list[tuple[object, ...]]:
    source = open_source(path)
    lists = [[columns[n].tolist() for n in WANTED] for columns in source.batches("T", WANTED, not_null)]
    source.close()
    return [row for columns in lists for row in zip(*columns, strict=True)]


EXPECTED = [(1, "", "00FF", 0.0, NULL), (NULL, "é", "30306666", 0.0, NULL), (2**62, "x", "", 0.0, NULL)]


def test_typed_nulls_blobs_and_absent_columns(tmp_path: Path) -> None:
    path = write_sqlite(tmp_path / "a.db", {"T": ROWS})
    assert all_rows(path) == EXPECTED
    assert all_rows(path, "t") == EXPECTED[1:]


@pytest.mark.parametrize("small", [-1, 100])
def test_text_in_a_column_of_numbers_is_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    monkeypatch.setattr(sqlite_module, "SMALL", small)
    path = write_sqlite(tmp_path / "a.db", {"T": [{"a": "x", "t": "y", "b": None}] * 3})
    assert all_rows(path) == [(NULL, "y", "", 0.0, NULL)] * 3


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts the threads of the process")
def test_large_tables_leave_no_threads_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_module, "BATCH", 2)
    path = write_sqlite(tmp_path / "a.db", {"T": [{"a": i} for i in range(60)]})
    assert len(all_rows(path)) == 60
    before = len(list(Path("/proc/self/task").iterdir()))
    assert len(all_rows(path)) == 60  # 30 queries
    assert len(list(Path("/proc/self/task").iterdir())) <= before


@pytest.mark.parametrize("absent", ["adbc_driver_sqlite", "adbc_driver_manager"])
def test_without_the_bulk_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: str) -> None:
    monkeypatch.setitem(sys.modules, absent, None)
    assert all_rows(write_sqlite(tmp_path / "a.db", {"T": ROWS})) == EXPECTED


def redefined(path: Path, *statements: str) -> Path:
    """``path`` with table T renamed to S, then changed by statements."""
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE T RENAME TO S")
        for statement in statements:
            db.execute(statement)
    db.close()
    return path


@pytest.mark.parametrize("small", [-1, 100])
def test_views_and_tables_without_row_ids_are_read_like_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(sqlite_module, "SMALL", small)
    view = redefined(write_sqlite(tmp_path / "v.db", {"T": ROWS}), "CREATE VIEW T AS SELECT * FROM S")
    assert all_rows(view) == EXPECTED
    bare = "CREATE TABLE T (k INTEGER PRIMARY KEY, a INTEGER, t TEXT, b TEXT) WITHOUT ROWID"
    filled = "INSERT INTO T SELECT rowid, a, t, b FROM S"
    table = redefined(write_sqlite(tmp_path / "w.db", {"T": ROWS}), bare, filled)
    assert all_rows(table) == EXPECTED
    source = open_source(table)
    assert (source.count("T"), source.ends("T", ("a",), 2)) == (3, [(1,), (None,)])
    source.close()


def test_a_view_of_a_table_that_is_gone_is_damage(tmp_path: Path) -> None:
    path = write_sqlite(tmp_path / "v.db", {"T": ROWS, "U": [{"a": 1}]})
    source = open_source(redefined(path, "CREATE VIEW T AS SELECT * FROM U", "DROP TABLE U"))
    assert list(source.batches("T", WANTED)) == [] and source.rows("T", ("a",)) == []
    assert source.damage and "no such table" in source.damage[0]
    source.close()


def test_a_view_that_never_ends_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_module, "BATCH", 1000)
    endless = "CREATE VIEW T AS WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s) SELECT n AS a FROM s"
    path = redefined(write_sqlite(tmp_path / "v.db", {"T": ROWS}), endless)
    with pytest.raises(TraceviewError, match=r"v.db: the view T has more rows than the file has bytes"):
        all_rows(path)


@pytest.mark.parametrize("small", [-1, 100])
def test_numbers_as_text_are_numbers_and_other_text_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(sqlite_module, "SMALL", small)
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE T (a TEXT, f TEXT)")
        rows = [("12", "1.5"), ("-3", "x"), ("9" * 19, None), (None, "nan"), ("1e3", "2"), (b"7", "3")]
        db.executemany("INSERT INTO T VALUES (?, ?)", rows)
    db.close()
    source = open_source(path)
    (columns,) = source.batches("T", {"a": Kind.INT, "f": Kind.FLOAT})
    assert columns["a"].tolist() == [12, -3, NULL, NULL, NULL, NULL]
    assert columns["f"].tolist() == [1.5, 0.0, 0.0, 0.0, 2.0, 3.0]
    assert source.odd == {"T.a": 3, "T.f": 2}
    source.close()


def test_parquet_reads_alike(tmp_path: Path) -> None:
    rows = [r | {"b": r["b"].encode() if isinstance(r["b"], str) else r["b"]} for r in ROWS]
    assert all_rows(write_parquet(tmp_path / "p", {"T": rows})) == EXPECTED


def test_odd_paths(tmp_path: Path) -> None:
    folder = tmp_path / "a b#c%41?é&d"
    folder.mkdir()
    assert all_rows(write_sqlite(folder / "x y.sqlite", {"T": ROWS})) == EXPECTED
    assert os.listdir(folder) == ["x y.sqlite"]


def test_stretches_are_joined_and_gaps_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_module, "BATCH", 3)
    path = write_sqlite(tmp_path / "a.db", {"T": [{"a": i} for i in range(20)]})
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM T WHERE a BETWEEN 4 AND 11")
    db.close()
    assert [r[0] for r in all_rows(path)] == [0, 1, 2, 3, *range(12, 20)]


def test_a_value_of_another_type_is_null_not_the_end(tmp_path: Path) -> None:
    path = write_sqlite(tmp_path / "a.db", {"T": [{"a": 1}, {"a": 2}, {"a": 3}]})
    with sqlite3.connect(path) as db:
        db.execute("UPDATE T SET a = 'text' WHERE a = 2")
    db.close()
    assert [r[0] for r in all_rows(path)] == [1, NULL, 3]


def test_a_database_with_bad_pages_keeps_what_can_be_read(tmp_path: Path) -> None:
    rows = [kernel(i, i + 1, 10, i + 1) for i in range(4000)]
    path = write_sqlite(tmp_path / "a.sqlite", strings("k") | {"CUPTI_ACTIVITY_KIND_KERNEL": rows})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] + b"\xff" * (len(whole) - len(whole) // 2))
    (part,) = nsight.read(path, tmp_path / "out", ReadOptions(), None)
    assert 100 < part.table(GPU_OPS).num_rows < 4000
    assert part.meta.source.truncated and any("KERNEL" in w for w in part.meta.source.warnings)


def test_a_damaged_schema_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(b"SQLite format 3\0" + b"\x10\x00" + bytes(range(256)) * 40)
    with pytest.raises(TraceviewError, match=r"damaged.*nsys export"):
        SqliteSource(path)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(-50, 50), st.integers(0, 9)), max_size=30), max_size=6)
)
def test_spill_sorts(tmp_path_factory: pytest.TempPathFactory, chunks: list[list[tuple[int, int, int]]]) -> None:
    dtype = np.dtype([("start", "i8"), ("end", "i8")])
    block, out = spill_module.BLOCK, spill_module.OUT
    spill_module.BLOCK, spill_module.OUT = 2, 6
    try:
        spill = SortedSpill(tmp_path_factory.mktemp("s") / "f", dtype)
        for chunk in chunks:
            group = np.array([g for g, _, _ in chunk], np.int64)
            spill.append(group, np.array([(s, s + n) for _, s, n in chunk], dtype))
        found = [
            (int(g), *map(int, r)) for groups, rows in spill.batches() for g, r in zip(groups, rows, strict=True)
        ]
    finally:
        spill_module.BLOCK, spill_module.OUT = block, out
    assert found == sorted((g, s, s + n) for chunk in chunks for g, s, n in chunk)


def test_launches_over_many_partitions(tmp_path: Path) -> None:
    index = LaunchIndex(tmp_path)
    ids = np.array([0, 5, 5, 1 << 20, 1 << 21, 1 << 22, 1 << 23, -1], np.int64)
    start = np.array([1, 40, 30, 50, 60, 70, 80, 1], np.int64)
    index.add(ids, start, start + np.array([1, 9, 2, 1, 1, 1, 1, 1]), np.arange(8))
    found = index.find(np.array([5, 6, 0, -1, 1 << 23, 1 << 20, 1 << 22, 1 << 21], np.int64))
    assert found.found.tolist() == [True, False, False, False, True, True, True, True]
    assert found.start.tolist() == [30, 0, 0, 0, 80, 50, 70, 60]
    assert (found.end[0], found.thread[0]) == (32, 2)
