"""``compare`` and ``gate``: exit statuses, what they accept, what they write."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from builders import results
from traceview.cli import entry

from .conftest import SAMPLES

HEALTHY, SLOW = str(SAMPLES / "healthy"), str(SAMPLES / "slow_rank")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of both samples."""
    folder = tmp_path_factory.mktemp("saved")
    for name in ("healthy", "slow_rank"):
        assert entry(["analyze", str(SAMPLES / name), "--json", str(folder / f"{name}.json"), "-q"]) == 0
    return folder


def ran(capsys: pytest.CaptureFixture[str], *command: object) -> tuple[int, str, str]:
    code = entry([str(c) for c in command])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_a_slower_run_fails_and_says_where(capsys: pytest.CaptureFixture[str]):
    code, out, _ = ran(capsys, "gate", HEALTHY, SLOW)
    assert code == 1
    assert out.startswith("FAIL") and "+35.9 %" in out.splitlines()[0]
    where = next(line for line in out.splitlines() if line.startswith("WHERE"))
    assert where.split()[1:4] == ["straggler", "wait", "+21.2"]
    assert "rank 5 on node-2 computes 1.35x slower" in out


def test_a_run_passes_against_itself_and_when_faster(capsys: pytest.CaptureFixture[str]):
    assert ran(capsys, "gate", HEALTHY, HEALTHY)[:1] == (0,)
    code, out, _ = ran(capsys, "gate", SLOW, HEALTHY)
    assert code == 0 and out.startswith("PASS") and "GONE" in out


def test_compare_never_fails(capsys: pytest.CaptureFixture[str]):
    for old, new, word in ((HEALTHY, SLOW, "SLOWER"), (SLOW, HEALTHY, "FASTER"), (SLOW, SLOW, "SAME")):
        code, out, _ = ran(capsys, "compare", old, new)
        assert code == 0 and out.startswith(word)


def test_results_of_before_are_as_good_as_traces(saved: Path, capsys: pytest.CaptureFixture[str]):
    outs = [json.loads(ran(capsys, "gate", old, SLOW, "--json", "-")[1]) for old in (HEALTHY, saved / "healthy.json")]
    assert outs[0] == outs[1]
    assert outs[0]["decision"]["schema"] == "traceview.gate/1"
    assert outs[0]["comparison"]["schema"] == "traceview.comparison/1"


def test_a_folder_of_results_is_several_runs(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pool = tmp_path / "pool"
    pool.mkdir()
    document = json.loads((saved / "healthy.json").read_text())
    for i in range(3):
        document["run"]["start_ns"] += i
        (pool / f"{i}.json").write_text(json.dumps(document))
    code, out, _ = ran(capsys, "gate", pool, SLOW)
    assert code == 1 and "by run against runs" in " ".join(out.split())
    noise = tmp_path / "noise.json"
    code, out, _ = ran(capsys, "gate", pool, "--calibrate", noise)
    assert code == 0 and json.loads(noise.read_text())["run_noise"] == 0.0
    assert ran(capsys, "gate", HEALTHY, HEALTHY, "--run-noise", noise)[0] == 0
    assert ran(capsys, "gate", HEALTHY, "--calibrate", tmp_path / "n.json")[0] == 2


def test_one_run_is_not_several(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Copies of a run would show a spread of nothing: every change beyond chance."""
    pool = tmp_path / "pool"
    pool.mkdir()
    for i in range(3):
        shutil.copy(saved / "healthy.json", pool / f"{i}.json")
    code, out, _ = ran(capsys, "compare", pool, saved / "slow_rank.json")
    text = " ".join(out.split())
    assert code == 0 and "BUT 2 runs given more than once, counted once" in text and "1 run of 9 used" in text
    code, _, err = ran(capsys, "gate", pool, "--calibrate", tmp_path / "n.json")
    assert code == 2 and "1 run: a calibration needs 3 different ones" in err
    out = ran(capsys, "gate", saved / "healthy.json", pool)[1]
    assert "both sides hold the same run, healthy" in " ".join(out.split())


def test_too_few_steps_are_inconclusive(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for steps in (10, 3):
        (tmp_path / f"{steps}.json").write_bytes(results.healthy(steps=steps).to_json())
    code, out, _ = ran(capsys, "gate", tmp_path / "10.json", tmp_path / "3.json")
    assert code == 3 and out.startswith("INCONCLUSIVE")
    allowed = ("gate", tmp_path / "10.json", tmp_path / "3.json", "--allow-inconclusive")
    assert ran(capsys, *allowed)[0] == 0


def test_what_cannot_be_compared_is_3_in_one_line(capsys: pytest.CaptureFixture[str]):
    other = SAMPLES / "nsight_before"
    code, out, err = ran(capsys, "gate", HEALTHY, other)
    assert (code, out) == (3, "") and len(err.splitlines()) == 1 and "world size" in err
    code, out, _ = ran(capsys, "gate", HEALTHY, other, "--allow-different")
    assert code in (0, 1) and "BUT" in out


@pytest.mark.parametrize(
    ("extra", "word"),
    [
        (("--threshold", "three"), "no share"),
        (("--threshold", "300%"), "no share"),
        (("--run-noise", "nowhere.json"), "gate --calibrate"),
        (("--run-noise", HEALTHY), "gate --calibrate"),
    ],
)
def test_wrong_usage_is_one_line(extra: tuple[str, str], word: str, capsys: pytest.CaptureFixture[str]):
    code, out, err = ran(capsys, "gate", HEALTHY, SLOW, *extra)
    assert (code, out) == (2, "") and len(err.splitlines()) == 1 and word in err


def test_one_side_is_missing(capsys: pytest.CaptureFixture[str]):
    code, _, err = ran(capsys, "gate", HEALTHY)
    assert code == 2 and "CANDIDATE" in err


def test_a_wider_threshold_passes(capsys: pytest.CaptureFixture[str]):
    assert ran(capsys, "gate", HEALTHY, SLOW, "--threshold", "40%")[0] == 0
    assert ran(capsys, "gate", HEALTHY, SLOW, "--threshold", "0.4")[0] == 0


def test_files_for_a_server(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    files = {name: tmp_path / f"gate.{name}" for name in ("json", "markdown", "junit")}
    flags = [x for name, path in files.items() for x in (f"--{name}", path)]
    command = ("gate", saved / "healthy.json", saved / "slow_rank.json", *flags)
    code, out, _ = ran(capsys, *command)
    assert code == 1 and all(f"wrote {p}" in out for p in files.values())
    case = ET.parse(files["junit"]).getroot().find("testsuite/testcase")
    assert case is not None and case.find("failure").attrib["type"] == "FAIL"
    text = files["markdown"].read_text()
    assert text.startswith("## FAIL: step time 73.5 ms → 99.9 ms") and "| straggler wait |" in text
    assert ran(capsys, *command)[0] == 2  # they exist
    assert ran(capsys, *command, "--force")[0] == 1


def test_pages(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    sides = (saved / "healthy.json", saved / "slow_rank.json")
    for verb, code, word in (("compare", 0, "SLOWER"), ("gate", 1, "FAIL")):
        page = tmp_path / f"{verb}.html"
        got, out, _ = ran(capsys, verb, *sides, "-o", page)
        text = page.read_text()
        assert (got, f"wrote {page}" in out) == (code, True)
        assert f">{word}</span>" in text and text.count("<svg") == 3 + 6 and "://" not in text
        assert ran(capsys, verb, *sides, "-o", page)[0] == 2  # it exists


def test_a_page_says_why_nothing_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "gate.html"
    code, out, err = ran(capsys, "gate", HEALTHY, SAMPLES / "nsight_before", "-o", page)
    assert (code, out) == (3, "") and len(err.splitlines()) == 1
    assert "NOT COMPARABLE" in page.read_text() and "world size: 8 and 4" in page.read_text()
    assert ran(capsys, "compare", HEALTHY, tmp_path / "nothing", "-o", page, "--force")[0] == 2
    assert "NO VERDICT" in page.read_text()  # that of an earlier run does not stand
    page.write_text("mine")
    assert ran(capsys, "compare", HEALTHY, tmp_path / "nothing", "-o", page, "--force")[0] == 2
    assert page.read_text() == "mine"


def test_a_report_beside_a_baseline(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "report.html"
    flags = ("--baseline", saved / "healthy.json", "-o", page, "--no-charts", "-q")
    assert ran(capsys, "analyze", SLOW, *flags)[0] == 0
    assert 'id="against"' in page.read_text() and "+35.9 %: FAIL" in page.read_text()


def test_an_input_is_never_replaced(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    mine = shutil.copy(saved / "healthy.json", tmp_path / "mine.json")
    before = Path(mine).read_bytes()
    for flag in ("--json", "--markdown", "--junit", "--output"):
        code, _, err = ran(capsys, "gate", mine, saved / "slow_rank.json", flag, mine, "--force")
        assert code == 2 and "is an input" in err
    assert Path(mine).read_bytes() == before


def test_an_output_is_named_once(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    base, one = saved / "healthy.json", tmp_path / "one"
    for first, second in ((one, f"{tmp_path}/./one"), ("-", "-")):
        code, out, err = ran(capsys, "gate", base, base, "--json", first, "--markdown", second)
        assert (code, out) == (2, "") and "is named for two outputs" in err
    assert not one.exists()
    code, out, err = ran(capsys, "gate", base, base, "--json", "")
    assert (code, out) == (2, "") and "empty name" in err
    assert ran(capsys, "gate", base, base, "--json", "/dev/null", "--markdown", "/dev/null")[0] == 0


def test_stdout_holds_the_xml_only(saved: Path, capsys: pytest.CaptureFixture[str]):
    _, out, _ = ran(capsys, "gate", saved / "healthy.json", saved / "healthy.json", "--junit", "-")
    assert ET.fromstring(out).attrib["tests"] == "1"


def test_an_old_verdict_does_not_stand_where_there_is_none(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    xml, base, empty = tmp_path / "g.xml", saved / "healthy.json", tmp_path / "empty"
    empty.mkdir()
    for other, status in ((SAMPLES / "nsight_before", 3), (empty, 2)):
        assert ran(capsys, "gate", base, base, "--junit", xml, "--force")[0] == 0
        code, _, err = ran(capsys, "gate", base, other, "--junit", xml, "--force")
        found = ET.parse(xml).getroot()
        assert code == status and found.attrib["errors"] == "1"
        assert found.find("testsuite/testcase/error").attrib["message"] in err
    mine = Path(shutil.copy(base, tmp_path / "mine.json"))
    assert ran(capsys, "gate", base, empty, "--junit", mine, "--force")[0] == 2
    assert mine.read_bytes() == base.read_bytes()


def test_hostile_names_make_no_broken_xml(tmp_path: Path, saved: Path, capsys: pytest.CaptureFixture[str]):
    bad = "\x1b[31m\x00\x08\ufffe\n</system-out><b>]]>" * 200
    document = json.loads((saved / "slow_rank.json").read_text())
    document["run"].update(name=bad, device_names=[bad])
    document["findings"][0].update(id="other", title=bad)
    for kernel in document["kernels"]:
        kernel["name"] = bad
    path, xml = tmp_path / "bad.json", tmp_path / "g.xml"
    path.write_text(json.dumps(document))
    for more in ((), ("--allow-different",)):
        _, out, err = ran(capsys, "gate", saved / "healthy.json", path, "--junit", xml, "--force", *more)
        assert "\x1b" not in out + err and len(err.splitlines()) == (not more) and len(err) < 500
        assert len(ET.parse(xml).getroot().findall(".//testcase")) == 1


def test_a_calibration_is_a_share_and_replaces_no_input(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    base = saved / "healthy.json"
    noise = tmp_path / "n.json"
    for wrong in ("-1", "1e30", "1"):
        noise.write_text(f'{{"run_noise":{wrong},"runs":3,"names":[],"schema":"traceview.calibration/1"}}')
        code, _, err = ran(capsys, "gate", base, base, "--run-noise", noise)
        assert code == 2 and "no calibration" in err
    assert ran(capsys, "gate", base, base, "--run-noise", "1e-2")[0] == 0
    mine = Path(shutil.copy(base, tmp_path / "mine.json"))
    code, _, err = ran(capsys, "gate", mine, "--calibrate", mine, "--force")
    assert code == 2 and "is an input" in err and mine.read_bytes() == base.read_bytes()
    code, _, err = ran(capsys, "gate", base, "--calibrate", tmp_path / "c", "--json", tmp_path / "j")
    assert code == 2 and "judges nothing" in err


def test_the_gate_loads_no_chart_library():
    """A gate in CI never pays for HoloViews."""
    code = (
        "import sys; from traceview.cli import entry; "
        f"entry(['gate', {HEALTHY!r}, {HEALTHY!r}, '-q']); "
        "print(sorted({'holoviews', 'bokeh', 'pandas'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert shown.stdout.strip() == "[]"


def test_analyze_beside_a_baseline(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    base = saved / "healthy.json"
    code, out, _ = ran(capsys, "analyze", SLOW, "--baseline", base)
    assert code == 0 and "35.9 % over the baseline healthy (73.5 ms)" in " ".join(out.split())
    before = base.read_bytes()
    assert ran(capsys, "analyze", SLOW, "--baseline", base, "--json", base, "--force", "-q")[0] == 2
    assert base.read_bytes() == before
