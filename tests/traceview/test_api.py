"""The Python API as documented."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview as tv

SAMPLES = Path(__file__).parents[2] / "sample_traces"


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEVIEW_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def test_a_path_and_a_run_give_the_same(tmp_path: Path) -> None:
    run = tv.open(SAMPLES / "healthy")
    result = tv.analyze(run)
    assert result == tv.analyze(SAMPLES / "healthy")
    assert result.verdict.status == "healthy"
    tv.to_html(result, tmp_path / "r.html", run)
    assert (tmp_path / "r.html").stat().st_size > 100_000


def test_tables_go_to_pandas_and_polars() -> None:
    result = tv.analyze(SAMPLES / "healthy")
    windows = result.windows()
    assert windows.num_rows == 8 * 9
    assert tv.to_pandas(windows)["compute_ns"].sum() == tv.to_polars(windows)["compute_ns"].sum()
    assert result.steps().num_rows == 9
    assert result.collectives().num_rows >= 1
    assert result.stragglers().num_rows == 0


def test_errors_are_one_class() -> None:
    with pytest.raises(tv.TraceviewError, match="nowhere"):
        tv.open("nowhere")


def test_exported_names_exist() -> None:
    assert all(hasattr(tv, name) for name in tv.__all__)


def test_completion_shows_what_is_loaded_on_first_use() -> None:
    assert {"open", "analyze", "to_html", "to_polars", "to_pandas"} <= set(dir(tv))
