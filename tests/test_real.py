"""Real traces through the whole pipeline: every file ends well, every window adds up, known facts come out."""

from __future__ import annotations

import base64
import gzip
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import traceview as tv
from traceview.cli import entry
from traceview.result import Result
from traceview.schema import GPU_OPS

ROOT = Path(__file__).parents[1]
SHARED = next((p / "shared" for p in (ROOT.parent, ROOT.parent.parent) if (p / "shared" / "traces").is_dir()), None)
pytestmark = pytest.mark.skipif(SHARED is None, reason="the folder of real traces (../shared/traces) is not here")
TRACES = (SHARED or ROOT) / "traces"

TORCH = sorted(
    p
    for p in (*TRACES.glob("torch/*"), *TRACES.glob("torch/generated/*"), *TRACES.glob("torch/broken/*"))
    if p.name not in ("broken", "generated")
)
UNUSABLE = {"empty.json", "object_without_traceEvents.json"}


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEVIEW_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def analysed(path: Path, out: Path) -> Result:
    assert entry(["analyze", str(path), "--json", str(out), "-q"]) == 0
    result = Result.load(out)
    for w in result.window_rows:
        assert sum(w.leaves_ns.values()) == w.end_ns - w.start_ns
        assert all(ns >= 0 for ns in w.leaves_ns.values())
    assert sum(result.budget.leaves_ns.values()) == result.budget.wall_ns
    assert result.verdict.headline
    return result


@pytest.mark.parametrize("path", TORCH, ids=lambda p: p.name)
def test_every_torch_file_ends_well(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if path.name in UNUSABLE:
        assert entry(["analyze", str(path)]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
        return
    analysed(path, tmp_path / "r.json")


def test_torchrec_two_ranks(tmp_path: Path) -> None:
    result = analysed(TRACES / "torch/torchrec_resnet18_2ranks", tmp_path / "r.json")
    assert result.run.ranks == [0, 1] and result.run.world_size == 2
    assert len(result.run.steps.used) + len(result.run.steps.excluded) == 3
    assert sum(m.matched for m in result.matching) == 24 // 2
    assert sum(b.blame_ns for b in result.blame) <= result.budget.sub_ns.get("comm_wait.nxn", 0)


def test_the_missing_peer_leaves_communication_unresolved(tmp_path: Path) -> None:
    result = analysed(TRACES / "torch/a100_rank0of2_nccl_metadata.json.gz", tmp_path / "r.json")
    assert result.run.missing_ranks == [1]
    assert result.budget.leaves_ns["comm_unresolved"] > 0
    assert result.budget.leaves_ns["comm_wait"] == result.budget.leaves_ns["comm_transfer"] == 0
    assert len(result.run.steps.used) + len(result.run.steps.excluded) == 3


def test_cpu_only_with_gloo_says_what_is_missing(tmp_path: Path) -> None:
    result = analysed(TRACES / "torch/cpu_gloo_rank34of300.json.gz", tmp_path / "r.json")
    assert result.run.ranks == [34] and result.run.world_size == 300
    assert result.verdict.status == "cannot_tell" and "no GPU activity" in result.verdict.headline
    assert result.metrics["goodput"].quality == "unavailable"
    assert sum(c.exposed_ns for c in result.collective_rows) == result.budget.leaves_ns["comm_host"]
    assert result.metrics["step_time_p95"].value == result.metrics["step_time_max"].value  # of four steps


def test_a_trace_without_steps_says_how_it_was_cut(tmp_path: Path) -> None:
    result = analysed(TRACES / "torch/vit_cudagraph_nosteps.json.gz", tmp_path / "r.json")
    assert result.run.steps.source in ("period", "all")
    assert any("period" in w or "no steps" in w for w in result.quality.warnings)


def test_gloo_collectives_of_four_processes_are_matched(tmp_path: Path) -> None:
    result = analysed(TRACES / "torch/generated/ddp4_shapes", tmp_path / "r.json")
    assert result.run.ranks == [0, 1, 2, 3]
    assert sum(m.matched for m in result.matching) > 0
    assert result.budget.leaves_ns["comm_host"] > 0


NSIGHT = sorted(TRACES.glob("nsight/*.sqlite"))
SECRETS = (b"planted-secret", b"AWS_SECRET")


def unpacked(page: str) -> bytes:
    """The page with what is packed into it (gzip in base64) unpacked beside it."""
    packed = re.findall(r"[A-Za-z0-9+/]{200,}={0,2}", page)
    blobs = [base64.b64decode(p + "=" * (-len(p) % 4)) for p in packed]
    plain = [gzip.decompress(b) for b in blobs if b[:2] == b"\x1f\x8b"]
    assert plain
    return page.encode() + b"".join(plain)


@pytest.mark.parametrize("path", NSIGHT, ids=lambda p: p.name)
def test_every_nsight_file_ends_well_and_no_secret_gets_out(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRACEVIEW_CACHE", str(tmp_path / "cache"))
    analysed(path, tmp_path / "r.json")
    outputs = ["-o", str(tmp_path / "r.html"), "--tables", str(tmp_path / "t"), "--markdown", str(tmp_path / "r.md")]
    assert entry(["analyze", str(path), "-v", *outputs]) == 0
    assert entry(["inspect", str(path)]) == 0
    said = capfd.readouterr()
    texts = [said.out.encode(), said.err.encode(), unpacked((tmp_path / "r.html").read_text())]
    texts += [
        f.read_bytes() for f in tmp_path.rglob("*") if f.suffix in (".json", ".md", ".arrow", "") and f.is_file()
    ]
    texts += [repr(pq.read_table(f).to_pydict()).encode() for f in tmp_path.glob("t/*.parquet")]
    assert len(texts) > 8
    assert not [secret for secret in SECRETS for text in texts if secret in text]


def test_two_ranks_of_one_report_with_their_copies(tmp_path: Path) -> None:
    result = analysed(TRACES / "nsight/mfu_2gpu_before.sqlite", tmp_path / "r.json")
    assert result.run.ranks == [0, 1]
    run = tv.open(TRACES / "nsight/mfu_2gpu_before.sqlite")
    names = [run.table(GPU_OPS, r)["cls"].to_pylist() for r in run.ranks]
    copies = {"pcie_h2d", "pcie_d2h", "gpu_d2d", "peer_copy"}
    assert sum(c in copies for n in names for c in n) == 1020
    assert sum(c in ("compute", "comm") for n in names for c in n) == 4010


def test_a_report_with_ranges_only_says_what_is_missing(tmp_path: Path) -> None:
    result = analysed(TRACES / "nsight/nvtx_only_centerformer.sqlite", tmp_path / "r.json")
    assert result.verdict.status == "cannot_tell" and "no GPU activity" in result.verdict.headline
