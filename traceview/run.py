"""Run: the opened tables of one job, lazily mapped from disk.

A *part* is what one process recorded in one file. It lives in a folder: ``part.json`` (PartMeta) and one Arrow IPC
file per table that has rows. Several parts make a run; a rank has exactly one part of GPU and host tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from traceview.errors import TraceviewError
from traceview.schema import TABLES, Table
from traceview.schema.arrays import from_numpy

MOST_RANKS = 1 << 20
"""No job has more: a larger number in a file or a name is none of a rank."""
ABSOLUTE_NS = 10**17
"""1973 as ns since 1970; below, a time is relative to an unknown start."""


class Loss(msgspec.Struct, frozen=True):
    """A stretch of a file that could not be kept: byte offset (of the text), length and reason."""

    offset: int
    length: int
    reason: str


class SourceMeta(msgspec.Struct):
    """What is known of one input file. Counts are events (records) of that file."""

    path: str
    format: str
    schema_class: str = ""
    bytes: int = 0
    events: int = 0
    repaired: int = 0
    quarantined: int = 0
    dropped: int = 0
    truncated: bool = False
    losses: list[Loss] = []
    warnings: list[str] = []
    facts: dict[str, str] = {}
    """Capture facts: record_shapes, with_stack, cuda_version, nccl_version, graph mode, environment whitelist..."""


class PartMeta(msgspec.Struct):
    """What is known of one process of one input file. None = not told by the file."""

    source: SourceMeta
    rank: int | None = None
    rank_source: str = ""
    """metadata | default_pg | payload | name | env | process (another trace tells it) | log | order | user"""
    world_size: int | None = None
    host: str | None = None
    pid: int | None = None
    devices: list[int] = []
    """Device ordinals with activity, the busiest first."""
    device_name: str | None = None
    vendor: str | None = None
    cover_start: int | None = None
    """Begin of the recorded window, ns."""
    cover_end: int | None = None
    holes: list[tuple[int, int]] = []
    """Stretches inside the window that are known to be lost, ns."""
    backend: str | None = None
    groups: dict[str, str] = {}
    """Process groups of the metadata: name -> members as ranges."""
    rows: dict[str, int] = {}

    @property
    def cover(self) -> tuple[int, int] | None:
        """The recorded window, ns; None if the file does not tell it."""
        if self.cover_start is None or self.cover_end is None:
            return None
        return self.cover_start, self.cover_end


@dataclass(frozen=True)
class Part:
    """A part on disk. Tables are memory-mapped when asked for."""

    folder: Path
    meta: PartMeta

    @classmethod
    def load(cls, folder: Path) -> Part:
        """Open a part folder; TraceviewError if it is not one."""
        try:
            meta = msgspec.json.decode((folder / "part.json").read_bytes(), type=PartMeta)
        except (OSError, msgspec.MsgspecError) as error:
            raise TraceviewError(f"{folder}: not a part written by traceview ({error})") from error
        return cls(folder, meta)

    def table(self, declared: Table) -> Any:
        """The stored table (``declared.arrow(stored=True)``), empty if the part has no such rows."""
        path = self.folder / f"{declared.name}.arrow"
        if not path.exists():
            return declared.empty(stored=True)
        with pa.memory_map(str(path)) as source:
            return pa.ipc.open_file(source).read_all()


def write_part(folder: Path, meta: PartMeta, tables: dict[str, Any | Iterable[Any]]) -> Part:
    """Write a part: each table validated against its declaration, empty ones left out, ``part.json`` last.

    A table may be given as an iterable of tables, written as they come so that they need not fit in memory together;
    their dictionaries must then be the same. Tables are taken in the given order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        pieces = iter((table,)) if isinstance(table, pa.Table) else iter(table)
        meta.rows[name] = _write_table(folder / f"{name}.arrow", TABLES[name], pieces)
    (folder / "part.json").write_bytes(msgspec.json.encode(meta))
    return Part(folder, meta)


def _write_table(path: Path, declared: Table, pieces: Iterator[Any]) -> int:
    """Write the pieces of one table as one Arrow IPC file, no file if there are no rows; returns the rows."""
    rows = 0
    with ExitStack() as stack:
        out: Any = None
        for piece in pieces:
            declared.validate(piece)
            if piece.num_rows:
                if out is None:
                    sink = stack.enter_context(pa.OSFile(str(path), "wb"))
                    out = stack.enter_context(pa.ipc.new_file(sink, piece.schema))
                out.write_table(piece)
                rows += piece.num_rows
    return rows


def with_rank(table: Any, rank: int) -> Any:
    """A stored table with its rank column in front."""
    return table.add_column(
        0, pa.field("rank", pa.int32(), nullable=False), from_numpy(np.full(len(table), rank, np.int32))
    )


@dataclass
class Run:
    """One job: at most one part per rank, plus the parts of logs (``logs``), plus what was noticed on opening.

    ``world_size`` is None when no file tells it. ``problems`` are sentences for the quality section.
    """

    name: str
    parts: dict[int, Part]
    logs: list[Part] = field(default_factory=list)
    world_size: int | None = None
    problems: list[str] = field(default_factory=list)
    unread: list[SourceMeta] = field(default_factory=list)
    """Input files that could not be read, with the reason in ``warnings``."""

    @property
    def ranks(self) -> list[int]:
        """Ranks present, ascending."""
        return sorted(self.parts)

    @property
    def missing_ranks(self) -> list[int]:
        """Ranks of the world that have no part; empty if the world size is unknown."""
        return [r for r in range(self.world_size or 0) if r not in self.parts]

    def host(self, rank: int) -> str:
        """Host of a rank; a rank of unknown host is a host of its own (METHODS d.1)."""
        return self.parts[rank].meta.host or f"?rank{rank}"

    def table(self, declared: Table, rank: int) -> Any:
        """A declared table of one rank, rank column included (shape: rows of that rank, declared order)."""
        return with_rank(self.parts[rank].table(declared), rank)

    def tables(self, declared: Table, ranks: Iterable[int] | None = None) -> Any:
        """A declared table of several ranks, concatenated in rank order with unified dictionaries."""
        found = [self.table(declared, r) for r in (self.ranks if ranks is None else ranks)]
        if not found:
            return declared.empty()
        return pa.concat_tables(found).unify_dictionaries()

    def log_tables(self, declared: Table) -> Any:
        """A declared table of all log parts, concatenated."""
        found = [p.table(declared) for p in self.logs]
        return pa.concat_tables(found).unify_dictionaries() if found else declared.empty(stored=True)


@lru_cache(maxsize=4096)
def parse_members(text: str) -> tuple[int, ...]:
    """'0-3,7' -> (0, 1, 2, 3, 7). The inverse of ``traceview.units.ranks``; ValueError for anything else."""
    out: list[int] = []
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        if first:
            span = range(int(first), int(last or first) + 1)
            if span.stop > MOST_RANKS:
                raise ValueError(f"{piece}: no job has so many ranks")
            out.extend(span)
    return tuple(out)
