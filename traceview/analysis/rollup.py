"""Windows rolled up to the budget, steps and ranks. Sums are exact: nothing is rounded (METHODS a.3, I3)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np

from traceview.analysis.shares import whole
from traceview.config import Config
from traceview.errors import InternalError
from traceview.result import Budget, RankRow, StepRow, Window, group_ns
from traceview.schema import LEAVES


def check(windows: Iterable[Window]) -> None:
    """InternalError if the leaves of a window do not sum to it (I2), or sub-leaves not to their leaf."""
    for w in windows:
        if sum(w.leaves_ns.values()) != w.end_ns - w.start_ns:
            raise InternalError(f"leaves of rank {w.rank} step {w.step} do not sum to the window")
        subs: Counter[str] = Counter()
        for name, ns in w.sub_ns.items():
            subs[name.split(".")[0]] += ns
        for leaf, ns in subs.items():
            if ns != w.leaves_ns.get(leaf, 0):
                raise InternalError(f"sub-leaves of {leaf}, rank {w.rank} step {w.step}, do not sum to it")


def _add(rows: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row)
    return dict(total)


def budget(windows: list[Window]) -> Budget:
    """Sum over all used windows; every leaf is listed, also those of 0."""
    wall = sum(w.end_ns - w.start_ns for w in windows)
    leaves = dict.fromkeys(LEAVES, 0) | _add(w.leaves_ns for w in windows)
    subs = _add(w.sub_ns for w in windows)
    groups = group_ns(leaves, subs)
    return Budget(
        wall, leaves, subs, {g: ns / wall for g, ns in groups.items()} if wall else dict.fromkeys(groups, 0.0)
    )


def means(total: dict[str, int], count: int) -> dict[str, int]:
    """Totals over ``count`` as integers that sum to the mean of the whole, which is rounded half up."""
    amount = np.array(list(total.values()), np.float64) / count
    mean = (2 * sum(total.values()) + count) // (2 * count)  # of integers: any partition of one whole has one mean
    parts = whole(amount, np.zeros(len(amount), np.int64), np.array([mean]))
    return dict(zip(total, parts.tolist(), strict=True))


def lower_median(values: list[int]) -> int:
    """The middle value, the lower of two (METHODS e.7): works with two ranks."""
    return sorted(values)[(len(values) - 1) // 2]


def steps(windows: list[Window], config: Config, last_recorded: int | None = None) -> list[StepRow]:
    """One row per step, T_k = median over ranks of the window (METHODS b.1); outliers by median + 5 MAD (i.4).

    ``last_recorded``: the step that no other follows. Its window runs until the GPU is empty, where those of the
    others end with the first work of the next step, so it is never called an outlier.
    """
    by_step: dict[int, list[Window]] = defaultdict(list)
    for w in windows:
        by_step[w.step].append(w)
    rows = []
    for step, ws in sorted(by_step.items()):
        walls = [w.end_ns - w.start_ns for w in ws]
        rows.append(
            StepRow(
                step=step,
                wall_ns=lower_median(walls),
                min_ns=min(walls),
                max_ns=max(walls),
                leaves_ns=_add(w.leaves_ns for w in ws),
                sub_ns=_add(w.sub_ns for w in ws),
                slowest_rank=max(ws, key=lambda w: (w.end_ns - w.start_ns, -w.rank)).rank,
            )
        )
    if len(rows) >= config.min_steps_for_kind:
        middle = lower_median([r.wall_ns for r in rows])
        mad = lower_median([abs(r.wall_ns - middle) for r in rows])
        for r in rows:
            if r.step == last_recorded:
                continue
            # 2 % floor: without it a run of equal steps would call every nanosecond an outlier
            r.outlier = r.wall_ns - middle > max(config.transient_step_mads * mad, config.finding_min_share * middle)
    return rows


def ranks(windows: list[Window], hosts: dict[int, str], names: dict[int, str], truncated: set[int]) -> list[RankRow]:
    """One row per (rank, device) over the used windows."""
    by_rank: dict[tuple[int, int], list[Window]] = defaultdict(list)
    for w in windows:
        by_rank[w.rank, w.device].append(w)
    return [
        RankRow(
            rank=rank,
            host=hosts[rank],
            device=device,
            device_name=names.get(rank, ""),
            wall_ns=sum(w.end_ns - w.start_ns for w in ws),
            leaves_ns=_add(w.leaves_ns for w in ws),
            sub_ns=_add(w.sub_ns for w in ws),
            truncated=rank in truncated,
        )
        for (rank, device), ws in sorted(by_rank.items())
    ]
