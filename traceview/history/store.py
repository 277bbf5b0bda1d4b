"""The runs that are kept: a SQLite file, or any database that SQLAlchemy reaches by URL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Literal

import msgspec
import numpy as np
import sqlalchemy as sa

from traceview import units
from traceview.analysis.rollup import means
from traceview.errors import TraceviewError
from traceview.history.trend import Entry
from traceview.result import Result, group_ns
from traceview.result.check import run_facts

VERSION = 1
Kept = Literal["added", "known already", "labelled anew"]
_ELSE = "name a SQLite file or a database URL"
_ADVICE = {
    "locked": "another process is writing it: run again when it is done",
    "readonly": "ask for write rights, or name a copy",
    "full": "free some space and run again",
    "unable to open": "check that its folder exists and its rights",
    "No module named": "install the driver of that database",
}
_META = sa.MetaData()
_INFO = sa.Table("traceview_history", _META, sa.Column("version", sa.Integer, nullable=False))
_RUNS = sa.Table(
    "traceview_runs",
    _META,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False, unique=True),
    sa.Column("job", sa.String(200), nullable=False, index=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("started_ns", sa.BigInteger),
    sa.Column("world_size", sa.BigInteger),
    sa.Column("gpu", sa.Text, nullable=False),
    sa.Column("steps", sa.BigInteger, nullable=False),
    sa.Column("step_ns", sa.BigInteger, nullable=False),
    sa.Column("mean_ns", sa.BigInteger, nullable=False),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("headline", sa.Text, nullable=False),
    sa.Column("tool_version", sa.String(40), nullable=False),
    sa.Column("more", sa.Text, nullable=False),  # JSON: parts_ns, culprits, redacted
)


class _More(msgspec.Struct):
    parts_ns: dict[str, int]
    culprits: list[str]
    redacted: str = ""


class Store:
    """A history. ``where``: a path (SQLite) or a database URL."""

    def __init__(self, where: str, *, create: bool) -> None:
        url = "://" in where
        self.where = "the database URL" if url else where
        with self._told():
            place = sa.engine.make_url(where) if url else sa.URL.create("sqlite", database=where)
            self.where = place.render_as_string(hide_password=True) if url else where
            if place.get_backend_name() == "sqlite":
                self._refuse(place.database, create)
            self._engine = sa.create_engine(place)
            with self._engine.begin() as db:
                self._open(db, create)

    def _refuse(self, file: str | None, create: bool) -> None:
        """TraceviewError if there is no file to keep runs in, or none to look at yet."""
        if not file or file == ":memory:":
            raise TraceviewError("a history without a file keeps nothing; name a SQLite file or a database URL")
        if not create and not os.path.exists(file):
            raise TraceviewError(f"{self.where}: no history yet; `traceview history TRACES` starts one")

    def _open(self, db: sa.Connection, create: bool) -> None:
        """TraceviewError if it is of another version or of another program; tables are made in an empty one only."""
        tables = sa.inspect(db).get_table_names()
        if _INFO.name not in tables:
            file = db.dialect.name == "sqlite"  # a database of a server is shared: tables beside others are usual
            if not create or (file and tables):
                raise TraceviewError(f"{self.where}: is a database, but no history of traceview; name a new file")
            _META.create_all(db)
        version = db.execute(sa.select(_INFO.c.version)).scalar()
        if version is None and create:
            db.execute(sa.insert(_INFO).values(version=VERSION))
        elif version != VERSION:
            raise TraceviewError(f"{self.where}: history of version {version}; this traceview reads {VERSION}")

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the database in one line, with what to do."""
        try:
            yield
        except (sa.exc.SQLAlchemyError, ImportError, OverflowError) as error:
            reason = str(getattr(error, "orig", None) or error).partition("\n")[0]
            advice = next((do for word, do in _ADVICE.items() if word in reason), _ELSE)
            raise TraceviewError(f"{self.where}: {reason}; {advice}") from error

    def add(self, result: Result, job: str, label: str = "") -> Kept:
        """Keep what history needs of a result. A run of a job is there once; another label replaces its label."""
        entry = entry_of(result, job, label)
        row = {k: v for k, v in msgspec.structs.asdict(entry).items() if k in _RUNS.c}
        row["more"] = msgspec.json.encode(_More(entry.parts_ns, entry.culprits, entry.redacted)).decode()
        same = _RUNS.c.digest == entry.digest
        with self._told(), self._engine.begin() as db:
            known = db.execute(sa.select(_RUNS.c.label).where(same)).first()
            if known is None:
                db.execute(sa.insert(_RUNS).values(**row))
            elif entry.label in ("", known.label):
                return "known already"
            else:
                db.execute(sa.update(_RUNS).where(same).values(label=entry.label))
        return "added" if known is None else "labelled anew"

    def entries(self, job: str | None = None) -> list[Entry]:
        """All runs, or those of a job."""
        query = sa.select(_RUNS).order_by(_RUNS.c.id)
        if job is not None:
            query = query.where(_RUNS.c.job == job)
        with self._told(), self._engine.connect() as db:
            rows = [{str(k): v for k, v in r.items()} for r in db.execute(query).mappings()]
        return [self._entry(row.pop("id"), row) for row in rows]

    def _entry(self, number: int, row: dict[str, Any]) -> Entry:
        try:
            more = msgspec.json.decode(row.pop("more"), type=_More)
            return msgspec.convert({**row, **msgspec.structs.asdict(more)}, Entry)
        except (msgspec.MsgspecError, TypeError) as error:
            told = f"{self.where}: row {number} of {_RUNS.name} is damaged ({error})"
            raise TraceviewError(f"{told}; delete that row, or restore the file") from error

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()


def entry_of(result: Result, job: str, label: str) -> Entry:
    """What is kept of a result. TraceviewError if it has no measured step."""
    walls = [s.wall_ns for s in result.step_rows]
    if not walls or not result.window_rows:
        raise TraceviewError(f"{result.run.name}: no step could be measured, so there is nothing to keep")
    parts = means(group_ns(result.budget.leaves_ns, result.budget.sub_ns), len(result.window_rows))
    facts = (job, *run_facts(result))
    return Entry(
        digest=sha256(msgspec.json.encode(facts)).hexdigest(),
        job=units.one_line(job),
        name=units.one_line(result.run.name),
        label=units.one_line(label),
        started_ns=result.run.start_ns,
        world_size=result.run.world_size or len(result.run.ranks),
        gpu=units.one_line(", ".join(result.run.device_names)),
        steps=len(walls),
        step_ns=round(float(np.median(walls))),
        mean_ns=sum(parts.values()),
        status=result.verdict.status,
        headline=units.one_line(result.verdict.headline),
        tool_version=result.tool_version,
        parts_ns={g: ns for g, ns in parts.items() if ns},
        culprits=list(dict.fromkeys(units.told_host(s.host) or f"rank {s.rank}" for s in result.straggler_rows)),
        redacted=result.run.redacted,
    )
