"""The store of runs and their change points."""

from __future__ import annotations

import sqlite3
from math import exp
from pathlib import Path

import numpy as np
import pytest

from traceview.errors import TraceviewError
from traceview.history import Entry, Store, trends
from traceview.history.store import entry_of
from traceview.history.trend import changes
from traceview.result import Result, StragglerRow

from .results import MS, result, window


def entry(i: int, ms: float, **more: object) -> Entry:
    ns = int(ms * MS)
    facts = {
        "digest": str(i),
        "job": "j",
        "name": f"run-{i}",
        "label": "",
        "started_ns": i,
        "world_size": 8,
        "gpu": "G",
    }
    facts |= {"steps": 12, "step_ns": ns, "mean_ns": ns, "status": "healthy", "headline": "", "tool_version": ""}
    return Entry(**(facts | {"parts_ns": {"compute": ns}} | more))


def series(rng: np.random.Generator, count: int, noise: float) -> np.ndarray:
    """Step times of a steady job, one run in twenty far off."""
    times = 100 * np.exp(rng.normal(0, noise, count))
    times[rng.random(count) < 0.05] *= 1.2
    return times


def test_a_step_is_found_where_it_is():
    """Ten runs at 100 ms, ten at 105: one change, at run 11, 5 ms of compute."""
    rng = np.random.default_rng(1)
    times = [*rng.normal(100, 0.5, 10), *rng.normal(105, 0.5, 10)]
    (got,) = changes([entry(i, t) for i, t in enumerate(times)])
    assert got.index == 10 and got.run == "run-10"
    assert got.change == pytest.approx(0.05, abs=0.005) and got.p_value < 0.001
    assert got.parts_ns["compute"] == pytest.approx(5 * MS, rel=0.1)


def test_two_steps_and_a_recovery():
    rng = np.random.default_rng(2)
    times = [*rng.normal(100, 0.4, 12), *rng.normal(108, 0.4, 12), *rng.normal(100, 0.4, 12)]
    got = changes([entry(i, t) for i, t in enumerate(times)])
    assert [c.index for c in got] == [12, 24]
    assert got[0].change == pytest.approx(0.08, abs=0.01) and got[1].change == pytest.approx(-0.074, abs=0.01)


@pytest.mark.parametrize(("count", "noise"), [(10, 0.01), (20, 0.02), (50, 0.02), (150, 0.01)])
def test_a_steady_job_has_no_change(count: int, noise: float):
    rng = np.random.default_rng(count)
    wrong = sum(bool(changes([entry(i, t) for i, t in enumerate(series(rng, count, noise))])) for _ in range(60))
    assert wrong <= 2


def test_five_percent_are_found_in_fifty_runs():
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(40):
        times = series(rng, 50, 0.01)
        times[25:] *= 1.05
        found += any(abs(c.index - 25) <= 2 for c in changes([entry(i, t) for i, t in enumerate(times)]))
    assert found >= 36


def test_small_changes_and_short_histories_say_nothing():
    exact = [entry(i, 100 if i < 10 else 101) for i in range(20)]
    assert changes(exact) == []  # 1 % is below the floor of 2 %
    short = [entry(i, 100 if i < 4 else 200) for i in range(9)]
    (trend,) = trends(short)
    assert trend.changes == [] and "from 10 on" in trend.notes[0]


def test_runs_without_noise():
    (got,) = changes([entry(i, 100 if i < 8 else 103) for i in range(16)])
    assert got.index == 8 and got.p_value == 0


def test_other_machines_are_another_trend():
    mixed = [entry(i, 100, world_size=8 if i % 2 else 16) for i in range(20)]
    assert [(t.world_size, len(t.runs)) for t in trends(mixed)] == [(16, 10), (8, 10)]


def test_repeated_culprits_are_counted():
    runs = [entry(i, 100, culprits=["node-7"] if i % 2 else ["node-1", "node-7"]) for i in range(3)]
    runs.append(entry(9, 100, culprits=["node-3"]))
    assert trends(runs)[0].culprits == {"node-7": 3, "node-1": 2}


def test_order_of_adding_does_not_matter():
    runs = [entry(i, 100 * exp(0.001 * i)) for i in range(12)]
    assert trends(runs[::-1]) == trends(runs)


def run(start: int, *steps_ms: float) -> Result:
    made = result([window(r, k + 1, compute=ms) for r in (0, 1) for k, ms in enumerate(steps_ms)])
    made.run.start_ns = start
    return made


def test_what_is_kept_comes_back(tmp_path: Path):
    path = str(tmp_path / "h.sqlite")
    store = Store(path, create=True)
    assert store.add(run(5, 10, 12, 11), "a", "typo") == "added"
    assert store.add(run(5, 10, 12, 11), "a", "abc") == "labelled anew"
    assert store.add(run(5, 10, 12, 11), "a", "abc") == store.add(run(5, 10, 12, 11), "a") == "known already"
    assert store.add(run(6, 10, 12, 11), "b") == "added"
    store.close()
    again = Store(path, create=False)
    (got,) = again.entries("a")
    assert (got.step_ns, got.mean_ns, got.steps, got.label) == (11 * MS, 11 * MS, 3, "abc")
    assert got.parts_ns == {"compute": 11 * MS} and sum(got.parts_ns.values()) == got.mean_ns
    assert [e.job for e in again.entries()] == ["a", "b"]
    again.close()


def test_a_culprit_whose_host_no_file_names_is_kept_by_its_rank():
    late = run(5, 10, 12, 11)
    facts = {"blame_ns": 1, "origin_blame_ns": 1, "blame_inclusive_ns": 1, "late_steps": 3, "steps": 3}
    facts |= {"kind": "too_few_steps", "cause": "unknown", "cause_terms_ns": {}}
    late.straggler_rows = [StragglerRow(rank=r, host=h, **facts) for r, h in ((0, "?rank0"), (1, "node-7"))]
    assert entry_of(late, "j", "").culprits == ["rank 0", "node-7"]


def test_a_run_without_steps_is_not_kept(tmp_path: Path):
    store = Store(str(tmp_path / "h.sqlite"), create=True)
    with pytest.raises(TraceviewError, match="nothing to keep"):
        store.add(result([]), "a")
    store.close()


def other_database(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("create table cats (name text)")
    db.close()


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda p: None, "no history yet"),
        (lambda p: p.write_bytes(b"no database at all, but long enough to be looked at" * 40), "not a database"),
        (other_database, "no history of traceview"),
    ],
)
def test_what_is_no_history_is_told(make, word: str, tmp_path: Path):
    path = tmp_path / "h.sqlite"
    make(path)
    with pytest.raises(TraceviewError, match=word) as error:
        Store(str(path), create=False)
    assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_a_later_version_is_refused(tmp_path: Path):
    path = tmp_path / "h.sqlite"
    Store(str(path), create=True).close()
    with sqlite3.connect(path) as db:
        db.execute("update traceview_history set version = 99")
    db.close()
    with pytest.raises(TraceviewError, match="version 99"):
        Store(str(path), create=False)


def test_a_password_is_never_shown():
    with pytest.raises(TraceviewError) as error:
        Store("postgresql+nodriver://me:secret@host/db", create=False)
    assert "secret" not in str(error.value)


def test_a_database_of_another_program_is_left_alone(tmp_path: Path):
    path = tmp_path / "h.sqlite"
    other_database(path)
    before = path.read_bytes()
    with pytest.raises(TraceviewError, match="no history of traceview"):
        Store(str(path), create=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("where", ["", ":memory:", "sqlite://", "sqlite:///:memory:"])
def test_a_history_that_keeps_nothing_is_refused(where: str):
    with pytest.raises(TraceviewError, match="keeps nothing"):
        Store(where, create=True)


def test_looking_by_url_makes_no_file(tmp_path: Path):
    with pytest.raises(TraceviewError, match="no history yet"):
        Store(f"sqlite:///{tmp_path}/h.sqlite", create=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", ["more = '{'", "step_ns = 'abc'", "step_ns = 0"])
def test_a_damaged_row_is_named(change: str, tmp_path: Path):
    path = tmp_path / "h.sqlite"
    store = Store(str(path), create=True)
    store.add(run(5, 10, 12, 11), "a")
    with sqlite3.connect(path) as db:
        db.execute(f"update traceview_runs set {change}")
    db.close()
    with pytest.raises(TraceviewError, match="row 1 of traceview_runs is damaged"):
        store.entries()
    store.close()


def test_a_locked_database_says_to_wait(tmp_path: Path):
    path = str(tmp_path / "h.sqlite")
    Store(path, create=True).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin exclusive")
    with pytest.raises(TraceviewError, match="locked; another process is writing it"):
        Store(f"sqlite:///{path}?timeout=0", create=True)
    other.close()


def test_names_are_kept_fit_to_print(tmp_path: Path):
    store = Store(str(tmp_path / "h.sqlite"), create=True)
    hostile = run(5, 10, 12, 11)
    hostile.run.name = "a\x00\x1b[31m\nb"
    store.add(hostile, "j", "l\n2")
    (got,) = store.entries()
    assert (got.name, got.label) == ("a��[31m�b", "l�2")
    store.close()
