"""``history``: runs are added once, shown, written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from traceview.cli import entry

from .conftest import SAMPLES


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "h.sqlite")


def ran(capsys: pytest.CaptureFixture[str], *command: object) -> tuple[int, str, str]:
    code = entry([str(c) for c in command])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_runs_are_kept_and_shown(db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    first = ("history", SAMPLES / "healthy", SAMPLES / "slow_rank", "--db", db, "--label", "c0ffee")
    code, out, _ = ran(capsys, *first)
    assert code == 0 and out.startswith("2 added")
    assert "default: 99.9 ms a step in the latest of 2 runs · 8 ranks · NVIDIA A100-SXM4-80GB" in " ".join(
        out.split()
    )
    assert "c0ffee" in out and "from 10 on" in out
    assert "0 added, 2 known already" in ran(capsys, *first)[1]
    code, text, _ = ran(capsys, "history", "--db", db, "--json", "-")
    document = json.loads(text)
    assert document["schema"] == "traceview.history/1"
    assert [r["name"] for r in document["trends"][0]["runs"]] == ["healthy", "slow_rank"]
    page = tmp_path / "h.md"
    assert ran(capsys, "history", "--db", db, "--markdown", page)[0] == 0
    assert page.read_text().startswith("## default: 99.9 ms")
    html = tmp_path / "h.html"
    code, out, _ = ran(capsys, "history", "--db", db, "-o", html)
    assert code == 0 and f"wrote {html}" in out
    assert "TOO FEW RUNS" in html.read_text() and "c0ffee" in html.read_text()
    assert ran(capsys, "history", "--db", db, "-o", html)[0] == 2  # it exists


def test_jobs_are_apart(db: str, capsys: pytest.CaptureFixture[str]):
    for name in ("healthy", "slow_rank"):
        assert ran(capsys, "history", SAMPLES / name, "--db", db, "--job", name, "-q")[0] == 0
    assert ran(capsys, "history", "--db", db)[1].count("JOB") == 2
    out = ran(capsys, "history", "--db", db, "--job", "healthy")[1]
    assert out.count("JOB") == 1 and "healthy" in out
    code, _, err = ran(capsys, "history", "--db", db, "--job", "nobody")
    assert code == 2 and "no run of job nobody" in err


def test_nothing_is_made_by_looking(db: str, capsys: pytest.CaptureFixture[str]):
    code, _, err = ran(capsys, "history", "--db", db)
    assert code == 2 and len(err.splitlines()) == 1 and "no history yet" in err
    assert not Path(db).exists()


def test_an_input_is_never_the_database(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    saved = tmp_path / "r.json"
    assert entry(["analyze", str(SAMPLES / "healthy"), "--json", str(saved), "-q"]) == 0
    before = saved.read_bytes()
    for command in (("history", saved, "--db", saved), ("history", saved, "--db", tmp_path / "h", "--json", saved)):
        code, _, err = ran(capsys, *command, "--force")
        assert code == 2 and "is an input" in err
    assert saved.read_bytes() == before


def test_the_variable_names_the_history(db: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("TRACEVIEW_HISTORY", db)
    assert ran(capsys, "history", SAMPLES / "healthy")[0] == 0
    assert Path(db).exists()


def test_a_run_is_kept_once_whatever_its_label(db: str, capsys: pytest.CaptureFixture[str]):
    add = ("history", SAMPLES / "slow_rank", "--db", db)
    assert ran(capsys, *add)[1].startswith("1 added\n")
    code, out, _ = ran(capsys, *add, "--label", "v2")
    assert code == 0 and out.startswith("0 added, 1 labelled anew\n") and "1 run: changes are" in out and "v2" in out


def test_an_empty_name_is_no_job(db: str, capsys: pytest.CaptureFixture[str]):
    for job in ("", "x" * 201):
        code, out, err = ran(capsys, "history", SAMPLES / "healthy", "--db", db, "--job", job)
        assert (code, out) == (2, "") and "1 to 200 characters" in err
    code, out, err = ran(capsys, "history", SAMPLES / "healthy", "--db", "")
    assert (code, out) == (2, "") and "keeps nothing" in err
    assert not Path(db).exists()
