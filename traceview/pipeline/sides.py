"""The runs of one side of a comparison: traces that are analysed now, or results that were written before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from traceview.errors import TraceviewError
from traceview.pipeline.study import study_run
from traceview.pipeline.values import StudyOptions
from traceview.result import SCHEMA, Result
from traceview_parsers import ReadOptions, open_run

MOST_BYTES = 256_000_000  # no result is larger


def load(
    paths: Sequence[str | Path], options: ReadOptions | None = None, how: StudyOptions | None = None, **opening: Any
) -> list[Result]:
    """A result for every run: each path is a result, a folder of results (a run each), or the traces of one run."""
    out: list[Result] = []
    for path in map(Path, paths):
        saved = [path] if path.is_file() else sorted(path.glob("*.json")) if path.is_dir() else []
        results = [p for p in saved if is_result(p)]
        if results:
            out += [Result.load(p) for p in results]
        else:
            out.append(study_run(open_run([path], options or ReadOptions(), **opening), how or StudyOptions()).result)
    if not out:
        raise TraceviewError("no run was given")
    return out


def is_result(path: Path) -> bool:
    """Whether a file is a result of ``analyze --json`` (of any later version too: ``Result.load`` then says so)."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return False
        return f'"{SCHEMA.partition("/")[0]}/'.encode() in path.read_bytes()
    except OSError:
        return False
