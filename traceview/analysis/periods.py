"""Steps of a trace that marks none: the period of its GPU operations, METHODS b.2.4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from traceview.analysis.marks import Columns, Cover, make
from traceview.analysis.ops import NONE, Ops, ints, names
from traceview.analysis.types import Ints, Marks
from traceview.config import Config
from traceview.schema import COLL_KINDS, codes

_CANDIDATES = 32
_SOUGHT = 1 << 20
"""The period is sought in the first so many operations of a rank."""
_STEPS_FOR_PHASE = 64


Family = tuple[int, str]
"""Period and what the anchor is: equal on ranks that run the same operations"""


def from_period(
    gpu_ops: Callable[[int], Any], collectives: Callable[[int], Any], cover: Cover, config: Config
) -> Marks | None:
    """Steps by the period of each rank's operations; None unless every rank with GPU operations has one."""
    rows: list[Columns] = []
    tails: dict[int, str] = {}
    phases: dict[Family, int] = {}
    for rank in cover:
        table = gpu_ops(rank)
        if not table.num_rows:
            continue
        found = _rank_steps(table, collectives(rank), rank, cover[rank], phases, config)
        if found is None:
            return None
        columns, whole = found
        rows.append(columns)
        if not whole:
            tails[rank] = f"incomplete: rank {rank} ends inside it"
    if not rows:
        return None
    note = (
        "steps are guessed from the period of the GPU operations; in a record of less than 3 steps it may be a layer"
    )
    return replace(make("period", rows, [note]), tails=tails)


def _rank_steps(
    gpu_ops: Any, collectives: Any, rank: int, cover: tuple[int, int], phases: dict[Family, int], config: Config
) -> tuple[Columns, bool] | None:
    """(marks of a rank, whether its last step is whole). The part before the first whole step is step 0.

    ``phases``: where the steps of earlier ranks with the same operations begin, so that all agree.
    """
    ops = Ops.of(gpu_ops)
    time = np.where(ops.launched, ops.launch, ops.start)
    order = np.argsort(time, kind="stable")
    symbols, of_collective = _symbols(gpu_ops, collectives)
    for rows in (order, order[of_collective[order]]):  # all operations, else collectives alone
        found = find_period(symbols[rows[:_SOUGHT]], config)
        if found:
            period, anchor = found
            anchors, times, thread = np.flatnonzero(symbols[rows] == anchor), time[rows], ops.thread[rows]
            family = period, _told(gpu_ops, collectives, int(rows[anchors[0]]))
            phases.setdefault(family, step_phase(anchors, period, times))
            begins = step_begins(anchors, period, phases[family], len(times))
            whole = len(rows) - int(begins[-1]) >= period
            return _columns(begins, times, thread, rank, cover), whole
    return None


def _columns(begins: Ints, times: Ints, thread: Ints, rank: int, cover: tuple[int, int]) -> Columns:
    """Steps between the begins, the last one until the end of the record, and step 0 if something comes before."""
    head = begins[:1] > 0
    start = np.append(np.minimum(cover[0], times[:1])[head], times[begins])
    end = np.append(start[1:], max(cover[1], int(times[-1])))
    step = np.arange(len(start)) + (0 if head else 1)
    return np.full(len(start), rank), step, start, end, np.append(thread[begins[:1]][head], thread[begins])


def _symbols(gpu_ops: Any, collectives: Any) -> tuple[Ints, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Per operation a number, equal for equal operations; and whether it is a collective with known facts."""
    name, _ = names(gpu_ops, "name")
    config, texts = names(gpu_ops, "config")
    symbols = name * (len(texts) + 1) + config + 1
    op = ints(collectives, "op")
    rows = np.flatnonzero(op != NONE)
    facts = (codes(collectives["kind"], COLL_KINDS), ints(collectives, "bytes"), ints(collectives, "group_size"))
    _, number = np.unique(np.column_stack([f[rows] for f in facts]), axis=0, return_inverse=True)
    symbols[op[rows]] = symbols.max(initial=0) + 1 + number.ravel()
    known = np.zeros(len(symbols), np.bool_)
    known[op[rows]] = True
    return symbols, known


def _told(gpu_ops: Any, collectives: Any, op: int) -> str:
    """What an operation is, in words that mean the same in every file."""
    row = np.flatnonzero(ints(collectives, "op") == op)
    if len(row):
        return " ".join(str(collectives[name][int(row[0])]) for name in ("kind", "bytes", "group_size"))
    return f"{gpu_ops['name'][op]} {gpu_ops['config'][op]}"


def find_period(symbols: Ints, config: Config) -> tuple[int, int] | None:
    """(period, the symbol that occurs once per period), or None where there is no clear period.

    Candidates are the distances between neighbouring occurrences of the rarest recurring symbol, so a layer that
    repeats inside the step is never taken for it. A symbol recurs if its occurrences span half of the sequence:
    what happens only during warm-up does not. O(n log n), then O(n) per candidate.
    """
    anchors = _rarest_recurring(symbols)
    if anchors is None:
        return None
    n = len(symbols)
    lengths, counts = np.unique(np.diff(anchors), return_counts=True)
    candidates = np.sort(lengths[np.argsort(-counts, kind="stable")[:_CANDIDATES]])
    once = np.abs(len(anchors) - n / candidates) <= 1
    candidates = candidates[once & (candidates * config.period_min_repeats <= n)]
    match = np.array([np.mean(symbols[:-p] == symbols[p:]) for p in candidates.tolist()])
    if not len(match) or match.max() < config.period_min_match:
        return None
    return int(candidates[match >= match.max() - config.period_slack][0]), int(symbols[anchors[0]])


def _rarest_recurring(symbols: Ints) -> Ints | None:
    """Positions of the rarest recurring symbol; None unless at least two symbols recur."""
    if len(symbols) < 2:
        return None
    order = np.argsort(symbols, kind="stable")
    edge = np.flatnonzero(np.diff(symbols[order])) + 1
    low, high = np.append(0, edge), np.append(edge, len(symbols))
    recurring = (high - low >= 2) & (2 * (order[high - 1] - order[low]) >= len(symbols))
    if recurring.sum() < 2:
        return None
    low, high = low[recurring], high[recurring]
    rarest = int(np.argmin(high - low))
    out: Ints = order[low[rarest] : high[rarest]]
    return out


def step_phase(anchors: Ints, period: int, times: Ints) -> int:
    """Operations from the anchor to the begin of a step: the one with the largest median time gap before it.

    ``times`` are ascending.
    """
    gap = np.diff(times, prepend=times[:1])
    whole = anchors[anchors + period <= len(times)][:_STEPS_FOR_PHASE]
    return int(np.argmax(np.median(gap[whole[:, None] + np.arange(period)], axis=0)))


def step_begins(anchors: Ints, period: int, phase: int, count: int) -> Ints:
    """Positions, of ``count``, where steps begin: once per anchor. The first may begin before the first anchor."""
    begins = anchors + phase
    if begins[0] >= period:
        begins = np.append(begins[0] - period, begins)
    out: Ints = begins[begins < count]
    return out
