"""Expert parallelism (METHODS e.6): is a late arrival at a combine the rank with the most tokens?

A layer of experts is a pair of all-to-alls of one group: *dispatch* brings every rank the tokens of its experts,
*combine* takes them back. A pair is known by its sizes: each rank gives back what it received. The *load* of a rank
is what it received over the mean of the group.

What the tokens cost is told apart from what the GPU costs. The compute between the two is fitted as
``base[pair] * pace[rank] * (1 - b + b * load)``, with one share ``b`` (0 to 1) of the group that follows the tokens.
With even tokens a rank would arrive ``delay = base * pace * b * (load - 1)`` earlier, and the last arrival moves by
the smallest ``time left + delay`` of the members: the gain of a pair. Where all GPUs are alike, that is max - mean of
the compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from traceview import units
from traceview.analysis.groups import KIND, Columns
from traceview.analysis.instances import by_value
from traceview.analysis.lateness import COMPUTE
from traceview.analysis.lateshare import lower_median
from traceview.analysis.leaftime import LeafTime
from traceview.analysis.origin import Facts
from traceview.analysis.types import Bools, Floats, Ints, Tokens
from traceview.config import DEFAULT, Config
from traceview.result import ExpertRank, ExpertRow

LOOK_BACK = 3
"""all-to-alls between a dispatch and its combine at most: its scales or its probabilities follow on their own"""


@dataclass(frozen=True)
class Account:
    """The pairs of one group in the used steps. Arrays are [pairs, ranks] unless said; times in ns."""

    group: int
    """index into ``Columns.groups``, -1 = no file tells the group"""
    ranks: Ints
    """[ranks] members seen, ascending"""
    step: Ints
    """[pairs]"""
    dispatch: Ints
    """collectives rows"""
    combine: Ints
    told: bool
    """the trace tells the sizes; without them the load is 1 and the pairs are assumed from the order"""
    load: Floats
    work: Ints
    """compute between the end of the dispatch and the arrival at the combine"""
    left: Ints
    """time left to the last arrival at the combine, on its arrival (common axis)"""
    delay: Floats
    """how much later its tokens make it than the mean would; negative: earlier"""
    pace: Floats
    """[ranks] time per token over that of a typical rank"""
    token_share: float
    """b: the share of the compute that follows the tokens"""
    gain: Floats
    """[pairs] how much earlier the last would arrive with even tokens, as far as that waiting is exposed; 0 unless
    every member was seen"""
    waited: Floats
    """[pairs] mean exposed wait at the combine"""


def accounts(facts: Facts, used: list[int], config: Config = DEFAULT) -> list[Account]:
    """An account of every group with dispatch/combine pairs in the steps ``used``; none without segments."""
    found = list(_pairs(facts, used, config))
    if not found:
        return []
    pieces = facts.pieces
    exposed = np.bincount(pieces.row, pieces.end - pieces.start, len(facts.c)).astype(np.float64)
    out = (_account(facts, pairs, exposed, config) for pairs in found)
    return [x for x in out if x is not None]


@dataclass(frozen=True)
class _Found:
    """Pairs of a group: instance numbers, and collectives rows [pairs, ranks]."""

    group: int
    first: Ints
    second: Ints
    dispatch: Ints
    combine: Ints
    load: Floats | None


def _pairs(facts: Facts, used: list[int], config: Config) -> Iterator[_Found]:
    """The pairs of every group that all its seen ranks took part in."""
    c, found, m = facts.c, facts.waited.instances, facts.matches
    some = np.isin(found.kind, [KIND["alltoall"], KIND["alltoallv"]]) & ~m.ambiguous & ~found.dark & (m.seen > 1)
    some[some] &= np.isin(facts.step_of_row[found.last[some]], used)
    if not some.any():
        return
    elems, candidates = c.elems(), np.flatnonzero(some)
    for group, own in by_value(found.group[candidates]):
        mine = candidates[own]
        mine = mine[m.seen[mine] == m.seen[mine].max()]
        block = found.block(mine)
        rows = block.rows[block.member].reshape(len(mine), -1)
        order = np.argsort(found.arrived[mine], kind="stable")
        order = order[(c.rank[rows[order]] == c.rank[rows[0]]).all(axis=1)]
        mine, rows = mine[order], rows[order]
        step = facts.step_of_row[rows[:, 0]]
        sent, received = (x[rows] for x in elems)
        told = bool((sent >= 0).all() and (received >= 0).all())
        first, second = _by_size(sent, received, step, config) if told else _by_name(c, rows[:, 0], step)
        if len(first):
            load = _shares(received[first]) * rows.shape[1] if told else None
            yield _Found(group, mine[first], mine[second], rows[first], rows[second], load)


def _shares(amount: Ints) -> Floats:
    """Each member's share of its instance; even where nothing was moved."""
    total = amount.sum(axis=1, keepdims=True)
    out: Floats = np.where(total > 0, amount / np.maximum(total, 1), 1.0 / max(amount.shape[1], 1))
    return out


def _by_size(sent_by: Ints, received_by: Ints, step: Ints, config: Config) -> tuple[Ints, Ints]:
    """(dispatch, combine) as positions: what a rank received it gives back, and receives what it gave.

    The uneven side tells the direction. An all-to-all is in one pair at most: where every one is even, every second.
    """
    sent, received = _shares(sent_by), _shares(received_by)
    near = config.expert_same_share / sent.shape[1]
    outward = received.max(axis=1) >= sent.max(axis=1) - near
    taken: set[int] = set()
    pairs: list[tuple[int, int]] = []
    fits = [_fitting(sent, received, step, lag, near) for lag in range(1, LOOK_BACK + 1)]
    clear = received.max(axis=1) > (1 + config.expert_uneven) / sent.shape[1]  # even ones fit any other
    for b in range(1, len(step)):
        before = [
            b - lag
            for lag in range(1, min(b, LOOK_BACK) + 1)
            if fits[lag - 1][b - lag] and outward[b - lag] and (lag == 1 or clear[b - lag])
        ]
        a = next((a for a in before if a not in taken), b)
        if a < b and b not in taken:
            taken |= {a, b}
            pairs.append((a, b))
    at = np.array(pairs, np.int64).reshape(-1, 2)
    return at[:, 0], at[:, 1]


def _fitting(sent: Floats, received: Floats, step: Ints, lag: int, near: float) -> Bools:
    """Per position a: whether a + lag, in the same step, moves the same shares in the other direction."""
    there, back = slice(None, -lag), slice(lag, None)
    gap = np.maximum(np.abs(received[there] - sent[back]), np.abs(sent[there] - received[back]))
    out: Bools = (gap.max(axis=1) <= near) & (step[there] == step[back])
    return out


def _by_name(c: Columns, lead: Ints, step: Ints) -> tuple[Ints, Ints]:
    """The last dispatch before each combine of a step, by the names of their kernels (DeepEP); else by order."""
    name, names = c.name()
    words = np.array([_role(x) for x in [*names, None]])[name[lead]]
    combine = np.flatnonzero(words == "combine")
    if not len(combine):
        return _by_order(step)
    place = np.arange(len(words))
    before = np.maximum.accumulate(np.where(words == "dispatch", place, -1))[combine]
    fit = (before >= 0) & (np.diff(before, prepend=-1) != 0) & (step[before] == step[combine])
    return before[fit], combine[fit]


def _role(name: str | None) -> str:
    """'dispatch' or 'combine' by the function's name; '' for any other, and for those that only notify."""
    words = (name or "").lower().split("<")[0].split("(")[0]
    return "" if "notify" in words else next((w for w in ("dispatch", "combine") if w in words), "")


def _by_order(step: Ints) -> tuple[Ints, Ints]:
    """Every second all-to-all of a step with the one before it; nothing in a step with an odd count."""
    head = np.flatnonzero(np.diff(step, prepend=-2))
    count = np.diff(np.append(head, len(step)))
    place = np.arange(len(step)) - np.repeat(head, count)
    first = np.flatnonzero(np.repeat(count % 2 == 0, count) & (place % 2 == 0))
    return first, first + 1


def _account(facts: Facts, found: _Found, exposed_of_row: Floats, config: Config) -> Account | None:
    c, instances = facts.c, facts.waited.instances
    ranks = c.rank[found.dispatch[0]]
    work = np.zeros(found.dispatch.shape, np.int64)
    for k, rank in enumerate(ranks.tolist()):
        segments = facts.segments(rank)
        if segments is None:
            return None
        between = LeafTime.of(segments).between(c.end[found.dispatch[:, k]], c.start[found.combine[:, k]])
        work[:, k] = between[:, COMPUTE].sum(axis=1)
    load = np.ones(work.shape) if found.load is None else found.load
    share, base, pace = _fit(load, work, config)
    delay = base[:, None] * pace * share * (load - 1)
    left = instances.ahead[found.combine]
    exposed = exposed_of_row[found.combine].sum(axis=1)
    waited = (facts.waited.phases.wait_end[found.combine] - c.start[found.combine]).sum(axis=1)
    shown = np.minimum(exposed / np.maximum(waited, 1), 1.0)
    sure = facts.matches.full[found.second] & (instances.violations[found.second] == 0)
    return Account(
        group=found.group,
        ranks=ranks,
        step=facts.step_of_row[found.dispatch[:, 0]],
        dispatch=found.dispatch,
        combine=found.combine,
        told=found.load is not None,
        load=load,
        work=work,
        left=left,
        delay=delay,
        pace=pace,
        token_share=share,
        gain=np.where(sure, np.maximum((left + delay).min(axis=1), 0.0) * shown, 0.0),
        waited=exposed / len(ranks),
    )


def _fit(load: Floats, work: Ints, config: Config) -> tuple[float, Floats, Floats]:
    """(b, base [pairs] = compute of a typical rank at the mean load, pace [ranks]).

    b is the median of what the most loaded rank of a pair tells against each other one, so that a slow rank among
    many does not bend it: ``work[top] / work[r] = (1 - b + b load[top]) / (1 - b + b load[r])``.
    """
    top = load.argmax(axis=1)[:, None]
    high, most = np.take_along_axis(load, top, 1), np.take_along_axis(work, top, 1)
    clear = (high - load > config.expert_uneven) & (work > 0)
    ratio = np.broadcast_to(most, work.shape)[clear] / work[clear]
    below = (np.broadcast_to(high, load.shape)[clear] - 1) - ratio * (load[clear] - 1)
    told = np.where(below > 0, (ratio - 1) / np.where(below > 0, below, 1.0), 1.0)
    share = float(np.clip(np.median(told), 0.0, 1.0)) if len(told) else 1.0
    expected = 1 + share * (load - 1)
    busy = expected > config.expert_uneven  # with next to nothing to do a rank tells nothing of its pace
    each = np.where(busy, work / np.where(busy, expected, 1.0), np.nan)
    base = lower_median(each.T)
    due = (base[:, None] * expected * busy).sum(axis=0)
    pace = np.where(due > 0, (work * busy).sum(axis=0) / np.maximum(due, 1.0), 1.0)
    return share, base, pace


def tokens(c: Columns, found: list[Account]) -> Tokens | None:
    """What the accounts say of every combine row; None without accounts."""
    if not found:
        return None
    rows = np.concatenate([a.combine.ravel() for a in found])
    order = np.argsort(rows)
    parts = (
        [np.full(a.combine.size, a.told) for a in found],
        [a.load.ravel() for a in found],
        [a.work.ravel() for a in found],
        [a.delay.ravel() for a in found],
        [np.broadcast_to(a.pace, a.combine.shape).ravel() for a in found],
        [c.end[a.dispatch].ravel() for a in found],
    )
    return Tokens(rows[order], *(np.concatenate(p)[order] for p in parts))


def rows(c: Columns, found: list[Account], exposed_of_row: Ints, config: Config = DEFAULT) -> list[ExpertRow]:
    """The accounts as rows of the result, the largest gain first. ``exposed_of_row``: exposed transfer, ns."""
    busy = np.maximum(*c.elems()) if found else exposed_of_row
    out = [_row(c, a, busy, exposed_of_row, config) for a in found]
    return sorted(out, key=lambda r: (-r.gain_ns, r.group, r.members))


def step_gain(facts: Facts, found: list[Account], used: list[int]) -> float | None:
    """What even tokens in all groups would take off a step, ns, mean over the steps ``used``; None if none are told.

    Groups that meet in other collectives or messages save what the last rank of the step does: the gain of its group
    and what it waits elsewhere, at most the largest gain of a group. Groups that never meet save the mean.
    """
    told = [a for a in found if a.told]
    if not told or not used:
        return None
    c, pieces, steps = facts.c, facts.pieces, np.array(sorted(used), np.int64)
    ranks, count = int(c.rank.max()) + 1, len(steps)
    combine = np.zeros(len(c), np.bool_)
    for a in told:
        combine[a.combine] = True
    elsewhere = np.isin(facts.step_of_row[pieces.row], steps) & ~combine[pieces.row]
    row, ns = pieces.row[elsewhere], (pieces.end - pieces.start)[elsewhere]
    cell = c.rank[row] * count + np.searchsorted(steps, facts.step_of_row[row])
    slack = np.bincount(cell, ns, ranks * count).astype(np.float64).reshape(ranks, count)
    most, total, owner = np.zeros(count), np.zeros(count), np.full(ranks, -1)
    for i, a in enumerate(told):
        by_step = np.bincount(np.searchsorted(steps, a.step), a.gain, count)
        slack[a.ranks] += by_step
        most, total = np.maximum(most, by_step), total + by_step * len(a.ranks)
        owner[a.ranks] = i
    present = np.unique(c.rank)
    meet = any(len(set(owner[[r for r in g.members if r < ranks]].tolist())) > 1 for g in c.groups)
    each = np.minimum(most, slack[present].min(axis=0)) if meet else total / len(present)
    return float(each.mean())


def _row(c: Columns, a: Account, busy: Ints, exposed_of_row: Ints, config: Config) -> ExpertRow:
    busiest = a.load.max(axis=1)
    hot = a.load >= (1 - config.expert_uneven) * busiest[:, None]  # equal ones share the blame
    last = np.take_along_axis(hot, a.left.argmin(axis=1)[:, None], 1)
    correlation, n = _correlation(a.load, -a.left) if a.told else (None, 0)
    group = c.groups[a.group] if a.group >= 0 else None
    return ExpertRow(
        group=group.name if group else "",
        members=units.ranks(a.ranks.tolist()),
        group_size=group.size if group else len(a.ranks),
        steps=len(np.unique(a.step)),
        pairs=len(a.step),
        told=a.told,
        imbalance=float(busiest.mean()) if a.told else None,
        imbalance_max=float(busiest.max()) if a.told else None,
        token_share=a.token_share if a.told else None,
        gain_ns=round(float(a.gain.sum())),
        wait_ns=round(float(a.waited.sum())),
        transfer_ns=sum(_transfer(busy[rows], exposed_of_row[rows]) for rows in (a.dispatch, a.combine))
        if a.told
        else 0,
        loaded_last=int(last.sum()) if a.told else 0,
        correlation=correlation,
        correlation_n=n,
        moves=_moves(a, hot, config),
        ranks=_ranks(a, hot) if a.told else [],
    )


def _transfer(busy: Ints, exposed: Ints) -> int:
    """What even sizes would take from the exposed transfer at most: it is as long as the busiest rank needs.

    Both [pairs, ranks]; ``busy``: elements in the busier direction.
    """
    most = np.maximum(busy.max(axis=1), 1)
    return round(float((exposed.mean(axis=1) * (1 - busy.mean(axis=1) / most)).sum()))


def _moves(a: Account, hot: Bools, config: Config) -> str:
    """Whether the most loaded ranks change, by gain: '' | 'step' (the same all over a step) | 'layer'."""
    weight = a.gain[:, None] * hot
    total = float(a.gain.sum())
    if total <= 0 or weight.sum(axis=0).max() > config.one_rank_share * total:
        return ""
    steps, number = np.unique(a.step, return_inverse=True)
    by_step = np.zeros((len(steps), len(a.ranks)))
    np.add.at(by_step, number, weight)
    return "step" if by_step.max(axis=1).sum() > config.one_rank_share * total else "layer"


def _ranks(a: Account, hot: Bools) -> list[ExpertRank]:
    """The ranks that were the most loaded of a pair that gains, the largest gain first; equal ones share it."""
    hot = hot & (a.gain > 0)[:, None]
    gain = (hot * (a.gain / np.maximum(hot.sum(axis=1), 1))[:, None]).sum(axis=0)
    out = []
    for k in np.argsort(-gain, kind="stable")[: int((gain > 0).sum())].tolist():
        mine = hot[:, k]
        out.append(
            ExpertRank(
                rank=int(a.ranks[k]),
                load=float(a.load[mine, k].mean()),
                pairs=int(mine.sum()),
                steps=len(np.unique(a.step[mine])),
                gain_ns=round(float(gain[k])),
                pace=float(a.pace[k]),
            )
        )
    return out


def _correlation(x: Any, y: Any) -> tuple[float | None, int]:
    """Rank correlation within the pairs, pooled (Spearman, equal values share their place); None if all are equal."""
    dx, dy = (_places(v) for v in (x, y))
    norm = float(np.sqrt((dx**2).sum() * (dy**2).sum()))
    return (float((dx * dy).sum()) / norm if norm else None), dx.size


def _places(values: Any) -> Floats:
    """Place of every value in its row minus the mean place; equal values get the mean of theirs."""
    pairs, ranks = values.shape
    each = pl.DataFrame({"pair": np.repeat(np.arange(pairs), ranks), "value": values.ravel()})
    place = each.select(pl.col("value").rank("average").over("pair")).to_series().to_numpy()
    out: Floats = place.reshape(values.shape) - (ranks + 1) / 2
    return out
