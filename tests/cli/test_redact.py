"""``--redact``: planted names reach no output; the numbers are the same with and without."""

from __future__ import annotations

import base64
import gzip
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
import pytest

from traceview.cli import entry, options
from traceview.cli.names import Names
from traceview.errors import InternalError
from traceview.redact import Redactor, key
from traceview.result import Result

from .conftest import SAMPLES

PLANTED = {
    "node-1": "falcongpu7.acmecorp",
    "eth0:10.0.0.1": "acmefabric9:10.77.1.2",
    "NVIDIA A100-SXM4-80GB": "NVIDIA A100-SXM4-80GB",
    "aten::linear": "nn.Module: ZephyrAttention_0",
    "AddBackward0": "zephyr.models.router.ZephyrRouter.forward",
    "MmBackward0": "walterx@acmecorp.example ghp_16C7e42F292c6912E7710c838347Ae178B4a 10.77.1.2 /home/walterx/a",
    "pytorch_flash::flash_fwd_kernel": "zephyr::secret_router_kernel",
    "default_pg": "zephyr_pg",
}
SECRETS = re.compile(
    r"falcongpu|acmecorp|acmefabric|10\.77\.1\.2|10\.0\.0\.\d|zephyr|walterx|ghp_16|secret_router|node-[12]\b|pytest-of",
    re.I,
)


@pytest.fixture(autouse=True)
def _key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A sample under other names: host, module, kernel, group, and an annotation that tells everything."""
    folder = tmp_path / "home/walterx/zephyr-job"
    folder.mkdir(parents=True)
    for path in (SAMPLES / "host_staged").iterdir():
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
        for old, new in PLANTED.items():
            text = text.replace(old, new)
        name = path.name.replace("node-1", PLANTED["node-1"])
        (folder / name).write_bytes(gzip.compress(text.encode(), 1) if path.suffix == ".gz" else text.encode())
    (folder / "zephyr.json").write_text("{")
    return folder


def ran(capsys: pytest.CaptureFixture[str], *command: object) -> tuple[int, str]:
    """(exit code, what was printed)."""
    code = entry([str(c) for c in command])
    said = capsys.readouterr()
    return code, said.out + said.err


def text_of(path: Path) -> str:
    """Everything that a file holds, packed parts unpacked."""
    data = path.read_bytes()
    if path.suffix == ".parquet":
        return repr(pq.read_table(path).to_pydict())
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode(errors="replace")
    packed = re.findall(r"[A-Za-z0-9+/]{200,}={0,2}", text) if path.suffix == ".html" else []
    blobs = [base64.b64decode(p + "=" * (-len(p) % 4)) for p in packed]
    plain = [gzip.decompress(b).decode(errors="replace") for b in blobs if b[:2] == b"\x1f\x8b"]
    assert path.name != "r.html" or plain
    return text + "".join(plain)


def leaks(out: Path, *said: str) -> list[str]:
    """Secrets in the files of a folder and in what was printed."""
    texts = {str(p.relative_to(out)): text_of(p) for p in out.rglob("*") if p.is_file()}
    texts |= {f"printed {i}": text for i, text in enumerate(said)}
    texts |= {f"name {name}": name for name in list(texts)}
    return [f"{name}: {found.group()}" for name, text in texts.items() if (found := SECRETS.search(text))]


def test_the_plant_is_seen_without_redact(planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out"
    out.mkdir()
    assert (
        ran(capsys, "analyze", planted, "--json", out / "r.json", "-o", out / "r.html", "--no-charts", "-q")[0] == 0
    )
    text = text_of(out / "r.json") + text_of(out / "r.html")
    hidden = [s for s in ("falcongpu7.acmecorp", "ZephyrAttention", "ghp_16", "walterx@", "secret_router", "node-2")]
    assert not [s for s in hidden if s not in text]


def test_no_output_of_analyze_export_inspect_tells_a_name(
    planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out, names = tmp_path / "out", tmp_path / "map.json"
    out.mkdir()
    files = ["-o", out / "r.html", "--json", out / "r.json", "--markdown", out / "r.md", "--tables", out / "t"]
    code, first = ran(capsys, "analyze", planted, "-v", "--redact", *files, "--redact-map", names)
    assert code == 0 and "host-" in first and "names are pseudonyms" in first
    code, second = ran(capsys, "export", planted, "--redact", "-o", out / "w.json.gz")
    assert code == 0
    code, third = ran(capsys, "inspect", planted, "--redact", "--json", out / "i.json")
    assert code == 0 and "4 of 4 ranks" in third and "zephyr" not in third
    assert not leaks(out, first, second, third)
    assert len(list(out.glob("t/*.parquet"))) > 8
    told = json.loads(names.read_text())
    assert {"falcongpu7.acmecorp", "node-2", "walterx", "ZephyrAttention"} <= set(told.values())
    assert names.stat().st_mode & 0o077 == 0
    result = Result.load(out / "r.json")
    assert {told[h] for h in result.run.hosts} == {"falcongpu7.acmecorp", "node-2"}
    assert result.run.device_names == ["NVIDIA A100-SXM4-80GB"]


def test_compare_gate_and_history_tell_no_name(planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out, saved = tmp_path / "out", tmp_path / "saved.json"
    out.mkdir()
    said = [ran(capsys, "analyze", planted, "--json", saved, "-q")[1]]
    files = ["--json", out / "c.json", "--markdown", out / "c.md", "-o", out / "c.html"]
    said.append(ran(capsys, "compare", saved, planted, "--redact", "-v", *files)[1])
    said.append(ran(capsys, "gate", saved, planted, "--redact", "--junit", out / "g.xml")[1])
    said.append(ran(capsys, "analyze", planted, "--baseline", saved, "--redact", "--json", out / "b.json")[1])
    away = planted / "node-2_9.9.pt.trace.json"
    said.append(ran(capsys, "gate", saved, away, "--redact", "--junit", out / "e.xml", "-o", out / "e.html")[1])
    assert "no such file" in (out / "e.xml").read_text()
    db, job = out / "h.sqlite", ["--job", "zephyr-pretrain", "--label", "walterx/try3"]
    said.append(
        ran(capsys, "history", saved, "--db", db, *job, "--redact", "--markdown", out / "h.md", "-o", out / "h.html")[
            1
        ]
    )
    assert said[-1].startswith("1 added") and "SAME" in said[1] and "PASS" in said[2]
    assert (
        ran(capsys, "history", "--db", db, "--job", "zephyr-pretrain", "--redact", "--json", out / "h.json")[0] == 0
    )
    assert not leaks(out, *said)
    plain = tmp_path / "plain.sqlite"
    assert ran(capsys, "history", saved, "--db", plain, *job)[0] == 0
    code, shown = ran(capsys, "history", "--db", plain, "--redact", "-v")
    assert code == 0 and "name-" in shown and not leaks(out, shown)
    with sqlite3.connect(db) as kept:
        assert "host_staged" not in str(kept.execute("select * from traceview_runs").fetchall())


@pytest.mark.parametrize(
    "command",
    [
        ("analyze", "/home/walterx/zephyr/none.json"),
        ("analyze", "{planted}/zephyr.json"),
        ("analyze", "{planted}", "--topology", "/home/walterx/zephyr.csv"),
        ("analyze", "{planted}", "-o", "/home/walterx/zephyr/r.html"),
        ("export", "{planted}", "-o", "w.json", "--step", "77"),
        ("gate", "{planted}", "/home/walterx/zephyr/none.json"),
        ("zephyr-verb", "--redact"),
        ("analyze", "{planted}/node-2_9.17.pt.trace.json", "{planted}"),
        ("analyze", "{planted}", "--data-range", "zephyr("),
    ],
)
def test_errors_tell_no_name(command: tuple[str, ...], planted: Path, capsys: pytest.CaptureFixture[str]):
    code, said = ran(capsys, *(c.format(planted=planted) for c in command), "--redact")
    assert code == 2 and said.startswith("traceview: ") and not SECRETS.search(said), said


def numbers(value: Any) -> Any:
    """A document without its texts."""
    if isinstance(value, dict):
        return [numbers(v) for v in value.values()]
    return [numbers(v) for v in value] if isinstance(value, list) else None if isinstance(value, str) else value


def named_again(result: Result, names: dict[str, str]) -> Any:
    """The document of a redacted result with what the pseudonyms stand for."""
    text = result.to_json().decode()
    for pseudonym, name in names.items():
        text = text.replace(pseudonym, name)
    return json.loads(text)


@pytest.mark.parametrize(
    "sample", ["healthy", "slow_rank", "exposed_comm", "host_staged", "hot_expert", "nsight_before"]
)
def test_the_verdict_is_the_same_but_for_names(sample: str, tmp_path: Path):
    plain, private, names = (tmp_path / f"{n}.json" for n in ("plain", "private", "map"))
    assert entry(["analyze", str(SAMPLES / sample), "--json", str(plain), "-q"]) == 0
    command = ["analyze", str(SAMPLES / sample), "--json", str(private), "-q", "--redact-map", str(names)]
    assert entry(command) == 0
    before, after = Result.load(plain), Result.load(private)
    assert after.run.redacted and after.quality.warnings.pop().startswith("names are pseudonyms")
    after.verdict.coverage = after.verdict.coverage.removesuffix("  names are pseudonyms")
    after.run.redacted = ""
    again = named_again(after, json.loads(names.read_text()))
    assert numbers(again) == numbers(json.loads(before.to_json()))
    assert again == json.loads(before.to_json())


def recorded(folder: Path) -> str:
    """Everything that the files of a run say."""
    out = [str(folder)]
    for path in folder.iterdir():
        data = path.read_bytes()
        out.append((gzip.decompress(data) if path.suffix == ".gz" else data).decode(errors="replace"))
    return "".join(out)


@pytest.mark.parametrize("sample", ["host_staged", "hot_expert", "nsight_before"])
def test_only_what_was_recorded_is_replaced(sample: str, tmp_path: Path):
    names = tmp_path / "map.json"
    assert (
        entry(["analyze", str(SAMPLES / sample), "--tables", str(tmp_path / "t"), "-q", "--redact-map", str(names)])
        == 0
    )
    told, text = json.loads(names.read_text()), recorded(SAMPLES / sample)
    assert told and not [name for name in told.values() if name not in text]


def test_a_verb_that_ignores_the_option_fails(capsys: pytest.CaptureFixture[str]):
    @click.command()
    @options.files
    def deaf(**given: Any) -> int:
        return 0

    with pytest.raises(InternalError, match="holds names"):
        deaf.main(["--redact"], standalone_mode=False, obj=Names(["--redact"]))
    assert deaf.main([], standalone_mode=False, obj=Names([])) == 0


def test_a_map_is_no_output_for_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    given = ["analyze", SAMPLES / "healthy", "--redact-map"]
    assert ran(capsys, *given, "-")[0] == 2
    assert ran(capsys, *given, tmp_path / "m", "--json", tmp_path / "m")[0] == 2
    (tmp_path / "m").write_text("mine")
    code, said = ran(capsys, *given, tmp_path / "m")
    assert code == 2 and "--force" in said and (tmp_path / "m").read_text() == "mine"


def test_one_key_gives_the_same_names_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    given = ["analyze", SAMPLES / "slow_rank", "--json", "-", "--redact-key"]
    hosts = []
    for name in ("k1", "k1", "k2"):
        code, said = ran(capsys, *given, tmp_path / name)
        assert code == 0
        hosts.append(list(json.loads(said)["run"]["hosts"]))
    assert hosts[0] == hosts[1] and not set(hosts[0]) & set(hosts[2])
    (tmp_path / "k3").write_text("short")
    code, said = ran(capsys, *given, tmp_path / "k3")
    assert code == 2 and "is no key" in said


def test_the_own_key_is_made_once_and_for_its_owner_only(tmp_path: Path):
    assert key.load() == key.load()
    assert key.location().stat().st_mode & 0o077 == 0
    assert Redactor(key.load()).text("zephyr") == Redactor(key.load()).text("zephyr") != "zephyr"
