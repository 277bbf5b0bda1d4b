"""MFU and the ceiling of goodput (METHODS g), worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.analysis import mfu, peaks
from traceview.analysis.mfu import Work
from traceview.config import DEFAULT
from traceview.errors import TraceviewError
from traceview.pipeline import utilisation
from traceview.pipeline.values import Lanes, StudyOptions
from traceview.result import Metric, Result
from traceview.schema import GPU_CLASSES

from .results import result, window

H100 = "NVIDIA H100 80GB HBM3"
BF16 = {"nvjet_tst_128": 900, "nvjet_qqtst_128": 100}


def kernels(names: dict[str, int]) -> list[pl.DataFrame]:
    compute = GPU_CLASSES.index("compute")
    columns = {"name": list(names), "ns": list(names.values()), "cls": [compute] * len(names)}
    return [pl.DataFrame(columns, schema={"name": pl.String, "ns": pl.Int64, "cls": pl.Int8})]


def filled(
    work: Work,
    *,
    device: str = H100,
    step_ms: float = 1000,
    names: dict[str, int] | None = None,
    ranks: int = 2,
    world: int | None = None,
    flops: float = 0.0,
    **how: Any,
) -> Result:
    """A run of one step, half of it compute."""
    half = step_ms / 2
    value = result([window(r, 1, compute=half, idle_host=half) for r in range(ranks)], world)
    for row in value.rank_rows:
        row.device_name = device
    for name in ("goodput", "compute_share"):
        value.metrics[name] = Metric(0.5, "fraction", ranks, "", "proved")
    value.metrics["step_time"] = Metric(step_ms * 1e6, "ns", 1, "", "proved")
    lanes = Lanes(kernels=kernels(BF16 if names is None else names), flops=flops, flops_ns=750)
    utilisation.fill(value, lanes, StudyOptions(work=work, **how))
    return value


def test_by_hand() -> None:
    """6 x 1e9 x 98,900 tokens in 1 s on 2 GPUs of 989e12: 0.3; computing half of the time, 0.6 of it."""
    m = filled(Work(params=1e9, tokens_per_step=98_900)).metrics
    assert m["mfu"].value == pytest.approx(0.3) and m["mfu"].quality == "proved"
    assert m["mfu_of_compute"].value == pytest.approx(0.6)
    assert m["goodput_ceiling"].value == pytest.approx(0.5 * 989e12)
    assert m["goodput_ceiling"].quality == "upper_bound"
    for told in (
        "6 N, attention not counted, N = 1B, 98.9k tokens",
        "dense bf16 peak 989 TFLOP/s of NVIDIA H100",
        "2 GPUs",
    ):
        assert told in m["mfu"].basis
    assert "bf16 90.0 %, fp8 10.0 %" in m["mfu"].basis


@pytest.mark.parametrize(
    ("attention", "token", "words"),
    [
        ("full", 6 * 7e9 + 12 * 32 * 4096 * 2048, "12 L HQ T (full attention)"),
        ("causal", 6 * 7e9 + 6 * 32 * 4096 * 2048, "6 L HQ T (causal attention)"),
        (None, 6 * 7e9 + 6 * 32 * 4096 * 2048, "6 L HQ T (causal attention)"),
    ],
)
def test_attention_is_counted_as_told(attention: str | None, token: float, words: str) -> None:
    shape = {"layers": 32, "hidden": 4096, "seq_len": 2048}
    told = Work(params=7e9, tokens_per_step=1000, attention=attention, **shape).flops()
    assert told is not None and told[0] == pytest.approx(token * 1000) and words in told[1]


def test_the_attention_term_of_a_large_model() -> None:
    """405B at 8k: 8.4 % on top of 6 N, or half of it."""
    shape = {"params": 405e9, "tokens_per_step": 1, "layers": 126, "hidden": 16384, "seq_len": 8192}
    for kind, more in (("full", 0.084), ("causal", 0.042)):
        told = Work(**shape, attention=kind).flops()
        assert told is not None and told[0] / (6 * 405e9) - 1 == pytest.approx(more, abs=0.001)


@given(params=st.floats(1e6, 1e9), step_ms=st.integers(1000, 100_000))
def test_half_as_fast_is_half_of_it(params: float, step_ms: int) -> None:
    work = Work(params=params, tokens_per_step=1000)
    fast, slow = (filled(work, step_ms=ms).metrics["mfu"].value for ms in (step_ms, 2 * step_ms))
    assert fast is not None and slow is not None and slow == pytest.approx(fast / 2)


def test_all_gpus_of_the_job_count_and_unseen_ranks_are_told() -> None:
    value = filled(Work(flops_per_step=989e12), ranks=2, world=8).metrics["mfu"]
    assert value.value == pytest.approx(1 / 8) and value.quality == "estimated"
    assert "8 GPUs (6 of 8 ranks not seen)" in value.basis and "FLOPs a step as given" in value.basis


@pytest.mark.parametrize(
    ("work", "given", "reason"),
    [
        (Work(), {}, "needs the model's FLOPs: --params"),
        (
            Work(flops_per_step=1e12),
            {"device": "NVIDIA H100"},
            "no dense bf16 peak of NVIDIA H100 is known: .*--peak-f",
        ),
        (Work(flops_per_step=1e12), {"device": ""}, "of a GPU that the trace does not name is known"),
        (Work(flops_per_step=1e12), {"device": f"{H100} MIG 1g.10gb"}, "no dense bf16 peak"),
        (
            Work(flops_per_step=1e12),
            {"device": "NVIDIA A100-SXM4-80GB", "names": {"nvjet_qqtst": 9}},
            "no dense fp8 peak",
        ),
        (Work(flops_per_step=1e12), {"names": {}}, "no matmul was recorded"),
        (
            Work(flops_per_step=1e12),
            {"names": {"gemm": 9, "nvjet_tst": 1}},
            "untold 90.0 %, bf16 10.0 %.*--precision",
        ),
        (
            Work(flops_per_step=1e12, precision="fp8"),
            {"names": {"nvjet_tst": 9}},
            "fp8 is not what ran: .* bf16 100.0 %",
        ),
        (Work(flops_per_step=1e16), {}, "5.06 x what the GPUs can do: check the FLOPs and the peak"),
    ],
)
def test_without_a_basis_no_number(work: Work, given: dict[str, Any], reason: str) -> None:
    value = filled(work, **given)
    metric = value.metrics["mfu"]
    assert (metric.value, metric.quality) == (None, "unavailable")
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(metric.basis)
    assert value.quality.warnings == ([f"no MFU: {metric.basis}"] if work != Work() else [])
    assert value.metrics["mfu_of_compute"].value is None


def test_a_run_without_steps_has_no_tokens_a_step() -> None:
    value = result([window(0, 0, compute=5)])
    value.run.steps.source = "all"
    value.metrics = {n: Metric(1.0, "fraction", 1, "", "proved") for n in ("goodput", "compute_share", "step_time")}
    utilisation.fill(
        value, Lanes(kernels=kernels(BF16)), StudyOptions(work=Work(flops_per_step=1.0, peak_flops=1e12))
    )
    assert value.metrics["mfu"].value is None and "--step-range" in value.metrics["mfu"].basis


def test_arithmetic_above_the_peak_is_doubtful() -> None:
    value = filled(Work(flops_per_step=2 * 989e12 * 0.75))
    assert value.metrics["mfu"].value == pytest.approx(0.75)
    assert value.metrics["mfu_of_compute"].value is None
    assert value.quality.warnings[0].startswith("MFU is doubtful: the compute time seen would need 1.5 x the peak")


def test_executed_flops_are_a_lower_bound_of_their_own_kind() -> None:
    """2 ranks x 1 s x 989e12 could do 1,978e12; the shapes tell a quarter of it, of 750 of 1,000 ns of compute."""
    m = filled(Work(), flops=1978e12 / 4).metrics
    assert (m["hfu"].value, m["hfu"].quality) == (pytest.approx(0.25), "lower_bound")
    assert "75.0 % of the compute time" in m["hfu"].basis and "dense bf16 peak 989 TFLOP/s" in m["hfu"].basis
    assert m["mfu"].value is None
    none, unknown, above = filled(Work()), filled(Work(), flops=1.0, device="x"), filled(Work(), flops=1e18)
    for value, reason in ((none, "no shapes"), (unknown, "no dense bf16 peak of x"), (above, "506 x the peak")):
        assert value.metrics["hfu"].value is None and reason in value.metrics["hfu"].basis


def test_what_the_user_says_of_the_peak_goes_first(tmp_path: Path) -> None:
    work = Work(flops_per_step=1e14, peak_flops=1e14)
    assert filled(work, device="anything").metrics["mfu"].value == pytest.approx(0.5)
    path = tmp_path / "peaks.json"
    path.write_text('{"flops": [{"match": "H100", "dense_tflops": {"bf16": 100}}]}')
    value = filled(Work(flops_per_step=1e14), peaks=str(path)).metrics["mfu"]
    assert value.value == pytest.approx(0.5) and "dense bf16 peak 100 TFLOP/s" in value.basis
    mixed = filled(Work(flops_per_step=1e12, precision="fp8"), names={"nvjet_qqtst": 5, "nvjet_tst": 5})
    assert "dense fp8 peak 1,979 TFLOP/s" in mixed.metrics["mfu"].basis


def test_unlike_gpus_have_their_mean() -> None:
    found = mfu.peak([H100, "NVIDIA A100-SXM4-80GB"], {"bf16": 1}, Work(), peaks.load(), DEFAULT)
    assert found.flops == pytest.approx((989e12 + 312e12) / 2)
    assert "NVIDIA A100-SXM4-80GB and NVIDIA H100 80GB HBM3" in found.basis


@pytest.mark.parametrize(
    "text",
    ['{"flops": [{"match": "(", "dense_tflops": {}}]}', '{"flops": [{"match": "x", "dense_tflops": {"bf16": -1}}]}'],
)
def test_a_peaks_file_that_cannot_be_meant(text: str, tmp_path: Path) -> None:
    path = tmp_path / "peaks.json"
    path.write_text(text)
    with pytest.raises(TraceviewError, match="not a peaks file"):
        peaks.load(path)


@pytest.mark.parametrize(
    ("device", "precision", "tflops"),
    [
        (H100, "bf16", 989),
        (H100, "fp8", 1979),
        ("NVIDIA H100 PCIe", "bf16", 756),
        ("NVIDIA H200", "bf16", 989),
        ("NVIDIA H100 NVL", "bf16", None),
        ("NVIDIA A100-SXM4-40GB", "bf16", 312),
        ("NVIDIA A100-PG509-200", "tf32", 156),
        ("NVIDIA A100 80GB PCIe", "bf16", 312),
        ("NVIDIA A10", "bf16", 125),
        ("NVIDIA A10G", "bf16", None),
        ("NVIDIA L4", "bf16", 121),
        ("NVIDIA L40", "bf16", 181),
        ("NVIDIA L40S", "bf16", 362),
        ("Tesla V100-SXM2-16GB", "fp16", 125),
        ("Tesla V100-PCIE-16GB", "fp16", 112),
        ("NVIDIA RTX A6000", "bf16", 154.8),
        ("NVIDIA RTX 6000 Ada Generation", "bf16", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16", None),
        ("NVIDIA B200", "bf16", 2250),
        ("NVIDIA GB200", "bf16", 2500),
        ("NVIDIA GH200 480GB", "bf16", 989),
        ("AMD Instinct MI300X", "bf16", 1307.4),
        ("AMD Instinct MI250X", "bf16", 191.5),
        ("AMD Radeon Graphics", "bf16", None),
    ],
)
def test_models_by_their_names(device: str, precision: str, tflops: float | None) -> None:
    found = peaks.load().dense(device, precision)
    assert found == (tflops if tflops is None else pytest.approx(tflops * 1e12))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"params": -1.0, "tokens_per_step": 1.0}, "--params -1: give a number above 0"),
        ({"params": 1.0, "tokens_per_step": 0.0}, "--tokens-per-step 0"),
        ({"flops_per_step": 1e99}, r"--flops-per-step 1e\+99"),
        ({"peak_flops": float("nan")}, "--peak-flops nan"),
        ({"params": 1.0}, "--params and --tokens-per-step together"),
        ({"layers": 1.0, "hidden": 1.0, "seq_len": 1.0}, "--params and --tokens-per-step together"),
        ({"params": 1.0, "tokens_per_step": 1.0, "layers": 1.0}, "--layers, --hidden and --seq-len together"),
        ({"attention": "full"}, "--attention full needs --layers"),
        ({"flops_per_step": 1.0, "params": 1.0, "tokens_per_step": 1.0}, "--flops-per-step is the whole work"),
        ({"precision": "int8"}, "--precision int8: give one of"),
        ({"params": 1.0, "tokens_per_step": 1.0, "attention": "half"}, "--attention half: give one of causal, full"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(TraceviewError, match=reason):
        Work(**given)
