"""Real traces through the whole pipeline: every file ends well, every window adds up, known facts come out."""

from __future__ import annotations

from pathlib import Path

import pytest

from traceview.cli import entry
from traceview.result import Result

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


def test_a_trace_without_steps_says_how_it_was_cut(tmp_path: Path) -> None:
    result = analysed(TRACES / "torch/vit_cudagraph_nosteps.json.gz", tmp_path / "r.json")
    assert result.run.steps.source in ("period", "all")
    assert any("period" in w or "no steps" in w for w in result.quality.warnings)


def test_gloo_collectives_of_four_processes_are_matched(tmp_path: Path) -> None:
    result = analysed(TRACES / "torch/generated/ddp4_shapes", tmp_path / "r.json")
    assert result.run.ranks == [0, 1, 2, 3]
    assert sum(m.matched for m in result.matching) > 0
    assert result.budget.leaves_ns["comm_host"] > 0
