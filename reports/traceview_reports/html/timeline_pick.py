"""Which (rank, step) cells go into the page: what an expert would open first, as long as the budget lasts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from traceview.analysis.types import Bools, Ints
from traceview.result import Result
from traceview.run import Run
from traceview.schema import GPU_OPS, HOST_RANGES
from traceview_reports.html.timeline_chunk import Cells, cells_of
from traceview_reports.html.timeline_data import Budget, Detail

_MAX_CULPRITS = 3
_NEIGHBOURS = 2


def key_ranks(result: Result, ranks: list[int]) -> list[int]:
    """Slowest (the culprits), their reference and host neighbours, the median and the fastest rank, in this order."""
    by_compute = sorted(result.rank_rows, key=lambda r: (r.late_ns, r.leaves_ns.get("compute", 0), r.rank))
    order = [r.rank for r in by_compute] or ranks
    culprits = [s.rank for s in result.straggler_rows[:_MAX_CULPRITS]] or order[-1:]
    host_of = {r: host for host, members in result.run.hosts.items() for r in members}
    near = [
        r
        for c in culprits
        for r in [x for x in ranks if x != c and host_of.get(x, "") == host_of.get(c, "?")][:_NEIGHBOURS]
    ]
    references = [s.reference_rank for s in result.straggler_rows[:_MAX_CULPRITS] if s.reference_rank is not None]
    wanted = [*culprits, *references, order[len(order) // 2], order[0], *near]
    present = set(ranks)
    return [r for r in dict.fromkeys(wanted) if r in present]


def key_steps(result: Result) -> list[int]:
    """The worst and the median used step."""
    rows = sorted(result.step_rows, key=lambda s: (s.wall_ns, s.step))
    return list(dict.fromkeys([rows[-1].step, rows[len(rows) // 2].step])) if rows else []


def wanted_cells(result: Result, ranks: list[int], steps: Iterable[int], budget: Budget) -> Iterator[tuple[int, int]]:
    """(rank, step) in order of interest, with repeats; step -1 is what lies outside all steps."""
    first, best = key_ranks(result, ranks), key_steps(result)
    every = [*steps, -1]
    for focus in budget.focus:
        for rank in ranks if focus.rank is None else [focus.rank]:
            for step in every if focus.step is None else [focus.step]:
                yield rank, step
    shown = [(f.where.rank, f.where.step) for f in result.findings]
    shown_steps = [s for _, s in shown if s is not None]
    for rank in [*first, *(r for r, _ in shown if r is not None)]:
        for step in dict.fromkeys([*best, *shown_steps]):
            yield rank, step
    for group, when in ((ranks, best), (first, every), (ranks, every)):
        for step in when:
            for rank in group:
                yield rank, step


@dataclass
class Pick:
    """Chosen cells: rank -> one flag per cell of ``Cells``; ``events`` is the records they hold."""

    chosen: dict[int, Bools] = field(default_factory=dict)
    events: int = 0


def count_cells(run: Run, detail: Detail, rank: int) -> tuple[Cells, Ints]:
    """The cells of a rank and the number of records in each (n cells,)."""
    mine = detail.ranks[rank]
    cells = cells_of(mine, detail.origin_ns)
    gpu = run.parts[rank].table(GPU_OPS)["start"].to_numpy()
    host = run.parts[rank].table(HOST_RANGES)["start"].to_numpy()
    starts = np.concatenate((mine.common(gpu), mine.common_host(host))) - detail.origin_ns
    counts: Ints = np.bincount(cells.of(starts), minlength=len(cells.steps))
    return cells, counts


def pick(run: Run, detail: Detail, wanted: Iterable[tuple[int, int]], limit: int) -> Pick:
    """Take cells in the wanted order until ``limit`` events are reached; a cell that does not fit is passed over.

    After a few cells in a row that do not fit the rest is left, so that a run of many ranks is not read to the end.
    """
    out = Pick()
    known: dict[int, tuple[Cells, Ints]] = {}
    misses = 0
    seen: set[tuple[int, int]] = set()
    for rank, step in wanted:
        if (rank, step) in seen or rank not in detail.ranks or rank not in run.parts:
            continue
        seen.add((rank, step))
        if rank not in known:
            known[rank] = count_cells(run, detail, rank)
        cells, counts = known[rank]
        here = cells.steps == step
        need = int(counts[here].sum())
        if not need:
            continue
        if out.events + need > limit:
            misses += 1
            if misses > 20:
                break
            continue
        out.chosen.setdefault(rank, np.zeros(len(here), bool))[here] = True
        out.events += need
    for rank, cells_chosen in out.chosen.items():
        cells_chosen |= known[rank][1] == 0  # nothing is missing where nothing is
    return out
