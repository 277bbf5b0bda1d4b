"""Model FLOPs utilisation (METHODS g): the work that the user tells against the dense peak of what ran it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from traceview import units
from traceview.analysis.peaks import Peaks
from traceview.analysis.precision import PRECISIONS
from traceview.config import Config
from traceview.errors import TraceviewError

ATTENTION = {"causal": 6, "full": 12}
"""A = this x L x H Q x T: the full square, or the half of it that a causal mask leaves"""
_SHAPE = ("layers", "hidden", "seq_len")
_MOST = 1e30
"""no count or rate of the real world is larger"""


@dataclass(frozen=True)
class Work:
    """What a user says about the arithmetic of a step; None = not told. TraceviewError if it cannot be meant."""

    params: float | None = None
    """parameters active for a token"""
    tokens_per_step: float | None = None
    """of the whole job"""
    layers: float | None = None
    hidden: float | None = None
    """heads x head dimension"""
    seq_len: float | None = None
    attention: str | None = None
    """one of ``ATTENTION``; causal if the shape is told without it"""
    flops_per_step: float | None = None
    """of the model, whole job, instead of all the above"""
    precision: str | None = None
    """one of ``PRECISIONS``; told by the kernels if not given"""
    peak_flops: float | None = None
    """dense FLOP/s of one GPU, instead of the table's"""

    def __post_init__(self) -> None:
        for name in ("params", "tokens_per_step", *_SHAPE, "flops_per_step", "peak_flops"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and 0 < value <= _MOST):
                raise TraceviewError(f"{_option(name)} {value:g}: give a number above 0 and at most {_MOST:g}")
        for name, known in (("attention", tuple(ATTENTION)), ("precision", PRECISIONS)):
            value = getattr(self, name)
            if value is not None and value not in known:
                raise TraceviewError(f"{_option(name)} {value}: give one of {', '.join(known)}")
        self._check_sets()

    def _check_sets(self) -> None:
        """Options that only mean something together, or not together."""
        shape = [n for n in _SHAPE if getattr(self, n) is not None]
        counted = [n for n in ("params", "tokens_per_step") if getattr(self, n) is not None]
        if self.flops_per_step is not None and (counted or shape or self.attention):
            raise TraceviewError("--flops-per-step is the whole work: leave --params, --tokens-per-step, shape out")
        if len(counted) == 1 or (shape and not counted):
            raise TraceviewError("FLOPs of a step need --params and --tokens-per-step together")
        if shape and len(shape) < len(_SHAPE):
            raise TraceviewError("the attention term needs --layers, --hidden and --seq-len together")
        if self.attention and not shape:
            raise TraceviewError(f"--attention {self.attention} needs --layers, --hidden and --seq-len")

    def flops(self) -> tuple[float, str] | None:
        """Model FLOPs of a step of the whole job and where they come from; None if they are not told."""
        if self.flops_per_step is not None:
            return self.flops_per_step, f"{self.flops_per_step:.4g} FLOPs a step as given"
        if self.params is None or self.tokens_per_step is None:
            return None
        a_token, words = 6 * self.params, "6 N, attention not counted"
        if self.layers is not None and self.hidden is not None and self.seq_len is not None:
            kind = self.attention or "causal"
            a_token += ATTENTION[kind] * self.layers * self.hidden * self.seq_len
            words = f"6 N + {ATTENTION[kind]} L HQ T ({kind} attention)"
        return (
            a_token * self.tokens_per_step,
            f"{words}, N = {units.short(self.params)}, {units.short(self.tokens_per_step)} tokens",
        )


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


@dataclass(frozen=True)
class Peak:
    """Dense peak of one GPU in FLOP/s and what it rests on; None: ``basis`` says what is missing."""

    flops: float | None
    basis: str


def peak(devices: Sequence[str], times: dict[str, int], work: Work, table: Peaks, config: Config) -> Peak:
    """The peak of the precision that the matmuls ran in; of unlike GPUs the mean.

    ``devices``: device name of each GPU seen, '' = not told; ``times``: ``precision.matmul_ns``.
    """
    chosen = _precision(times, work, config)
    if work.peak_flops is not None and (chosen.precision or not work.precision):
        kind = f"{chosen.precision} " if chosen.precision else ""
        return Peak(work.peak_flops, f"dense {kind}peak {units.flops(work.peak_flops)} as given{chosen.told}")
    if not chosen.precision:
        return Peak(None, chosen.told)
    rates: list[float] = []
    for name in devices:
        rate = table.dense(name, chosen.precision)
        if rate is None:
            who = f"of {name}" if name else "of a GPU that the trace does not name"
            return Peak(
                None, f"no dense {chosen.precision} peak {who} is known: give it with --peak-flops or --peaks"
            )
        rates.append(rate)
    if not rates:
        return Peak(None, "no GPU was recorded")
    models = " and ".join(sorted(set(devices)))
    mean = sum(rates) / len(rates)
    return Peak(mean, f"dense {chosen.precision} peak {units.flops(mean)} of {models}{chosen.told}")


@dataclass(frozen=True)
class _Precision:
    """The precision and the shares behind it; without one ``told`` is the reason."""

    precision: str
    told: str


def _precision(times: dict[str, int], work: Work, config: Config) -> _Precision:
    known = {p: ns for p, ns in times.items() if p}
    whole, told = sum(times.values()), sum(known.values())
    shares = ", ".join(f"{p or 'untold'} {units.share(ns / whole)}" for p, ns in times.items())
    if work.precision:
        if told and known.get(work.precision, 0) < config.precision_min_share * told:
            why = f"--precision {work.precision} is not what ran: matmul time is {shares}; leave the option out"
            return _Precision("", why)
        return _Precision(work.precision, f" (--precision; matmul time: {shares or 'none seen'})")
    if not whole:
        return _Precision("", "no matmul was recorded that tells the precision: give --precision")
    if told < config.precision_told_share * whole:
        return _Precision("", f"kernel names do not tell the precision (matmul time: {shares}): give --precision")
    return _Precision(next(iter(known)), f" (matmul time: {shares})")
