"""Comparisons, decisions and trends made by hand, small enough to check by eye."""

from __future__ import annotations

from collections.abc import Sequence

from traceview.history import Entry, Trend, trends
from traceview.result.versus import Change, Comparison, Decision, Outcome, Side, WorkChange
from traceview.schema import GROUPS, LEAVES

from .results import EVIL, EVIL_LONG

MS = 1_000_000
Pair = tuple[int, int]


def comparison(groups: dict[str, Pair], name: str = "before") -> Comparison:
    """A comparison of these groups, ns before and after; one leaf of each group has it all."""
    whole = {g: groups.get(g, (0, 0)) for g in GROUPS}
    changes = [Change(g, a, b, b - a) for g, (a, b) in whole.items()]
    leaves = [Change(leaf, 0, 0, 0) for leaf in LEAVES]
    sums = (sum(a for a, _ in whole.values()), sum(b for _, b in whole.values()))
    return Comparison(
        baseline=name,
        candidate="after",
        baseline_step_ns=sums[0],
        candidate_step_ns=sums[1],
        baseline_mean_ns=sums[0],
        candidate_mean_ns=sums[1],
        leaves=leaves,
        groups=sorted(changes, key=lambda c: -abs(c.delta_ns)),
        kernels=[WorkChange("gemm", 5 * MS, 2 * MS, 3 * MS, 10.0, 12.0, MS, MS)],
        collectives=[],
        found=["rank 3 is late"],
        gone=["input stalls"],
        different=[],
    )


def decision(
    baseline: Sequence[Sequence[int]], candidate: Sequence[Sequence[int]], change: float, outcome: Outcome = "FAIL"
) -> Decision:
    """A decision over these step times in ms, a list per run."""
    sides = [
        Side(
            [f"{word}-{i}" for i in range(len(runs))],
            [len(r) for r in runs],
            [sorted(r)[len(r) // 2] * MS for r in runs],
            [[ns * MS for ns in r] for r in runs],
        )
        for word, runs in (("old", baseline), ("new", candidate))
    ]
    told = f"the step time changed by {change * 100:+.1f} %"
    return Decision(outcome, told, change, 0.05, 0.03, False, "steps", 0.01, sides[0], sides[1], low=change / 2)


def hostile() -> tuple[Comparison, Decision]:
    """Names that try to run or to break out, wherever a name can be."""
    c, d = comparison({"compute": (70 * MS, 90 * MS)}, EVIL), decision([[70, 71]], [[90, 91]], 0.28)
    c.candidate = EVIL_LONG
    c.kernels[0].name = EVIL
    c.found, c.gone, c.different, c.notes = [EVIL], [EVIL_LONG], [EVIL], [EVIL]
    d.reason, d.baseline.names, d.candidate.names = EVIL, [EVIL], [EVIL_LONG]
    return c, d


def entry(i: int, ms: float, job: str = "j", **more: object) -> Entry:
    """A run of this many ms, two thirds of it compute, the rest idle."""
    ns = round(ms * MS)
    facts = {
        "digest": f"{job}{i}",
        "job": job,
        "name": f"run-{i}",
        "label": f"c{i}",
        "started_ns": 1_700_000_000_000_000_000 + i * 3_600_000_000_000,
        "world_size": 8,
        "gpu": "H100",
        "steps": 12,
        "step_ns": ns,
        "mean_ns": ns,
        "status": "healthy",
        "headline": "healthy",
        "tool_version": "",
        "parts_ns": {"compute": ns - ns // 3, "idle": ns // 3},
    }
    return Entry(**(facts | more))  # type: ignore[arg-type]


def trend(times: Sequence[float], **more: object) -> Trend:
    """The trend of runs of these ms."""
    (made,) = trends([entry(i, ms, **more) for i, ms in enumerate(times)])
    return made
