"""Whether a result that was read from a file says one thing only: comparisons rest on its sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from traceview.schema import LEAVES

if TYPE_CHECKING:
    from traceview.result import Result

_LARGEST = 2**63 - 1  # ns in 292 years; tables and databases hold no more


def flaw(result: Result) -> str:
    """What does not hold in ``result``: the first invariant that is broken, '' = none. One pass over its numbers."""
    budget, windows = result.budget, result.window_rows
    steps = [s.step for s in result.step_rows]
    spans: dict[int, list[int]] = {}
    for w in windows:
        spans.setdefault(w.step, []).append(w.end_ns - w.start_ns)
    counted = [(k.count, k.total_ns) for k in result.kernels]
    counted += [(c.n, c.transfer_ns) for c in result.collective_rows]
    rules = (
        (all(abs(n) <= _LARGEST for n in _integers(msgspec.to_builtins(result))), "a number is beyond 64 bits"),
        (len(set(steps)) == len(steps), "a step is listed twice"),
        (all(s.wall_ns > 0 for s in result.step_rows), "a step takes no time or less"),
        (spans.keys() == set(steps), "its steps are not those of its windows"),
        (
            all(min(spans[s.step]) <= s.wall_ns <= max(spans[s.step]) for s in result.step_rows if s.step in spans),
            "the time of a step is not within its windows",
        ),
        (set(budget.leaves_ns) <= set(LEAVES), "its budget has unknown parts"),
        (min(budget.leaves_ns.values(), default=0) >= 0, "a part of its budget is negative"),
        (sum(budget.leaves_ns.values()) == budget.wall_ns, "the parts of its budget do not sum to it"),
        (sum(w.end_ns - w.start_ns for w in windows) == budget.wall_ns, "its windows do not sum to its budget"),
        (all(n >= 0 and ns >= 0 for n, ns in counted), "a count or a time of kernels or collectives is negative"),
    )
    return next((text for holds, text in rules if not holds), "")


def run_facts(result: Result) -> tuple[Any, ...]:
    """What tells a run from every other: results with the same facts are of one run."""
    walls = [s.wall_ns for s in result.step_rows]
    return result.run.name, result.run.start_ns, result.run.ranks, result.run.steps.used, walls


def distinct(results: Sequence[Result]) -> list[Result]:
    """Each run once."""
    return list({repr(run_facts(r)): r for r in reversed(results)}.values())[::-1]


def _integers(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _integers(item)
    elif isinstance(value, int):
        yield value
