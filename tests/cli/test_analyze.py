"""``traceview analyze`` from the command line: outputs, exit codes, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from traceview.cli import entry
from traceview.result import Result


def test_json_is_the_whole_result_and_its_leaves_add_up(slow_rank: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    assert entry(["analyze", str(slow_rank), "--json", str(out), "-q"]) == 0
    result = Result.load(out)
    assert Result.from_json(result.to_json()) == result
    assert result.run.ranks == list(range(8)) and result.run.missing_ranks == []
    for w in result.window_rows:
        assert sum(w.leaves_ns.values()) == w.end_ns - w.start_ns
        assert sum(w.coactivity_ns.values()) == w.end_ns - w.start_ns
    assert sum(result.budget.leaves_ns.values()) == result.budget.wall_ns
    assert sum(b.blame_ns for b in result.blame) == result.budget.sub_ns["comm_wait.nxn"]
    assert max(result.blame, key=lambda b: b.blame_ns).rank == 5


def test_json_on_stdout_is_only_json(slow_rank: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert entry(["analyze", str(slow_rank), "--json", "-"]) == 0
    assert json.loads(capfd.readouterr().out)["schema"] == "traceview.result/1"


def test_the_terminal_says_who_and_why(slow_rank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["analyze", str(slow_rank)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("SLOW")
    assert "rank 5" in text and "100.0 %" in text


def test_tables_are_written_whole(slow_rank: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    assert entry(["analyze", str(slow_rank), "--tables", str(folder), "-q"]) == 0
    windows = pq.read_table(folder / "windows.parquet").to_pydict()
    leaves = [k for k in windows if k.endswith("_ns") and k not in ("start_ns", "end_ns")]
    for i, (start, end) in enumerate(zip(windows["start_ns"], windows["end_ns"], strict=True)):
        assert sum(windows[k][i] for k in leaves) == end - start
    gpu = pq.read_table(folder / "gpu_ops.parquet")
    assert set(gpu["rank"].to_pylist()) == set(range(8))
    assert entry(["analyze", str(slow_rank), "--tables", str(folder), "-q"]) == 2


def test_outputs_are_not_overwritten(slow_rank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.html"
    out.write_text("mine")
    assert entry(["analyze", str(slow_rank), "-o", str(out), "-q"]) == 2
    assert out.read_text() == "mine" and "--force" in capsys.readouterr().err
    assert entry(["analyze", str(slow_rank), "-o", str(out), "-q", "--no-charts", "--force"]) == 0
    assert out.read_text().startswith("<!doctype html>")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


BAD = {
    "empty.json": b"",
    "notrace.json": b'{"hello": [1, 2]}',
    "report.nsys-rep": b"NVIDIA Tegra Profiler Report 2025@1@3@140-0" + bytes(100),
    "text.txt": b"just words\n",
    "broken.json.gz": gzip.compress(b'{"traceEvents": [')[:12],
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_exit_2(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_bytes(BAD[name])
    assert entry(["analyze", str(tmp_path / name)]) == 2
    out = capsys.readouterr()
    assert out.out == "" and len(out.err.splitlines()) == 1 and name in out.err


def test_an_empty_folder_and_a_missing_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        assert entry(["analyze", str(path)]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become an unprivileged user")
def test_an_unreadable_file_is_one_line(slow_rank: Path, tmp_path: Path) -> None:
    path = tmp_path / "secret.json"
    path.write_text("{}")
    path.chmod(0)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    code = (  # a first run as root imports everything: the interpreter itself may be unreadable to others
        "import os, sys; from traceview.cli import entry; "
        f"entry(['inspect', {str(slow_rank)!r}, '-q']); "
        f"os.environ['TRACEVIEW_CACHE'] = {str(tmp_path / 'c')!r}; os.setuid(65534); "
        f"sys.exit(entry(['analyze', {str(path)!r}]))"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1 and "secret.json" in done.stderr


def test_help_imports_nothing_heavy() -> None:
    heavy = "{'numpy', 'polars', 'pyarrow'}"
    code = f"import sys; from traceview.cli import entry; entry(['--help']); print({heavy} & set(sys.modules))"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_only_a_log_is_not_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "nccl.log"
    log.write_text("node-1:10:11 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n")
    assert entry(["analyze", str(log)]) == 2
    assert "only logs" in capsys.readouterr().err
    assert entry(["inspect", str(log)]) == 0
    assert "traces" in capsys.readouterr().out


def test_a_closed_pipe_is_no_failure(slow_rank: Path) -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", "traceview", "analyze", str(slow_rank), "-v"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait() == 0
    process.stderr.close()


def test_the_next_limit_says_what_its_time_is(slow_rank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["analyze", str(slow_rank)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "allreduce of group 0 (8 ranks): −2.51 ms a step SEEN" in text


def test_a_baseline_without_a_name_is_no_baseline_left_out(
    slow_rank: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry(["analyze", str(slow_rank), "--baseline", ""]) == 2
    assert "empty path" in capsys.readouterr().err
