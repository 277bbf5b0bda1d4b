"""The gate: is a candidate slower than its baseline by more than chance (METHODS i.2 to i.4)?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, stdev
from typing import Annotated, Literal

import msgspec
import numpy as np

from traceview import units
from traceview.analysis.statistics import Shift, paired, t_quantile, t_tail, unpaired
from traceview.config import DEFAULT, Config
from traceview.errors import TraceviewError
from traceview.result import Result
from traceview.result.versus import Decision, Outcome, Side


class Calibration(msgspec.Struct):
    """Spread of the median step time over runs of one program, as a fraction."""

    run_noise: Annotated[float, msgspec.Meta(ge=0, lt=1)]
    runs: int
    names: list[str]
    schema: Literal["traceview.calibration/1"] = "traceview.calibration/1"


@dataclass(frozen=True)
class _Runs:
    """Step times of the runs of one side."""

    names: list[str]
    times: list[dict[int, int]]
    """per run: step -> ns"""

    @classmethod
    def of(cls, results: Sequence[Result]) -> _Runs:
        for r in results:
            if not r.step_rows or any(s.wall_ns <= 0 for s in r.step_rows):
                raise TraceviewError(f"{r.run.name}: no step could be measured, so there is nothing to compare")
        return cls([r.run.name for r in results], [{s.step: s.wall_ns for s in r.step_rows} for r in results])

    @property
    def medians(self) -> list[float]:
        """Log of the median step time of each run."""
        return [log(float(np.median(list(t.values())))) for t in self.times]

    def side(self) -> Side:
        times = [[t[step] for step in sorted(t)] for t in self.times]
        return Side(self.names, [len(t) for t in times], [round(exp(m)) for m in self.medians], times)


def decide(
    baseline: Sequence[Result],
    candidate: Sequence[Result],
    *,
    minimum: float | None = None,
    run_noise: float | None = None,
    config: Config = DEFAULT,
) -> Decision:
    """Compare the step times of two sides.

    ``minimum``: changes up to this pass (default ``config.gate_min_change``). ``run_noise``: spread of the median
    step time from run to run, from a calibration (default ``config.gate_run_noise``); not used where the runs of
    the baseline show it themselves. TraceviewError if a run has no measured step.
    """
    base, other = _Runs.of(baseline), _Runs.of(candidate)
    least = config.gate_min_change if minimum is None else minimum
    noise = config.gate_run_noise if run_noise is None else run_noise
    many = [len(s.times) >= config.gate_min_runs for s in (base, other)]
    if all(many):
        test = _runs(base, other, least, config)
    elif many[0]:
        test = _against_runs(base, other, least, config)
    else:
        test = _steps(base, other, least, noise, config)
    return _decision(base, other, test)


def calibrate(results: Sequence[Result], config: Config = DEFAULT) -> Calibration:
    """Spread of the log median step time over runs of one and the same program (METHODS i.3)."""
    runs = _Runs.of(results)
    if len(runs.times) < config.gate_min_runs:
        few = units.count(len(runs.times), "run")
        raise TraceviewError(f"{few}: a calibration needs {config.gate_min_runs} different ones at least")
    return Calibration(stdev(runs.medians), len(runs.times), runs.names)


@dataclass(frozen=True)
class _Test:
    """A change against its limits, on log scale."""

    rule: str
    change: float
    threshold: float
    least: float
    noise: float
    low: float | None = None
    p_value: float | None = None
    doubt: str = ""
    """why nothing can be decided"""

    @property
    def outcome(self) -> Outcome:
        if self.doubt:
            return "INCONCLUSIVE"
        if self.change > self.threshold:
            return "FAIL"
        return "INCONCLUSIVE" if self.change > log(1 + self.least) else "PASS"

    @property
    def improved(self) -> bool:
        return self.outcome == "PASS" and self.change < -self.threshold

    @property
    def reason(self) -> str:
        told = f"the step time changed by {units.change_share(exp(self.change) - 1)}"
        chance = self.threshold > log(1 + self.least)
        limit = f"the {(exp(self.threshold) - 1) * 100:.1f} %"
        limit += " that chance and the spread between runs explain" if chance else " that are allowed"
        if self.doubt:
            return f"{told}, but {self.doubt}"
        if self.outcome == "FAIL":
            return f"{told}: more than {limit}"
        if self.outcome == "INCONCLUSIVE":
            return f"{told}: over {self.least * 100:.1f} %, but within {limit}"
        return f"{told}: faster, beyond chance" if self.improved else f"{told}: not over {self.least * 100:.1f} %"


def _decision(base: _Runs, other: _Runs, test: _Test) -> Decision:
    return Decision(
        outcome=test.outcome,
        reason=test.reason,
        change=exp(test.change) - 1,
        threshold=exp(test.threshold) - 1,
        minimum=test.least,
        improved=test.improved,
        rule=test.rule,
        run_noise=test.noise,
        baseline=base.side(),
        candidate=other.side(),
        low=None if test.low is None else exp(test.low) - 1,
        p_value=test.p_value,
    )


def _steps(base: _Runs, other: _Runs, least: float, noise: float, config: Config) -> _Test:
    """Rule G1: Hodges-Lehmann shift of the log step times against chance and the spread between runs."""
    rule, shift = _shift(base, other, config)
    spread = noise * sqrt(1 / len(base.times) + 1 / len(other.times))
    error = config.gate_autocorrelation * (shift.error or 0.0)
    threshold = max(log(1 + least), config.gate_z * sqrt(spread**2 + error**2))
    few = min(sum(len(t) for t in side.times) for side in (base, other))
    short = few < config.gate_min_steps or shift.low is None
    doubt = (
        f"{few} used steps on one side are too few: {config.gate_min_steps} are needed, 12 advised" if short else ""
    )
    return _Test(rule, shift.estimate, threshold, least, noise, shift.low, doubt=doubt)


def _shift(base: _Runs, other: _Runs, config: Config) -> tuple[str, Shift]:
    """Paired by step number where the steps of one run each go up and down together (METHODS i.4)."""
    if len(base.times) == len(other.times) == 1:
        first, second = base.times[0], other.times[0]
        common = sorted(first.keys() & second.keys())
        b, c = (np.log([t[k] for k in common]) for t in (first, second))
        if len(common) >= config.gate_min_steps and b.std() > 0 and c.std() > 0:
            complete = len(common) >= max(len(first), len(second))
            if complete and np.corrcoef(b, c)[0, 1] > config.gate_pair_correlation:
                return "paired steps", paired(c - b)
    b, c = (np.log([ns for t in side.times for ns in t.values()]) for side in (base, other))
    return "steps", unpaired(b, c)


def _runs(base: _Runs, other: _Runs, least: float, config: Config) -> _Test:
    """Rule G2: Welch's test on the log medians of the runs, one-sided, and an effect floor."""
    sides = (base.medians, other.medians)
    change = fmean(sides[1]) - fmean(sides[0])
    parts = [stdev(x) ** 2 / len(x) for x in sides]
    error = sqrt(sum(parts))
    p, limit = float(change <= 0), 0.0  # runs that agree to the nanosecond
    if error > 0:
        df = sum(parts) ** 2 / sum(p**2 / (len(x) - 1) for p, x in zip(parts, sides, strict=True))
        p, limit = t_tail(change / error, df), t_quantile(1 - config.gate_p, df) * error
    return _Test("runs", change, max(log(1 + least), limit), least, stdev(sides[0]), p_value=p)


def _against_runs(base: _Runs, other: _Runs, least: float, config: Config) -> _Test:
    """One or two runs against a pool of runs of the baseline (METHODS i.3)."""
    pool, few = base.medians, other.medians
    spread = stdev(pool)
    limit = t_quantile(1 - config.gate_p, len(pool) - 1) * sqrt(1 / len(few) + 1 / len(pool)) * spread
    change = fmean(few) - fmean(pool)
    return _Test("run against runs", change, max(log(1 + least), limit), least, spread)
