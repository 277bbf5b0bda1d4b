"""A result that contradicts itself is refused when it is read from a file, with the reason and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders import results
from traceview.errors import TraceviewError
from traceview.pipeline.sides import load
from traceview.result import Result
from traceview.result.check import flaw


@pytest.mark.parametrize("name", sorted(results.ALL))
def test_what_is_written_is_read_back(name: str, tmp_path: Path):
    result = results.ALL[name]()
    path = tmp_path / "r.json"
    path.write_bytes(result.to_json())
    assert flaw(result) == "" and Result.load(path) == result


def _steps(d: dict[str, Any], **values: int) -> None:
    for step in d["steps"]:
        step.update(values)


EDITS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "twice": (lambda d: d["steps"].append(d["steps"][0]), "listed twice"),
    "no steps": (lambda d: d["steps"].clear(), "not those of its windows"),
    "no windows": (lambda d: d["windows"].clear(), "not those of its windows"),
    "zero": (lambda d: _steps(d, wall_ns=0), "takes no time"),
    "negative": (lambda d: _steps(d, wall_ns=-5), "takes no time"),
    "absurd": (lambda d: _steps(d, wall_ns=9 * 10**18), "not within its windows"),
    "beyond 64 bits": (lambda d: _steps(d, wall_ns=10**30), "beyond 64 bits"),
    "start": (lambda d: d["run"].update(start_ns=10**25), "beyond 64 bits"),
    "no budget": (lambda d: d["budget"]["leaves_ns"].clear(), "do not sum"),
    "negative budget": (lambda d: d["budget"]["leaves_ns"].update(compute=-1), "is negative"),
    "unknown part": (lambda d: d["budget"]["leaves_ns"].update(coffee=1), "unknown parts"),
    "window": (lambda d: d["windows"][0].update(end_ns=d["windows"][0]["end_ns"] + 1), "not sum to its budget"),
    "kernels": (lambda d: d["kernels"][0].update(count=-1), "of kernels or collectives is negative"),
    "text": (lambda d: _steps(d, wall_ns="12"), "Expected `int`, got `str`"),
    "later": (lambda d: d.update(schema="traceview.result/2"), "this version reads traceview.result/1"),
    "gone": (lambda d: d.pop("run"), "missing required field `run`"),
}


@pytest.mark.parametrize("edit", sorted(EDITS))
def test_an_edited_result_is_refused_in_one_line(edit: str, tmp_path: Path):
    document = json.loads(results.slow_rank().to_json())
    change, reason = EDITS[edit]
    change(document)
    path = tmp_path / "r.json"
    path.write_text(json.dumps(document))
    with pytest.raises(TraceviewError) as error:
        load([path])
    text = str(error.value)
    assert text.startswith(f"{path}: ") and reason in text and "analyze --json" in text and "\n" not in text


def test_damaged_results_are_refused(tmp_path: Path):
    whole = results.slow_rank().to_json()
    deep = b'{"schema":"traceview.result/1","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for data in (whole[:3000], whole.replace(b'"wall_ns":', b'"wall_ns":NaN,"x":', 1), deep):
        path = tmp_path / "r.json"
        path.write_bytes(data)
        with pytest.raises(TraceviewError, match="analyze --json"):
            load([path])


def test_a_folder_of_results_holds_nothing_else(tmp_path: Path):
    (tmp_path / "a.json").write_bytes(results.slow_rank().to_json())
    (tmp_path / "notes.json").write_text("{}")
    assert len(load([tmp_path])) == 1
    (tmp_path / "b.json").symlink_to(tmp_path / "nowhere")
    with pytest.raises(TraceviewError, match=r"b\.json: cannot be read"):
        load([tmp_path])
    (tmp_path / "b.json").unlink()
    (tmp_path / "b.json").write_bytes(results.slow_rank().to_json()[:3000])
    with pytest.raises(TraceviewError, match=r"b\.json: not a"):
        load([tmp_path])
    (tmp_path / "b.json").write_text('{"traceEvents":[{"ph":"X","ts":1,"dur":1,"name":"a","pid":1,"tid":1}]}')
    with pytest.raises(TraceviewError, match=r"results \(a\.json\) and traces \(b\.json\)"):
        load([tmp_path])


def test_an_empty_path_is_not_the_current_folder():
    with pytest.raises(TraceviewError, match="empty path"):
        load([""])


def test_a_glob_of_results_is_several_runs(tmp_path: Path):
    for name in "ab":
        (tmp_path / f"{name}.json").write_bytes(results.slow_rank().to_json())
    assert len(load([f"{tmp_path}/*.json"])) == 2
    (tmp_path / "c.json").write_text("{}")
    with pytest.raises(TraceviewError, match=r"results \(a\.json\) and others \(c\.json\)"):
        load([f"{tmp_path}/*.json"])
