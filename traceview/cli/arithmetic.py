"""Options that say what the model computes, for MFU (METHODS g)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

_SCALES = {"": 1, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


class Count(click.ParamType[float]):
    """A number above 0, also with a decimal suffix: 7e9, 70B, 4M, 512k."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"(\d+\.?\d*(?:e[+-]?\d+)?)([kmbgt]?)", str(value).strip().lower())
        number = float(found[1]) * _SCALES[found[2]] if found else 0.0
        if not 0 < number <= 1e30:
            self.fail(f"{str(value)!r} is not a number above 0 and below 1e30, such as 7e9, 70B or 4M.", param, ctx)
        return number


_OPTIONS = (
    click.option("--params", type=Count(), metavar="N", help="MFU: parameters that a token uses, such as 70B."),
    click.option("--tokens-per-step", type=Count(), metavar="N", help="MFU: tokens of a step of the whole job."),
    click.option("--layers", type=Count(), metavar="N", help="MFU, attention: layers."),
    click.option("--hidden", type=Count(), metavar="N", help="MFU, attention: heads x head dimension."),
    click.option("--seq-len", type=Count(), metavar="N", help="MFU, attention: tokens of a sequence."),
    click.option(
        "--attention",
        type=click.Choice(["causal", "full"]),
        help="MFU, attention: count half or all of the square [default: causal].",
    ),
    click.option(
        "--flops-per-step", type=Count(), metavar="F", help="MFU: FLOPs of the model in a step of the whole job."
    ),
    click.option(
        "--precision",
        type=click.Choice(["fp4", "fp8", "bf16", "fp16", "tf32", "fp32"]),
        help="Of the matmuls, for the peak [default: by the names of the kernels].",
    ),
    click.option("--peak-flops", type=Count(), metavar="F", help="Dense peak FLOP/s of one GPU, such as 989T."),
)


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The model's work and the peak of the GPUs."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def work(given: dict[str, Any]) -> Any:
    """``Work`` of these options. TraceviewError if they do not go together."""
    from traceview.analysis.mfu import Work

    return Work(**{name: given[name] for name in Work.__dataclass_fields__})
