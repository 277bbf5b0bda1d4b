"""``traceview what-if``: exit statuses, one-line errors, outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from traceview.cli import entry


def test_a_table_of_what_helps_most(slow_rank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["what-if", str(slow_rank)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("STEP    99.9 ms a step of slow_rank as recorded")
    rows = [line for line in out.splitlines() if "--" in line]
    assert rows[0].split()[:3] == ["rank", "5", "typical"] and "--replace 5" in rows[0]
    assert "LIMITS" in out and "base replay off by 0.0 %" in out


def test_one_answer(slow_rank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["what-if", str(slow_rank), "--replace", "5", "--network", "inter=2"]) == 0
    out = capsys.readouterr().out
    assert "IF      rank 5 typical, network inter x2: 73.7 ms a step" in out
    assert "simple bound 74.4 ms, replay 73.7 ms" in out and "GPU-h a day on 8 GPUs" in out


def test_a_host_is_replaced(slow_rank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["what-if", str(slow_rank), "--replace", "node-2", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "traceview.whatif/1"
    assert found["answers"][0]["title"] == "ranks 4-7 typical"


def test_outputs(slow_rank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = tmp_path / "a.json", tmp_path / "a.md"
    command = ["what-if", str(slow_rank), "--balance", "--json", str(paths[0]), "--markdown", str(paths[1]), "-q"]
    assert entry(command) == 0
    assert capsys.readouterr().out == ""
    assert json.loads(paths[0].read_text())["answers"][0]["options"] == "--balance"
    assert "- **IF** work evenly spread" in paths[1].read_text()
    before = paths[0].read_bytes()
    assert entry(command) == 2
    assert "exists; use --force" in capsys.readouterr().err
    assert paths[0].read_bytes() == before
    assert entry([*command, "--force"]) == 0


def test_the_table_in_markdown(slow_rank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["what-if", str(slow_rank), "--markdown", "-"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("## 99.9 ms a step of slow\\_rank")
    assert "| rank 5 typical | 25.5 ms | 25.5 |" in out


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--network", "inter"], "write a tier or group and a factor, as in inter=2"),
        (["--network", "inter=0"], "write a tier or group and a factor, as in inter=2"),
        (["--network", "inter=nan"], "write a tier or group and a factor, as in inter=2"),
        (["--network", "=2"], "write a tier or group and a factor, as in inter=2"),
        (["--network", "rack=2"], "--network rack=2: the run has the tiers inter-host, inter, intra, all"),
        (["--replace", "9"], "--replace 9: the run has the ranks 0-7 and the hosts node-1, node-2"),
        (["--replace", "node-9"], "--replace node-9: the run has the ranks 0-7 and the hosts node-1, node-2"),
    ],
)
def test_wrong_usage_is_one_line(
    slow_rank: Path, capsys: pytest.CaptureFixture[str], options: list[str], why: str
) -> None:
    assert entry(["what-if", str(slow_rank), *options, "-q"]) == 2
    out = capsys.readouterr()
    assert out.out == "" and len(out.err.splitlines()) == 1 and why in out.err


def test_an_input_is_never_replaced(slow_rank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (trace, *_) = sorted(slow_rank.iterdir())
    before = trace.read_bytes()
    assert entry(["what-if", str(slow_rank), "--json", str(trace), "--force", "-q"]) == 2
    assert trace.read_bytes() == before and "is an input" in capsys.readouterr().err


def test_nothing_usable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry(["what-if", str(tmp_path), "-q"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_pseudonyms_change_no_number(slow_rank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for more in ([], ["--redact"]):
        assert entry(["what-if", str(slow_rank), "--json", "-", *more]) == 0
        found.append(json.loads(capsys.readouterr().out))
    plain, hidden = found
    assert plain.pop("run") == "slow_rank" and hidden.pop("run") != "slow_rank"
    assert plain == hidden
    assert entry(["what-if", str(slow_rank), "--redact", "--replace", "node-9"]) == 2
    assert "node-1" not in capsys.readouterr().err
