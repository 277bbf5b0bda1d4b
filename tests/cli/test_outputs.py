"""Outputs: whole or not at all, never over an input, never in the place of a device."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from traceview.cli import entry

from .conftest import SAMPLES

ENV = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


@pytest.fixture
def trace(slow_rank: Path, tmp_path: Path) -> Path:
    """One rank of the sample, alone in a folder."""
    folder = tmp_path / "in"
    folder.mkdir()
    return Path(shutil.copy(sorted(slow_rank.iterdir())[5], folder / "rank5.json.gz"))


def refused(capsys: pytest.CaptureFixture[str], *command: object) -> str:
    assert entry([str(c) for c in command]) == 2
    out = capsys.readouterr()
    assert out.out == "" and len(out.err.splitlines()) == 1
    return out.err


@pytest.mark.parametrize(
    "command",
    [("analyze", "-o"), ("analyze", "--json"), ("inspect", "--json"), ("export", "-o"), ("analyze", "--tables")],
)
def test_an_input_is_never_replaced(
    trace: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, str]
) -> None:
    before = trace.read_bytes()
    verb, option = command
    for out in (trace, trace.parent):
        assert refused(capsys, verb, trace, option, out, "--force", "-q")
    assert trace.read_bytes() == before and list(trace.parent.iterdir()) == [trace]


def test_only_a_folder_of_tables_is_replaced(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    assert "holds more than tables" in refused(capsys, "analyze", trace, "--tables", mine, "--force", "-q")
    assert (mine / "thesis.tex").exists()
    tables = tmp_path / "tables"
    for _ in range(2):
        assert entry(["analyze", str(trace), "--tables", str(tables), "--force", "-q"]) == 0
    assert (tables / "windows.parquet").exists()


def test_a_pipe_is_written_to_and_stays(trace: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "traceview", "analyze", str(trace), "-q", "--json", str(pipe)]
    with subprocess.Popen(command, env=ENV) as process:
        assert json.loads(pipe.read_bytes())["run"]["ranks"] == [5]
    assert process.returncode == 0 and pipe.is_fifo()


def test_a_link_is_followed(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    assert entry(["analyze", str(trace), "-q", "--json", str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").stat().st_size > 1000


def test_what_is_wrong_with_the_command_is_said_before_the_work(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r.json"
    for wrong in (
        ["--focus", "here", "-o", tmp_path / "r.html"],
        ["--data-range", "("],
        ["-o", out],
        ["--nope"],
        ["--workers", "0"],
        ["--tables", tmp_path / "no" / "where"],
    ):
        assert refused(capsys, "analyze", trace, "--json", out, *wrong)
    assert refused(capsys, "export", trace, "-o", out, "--ranks", "0-99999999999")
    assert refused(capsys, "analyze", "") and list(tmp_path.iterdir()) == [trace.parent]


def test_closed_streams_are_no_failure(trace: Path) -> None:
    command = f"{sys.executable} -m traceview analyze {trace} <&- >&- 2>&-"
    assert subprocess.run(command, shell=True, env=ENV, check=False).returncode == 0


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_one_line(trace: Path, unbuffered: str) -> None:
    command = f"{sys.executable} -m traceview analyze {trace} > /dev/full"
    env = ENV | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, shell=True, env=env, check=False, capture_output=True, text=True)
    assert (
        done.returncode == 2 and done.stderr == "traceview: no space is left on the disk; free some and run again\n"
    )


def test_names_of_files_cannot_write_to_the_terminal(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = trace.with_name("\x1b[31mrank5\nSLOW  all is lost.json.gz")
    trace.rename(hostile)
    for verb in ("inspect", "analyze"):
        assert entry([verb, str(hostile)]) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out and "\nSLOW  all" not in out
    assert entry(["inspect", str(trace.parent), "--json", f"{trace.parent.parent}/o\x1b[31m"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert entry(["analyze", str(trace.parent), "--json", f"{trace.parent.parent}/p\x1b[31m"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    hostile.write_text("words")
    assert "\x1b" not in refused(capsys, "analyze", hostile)


def test_a_path_without_a_verb_names_the_verb(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry([str(trace)]) == 2
    assert f"Did you mean `traceview analyze {trace}`?" in capsys.readouterr().err


@pytest.mark.parametrize("stdout", [[], ["--json", "-"]])
def test_a_reader_that_leaves_hides_no_failure(tmp_path: Path, stdout: list[str]) -> None:
    """`gate ... | head`: FAIL stays 1, and the files asked for are written."""
    samples = [str(SAMPLES / name) for name in ("nsight_before", "nsight_after")]
    xml = tmp_path / "g.xml"
    left, right = os.pipe()
    os.close(left)
    command = [sys.executable, "-m", "traceview", "gate", *samples, "--junit", str(xml), *stdout]
    done = subprocess.run(command, env=ENV, check=False, stdout=right, stderr=subprocess.PIPE, text=True)
    os.close(right)
    assert (done.returncode, done.stderr) == (1, "") and 'failures="1"' in xml.read_text()
