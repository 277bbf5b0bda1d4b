"""The runs that are kept: a SQLite file, or any database that SQLAlchemy reaches by URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np
import sqlalchemy as sa

from traceview.errors import TraceviewError
from traceview.history.trend import Entry
from traceview.result import Result, group_ns

VERSION = 1
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
    sa.Column("more", sa.Text, nullable=False),  # JSON: parts_ns and culprits
)


class _More(msgspec.Struct):
    parts_ns: dict[str, int]
    culprits: list[str]


class Store:
    """A history. ``where``: a path (SQLite) or a database URL."""

    def __init__(self, where: str, *, create: bool) -> None:
        url = "://" in where
        if not url and not create and not Path(where).exists():
            raise TraceviewError(f"{where}: no history yet; `traceview history TRACES` starts one")
        self.where = sa.engine.make_url(where).render_as_string(hide_password=True) if url else where
        with self._told():
            self._engine = sa.create_engine(where if url else sa.URL.create("sqlite", database=where))
            with self._engine.begin() as db:
                if create:
                    _META.create_all(db)
                self._check(db)

    def _check(self, db: sa.Connection) -> None:
        if not sa.inspect(db).has_table(_INFO.name):
            raise TraceviewError(f"{self.where}: is a database, but no history of traceview")
        version = db.execute(sa.select(_INFO.c.version)).scalar()
        if version is None:
            db.execute(sa.insert(_INFO).values(version=VERSION))
        elif version != VERSION:
            raise TraceviewError(f"{self.where}: history of version {version}; this traceview reads {VERSION}")

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the database in one line."""
        try:
            yield
        except (sa.exc.SQLAlchemyError, ImportError) as error:
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise TraceviewError(f"{self.where}: {reason}; name a SQLite file or a database URL") from error

    def add(self, result: Result, job: str, label: str = "") -> bool:
        """Keep what history needs of a result; False if it is there already (the same result, job and label)."""
        entry = entry_of(result, job, label)
        row = {k: v for k, v in msgspec.structs.asdict(entry).items() if k in _RUNS.c}
        row["more"] = msgspec.json.encode(_More(entry.parts_ns, entry.culprits)).decode()
        with self._told(), self._engine.begin() as db:
            if db.execute(sa.select(_RUNS.c.id).where(_RUNS.c.digest == entry.digest)).first():
                return False
            db.execute(sa.insert(_RUNS).values(**row))
        return True

    def entries(self, job: str | None = None) -> list[Entry]:
        """All runs, or those of a job."""
        query = sa.select(_RUNS).order_by(_RUNS.c.id)
        if job is not None:
            query = query.where(_RUNS.c.job == job)
        with self._told(), self._engine.connect() as db:
            rows = [dict(r) for r in db.execute(query).mappings()]
        out = []
        for row in rows:
            more = msgspec.json.decode(row.pop("more"), type=_More)
            del row["id"]
            out.append(Entry(**row, parts_ns=more.parts_ns, culprits=more.culprits))
        return out

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()


def entry_of(result: Result, job: str, label: str) -> Entry:
    """What is kept of a result. TraceviewError if it has no measured step."""
    walls = [s.wall_ns for s in result.step_rows]
    if not walls or not result.window_rows:
        raise TraceviewError(f"{result.run.name}: no step could be measured, so there is nothing to keep")
    n = len(result.window_rows)
    groups = group_ns(result.budget.leaves_ns, result.budget.sub_ns)
    facts = (job, label, result.run.name, result.run.start_ns, result.run.ranks, result.run.steps.used, walls)
    return Entry(
        digest=sha256(msgspec.json.encode(facts)).hexdigest(),
        job=job,
        name=result.run.name,
        label=label,
        started_ns=result.run.start_ns,
        world_size=result.run.world_size or len(result.run.ranks),
        gpu=", ".join(result.run.device_names),
        steps=len(walls),
        step_ns=round(float(np.median(walls))),
        mean_ns=round(result.budget.wall_ns / n),
        status=result.verdict.status,
        headline=result.verdict.headline,
        tool_version=result.tool_version,
        parts_ns={g: round(ns / n) for g, ns in groups.items() if ns},
        culprits=list(dict.fromkeys(s.host.lstrip("?") or f"rank {s.rank}" for s in result.straggler_rows)),
    )
