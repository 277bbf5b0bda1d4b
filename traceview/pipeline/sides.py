"""The runs of one side of a comparison: traces that are analysed now, or results that were written before."""

from __future__ import annotations

import os
from collections.abc import Sequence
from glob import escape, glob
from pathlib import Path
from typing import Any

from traceview.errors import TraceviewError
from traceview.pipeline.study import study_run
from traceview.pipeline.values import StudyOptions
from traceview.result import SCHEMA, Result
from traceview_parsers import ReadOptions, open_run
from traceview_parsers.discover import discover

MOST_BYTES = 256_000_000  # no result is larger


def load(
    paths: Sequence[str | Path], options: ReadOptions | None = None, how: StudyOptions | None = None, **opening: Any
) -> list[Result]:
    """A result for every run: each path is a result, a folder of results (a run each), or the traces of one run."""
    out: list[Result] = []
    for path in paths:
        results = _results(path)
        if results:
            out += [Result.load(p) for p in results]
        else:
            out.append(study_run(open_run([path], options or ReadOptions(), **opening), how or StudyOptions()).result)
    if not out:
        raise TraceviewError("no run was given")
    return out


def _results(given: str | Path) -> list[Path]:
    """The result that a path is, or those that lie in it; none if it is traces. TraceviewError if it is both."""
    path = Path(given)
    if os.path.isfile(path):
        return [path] if is_result(path) else []
    if not str(given):
        return []
    if not os.path.isdir(path):
        matches = [Path(p) for p in sorted(glob(str(given)))]
        results = [p for p in matches if is_result(p)]
        if results and len(results) < len(matches):
            other = next(p for p in matches if p not in results)
            raise TraceviewError(
                f"{given}: matches results ({results[0].name}) and others ({other.name}); name one kind"
            )
        return results
    saved = [Path(p) for p in sorted(glob(f"{escape(str(path))}/*.json"))]
    results = [p for p in saved if is_result(p)]
    if results:
        traces = discover([path]).inputs
        if traces:
            both = f"results ({results[0].name}) and traces ({traces[0].path.name})"
            raise TraceviewError(f"{path}: holds {both}; name the one, or move the other elsewhere")
        unread = [p for p in saved if not os.access(p, os.R_OK)]
        if unread:
            raise TraceviewError(f"{unread[0]}: cannot be read; check its rights, or move it out of these results")
    return results


def is_result(path: Path) -> bool:
    """Whether a file is a result of ``analyze --json``, also a damaged or later one: ``Result.load`` tells."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return False
        data = path.read_bytes()
    except OSError:
        return False
    return f'"{SCHEMA.partition("/")[0]}/'.encode() in data or data.startswith(b'{"verdict":{"headline":')
