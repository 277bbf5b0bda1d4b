"""Small Nsight exports from rows given as values: as an SQLite file or as a folder of Parquet files."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Tables = Mapping[str, Sequence[Mapping[str, Any]]]

UTC = 1_700_000_000_000_000_000
PID, TID = (1 << 48) | (77 << 24), (1 << 48) | (77 << 24) | 5
"""globalPid of process 77 and globalTid of its thread 5."""
SESSION = {"TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": UTC}]}


def kernel(start: int, end: int, name: int, correlation: int, **more: Any) -> dict[str, Any]:
    shape = {"gridX": 1, "gridY": 1, "gridZ": 1, "blockX": 32, "blockY": 1, "blockZ": 1}
    place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": PID}
    return {"start": start, "end": end, "demangledName": name, "correlationId": correlation} | place | shape | more


def call(start: int, end: int | None, name: int, correlation: int, tid: int = TID) -> dict[str, Any]:
    return {"start": start, "end": end, "globalTid": tid, "correlationId": correlation, "nameId": name}


def strings(*texts: str) -> dict[str, list[dict[str, Any]]]:
    """StringIds with ids 10, 13, 16...: sparse as in real files."""
    return {"StringIds": [{"id": 10 + 3 * i, "value": t} for i, t in enumerate(texts)]}


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(c for row in rows for c in row))


def _type(column: str, rows: Sequence[Mapping[str, Any]]) -> str:
    values = [r[column] for r in rows if r.get(column) is not None]
    return "TEXT" if values and not isinstance(values[0], int) else "INTEGER"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def write_sqlite(path: Path, tables: Tables) -> Path:
    db = sqlite3.connect(path)
    for table, rows in tables.items():
        columns = _columns(rows)
        declared = ", ".join(f"{_quoted(c)} {_type(c, rows)}" for c in columns) or "none INTEGER"
        db.execute(f"CREATE TABLE {_quoted(table)} ({declared})")
        marks = ",".join("?" * len(columns))
        for row in rows:
            db.execute(f"INSERT INTO {_quoted(table)} VALUES ({marks})", [row.get(c) for c in columns])
    db.commit()
    db.close()
    return path


def write_parquet(folder: Path, tables: Tables) -> Path:
    folder.mkdir()
    for table, rows in tables.items():
        columns = {}
        for c in _columns(rows):
            kind = pa.string() if _type(c, rows) == "TEXT" else pa.int64()
            values = [r.get(c) for r in rows]
            binary = any(isinstance(v, bytes) for v in values)
            columns[c] = pa.array(values, pa.binary() if binary else kind)
        pq.write_table(pa.table(columns), folder / f"{table}.parquet")
    return folder
