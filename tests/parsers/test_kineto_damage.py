"""Damaged values in an otherwise sound trace: what is intact is kept, what is not is counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traceview.errors import TraceviewError
from traceview.schema import GPU_OPS
from traceview_parsers import open_run

Write = Callable[..., Path]
YEAR_US = 365 * 86_400 * 1e6


def change(path: Path, edit: Callable[[list[dict[str, Any]]], None]) -> None:
    document = json.loads(path.read_bytes())
    edit(document["traceEvents"])
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("fault", [{"ts": YEAR_US}, {"ts": -YEAR_US}, {"dur": YEAR_US}, {"ts": 1e300}, {"ts": "x"}])
def test_one_damaged_time_costs_one_event(tmp_path: Path, write: Write, fault: dict[str, Any]) -> None:
    path = write("t.json")
    kernel = json.loads(path.read_bytes())["traceEvents"][-1]
    change(path, lambda events: events.extend([{**kernel, "ts": 100.0 + i} for i in range(200)] + [kernel | fault]))
    run = open_run([path], cache=False)
    meta = run.parts[0].meta
    assert len(run.table(GPU_OPS, 0)) == 201 and meta.source.dropped == 1
    assert (meta.cover_end or 0) - (meta.cover_start or 0) < 1_000_000


def test_two_clocks_in_one_file_are_refused(write: Write) -> None:
    path = write("t.json")
    change(
        path, lambda events: [e.update(ts=e["ts"] + 50 * YEAR_US) for e in events if e["cat"] == "kernel"] and None
    )
    with pytest.raises(TraceviewError, match=r"t.json: 1 of 4 events lie over a month .* mix two clocks"):
        open_run([path], cache=False)


def test_an_event_of_megabytes_that_is_broken_is_left_out(tmp_path: Path, write: Write) -> None:
    path = write("t.json")
    text = path.read_text()
    at = text.index('{"ph": "X", "pid": 100, "tid": 100, "cat": "cpu_op"')
    path.write_text(
        text[:at]
        + '{"ph": "X", "cat": "cpu_op", "name": "'
        + "\\x" * (2 << 20)
        + '", "ts": 1, "dur": 1}, '
        + text[at:]
    )
    run = open_run([path], cache=False)
    assert len(run.table(GPU_OPS, 0)) == 1 and run.parts[0].meta.source.quarantined == 1


@pytest.mark.parametrize("members", [[0, 10**12], [-1, 0], "0, 999999999999"])
def test_members_that_no_job_has_are_not_told(write: Write, members: Any) -> None:
    path = write("t.json", 0, 2)
    document = json.loads(path.read_bytes())
    document["distributedInfo"]["pg_config"] = [{"pg_name": "0", "ranks": members}, {"pg_name": "1", "ranks": [0, 1]}]
    path.write_text(json.dumps(document))
    assert open_run([path], cache=False).parts[0].meta.groups == {"1": "0-1"}
