"""What the bounds and the edits of a replay read: windows and communication operations as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import units
from traceview.analysis.bandwidth import size_class
from traceview.analysis.groups import Columns
from traceview.analysis.types import TRANSFER, Bools, Floats, Ints, Phases, Tokens
from traceview.analysis.whatif.asked import WORDS, Asked
from traceview.config import Config
from traceview.result import CollectiveRow, Result
from traceview.schema import COLL_KINDS
from traceview.schema.arrays import to_numpy


@dataclass(frozen=True)
class Moved:
    """Communication operations of all ranks, one element per collectives row; times in ns."""

    window: Ints
    """row of ``Result.window_rows``, -1 = in no used window, or not fully observed"""
    exposed: Ints
    transfer: Ints
    """from the last arrival to the end"""
    kind: Ints
    """index into the lists below"""
    group: list[str]
    tier: list[str]
    alpha: Floats
    """latency that no bandwidth shortens, as fitted over the sizes of its group; 0 = the sizes do not tell"""
    unstaged: Floats
    """how many times as fast it would be if it did not pass host memory; 1 = it does not, or nobody knows"""


@dataclass(frozen=True)
class Facts:
    """A run, as the scenarios see it."""

    result: Result
    moved: Moved
    tokens: Tokens | None


def moved(result: Result, c: Columns, phases: Phases, exposed: Ints, step_of_row: Ints, config: Config) -> Moved:
    """The communication of a run. ``exposed``: exclusive ns of every row (used windows)."""
    place = {(w.rank, w.step): i for i, w in reversed(list(enumerate(result.window_rows)))}
    width = int(step_of_row.max(initial=-1)) + 2
    pair, inverse = np.unique(c.rank * width + step_of_row + 1, return_inverse=True)
    window = np.array([place.get((p // width, p % width - 1), -1) for p in pair.tolist()], np.int64)[inverse]
    sure = (phases.second == TRANSFER) & ~c.on_host & ~phases.violated
    bits = np.frexp(np.maximum(to_numpy(c.table["bytes"], 0), 0).astype(np.float64))[1].astype(np.int64)
    key = ((c.group + 1) * (len(COLL_KINDS) + 1) + c.kind + 1) * 64 + bits
    found, kind = np.unique(key, return_inverse=True)
    rows = [_class_of(result, c, k) for k in found.tolist()]
    return Moved(
        window=np.where(sure, window, -1),
        exposed=exposed,
        transfer=c.end - np.maximum(phases.wait_end, c.start),
        kind=kind,
        group=[row.group if row else "" for row in rows],
        tier=[row.tier if row else "unknown" for row in rows],
        alpha=np.array([float(row.facts.get("alpha_us", 0.0)) * 1e3 if row else 0.0 for row in rows]),
        unstaged=np.array([_unstaged(row, config) for row in rows]),
    )


def _class_of(result: Result, c: Columns, key: int) -> CollectiveRow | None:
    """The class of collectives that a group, kind and size are in; of another size where there is none of it."""
    group, kind, bits = key // 64 // (len(COLL_KINDS) + 1) - 1, key // 64 % (len(COLL_KINDS) + 1) - 1, key % 64
    if group < 0 or kind < 0:
        return None
    name, members = c.groups[group].name, units.ranks(list(c.groups[group].members))
    same = [
        row
        for row in result.collective_rows
        if (row.group, row.kind) == (name, COLL_KINDS[kind]) and row.members in (members, "")
    ]
    return next((row for row in same if row.size_class == size_class(bits)), same[0] if same else None)


def _unstaged(row: CollectiveRow | None, config: Config) -> float:
    """The bound without host memory, as far as it is usually attained, over what it reaches (METHODS f.4)."""
    if row is None or not row.host_staged or not row.unstaged_peak or not row.busbw:
        return 1.0
    return max(1.0, config.attained_share * row.unstaged_peak / row.busbw)


def chosen(m: Moved, name: str) -> Bools:
    """[classes]: those that a name of a tier or a group means."""
    tiers = WORDS.get(name, (name,))
    return np.array(
        [name == "all" or t in tiers or g == name for g, t in zip(m.group, m.tier, strict=True)], np.bool_
    )


def remaining(m: Moved, asked: Asked, rows: Ints, transfer: Ints | Floats) -> Floats:
    """Share of the transfer time of some rows that stays in a scenario. Latency is not scaled."""
    faster = np.ones(len(m.group))
    for name, factor in asked.network:
        faster[chosen(m, name)] *= factor
    if not asked.staging:
        faster = faster * m.unstaged
    kind = m.kind[rows]
    fixed = np.minimum(transfer, m.alpha[kind])
    after = fixed + (transfer - fixed) / faster[kind]
    out: Floats = np.divide(after, transfer, out=np.ones(len(rows)), where=transfer > 0)
    return out
