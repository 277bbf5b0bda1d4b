"""Which records on different ranks are one collective (METHODS c): the key ladder K1-K4 and its validation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from traceview.analysis import p2p
from traceview.analysis.groups import KIND, N_X_N, NONE, POINT, SAME_SIZES, UNKNOWN_LAUNCH, Columns, columns
from traceview.analysis.instances import begins, by_value
from traceview.analysis.placing import Clues, cut, place
from traceview.analysis.types import Bools, Codes, Ints, Matches
from traceview.config import DEFAULT, Config
from traceview.result import MatchRow

K1, K2, K3, K4 = 1, 2, 3, 4
_MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64).astype(np.int64)


class _Draft:
    """Instances while they are being found: key and level per row."""

    def __init__(self, rows: int) -> None:
        self.key = np.full(rows, NONE)
        self.level = np.zeros(rows, np.int8)
        self.ambiguous = np.zeros(rows, np.bool_)
        self.next = 0

    def add(self, rows: Ints, key: Ints, level: int | Codes) -> None:
        """Give ``rows`` instance keys (any non-negative numbers; equal ones are one instance, -1 stays unmatched)."""
        if not len(rows):
            return
        placed = key >= 0
        self.key[rows] = np.where(placed, key + self.next, NONE)
        self.level[rows] = level
        self.next += int(key.max()) + 1 if placed.any() else 0


def match(
    collectives: Any | Columns,
    step_of_row: Ints,
    world: int | None,
    hosts: dict[int, str] | None = None,
    *,
    anchored: bool = True,
    config: Config = DEFAULT,
) -> Matches:
    """Match the rows of all ranks.

    ``collectives``: the run's concatenated table (or its ``Columns``), in rank order.
    ``step_of_row``: step per row, negative = outside.
    ``world``: number of ranks, None = unknown. ``hosts``: host by rank; None = one host. ``anchored``: step numbers
    mean the same step on every rank (False: a rank's own numbers, such as steps found by period).
    """
    c = collectives if isinstance(collectives, Columns) else columns(collectives)
    step = np.maximum(step_of_row, NONE) if anchored else np.zeros(len(c), np.int64)
    clues = Clues(_signature(c), c.start, c.end, _host_ids(c, hosts), config)
    draft = _Draft(len(c))
    left = _match_channels(c, step, clues, draft)
    left = _match_sequence_numbers(c, left, draft)
    grouped = left & (c.group >= 0)
    _match_ordinals(c, np.flatnonzero(grouped), step, clues, draft, anchored=anchored)
    notes = _match_without_groups(c, np.flatnonzero(left & ~grouped), step, clues, draft, anchored=anchored)
    return replace(_finish(c, draft, world, notes), anchored=anchored)


def _signature(c: Columns) -> Ints:
    """Hash of dtype and sizes; of the dtype alone for kinds whose sizes differ between members."""
    sized = SAME_SIZES[c.kind] | POINT[c.kind]
    with np.errstate(over="ignore"):
        given, taken = c.elems()
        size = np.where(sized, (given + 2) * _MIX[1] ^ (taken + 2) * _MIX[2], 0)
        out: Ints = size ^ (c.dtype() + 2) * _MIX[0]
    return out


def _host_ids(c: Columns, hosts: dict[int, str] | None) -> Ints:
    """Host number by rank."""
    top = int(c.rank.max(initial=0)) + 1
    if hosts is None:
        return np.zeros(top, np.int64)
    names = {name: i for i, name in enumerate(dict.fromkeys(hosts.values()))}
    return np.array([names.get(hosts.get(r, ""), len(names) + r) for r in range(top)], np.int64)


def _time(c: Columns, rows: Ints) -> Ints:
    """What orders the collectives of a rank: the launch where every row tells it (streams may run out of order)."""
    launch = c.launch()[rows]
    return c.start[rows] if (launch == UNKNOWN_LAUNCH).any() else launch


def _match_channels(c: Columns, step: Ints, clues: Clues, draft: _Draft) -> Bools:
    """Send/recv by the ordinal of the channel (group, src, dst) in the step. Returns the rows left to match."""
    point, source, target = p2p.ends(c)
    told = point & ((source >= 0) | (target >= 0))
    rows_in, rows_out = np.flatnonzero(told & (source >= 0)), np.flatnonzero(told & (target >= 0))
    rows = np.concatenate((rows_in, rows_out))
    if len(rows):
        span = int(c.rank.max()) + 1
        span = max(span, int(source.max()) + 1, int(target.max()) + 1)
        src = np.concatenate((source[rows_in], c.rank[rows_out]))
        dst = np.concatenate((c.rank[rows_in], target[rows_out]))
        side = np.repeat((1, 0), (len(rows_in), len(rows_out)))
        channel = np.unique((c.group[rows] + 1) * span * span + src * span + dst, return_inverse=True)[1]
        edge = _place_channels(rows, channel, step[rows], side, c, clues)
        draft.add(*_join_edges(len(c), rows, edge))
    loose: Bools = (
        point & ~told & (c.kind == KIND["sendrecv"])
    )  # a batch whose peers are not told: by the group's order
    draft.ambiguous[loose] = True
    return ~point | loose


def _place_channels(rows: Ints, channel: Ints, step: Ints, side: Ints, c: Columns, clues: Clues) -> Ints:
    """Edge number per element of ``rows``: one sender and one receiver have the same."""
    element = np.arange(len(rows))
    cells = cut(element, channel, step, side, _time(c, rows))
    ranks = c.rank[rows]
    sides = Clues(clues.sig[rows], clues.start[rows], clues.end[rows], np.zeros(2, np.int64), clues.config)
    if len(np.unique(clues.host[ranks])) > 1:
        sides = Clues(sides.sig, sides.start, sides.end, np.arange(2), clues.config)
    edge = np.empty(len(rows), np.int64)
    edge[cells.order] = place(cells, sides, anchored=True).keys(cells)
    return edge


def _join_edges(count: int, rows: Ints, edge: Ints) -> tuple[Ints, Ints, int]:
    """Rows of the edges and their instance keys; a batch with several edges joins them in one instance."""
    order = np.argsort(edge, kind="stable")
    order = order[edge[order] >= 0]
    same = edge[order][1:] == edge[order][:-1]
    first, second = rows[order[:-1][same]], rows[order[1:][same]]
    label = p2p.components(count, first, second)
    touched = np.unique(rows)
    return touched, label[touched], K2


def _match_sequence_numbers(c: Columns, left: Bools, draft: _Draft) -> Bools:
    """K1: (group, point-to-point, sequence number), for groups whose rows all have one."""
    eligible = left & (c.group >= 0)
    seq = c.seq()
    bare = np.bincount(c.group[eligible & (seq < 0)], minlength=len(c.groups)) > 0
    take: Bools = eligible & ~np.append(bare, True)[c.group]
    rows = np.flatnonzero(take)
    if len(rows):
        family = c.group[rows] * 2 + c.p2p[rows]
        seq = seq[rows]
        low = np.full(2 * len(c.groups), np.iinfo(np.int64).max)
        high = np.full(2 * len(c.groups), NONE)
        np.minimum.at(low, family, seq)
        np.maximum.at(high, family, seq)
        width = np.where(high >= 0, high - low + 1, 0)
        base = np.cumsum(width) - width
        draft.add(rows, base[family] + seq - low[family], K1)
    return left & ~take


def _match_ordinals(c: Columns, rows: Ints, step: Ints, clues: Clues, draft: _Draft, *, anchored: bool) -> None:
    """K2, and K3 where counts or signatures differ."""
    outside = step[rows] < 0
    for part, fixed in ((rows[~outside], anchored), (rows[outside], False)):
        if len(part):
            classes = (c.group[part] * len(KIND) + c.kind[part]) * 2 + c.p2p[part]
            _place_classes(c, part, (classes, step[part]), clues, draft, (K2, fixed))


def _place_classes(
    c: Columns, rows: Ints, cell: tuple[Ints, Ints], clues: Clues, draft: _Draft, how: tuple[int, bool]
) -> None:
    """Place rows by (class, step); a class that fails the overlap test on one host is placed anew without steps."""
    level, anchored = how
    classes, step = cell
    cells = cut(rows, classes, step, c.rank[rows], _time(c, rows))
    placed = place(cells, clues, anchored=anchored)
    key = placed.keys(cells)
    row_class = np.repeat(cells.cell_class[cells.run_cell], cells.run_count)
    if anchored:
        slipped = np.unique(row_class[_apart(c, clues, cells.order, key)])
        again = np.isin(row_class, slipped)
        if again.any():
            whole = (row_class[again], 0 * row_class[again])
            _place_classes(c, cells.order[again], whole, clues, draft, (level, False))
            keep = ~again
            draft.add(cells.order[keep], key[keep], np.where(placed.aligned[keep], K3, level).astype(np.int8))
            draft.ambiguous[cells.order[keep]] |= placed.ambiguous[keep]
            return
    draft.add(cells.order, key, np.where(placed.aligned & (level == K2), K3, level).astype(np.int8))
    draft.ambiguous[cells.order] |= placed.ambiguous


def _apart(c: Columns, clues: Clues, rows: Ints, key: Ints) -> Bools:
    """Rows of n x n instances, all on one host, whose class fails the overlap test (V2)."""
    fit = (key >= 0) & N_X_N[c.kind[rows]]
    out = np.zeros(len(rows), np.bool_)
    if not fit.any():
        return out
    at = np.flatnonzero(fit)
    at = at[np.argsort(key[at], kind="stable")]
    first = np.flatnonzero(np.diff(key[at], prepend=-1))
    host = clues.host[c.rank[rows[at]]]
    one = np.minimum.reduceat(host, first) == np.maximum.reduceat(host, first)
    late = np.maximum.reduceat(c.start[rows[at]], first)
    early = np.minimum.reduceat(c.end[rows[at]], first)
    # METHODS V2 judges shares of a class; it is anchored evidence against time, so an instance counts only if clear
    count = np.diff(np.append(first, len(at)))
    failed = one & (late > early + clues.config.eps_min_ns) & (count > 1)
    family = (c.group[rows[at[first]]] + 1) * len(KIND) + c.kind[rows[at[first]]]
    _, inverse = np.unique(family, return_inverse=True)
    share = np.bincount(inverse, failed) / np.bincount(inverse)
    bad = np.repeat((share > 1 - clues.config.overlap_bad)[inverse], count)
    out[at[bad]] = True
    return out


def _match_without_groups(
    c: Columns, rows: Ints, step: Ints, clues: Clues, draft: _Draft, *, anchored: bool
) -> list[str]:
    """K4: n x n kinds by name and order in an assumed world group, kept only if the intervals overlap (V2)."""
    rows = rows[N_X_N[c.kind[rows]]]
    if not len(rows):
        return []
    trial = _Draft(len(c))
    name, names = c.template()
    _place_classes(c, rows, (name[rows], step[rows]), clues, trial, (K4, anchored))
    good = _overlapping_names(c, clues, rows, trial.key, name)
    keep = rows[good[name[rows]]]
    draft.add(keep, trial.key[keep], K4)
    draft.ambiguous[keep] |= trial.ambiguous[keep]
    if len(keep) == len(rows):
        return []
    lost = sorted({names[i] for i in np.unique(name[rows]).tolist() if not good[i]})
    return [
        f"not matched, no group facts and the intervals do not overlap: {', '.join(lost)}; "
        "cannot tell who is late there: record with PyTorch 2.4 or later (Nsight: --include-blobs=true)"
    ]


def _overlapping_names(c: Columns, clues: Clues, rows: Ints, key: Ints, name: Ints) -> Bools:
    """Per name: the instances share a point of time, after a provisional offset per rank on other hosts."""
    rows = rows[key[rows] >= 0]
    shift = np.zeros(int(c.rank.max(initial=0)) + 1, np.int64)
    order = rows[np.lexsort((c.rank[rows], key[rows]))]
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    lead = np.repeat(order[first], np.diff(np.append(first, len(order))))
    gap = c.end[lead] - c.end[order]
    for r, own in by_value(c.rank[order]):
        far = own[clues.host[c.rank[lead[own]]] != clues.host[r]]
        if len(far):
            shift[r] = np.median(gap[far])
    late = np.maximum.reduceat(c.start[order] + shift[c.rank[order]], first) if len(first) else first
    early = np.minimum.reduceat(c.end[order] + shift[c.rank[order]], first) if len(first) else first
    count = int(name.max(initial=-1)) + 1
    total = np.bincount(name[order[first]], minlength=count)
    hits = np.bincount(name[order[first]], late < early, minlength=count)
    out: Bools = (total > 0) & (hits >= clues.config.overlap_good * total)
    return out


def _finish(c: Columns, draft: _Draft, world: int | None, notes: list[str]) -> Matches:
    """Number the instances, count their members, validate the metadata (V1)."""
    matched = draft.key >= 0
    there = np.zeros(draft.next, np.bool_)
    there[draft.key[matched]] = True
    instance = np.where(matched, np.append(np.cumsum(there) - 1, 0)[draft.key], NONE)
    order = np.argsort(instance, kind="stable")
    order = order[np.searchsorted(instance[order], 0) :]
    first = np.flatnonzero(np.diff(instance[order], prepend=-1))
    fresh = begins(instance[order], c.rank[order])
    count = int(there.sum())
    seen = np.bincount(instance[order], fresh, count).astype(np.int64)
    lead = order[first]
    size = _sizes(c, lead, seen, world, draft.level)
    strange = _metadata_differs(c, order, first)
    ambiguous = (np.bincount(instance[order], draft.ambiguous[order], count) > 0) | strange
    level = np.maximum.reduceat(draft.level[order], first) if count else draft.level[lead]
    found = Matches(instance, level, size, seen, (seen == size) & (size > 0), ambiguous, [], notes)
    found.groups.extend(_rows(c, found, lead))
    return found


def _sizes(c: Columns, lead: Ints, seen: Ints, world: int | None, level: Codes) -> Ints:
    """Expected members per instance; 0 = unknown. An untold size is that of the fullest instance, two at least."""
    group = c.group[lead]
    told = np.array([g.size if g.told else 0 for g in c.groups] + [0], np.int64)
    most = np.zeros(len(c.groups) + 1, np.int64)
    np.maximum.at(most, group, seen)
    listed = np.array([len(g.members) for g in c.groups] + [0], np.int64)
    most = np.where(told > 0, told, np.maximum(np.maximum(most, listed), 2))  # nobody communicates alone
    size = most[group]
    point, source, target = p2p.ends(c)
    pair = point[lead] & ((source[lead] >= 0) | (target[lead] >= 0))
    size = np.where(pair, np.maximum(seen, 2), size)
    return np.where(level[lead] == K4, world or int(most[-1]), size)


def _metadata_differs(c: Columns, order: Ints, first: Ints) -> Bools:
    """V1 per instance: kind, dtype or sizes differ between members although the kind wants them equal."""
    if not len(first):
        return np.zeros(0, np.bool_)
    kind = c.kind[order]
    # an uneven all-to-all may look even to some of its ranks
    alike = np.where(POINT[kind], 0, np.where(kind == KIND["alltoallv"], KIND["alltoall"], kind))
    differs = _spread(alike, first)
    for column in (c.dtype(), *c.elems()):
        value = np.where(SAME_SIZES[kind], column[order], NONE)
        known = np.minimum.reduceat(value, first) >= 0
        differs |= known & _spread(value, first)
    return differs


def _spread(value: Any, first: Ints) -> Bools:
    out: Bools = np.minimum.reduceat(value, first) != np.maximum.reduceat(value, first)
    return out


def _rows(c: Columns, m: Matches, lead: Ints) -> list[MatchRow]:
    """A ``MatchRow`` per group; rows without a group are one row with an empty name."""
    top = len(c.groups) + 1
    group = c.group[lead]
    counts = [
        np.bincount(group % top, weight, top).astype(np.int64)
        for weight in (np.ones(len(lead)), m.full & ~m.ambiguous, ~m.full & ~m.ambiguous, m.ambiguous)
    ]
    lost = np.bincount(c.group[m.instance < 0] % top, minlength=top)
    level = np.zeros(top, np.int64)
    np.maximum.at(level, group % top, m.level)
    out = []
    for i in np.flatnonzero(counts[0] + lost).tolist():
        g = c.groups[i] if i < len(c.groups) else None
        total, full, partial, unclear = (int(x[i]) for x in counts)
        out.append(
            MatchRow(
                group=g.name if g else "",
                members=g.label if g else "",
                level=f"K{level[i]}" if total else "",
                instances=total,
                matched=full,
                partial=partial,
                unmatched=int(lost[i]),
                ambiguous=unclear,
                note=_note(g, total, unclear),
            )
        )
    return out


def _note(group: Any, total: int, unclear: int) -> str:
    if group is None:
        return "no group facts: world group assumed"
    parts = [] if group.told else ["members not told: those that were seen"]
    if unclear:
        parts.append(f"{unclear} of {total} not certain, left unresolved")
    return "; ".join(parts)
