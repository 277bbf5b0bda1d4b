"""discover -> read -> steps -> match -> align -> attribute -> Result: the Python API behind the command line.

>>> import traceview as tv                      # doctest: +SKIP
>>> result = tv.analyze("traces/")              # doctest: +SKIP
>>> tv.to_polars(result.windows())              # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from traceview.analysis.mfu import Work
from traceview.analysis.whatif.asked import Asked
from traceview.pipeline.asked import Question, ask
from traceview.pipeline.sides import load
from traceview.pipeline.study import Study, export_window, redacted, study_run, write_tables
from traceview.pipeline.values import StudyOptions
from traceview.result import Result
from traceview.result.whatif import WhatIf
from traceview.run import Run
from traceview_parsers import ReadOptions, open_run

__all__ = [
    "Question",
    "Study",
    "StudyOptions",
    "Work",
    "analyze",
    "ask",
    "export_window",
    "load",
    "open",
    "redacted",
    "study",
    "to_html",
    "to_pandas",
    "to_polars",
    "what_if",
    "write_tables",
]

Progress = Callable[[int, int], None]
Paths = str | Path | Sequence[str | Path]


def open(
    paths: Paths,
    *more: str | Path,
    options: ReadOptions | None = None,
    cache: bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Run:
    """Read the traces of one run: files, folders (recursive) and globs.

    Returns the opened tables, mapped from disk on use. Raises TraceviewError if nothing is usable, or if the paths
    hold two runs or one rank twice; the message says what to pass instead.
    """
    first = [paths] if isinstance(paths, str | Path) else list(paths)
    run: Run = open_run([*first, *more], options or ReadOptions(), cache=cache, workers=workers, progress=progress)
    return run


def study(
    paths: Paths | Run, options: ReadOptions | None = None, how: StudyOptions | None = None, **opening: Any
) -> Study:
    """A run analysed, with what the timeline needs beside the result."""
    run = paths if isinstance(paths, Run) else open(paths, options=options, **opening)
    return study_run(run, how or StudyOptions())


def analyze(run: Paths | Run, how: StudyOptions | None = None) -> Result:
    """Where the time of a run went, who made the others wait, what to fix first. A path works too."""
    return study(run, how=how).result


def what_if(
    paths: Paths | Run,
    how: StudyOptions | None = None,
    *,
    replace: Sequence[str] = (),
    network: Mapping[str, float] | None = None,
    **changes: Any,
) -> WhatIf:
    """The step time under changes that hold together (METHODS h); without any, of each that applies, alone.

    ``replace``: ranks ('3', '0-3,7') or hosts that become typical. ``network``: tier or group -> times as fast.
    ``changes``: fields of ``analysis.whatif.asked.Asked``, as ``balance=True`` or ``staging=False``. Times in ns.
    Raises TraceviewError for ranks, hosts, tiers and groups that the run does not have.
    """
    run = paths if isinstance(paths, Run) else open(paths)
    asked = Asked(network=tuple((network or {}).items()), **changes)
    return ask(run, Question(tuple(replace), asked), how or StudyOptions())


def to_html(result: Result, path: str | Path, run: Run | None = None) -> None:
    """Write the HTML report of a result; without its run the timeline is left out."""
    from traceview_reports import html

    detail = study(run).detail if run is not None else None
    html.write(Path(path), result, run, detail=detail)


def to_pandas(table: Any) -> Any:
    """A pyarrow table as a pandas DataFrame."""
    return table.to_pandas()


def to_polars(table: Any) -> Any:
    """A pyarrow table as a Polars DataFrame."""
    import polars as pl

    return pl.from_arrow(table)
