"""Paths in, one run out: discovery, ranks, and what must not be merged."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traceview import schema
from traceview.errors import TraceviewError
from traceview.run import Run
from traceview_parsers import ReadOptions, open_run

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("TRACEVIEW_CACHE", str(root))
    return root


def files(run: Run) -> dict[int, str]:
    return {rank: Path(p.meta.source.path).name for rank, p in run.parts.items()}


def refusal(*paths: Any, **options: Any) -> str:
    with pytest.raises(TraceviewError) as caught:
        open_run(paths, ReadOptions(**options))
    assert "\n" not in str(caught.value) and caught.value.exit_code == 2
    return str(caught.value)


# --- what is found


def database(statement: str) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute(statement)
    data = connection.serialize()
    connection.close()
    return data


def test_folder_glob_and_file_are_one_and_the_same(tmp_path: Path, write: Write) -> None:
    write("run/a/rank0.json", 0, 2)
    last = write("run/b/rank1.json", 1, 2)
    (tmp_path / "run/README.md").write_text("not a trace")
    (tmp_path / "run/.hidden.json").write_text("{")
    for given in ([tmp_path / "run"], [f"{tmp_path}/run/**/*.json"], [tmp_path / "run", last, last]):
        run = open_run(given)
        assert files(run) == {0: "rank0.json", 1: "rank1.json"}
        assert (run.world_size, run.missing_ranks, run.unread) == (2, [], [])
    assert open_run([tmp_path / "run"]).problems == ["1 other file was not looked at: README.md"]
    assert open_run([tmp_path / "run"]).name == "run"


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("empty.json", b"", "is empty"),
        ("config.json", b'{"lr": 1}', "is JSON, but no trace"),
        ("list.json", b"[1, 2]", "is JSON, but no trace"),
        ("half.json", b'{"schemaVersion": 1', "no traceEvents inside"),
        ("meta.json", b'{"traceEvents": [{"ph": "M", "name": "process_name"}]}', "none of them is an activity"),
        ("r.nsys-rep", b"\x00\x01NSYS", "nsys export --type sqlite"),
        ("r.qdstrm", b"abc", "QdstrmImporter"),
        ("t.json", b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "git lfs pull"),
        ("app.db", database("CREATE TABLE users (id)"), "SQLite database of another program, no export of Nsight"),
        ("run.db", database("CREATE TABLE rocpd_kernel_dispatch_0 (id)"), "ROCm profiler (rocpd)"),
        ("a.sqlite", b"no database at all", "is no SQLite database: export the report again"),
        ("fr.pkl", b"\x80\x04\x95abc", "pickle"),
        ("t.zip", b"PK\x03\x04abc", "archive"),
        ("t.json.zst", b"\x28\xb5\x2f\xfdabc", "zstd -d"),
        ("notes.txt", b"hello", "no known format"),
    ],
)
def test_useless_files_say_what_they_are(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(data)
    message = refusal(tmp_path / name)
    assert name in message and says in message


def test_nothing_there(tmp_path: Path) -> None:
    assert "no such file or folder" in refusal(tmp_path / "none")
    assert "no such file or folder" in refusal(f"{tmp_path}/*.json")
    assert "no traces inside" in refusal(tmp_path)
    (tmp_path / "a.json").write_bytes(b"")
    (tmp_path / "b.json").write_bytes(b"")
    assert "(1 more like it)" in refusal(tmp_path)


def test_unreadable_among_good_ones_is_told(tmp_path: Path, write: Write) -> None:
    write("rank0.json", 0, 2)
    (tmp_path / "rank1.json").write_bytes(b"")
    run = open_run([tmp_path])
    assert run.ranks == [0] and run.missing_ranks == [1]
    (bad,) = run.unread
    assert bad.path.endswith("rank1.json") and "is empty" in bad.warnings[0]


def test_no_rights(tmp_path: Path, write: Write) -> None:
    path, other = write("rank0.json", 0, 1), write("rank1.json", 1, 1)
    path.chmod(0)
    (closed := tmp_path / "closed").mkdir(mode=0)
    code = (  # the first read imports everything: to the user without rights the interpreter may be closed too
        "import os, sys; from traceview_parsers import open_run; from traceview.errors import TraceviewError\n"
        "open_run([sys.argv[2]], cache=False); os.chdir(os.path.dirname(sys.argv[1]))\n"
        "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "for name in (os.path.basename(sys.argv[1]), 'closed', 'closed/rank0.json'):\n"
        "    try: open_run([name], cache=False)\n"
        "    except TraceviewError as error: print(error)"
    )
    environment = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", code, str(path), str(other)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.count("Permission denied") == 3, done.stdout + done.stderr
    closed.chmod(0o700)


def test_what_is_no_file_is_told_and_the_rest_is_read(tmp_path: Path, write: Write) -> None:
    write("rank0.json", 0, 1)
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "loop.json").symlink_to("loop.json")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.json")).write_text("{}")
    run = open_run([tmp_path])
    assert files(run) == {0: "rank0.json"}
    told = sorted(w.split(": ", 1)[1] for m in run.unread for w in m.warnings)
    assert [t[:24] for t in told] == [
        "cannot be read (Too many",
        "is a pipe or a device; w",
        "its name is no UTF-8; re",
    ]


# --- which rank


@pytest.mark.parametrize(
    "names",
    [
        ["rank0.json", "rank1.json", "rank2.json"],
        ["t_rank[0].json", "t_rank[1].json", "t_rank[2].json"],
        ["rank-0.x.json", "rank-1.x.json", "rank-2.x.json"],
        ["iteration_10/rank0_trace.json", "iteration_10/rank1_trace.json", "iteration_10/rank2_trace.json"],
        ["rank_0/t.json", "rank_1/t.json", "rank_2/t.json"],
        ["worker0_step_9.json", "worker1_step_9.json", "worker2_step_9.json"],
        ["17-TP-0.trace.json", "17-TP-1.trace.json", "17-TP-2.trace.json"],
        ["dp0_pp0_tp0_x.json", "dp0_pp0_tp1_x.json", "dp1_pp0_tp0_x.json"],
        ["a0.json", "a1.json", "a2.json"],
    ],
)
def test_rank_out_of_names(tmp_path: Path, write: Write, names: list[str]) -> None:
    for i, name in enumerate(names):
        write(name, pid=i + 1)
    run = open_run([tmp_path])
    assert [str(Path(p.meta.source.path).relative_to(tmp_path)) for p in run.parts.values()] == names
    assert {p.meta.rank_source for p in run.parts.values()} == {"name"}
    assert run.world_size is None and run.problems == []


def test_metadata_beats_names_and_the_user_beats_both(tmp_path: Path, write: Write) -> None:
    write("rank0.node5.json", 1, 8, pid=1)
    write("rank1.node6.json", 0, 8, pid=2)
    assert files(open_run([tmp_path])) == {0: "rank1.node6.json", 1: "rank0.node5.json"}
    run = open_run([tmp_path], ReadOptions(rank_regex=r"node(\d)"))
    assert files(run) == {5: "rank0.node5.json", 6: "rank1.node6.json"}
    assert run.parts[5].meta.rank_source == "user"
    assert "needs a group" in refusal(tmp_path, rank_regex="node")
    assert "no regular expression" in refusal(tmp_path, rank_regex="(")
    assert "finds no rank" in refusal(tmp_path, rank_regex="host(.)")


@pytest.mark.parametrize("rank", [-1, 2**31, 10**30])
def test_a_rank_that_cannot_be_is_not_believed(tmp_path: Path, write: Write, rank: int) -> None:
    write("a.json", rank, 10**9)
    write(f"rank{2**40}.json", 1, -2, pid=2)
    run = open_run([tmp_path])
    assert files(run) == {0: "a.json", 1: f"rank{2**40}.json"} and run.world_size is None
    assert [p.split(": ")[1] for p in run.problems[:3]] == [
        "tells an impossible rank",
        *["tells an impossible world size"] * 2,
    ]


def test_order_is_the_last_resort_and_said(tmp_path: Path, write: Write) -> None:
    write("alpha.json", pid=1)
    write("beta.json", pid=2)
    run = open_run([tmp_path])
    assert files(run) == {0: "alpha.json", 1: "beta.json"}
    assert "no rank is told for 2 of 2" in run.problems[0] and "--rank-regex" in run.problems[0]


def test_one_file_of_no_job_is_rank_0_of_1(write: Write) -> None:
    run = open_run([write("trace.json")])
    assert run.ranks == [0] and run.world_size == 1 and run.problems == []
    assert run.parts[0].meta.rank_source == "order"
    assert open_run([write("job.2.27.3_a.pt.trace.json")]).name == "job.2.27.3_a"


def test_a_rank_that_lost_its_gpu_records_is_not_idle(tmp_path: Path, write: Write) -> None:
    write("rank0.json", 0, 2, pid=1)
    path = write("rank1.json", 1, 2, pid=2)
    document = json.loads(path.read_bytes())
    document["traceEvents"] = [e for e in document["traceEvents"] if e["cat"] != "kernel"]
    path.write_text(json.dumps(document))
    run = open_run([tmp_path])
    lost = run.parts[1].meta
    assert run.parts[0].meta.holes == [] and lost.holes == [(lost.cover_start, lost.cover_end)]
    assert run.problems == ["rank 1: no GPU records, which other ranks have: their time counts as not recorded"]
    assert open_run([path]).parts[1].meta.holes == []


# --- never merged silently


def test_a_copy_is_left_out_and_named(tmp_path: Path, write: Write) -> None:
    write("rank0.json", 0, 2, pid=1)
    shutil.copy(tmp_path / "rank0.json", tmp_path / "z.json")
    run = open_run([tmp_path])
    assert files(run) == {0: "rank0.json"}
    assert run.problems == [f"{tmp_path}/z.json repeats {tmp_path}/rank0.json: left out"]


def test_one_rank_twice_at_the_same_time(tmp_path: Path, write: Write) -> None:
    write("a.json", 0, 2, pid=1)
    write("b.json", 0, 2, pid=2)
    message = refusal(tmp_path)
    assert "rank 0 is claimed by 2 files" in message and "a.json and" in message and "--rank-regex" in message


def test_different_world_sizes(tmp_path: Path, write: Write) -> None:
    write("a.json", 0, 2)
    write("b.json", 1, 4)
    message = refusal(tmp_path)
    assert "different jobs" in message and "a.json (world 2)" in message and "b.json (world 4)" in message


def test_two_runs_in_two_folders(tmp_path: Path, write: Write) -> None:
    for i, folder in enumerate(("monday", "tuesday")):
        write(f"{folder}/rank0.json", 0, 2, pid=10 + i, start_s=100.0 * i)
        write(f"{folder}/rank1.json", 1, 2, pid=20 + i, start_s=100.0 * i)
    message = refusal(tmp_path)
    assert "two runs in one folder" in message and "/monday and in" in message and "/tuesday" in message


def test_ranks_of_different_days(tmp_path: Path, write: Write) -> None:
    write("rank0.json", 0, 2)
    write("rank1.json", 1, 2, start_s=86400.0)
    assert "two runs in one folder" in refusal(tmp_path)


def test_cycles_of_the_same_processes(tmp_path: Path, write: Write) -> None:
    for cycle, start in enumerate((0.0, 100.0, 200.0)):
        for rank in (0, 1):
            if (cycle, rank) != (2, 1):  # the last cycle of rank 1 is missing
                write(f"iteration_{cycle}/rank{rank}.json", rank, 2, pid=10 + rank, start_s=start + rank * 1e-5)
    run = open_run([tmp_path])
    assert {str(Path(p.meta.source.path).parent.name) for p in run.parts.values()} == {"iteration_1"}
    assert run.ranks == [0, 1]
    (said,) = run.problems
    assert "3 recordings of the same ranks: used number 2 in time" in said and "3 files left out" in said


def test_a_clock_from_an_unknown_start_is_a_host_of_its_own(tmp_path: Path, write: Write) -> None:
    write("rank0.json", 0, 2, host_name="n1")
    path = write("rank1.json", 1, 2, host_name="n1", baseTimeNanoseconds=None)
    os.utime(path, (0, 0))
    run = open_run([tmp_path])
    assert (run.host(0), run.host(1)) == ("n1", "?rank1")
    assert "times from an unknown start" in run.problems[0] and "rank1.json" in run.problems[0]


# --- how it is read


def test_workers_read_the_same(tmp_path: Path, write: Write, own_cache: Path) -> None:
    for rank in range(5):
        write(f"rank{rank}.json", rank, 6, pid=rank)
    (tmp_path / "rank5.json").write_bytes(b'{"traceEvents": [')
    seen: list[tuple[int, int]] = []
    run = open_run([tmp_path], workers=3, progress=lambda *step: seen.append(step))
    alone = open_run([tmp_path], cache=False, workers=1)
    assert run.ranks == alone.ranks == [0, 1, 2, 3, 4]
    assert [u.warnings for u in run.unread] == [u.warnings for u in alone.unread]
    for table in (schema.GPU_OPS, schema.HOST_RANGES):
        assert run.tables(table).to_pylist() == alone.tables(table).to_pylist()
    assert seen[-1][0] == seen[-1][1] == sum(p.stat().st_size for p in tmp_path.glob("*.json"))
    assert len([p for p in own_cache.iterdir()]) == 5


@pytest.mark.parametrize("workers", [1, 2])
def test_interrupted_leaves_nothing_behind(tmp_path: Path, write: Write, own_cache: Path, workers: int) -> None:
    for rank in range(6):
        write(f"rank{rank}.json", rank, 6, pid=rank)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_run([tmp_path], workers=workers, progress=stop)
    assert not [p.name for p in own_cache.iterdir() if p.name.startswith(".")]
    assert open_run([tmp_path]).ranks == [0, 1, 2, 3, 4, 5]


def test_a_worker_that_dies_costs_its_files_only(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(2):
        write(f"rank{rank}.json", rank, 2, pid=rank)
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(TraceviewError, match=r"the process that read it ended early \(exit status 1\)"):
        open_run([tmp_path], workers=2)


def test_two_paths_with_the_same_content_do_not_share_a_rank(tmp_path: Path, write: Write) -> None:
    data = write("rank0/t.json").read_bytes()
    for rank in (1, 2):
        (tmp_path / f"rank{rank}").mkdir()
        (tmp_path / f"rank{rank}/t.json").write_bytes(data)
    assert open_run([tmp_path]).ranks == [0, 1, 2]


def test_a_damaged_trace_in_a_folder_is_told(tmp_path: Path, write: Write) -> None:
    write("run/rank0.json", 0, 2)
    (tmp_path / "run/rank1.pt.trace.json.gz").write_bytes(b"\x91\x02 noise \xff" * 50)
    run = open_run([tmp_path / "run"])
    assert run.missing_ranks == [1] and not run.problems
    assert "rank1.pt.trace.json.gz: is named like a trace, but is of no known format" in run.unread[0].warnings[0]
