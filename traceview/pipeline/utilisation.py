"""MFU and the ceiling that goodput leaves, into the metrics of a result (METHODS g)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from traceview import units
from traceview.analysis import mfu, peaks, precision
from traceview.pipeline.values import Lanes, StudyOptions
from traceview.result import Metric, Quality, Result
from traceview.schema import GPU_CLASSES

_COMPUTE = GPU_CLASSES.index("compute")
_ASK = "needs the model's FLOPs: --params and --tokens-per-step, or --flops-per-step"


def fill(result: Result, lanes: Lanes, how: StudyOptions) -> None:
    """Add the metrics ``mfu``, ``mfu_of_compute``, ``hfu`` and ``goodput_ceiling``.

    What the user asked for and cannot have is a warning too.
    """
    times = precision.matmul_ns(lanes.kernels)
    table = peaks.load(Path(how.peaks) if how.peaks else None)
    names = {row.rank: row.device_name for row in result.rank_rows}
    seen = sorted({(w.rank, w.device) for w in result.window_rows})
    peak = mfu.peak([names.get(rank, "") for rank, _ in seen], times, how.work, table, how.config)
    result.metrics["goodput_ceiling"] = _ceiling(result, peak)
    value = result.metrics["mfu"] = _mfu(result, peak, how.work, len(seen))
    result.metrics["mfu_of_compute"] = of_compute = _of_compute(result, value)
    result.metrics["hfu"] = _hfu(result, lanes, peak)
    if value.value is None and (how.work.flops() or (how.work != mfu.Work() and peak.flops is None)):
        result.quality.warnings.insert(0, f"no MFU: {value.basis}")  # asked for, so said first
    elif value.value is not None and of_compute.value is None:
        result.quality.warnings.insert(0, f"MFU is doubtful: {of_compute.basis}")


def _ceiling(result: Result, peak: mfu.Peak) -> Metric:
    """goodput x peak: what the GPUs could do at most in the time in which work progresses, FLOP/s of one."""
    goodput = result.metrics["goodput"]
    if peak.flops is None or goodput.value is None:
        return Metric(None, "FLOP/s", 0, peak.basis if goodput.value is not None else goodput.basis, "unavailable")
    return Metric(goodput.value * peak.flops, "FLOP/s", goodput.n, f"goodput x {peak.basis}", "upper_bound")


def _mfu(result: Result, peak: mfu.Peak, work: mfu.Work, lanes: int) -> Metric:
    told, walls = work.flops(), [s.wall_ns for s in result.step_rows]
    why = ""
    if told is None:
        why = _ASK if peak.flops is not None else f"{_ASK}; {peak.basis}"
    elif peak.flops is None:
        why = peak.basis
    elif not sum(walls) or result.run.steps.source == "all":
        why = "no steps were found, so the time of one is not known: --step-range names them"
    if why or told is None or peak.flops is None:
        return Metric(None, "fraction", len(walls), why, "unavailable")
    flops, formula = told
    gpus, seen = _gpus(result, lanes)
    mean_ns = sum(walls) / len(walls)
    value = flops / (mean_ns / 1e9) / gpus / peak.flops
    step = f"mean step {units.time(mean_ns)} on {units.count(gpus, 'GPU')}{seen}"
    if value > 1:
        why = f"{value:.3g} x what the GPUs can do: check the FLOPs and the peak. {formula}; {peak.basis}; {step}"
        return Metric(None, "fraction", len(walls), why, "unavailable")
    sure = not seen and result.metrics["step_time"].quality == "proved" and result.run.steps.source != "period"
    quality: Quality = "proved" if sure else "estimated"
    return Metric(value, "fraction", len(walls), f"{formula}; {peak.basis}; {step}", quality)


def _gpus(result: Result, lanes: int) -> tuple[int, str]:
    """GPUs of the job, and what to say when not all were seen."""
    size = result.run.world_size
    if size is None:
        return lanes, " (those seen: no file tells the size of the job)"
    missing = len(result.run.missing_ranks)
    return max(size, lanes), f" ({missing:,} of {size:,} ranks not seen)" if missing else ""


def _of_compute(result: Result, value: Metric) -> Metric:
    """MFU / compute share: the efficiency of the arithmetic itself."""
    compute = result.metrics["compute_share"]
    if value.value is None or not compute.value:
        return Metric(None, "fraction", 0, "needs MFU" if value.value is None else "no compute", "unavailable")
    share = value.value / compute.value
    if share > 1:
        why = f"the compute time seen would need {share:.3g} x the peak: check the FLOPs, and what is uncovered"
        return Metric(None, "fraction", value.n, why, "unavailable")
    return Metric(share, "fraction", value.n, f"MFU / compute share ({compute.value:.1%})", value.quality)


def _hfu(result: Result, lanes: Lanes, peak: mfu.Peak) -> Metric:
    """FLOPs of the operators with recorded shapes / (rank time x peak): what is not covered comes on top."""
    n, wall = len(result.window_rows), result.budget.wall_ns
    compute = sum(int(f.filter(pl.col("cls") == _COMPUTE)["ns"].sum()) for f in lanes.kernels)
    if not lanes.flops or not wall or not compute:
        return Metric(
            None, "fraction", n, "no shapes of products were recorded (record_shapes, with_flops)", "unavailable"
        )
    covered = f"{units.share(lanes.flops_ns / compute)} of the compute time"
    basis = f"{lanes.flops:.4g} FLOPs by the shapes of products and convolutions, {covered}; recomputation counts"
    if peak.flops is None:
        return Metric(None, "fraction", n, f"{peak.basis}; {basis}", "unavailable")
    value = lanes.flops / (wall / 1e9) / peak.flops
    if value > 1:
        return Metric(None, "fraction", n, f"{value:.3g} x the peak: check it. {basis}; {peak.basis}", "unavailable")
    return Metric(value, "fraction", n, f"{basis}; {peak.basis}", "lower_bound")
