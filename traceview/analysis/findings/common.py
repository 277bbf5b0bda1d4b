"""What the rules share: time per step of a leaf, its worst window, one denominator."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from traceview import units
from traceview.analysis.types import Ints
from traceview.config import Config
from traceview.result import Result, StragglerRow, Where, Window
from traceview.run import parse_members


def per_step(result: Result, *leaves: str) -> int:
    """Mean ns per rank and step of some leaves or sub-leaves ('comm_wait.nxn'); 0 without windows."""
    if not result.window_rows:
        return 0
    both = result.budget.leaves_ns | result.budget.sub_ns
    return sum(both.get(leaf, 0) for leaf in leaves) // len(result.window_rows)


def unblamed(result: Result) -> int:
    """Mean straggler wait, ns per rank and step, that nobody is blamed for: its collectives are not matched for sure,
    or members of them are missing. What listed stragglers owe at least is told.
    """
    if not result.window_rows:
        return 0
    told = max(sum(row.blame_ns for row in rows) for rows in (result.blame, result.straggler_rows))
    return max(result.budget.sub_ns.get("comm_wait.nxn", 0) - told, 0) // len(result.window_rows)


def culprits(rows: Iterable[StragglerRow]) -> dict[str, list[StragglerRow]]:
    """Who is late -> the rows: of a node that is slow as a whole together, of every other rank alone; in order."""
    found: dict[str, list[StragglerRow]] = {}
    for row in rows:
        found.setdefault(f"node {row.host}" if row.place == "node" else f"rank {row.rank}", []).append(row)
    return found


def blame_ns(result: Result) -> int:
    """Origin blame of all ranks. With missing ranks the ledger is withheld: what listed stragglers owe at least."""
    return max(sum(r.origin_blame_ns for r in rows) for rows in (result.blame, result.straggler_rows))


def metric(result: Result, name: str) -> float | None:
    """The value of a metric; None where it is unavailable, or was not asked for."""
    found = result.metrics.get(name)
    return None if found is None else found.value


def step_ns(result: Result) -> int:
    """Mean window: the denominator of every saving (METHODS i.4: leaves explain the mean)."""
    return result.budget.wall_ns // len(result.window_rows) if result.window_rows else 0


def of_step(result: Result, ns: int) -> str:
    """A time as a share of the step, in words."""
    return units.share(ns / step_ns(result))


def has_gpu(result: Result) -> bool:
    """Whether anything ran on a GPU: without that its idle time says nothing."""
    gpu = ("compute", "gpu_opaque", "comm_transfer", "comm_unresolved", "comm_wait", "pcie_h2d", "pcie_d2h")
    return any(result.budget.leaves_ns.get(leaf, 0) for leaf in gpu)


def matters(result: Result, saving: int | None, share: float) -> bool:
    """Whether a saving is at least ``share`` of the step."""
    return saving is not None and saving > share * step_ns(result)


def amount(window: Window, leaves: tuple[str, ...]) -> int:
    """ns of some leaves or sub-leaves in one window."""
    both = window.leaves_ns | window.sub_ns
    return sum(both.get(leaf, 0) for leaf in leaves)


def waits_of_ranks(result: Result) -> Ints:
    """Exposed straggler wait a used step, ns, of every row of ``rank_rows``."""
    waits = np.array([r.sub_ns.get("comm_wait.nxn", 0) for r in result.rank_rows], np.int64)
    return waits // max(len(result.run.steps.used), 1)


def worst(result: Result, *leaves: str) -> Where:
    """The used window with most of these leaves."""
    if not result.window_rows:
        return Where()
    w = max(result.window_rows, key=lambda w: amount(w, leaves))
    return Where(rank=w.rank, step=w.step, start_ns=w.start_ns, end_ns=w.end_ns)


def worst_of_rank(result: Result, rank: int) -> Where:
    """The step in which the others waited most, on the culprit's own axis."""
    step = worst(result, "comm_wait.nxn").step
    for w in result.window_rows:
        if w.rank == rank and w.step == step:
            return Where(rank=rank, step=step, start_ns=w.start_ns, end_ns=w.end_ns)
    return Where(rank=rank, step=step)


def uneven_experts_ns(result: Result, besides: Collection[int] = ()) -> int:
    """Gain a step of even tokens, without the pairs whose most loaded rank is in ``besides``.

    The metric ``even_tokens_gain``, shared out by the gains of the ranks.
    """
    by_rank = [(hot.rank, hot.gain_ns * len(parse_members(r.members))) for r in result.experts for hot in r.ranks]
    whole = sum(ns for _, ns in by_rank)
    gain = metric(result, "even_tokens_gain")
    if not whole or gain is None:
        return 0
    return round(gain) * sum(ns for rank, ns in by_rank if rank not in besides) // whole


def has_uneven_experts(result: Result, config: Config) -> bool:
    """Whether even tokens would save enough for a finding, which then counts that waiting alone."""
    return matters(result, uneven_experts_ns(result), config.finding_min_share)


def stragglers_beside_experts(result: Result, config: Config) -> list[StragglerRow]:
    """Listed stragglers whose waiting the finding on uneven experts does not count."""
    if not has_uneven_experts(result, config):
        return result.straggler_rows
    counted = {rank for row in result.experts if row.gain_ns for rank in parse_members(row.members)}
    return [s for s in result.straggler_rows if s.tokens != "uneven" or s.rank not in counted]


def ranks_with(result: Result, share: float, *leaves: str) -> list[int]:
    """Ranks that spend at least ``share`` of their time in these leaves."""
    out = []
    for row in result.rank_rows:
        both = row.leaves_ns | row.sub_ns
        if row.wall_ns and sum(both.get(leaf, 0) for leaf in leaves) >= share * row.wall_ns:
            out.append(row.rank)
    return out


def on_host(host: str) -> str:
    """' on node-2'; nothing where the files do not name the host."""
    return f" on {host}" if units.told_host(host) else ""


def recorded_by(result: Result, fmt: str) -> bool:
    """Whether all traces of ranks are of one format, so that advice can name its tool."""
    formats = {s.format for s in result.run.sources if s.rank is not None}
    return formats == {fmt}


def record_again(result: Result) -> str:
    """How to record both sides, for the tool that was used."""
    return "nsys profile -t cuda,nvtx,osrt" if recorded_by(result, "nsight") else "activities=[CPU, CUDA]"
