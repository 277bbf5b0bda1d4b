"""A whole analysis: the stages one after the other, and the tables behind it."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from traceview import units
from traceview.errors import TraceviewError
from traceview.pipeline import across, assemble, flow
from traceview.pipeline.detail import detail_of
from traceview.pipeline.values import Across, Blamed, Frame, Lanes, StudyOptions
from traceview.redact import Redactor
from traceview.result import Result
from traceview.run import Run
from traceview.schema import LOG_TABLES, PART_TABLES
from traceview_reports.html.timeline_data import Detail


@dataclass(frozen=True)
class Study:
    """A run, its result, and per rank what the timeline and the export draw."""

    run: Run
    result: Result
    detail: Detail


def study_run(run: Run, how: StudyOptions) -> Study:
    """Analyse an opened run. InternalError if a sum does not hold: a defect, never a property of the input."""
    base, aligned, lanes, _, result = stages(run, how)
    return Study(run, result, detail_of(run, base, aligned, lanes))


def stages(run: Run, how: StudyOptions) -> tuple[Frame, Across, Lanes, Blamed, Result]:
    """What every stage of an analysis says."""
    if not run.parts:
        raise TraceviewError(
            f"{run.name}: only logs here; `traceview inspect` reads them, an analysis needs the ranks' traces"
        )
    base = flow.frame(run, how)
    aligned = across.align(run, base, how)
    base = flow.linked(run, base, aligned, how)
    lanes = flow.decompose_all(run, base, aligned, how)
    blamed = across.attribute(run, base, aligned, lanes, how)
    return base, aligned, lanes, blamed, assemble.assemble(run, base, aligned, lanes, blamed, how)


def redacted(study: Study, redactor: Redactor) -> Study:
    """The same study with pseudonyms for names in the result and in the tables of the run; no number changes."""
    run = redactor.run(study.run)
    return replace(study, run=run, result=redactor.result(study.result))


def write_tables(study: Study, folder: Path, *, force: bool = False) -> None:
    """Every table of the run and of the result as Parquet; the folder appears whole or not at all."""
    folder = folder.resolve()
    if folder.exists() and not force:
        raise TraceviewError(f"{folder}: exists; use --force to replace it")
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name[:100]}.", dir=folder.absolute().parent))
    except OSError as error:
        raise TraceviewError(f"{folder}: cannot be written ({error.strerror})") from error
    try:
        for declared in PART_TABLES:
            if declared not in LOG_TABLES:
                _write_parts(study.run, declared, temporary / f"{declared.name}.parquet")
            elif study.run.logs:
                logged = study.run.log_tables(declared)
                pq.write_table(logged, temporary / f"{declared.name}.parquet", compression="zstd")
        for name in ("windows", "steps", "stragglers"):
            pq.write_table(getattr(study.result, name)(), temporary / f"{name}.parquet", compression="zstd")
        pq.write_table(study.result.collectives(), temporary / "collective_classes.parquet", compression="zstd")
        temporary.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
    except OSError as error:
        raise TraceviewError(f"{folder}: cannot be written ({error.strerror})") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def export_window(study: Study, out: Path, ranks: list[int], step: int) -> int:
    """Write one step of some ranks as a trace that Perfetto opens; returns the number of slices."""
    from traceview_reports import perfetto

    windows = [
        w for w in study.result.window_rows if w.step == step and w.rank in ranks and w.rank in study.detail.ranks
    ]
    views = [study.detail.view(w.rank, w.start_ns, w.end_ns) for w in windows]
    if not views:
        raise TraceviewError(f"step {step}: no window of it on {units.named_ranks(ranks)}")
    window = min(t0 for t0, _ in views), max(t1 for _, t1 in views)
    return perfetto.export(study.run, study.result, study.detail, out, ranks=ranks, window=window)


def _write_parts(run: Run, declared: Any, path: Path) -> None:
    """One Parquet file over all ranks, a row group per rank: one rank's table in memory at a time."""
    schema = pa.schema([pa.field(f.name, _plain(f.type), nullable=f.nullable) for f in declared.arrow()])
    with pq.ParquetWriter(path, schema, compression="zstd") as out:
        for rank in run.ranks:
            if run.parts[rank].meta.rows.get(declared.name):
                out.write_table(run.table(declared, rank).cast(schema))


def _plain(kind: Any) -> Any:
    """Dictionaries differ from rank to rank; Parquet encodes strings as a dictionary anyway."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind
