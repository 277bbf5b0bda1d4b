"""A process or a rank that several files hold is one, chosen by a declared rule, and it is said which."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import traceview as tv
from builders.nsight_files import PID, SESSION, kernel, strings, write_parquet, write_sqlite
from simulator import Job, simulate, write_kineto, write_nccl_log, write_nsight
from traceview.run import Run

NAMES = strings("k") | SESSION
OTHER = PID + (1 << 24)
KERNELS = [kernel(1, 2, 10, 1), kernel(5, 6, 10, 2), kernel(1, 2, 10, 1, globalPid=OTHER)]


def opened(*paths: Path) -> Run:
    run = tv.open(list(paths), cache=False)
    assert isinstance(run, Run)
    return run


def as_parquet(path: Path, folder: Path) -> Path:
    """What `nsys export --type=parquetdir` writes of the same report."""
    folder.mkdir()
    with sqlite3.connect(path) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            cursor = db.execute(f'SELECT * FROM "{table}"')
            columns = [c[0] for c in cursor.description]
            rows = cursor.fetchall()
            arrays = {c: pa.array([r[i] for r in rows], from_pandas=True) for i, c in enumerate(columns)}
            pq.write_table(pa.table(arrays), folder / f"{table}.parquet")
    db.close()
    return folder


def test_two_exports_of_one_report_are_not_four_ranks(tmp_path: Path) -> None:
    tables = NAMES | {"CUPTI_ACTIVITY_KIND_KERNEL": KERNELS}
    write_sqlite(tmp_path / "rep.sqlite", tables)
    write_parquet(tmp_path / "rep_pqtdir", tables)
    run = opened(tmp_path)
    assert run.ranks == [0, 1] and {p.meta.source.path for p in run.parts.values()} == {f"{tmp_path}/rep.sqlite"}
    assert run.problems[0] == (
        f"{tmp_path}/rep_pqtdir is another export of a report that is here too: its 2 processes are left out"
    )


def test_the_whole_export_is_taken(tmp_path: Path) -> None:
    write_sqlite(tmp_path / "a.sqlite", NAMES | {"CUPTI_ACTIVITY_KIND_KERNEL": KERNELS[:1]})
    write_sqlite(tmp_path / "b.sqlite", NAMES | {"CUPTI_ACTIVITY_KIND_KERNEL": KERNELS[:2]})
    run = opened(tmp_path)
    assert [run.parts[r].meta.source.path for r in run.ranks] == [f"{tmp_path}/b.sqlite"]
    assert f"{tmp_path}/a.sqlite is another export" in run.problems[0]


def test_reports_of_two_sessions_are_two(tmp_path: Path) -> None:
    write_sqlite(tmp_path / "a.sqlite", NAMES | {"CUPTI_ACTIVITY_KIND_KERNEL": KERNELS[:2]})
    later = {"TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_700_000_000_000_000_001}]}
    write_sqlite(tmp_path / "b.sqlite", strings("k") | later | {"CUPTI_ACTIVITY_KIND_KERNEL": KERNELS[:2]})
    assert opened(tmp_path).ranks == [0, 1]


def test_a_simulated_job_exported_twice(tmp_path: Path) -> None:
    reports = write_nsight(simulate(Job(ranks=4, hosts=2, steps=4)), tmp_path / "n")
    for number, report in enumerate(reports):
        as_parquet(report, tmp_path / "n" / f"again{number}")
    run = opened(tmp_path / "n")
    assert run.ranks == [0, 1, 2, 3]
    assert {p.meta.source.path for p in run.parts.values()} == {f"{tmp_path}/n/again{i}" for i in range(len(reports))}
    assert sum("another export of a report" in p for p in run.problems) == 2


@pytest.mark.parametrize(
    ("kineto_ranks", "nsight_ranks", "used"),
    [
        ([0, 1], [1], {0: "kineto", 1: "kineto"}),
        ([0], [0, 1], {0: "nsight", 1: "nsight"}),
        ([0, 1], [0, 1], {0: "kineto", 1: "kineto"}),
        ([0, 1, 2], [2, 3], {0: "kineto", 1: "kineto", 2: "kineto", 3: "nsight"}),
    ],
)
def test_a_rank_in_two_formats(
    kineto_ranks: list[int], nsight_ranks: list[int], used: dict[int, str], tmp_path: Path
) -> None:
    sim = simulate(Job(ranks=4, steps=4))
    kineto, reports = write_kineto(sim, tmp_path / "k"), write_nsight(sim, tmp_path / "n", per="rank")
    run = opened(*(kineto[r] for r in kineto_ranks), *(reports[r] for r in nsight_ranks))
    assert {r: run.parts[r].meta.source.format for r in run.ranks} == used
    (told,) = [p for p in run.problems if "given in two formats" in p]
    both = sorted(set(kineto_ranks) & set(nsight_ranks))
    assert told.startswith(f"ranks {both[0]}-{both[-1]} are given" if len(both) > 1 else f"rank {both[0]} is given")
    assert f"formats: {used[both[0]]} is used" in told


def test_traces_reports_and_logs_of_the_same_ranks(tmp_path: Path) -> None:
    sim = simulate(Job(ranks=4, hosts=2, steps=4))
    write_kineto(sim, tmp_path / "all" / "k")
    pure = tv.analyze(tv.open(tmp_path / "all", cache=False))
    write_nsight(sim, tmp_path / "all" / "n")
    write_nccl_log(sim, tmp_path / "all" / "log")
    run = opened(tmp_path / "all")
    assert {p.meta.source.format for p in run.parts.values()} == {"kineto"} and run.logs
    assert any("ranks 0-3 are given in two formats: kineto is used" in p for p in run.problems)
    assert tv.analyze(run).budget.leaves_ns == pure.budget.leaves_ns


def test_processes_without_a_rank_take_that_of_their_trace(tmp_path: Path) -> None:
    """A report that tells no ranks is of the processes that PyTorch's traces tell: not two more ranks."""
    sim = simulate(Job(ranks=2, steps=4))
    kineto, reports = write_kineto(sim, tmp_path / "k"), write_nsight(sim, tmp_path / "n", payload="none")
    alone = opened(*reports)
    assert {p.meta.rank_source for p in alone.parts.values()} == {"order"}
    run = opened(*kineto, *reports)
    assert run.ranks == [0, 1] and any("ranks 0-1 are given in two formats" in p for p in run.problems)
    half = opened(kineto[1], *reports)
    assert half.ranks == [0, 1] and half.parts[1].meta.source.format == "nsight"
    assert half.parts[1].meta.rank_source == "process"


def test_the_name_of_a_file_of_several_processes_is_the_rank_of_none(tmp_path: Path) -> None:
    (tmp_path / "rank0").mkdir()
    write_sqlite(tmp_path / "rank0" / "rank3.sqlite", NAMES | {"CUPTI_ACTIVITY_KIND_KERNEL": KERNELS})
    run = opened(tmp_path)
    assert [(r, p.meta.rank_source) for r, p in run.parts.items()] == [(0, "order"), (1, "order")]
    assert "in order of their process ids, pid 77 is 0, pid 78 is 1; NCCL's payloads tell better" in run.problems[0]


def test_ranks_of_processes_that_the_nccl_log_tells(tmp_path: Path) -> None:
    sim = simulate(Job(ranks=4, hosts=2, steps=4))
    write_nsight(sim, tmp_path / "n", payload="none")
    alone = opened(tmp_path / "n")
    assert {p.meta.rank_source for p in alone.parts.values()} == {"order"}
    write_nccl_log(sim, tmp_path / "n" / "log")
    run = opened(tmp_path / "n")
    assert {p.meta.rank_source for p in run.parts.values()} == {"log"} and run.world_size == 4
    by_rank = {r: (p.meta.host, p.meta.pid) for r, p in run.parts.items()}
    write_kineto(sim, tmp_path / "k")
    assert by_rank == {r: (p.meta.host, p.meta.pid) for r, p in opened(tmp_path / "k").parts.items()}
    assert not any("no rank is told" in p for p in run.problems)


def test_what_is_true_of_several_files_is_said_once(tmp_path: Path) -> None:
    kernels = {"CUPTI_ACTIVITY_KIND_KERNEL": [kernel(1000 * i, 1000 * i + 500, 10, i) for i in range(1, 9)]}
    for number in range(3):
        start = {"TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_700_000_000_000_000_000 + number}]}
        write_sqlite(tmp_path / f"rank{number}.sqlite", strings("k") | start | kernels)
    told = tv.analyze(tv.open(tmp_path, cache=False)).quality.warnings
    (nvtx,) = [w for w in told if "no NVTX ranges" in w]
    assert nvtx.startswith(f"3 files, as {tmp_path}/rank0.sqlite: no NVTX ranges")
    alone = tv.analyze(tv.open(tmp_path / "rank0.sqlite", cache=False)).quality.warnings
    assert any(w.startswith("no NVTX ranges") for w in alone)
