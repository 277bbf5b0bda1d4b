"""Small results made by hand, for rules and verdicts."""

from __future__ import annotations

from traceview.analysis import rollup
from traceview.config import DEFAULT
from traceview.result import Clock, QualityInfo, Result, RunInfo, Steps, Verdict, Window

MS = 1_000_000


def window(rank: int, step: int, **leaves_ms: float) -> Window:
    """A window of rank and step; leaves in ms, sub-leaves as ``comm_wait__nxn``."""
    given = {k.replace("__", "."): int(v * MS) for k, v in leaves_ms.items()}
    leaves = {k: v for k, v in given.items() if "." not in k}
    for sub, ns in given.items():
        if "." in sub:
            leaf = sub.split(".")[0]
            leaves[leaf] = leaves.get(leaf, 0) + ns
    wall = sum(leaves.values())
    return Window(
        rank, 0, step, step * 1000 * MS, step * 1000 * MS + wall, leaves, {k: v for k, v in given.items() if "." in k}
    )


def result(windows: list[Window], world_size: int | None = None) -> Result:
    """A result of these windows with everything else empty."""
    rollup.check(windows)
    ids = sorted({w.rank for w in windows})
    used = sorted({w.step for w in windows})
    hosts = {r: f"node-{r // 4}" for r in ids}
    return Result(
        verdict=Verdict("", ""),
        run=RunInfo(
            name="job",
            world_size=world_size or len(ids),
            ranks=ids,
            missing_ranks=[r for r in range(world_size or 0) if r not in ids],
            hosts={},
            sources=[],
            steps=Steps("profiler_step", used),
        ),
        budget=rollup.budget(windows),
        window_rows=windows,
        metrics={},
        collective_rows=[],
        straggler_rows=[],
        clock=Clock(0, [], []),
        findings=[],
        quality=QualityInfo(),
        step_rows=rollup.steps(windows, DEFAULT),
        rank_rows=rollup.ranks(windows, hosts, {}, set()),
    )
