"""The collectives table as numpy columns, and who is in which process group (METHODS c).

A group is a name *and* a member set: PyTorch's ``split_group`` gives one name to different rank sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from traceview.analysis.types import Bools, Codes, Ints
from traceview.run import parse_members
from traceview.schema import COLL_KINDS, codes
from traceview.schema.arrays import to_numpy
from traceview.units import ranks as format_ranks

NONE = -1
UNKNOWN_LAUNCH = np.iinfo(np.int64).min
KIND = {name: code for code, name in enumerate(COLL_KINDS)}


def _kinds(*names: str) -> Bools:
    """Lookup table over kind codes; the last element is for an unknown (null) kind."""
    table = np.zeros(len(COLL_KINDS) + 1, np.bool_)
    table[[KIND[n] for n in names]] = True
    return table


# METHODS e.2: how a kind synchronises. Index these with a kind code.
N_X_N = _kinds("allreduce", "allgather", "reduce_scatter", "alltoall", "alltoallv", "barrier")
ONE_TO_N = _kinds("broadcast", "scatter")
N_TO_ONE = _kinds("reduce", "gather")
POINT = _kinds("send", "recv", "sendrecv")
SAME_SIZES = _kinds("allreduce", "allgather", "reduce_scatter", "alltoall", "barrier")


@dataclass(frozen=True)
class Group:
    """A process group: ``members`` are global ranks, ascending; ``size`` may exceed them if they are not all told."""

    name: str
    members: tuple[int, ...]
    size: int
    told: bool
    """the trace tells the members (else they are the ranks that were seen)"""

    @property
    def label(self) -> str:
        """Members as ranges."""
        return format_ranks(list(self.members))


@dataclass(frozen=True)
class Columns:
    """The columns that cross-rank analysis reads; a null is -1 (``UNKNOWN_LAUNCH`` for launch).

    What only matching reads is taken from the table when it is asked for, and not kept.
    """

    table: Any
    """the ``collectives`` table of all ranks"""
    rank: Ints
    start: Ints
    end: Ints
    kind: Codes
    on_host: Bools
    """a host collective: its stamps are the host's own"""
    group: Ints
    """index into ``groups``; -1 = no group facts"""
    p2p: Bools
    src: Ints
    dst: Ints
    groups: list[Group]

    def __len__(self) -> int:
        return len(self.rank)

    @cached_property
    def head(self) -> Ints:
        """Per rank, from 0: its first row; one more element at the end (rows are in rank order)."""
        return np.searchsorted(self.rank, np.arange(int(self.rank.max(initial=-1)) + 2))

    @cached_property
    def groups_of(self) -> dict[int, set[int]]:
        """By rank: the groups that it is in."""
        out: dict[int, set[int]] = {}
        for number, group in enumerate(self.groups):
            for rank in group.members:
                out.setdefault(rank, set()).add(number)
        return out

    def launch(self) -> Ints:
        """Begin of the launch, ns."""
        out: Ints = _plain(self.table["launch_start"], UNKNOWN_LAUNCH)
        return out

    def seq(self) -> Ints:
        """Sequence number in the group."""
        out: Ints = _plain(self.table["seq"])
        return out

    def dtype(self) -> Ints:
        """Number of the data type's name."""
        return _dictionary(self.table["dtype"])[0]

    def elems(self) -> tuple[Ints, Ints]:
        """Elements in and out."""
        return _plain(self.table["elems_in"]), _plain(self.table["elems_out"])

    def elems_of(self, rank: int) -> Ints:
        """Elements in, of the rows of one rank."""
        low, high = self.head[rank : rank + 2].tolist()
        out: Ints = _plain(self.table["elems_in"].slice(low, high - low))
        return out

    def name(self) -> tuple[Ints, list[Any]]:
        """(index per row into the kernel names, the names)."""
        return _dictionary(self.table["name"])

    def template(self) -> tuple[Ints, list[str]]:
        """(index per row into the kernel templates, their names): formats spell the arguments differently."""
        name, names = self.name()
        stems = [str(n).partition("(")[0] for n in names]
        known = list(dict.fromkeys(stems))
        place = np.array([known.index(s) for s in stems] + [NONE])
        return place[name], known


def columns(collectives: Any) -> Columns:
    """Numpy columns of a concatenated ``collectives`` table (rows of all ranks, in rank order)."""
    table = collectives
    kind = codes(table["kind"], COLL_KINDS)
    p2p = _plain(table["p2p"]).astype(np.bool_) | (POINT[kind] & (kind != KIND["sendrecv"]))
    rank = _plain(table["rank"]).astype(np.int64)
    group, groups = _groups(table, rank)
    return Columns(
        table=table,
        rank=rank,
        start=_plain(table["start"]),
        end=_plain(table["end"]),
        kind=kind,
        on_host=_plain(table["device"]) < 0,
        group=group,
        p2p=p2p,
        src=_plain(table["src"]).astype(np.int64, copy=False),
        dst=_plain(table["dst"]).astype(np.int64, copy=False),
        groups=groups,
    )


def _plain(column: Any, null: int = NONE) -> Any:
    """A numeric column as numpy; nulls become ``null`` (a column of nulls takes no memory)."""
    if len(column) and column.null_count == len(column):
        return np.broadcast_to(np.int64(null), len(column))
    return to_numpy(column, null)


def _dictionary(column: Any) -> tuple[Ints, list[Any]]:
    """(code per row, -1 for null; the values) of a string or dictionary column."""
    if not len(column) or column.null_count == len(column):
        return np.broadcast_to(np.int64(NONE), len(column)), []
    flat = column.combine_chunks()
    if not hasattr(flat, "indices"):
        flat = flat.dictionary_encode()
    values = flat.dictionary.to_pylist()
    if len(values) == 1 and not flat.null_count:  # one value takes no memory
        return np.broadcast_to(np.int64(0), len(column)), values
    return _plain(flat.indices).astype(np.int64, copy=False), values


def _groups(table: Any, rank: Ints) -> tuple[Ints, list[Group]]:
    """Group number per row, and the groups. Rows without members join the one told set of their name."""
    name, names = _dictionary(table["group"])
    members, sets = _dictionary(table["members"])
    told_size = _plain(table["group_size"]).astype(np.int64)
    dense, pairs = _dense_pairs(name, members, len(sets))
    keys = [(names[n] if n >= 0 else None, parse_members(sets[m]) if m >= 0 else None) for n, m in pairs.tolist()]
    known: dict[str, list[int]] = {}
    for i, (n, m) in enumerate(keys):
        if n is not None and m is not None:
            known.setdefault(n, []).append(i)
    target = np.arange(len(keys))
    for i, (n, m) in enumerate(keys):
        if n is None and m is None:
            target[i] = NONE
        elif m is None and n is not None and len(known.get(n, [])) == 1:
            target[i] = known[n][0]
    resolved = np.where(dense >= 0, target[dense], NONE) if len(keys) else dense
    used = np.unique(resolved[resolved >= 0])
    renumber = np.full(len(keys) + 1, NONE)
    renumber[used] = np.arange(len(used))
    group = renumber[resolved]
    seen, size = _seen(group, rank, told_size, len(used))
    found = []
    for i, key in enumerate(used.tolist()):
        n, m = keys[key]
        ranks = tuple(sorted(set(m))) if m is not None else tuple(seen[i])
        found.append(Group(n or "", ranks, max(int(size[i]), len(ranks)), m is not None or int(size[i]) > 0))
    return group, found


def _dense_pairs(first: Ints, second: Ints, width: int) -> tuple[Ints, Ints]:
    """Dense number of each distinct (first, second) pair per row, and the pairs."""
    span = width + 1
    key = (first + 1) * span + second + 1
    top = int(key.max(initial=-1)) + 1
    there = np.zeros(top, np.bool_)
    there[key] = True
    values = np.flatnonzero(there)
    number = np.cumsum(there) - 1
    return number[key], np.column_stack((values // span - 1, values % span - 1))


def _seen(group: Ints, rank: Ints, told: Ints, count: int) -> tuple[list[list[int]], Ints]:
    """Ranks seen per group, and the largest size that its rows tell (0 = never told)."""
    size = np.zeros(count, np.int64)
    ok = group >= 0
    if not ok.all():
        group, rank, told = group[ok], rank[ok], told[ok]
    np.maximum.at(size, group, told)
    span = int(rank.max(initial=0)) + 1
    there = np.zeros(count * span, np.bool_)
    there[group * span + rank] = True
    where = np.flatnonzero(there)
    cut = np.searchsorted(where, np.arange(1, count) * span)
    return [part.tolist() for part in np.split(where % span, cut)] if count else [], size
