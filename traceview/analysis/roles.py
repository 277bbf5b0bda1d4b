"""Stage and data-parallel replica of every rank, from its process groups (METHODS c, Roles).

Labels only: the description of a group says which axis of the job it is, else its shape does, and that is called
assumed. Where groups contradict each other or do not tell, there is no label and a reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from traceview.analysis.groups import KIND, N_X_N, POINT, Columns
from traceview.analysis.p2p import connected
from traceview.schema.arrays import to_numpy

_BLOCK = 2_000_000  # rows looked at together
_WORDS = {
    "tensor": ("tp", "tensor"),
    "pipeline": ("pp", "pipe", "pipeline"),
    "data": ("dp", "ddp", "fsdp", "data", "replicate", "shard"),
    "context": ("cp", "sp", "context", "sequence", "ulysses"),
}
_AXIS = {word: axis for axis, words in _WORDS.items() for word in words}
_PARTS = frozenset(("replicate", "shard", "intra", "inter", "partial"))
"""Words of groups that are only a part of the data-parallel axis."""
_PLAIN = _PARTS | frozenset(("mesh", "model", "parallel", "group", "groups", "with", "and", "gloo", "nccl", "ag"))
"""Words that say nothing of the axis; a description with any other word names no axis for certain."""
_TENSOR, _PIPELINE, _CONTEXT = frozenset(("tensor",)), frozenset(("pipeline",)), frozenset(("context",))
_DATA = (frozenset(("data",)), frozenset(("data", "context")))
_DESCRIBED = "the descriptions of the groups"
_SUMS = tuple(KIND[name] for name in ("allreduce", "reduce_scatter"))


@dataclass(frozen=True)
class Places:
    """Label of every rank in one kind of place; ranks without one are not told."""

    by: str
    labels: Mapping[int, str] = field(default_factory=dict)
    basis: str = ""
    assumed: bool = False
    why: str = ""
    """why there is no label at all"""


@dataclass(frozen=True)
class Axis:
    """A process group of which every member is told: the axes its description names, and what it is used for."""

    members: tuple[int, ...]
    axes: frozenset[str]
    part: bool
    """its description says that it is only a part of the axis"""
    kinds: frozenset[int]
    chain: bool
    """it only sends and receives, along its members and not round them"""


def descriptions(c: Columns) -> list[set[str]]:
    """Descriptions of each group; a chunk of the table at a time."""
    found: list[set[str]] = [set() for _ in c.groups]
    at = 0
    for chunk in c.table["group_desc"].chunks:
        coded = chunk if hasattr(chunk, "indices") else chunk.dictionary_encode()
        names = coded.dictionary.to_pylist()
        code = to_numpy(coded.indices, -1).astype(np.int64)
        group = c.group[at : at + len(chunk)]
        pair = np.unique((group * len(names) + code)[(code >= 0) & (group >= 0)])
        for number in pair.tolist():
            found[number // len(names)].add(names[number % len(names)])
        at += len(chunk)
    return found


def axes_of(c: Columns, described: Sequence[set[str]]) -> list[Axis]:
    """The groups of a run of which every member is told. ``described``: what ``descriptions`` gives."""
    kinds = _kinds(c)
    named = [_axes(texts) for texts in described]
    bare = [i for i, kind in enumerate(kinds) if kind and not named[i][0] and all(POINT[k] for k in kind)]
    edges = _edges(c, bare) if bare else {}
    return [
        Axis(g.members, *named[i], kinds[i], chain=_is_chain(g.members, edges.get(i)))
        for i, g in enumerate(c.groups)
        if g.told and len(g.members) == g.size > 1
    ]


def stages(groups: Sequence[Axis]) -> Places:
    """Pipeline stage of every rank: its position in its pipeline group."""
    told = _distinct(g.members for g in groups if g.axes == _PIPELINE)
    assumed = not told
    if assumed:
        told = _distinct(g.members for g in groups if g.chain)
    if not told:
        return Places("stage", why="no group is described as a pipeline, and none only sends along its ranks")
    if not _even(told):
        return Places("stage", why="pipeline groups differ in size or share ranks")
    where = {rank: i for members in told for i, rank in enumerate(members)}
    if not _within(where, [g.members for g in groups if g.axes in (_TENSOR, _CONTEXT, *_DATA)]):
        return Places("stage", why="other groups cross what would be a stage")
    basis = "assumed: groups that only send and receive" if assumed else _DESCRIBED
    return Places("stage", {r: f"stage {i}" for r, i in where.items()}, basis, assumed)


def replicas(groups: Sequence[Axis], hosts: Mapping[int, str]) -> Places:
    """Data-parallel replica of every rank: its position on the data-parallel axis."""
    axis, parts = _data_axis(groups)
    told = axis or _data_shaped(groups, hosts)
    if not told:
        return Places("replica", why="no group is described as data parallel, and no shape of the groups tells it")
    inner = [g.members for g in groups if g.axes in (_TENSOR, _PIPELINE, _CONTEXT) or (not axis and _is_inner(g))]
    where = _positions(told, [g.members for g in groups if g.axes == _CONTEXT])
    why = ""
    if not _even(told):
        why = "data-parallel groups differ in size or share ranks"
    elif axis and parts and len(_components([*told, *inner])) > 1:
        why = "only parts of the data-parallel axis are seen"
    elif not _within(where, inner):
        why = "other groups cross what would be a replica"
    elif len(set(where.values())) == len(where):
        why = "every rank is a replica of its own: see the ledger by rank"
    if why:
        return Places("replica", why=why)
    basis = _DESCRIBED if axis else "assumed: groups of equal stride"
    return Places("replica", {r: f"replica {i}" for r, i in where.items()}, basis, not axis)


def _axes(descriptions: set[str]) -> tuple[frozenset[str], bool]:
    """(axes that they name, whether it is a part of one); no axes unless they name the same for certain."""
    found = {_words(text) for text in descriptions}
    return found.pop() if len(found) == 1 else (frozenset(), False)


def _words(text: str) -> tuple[frozenset[str], bool]:
    words = frozenset(re.findall(r"[a-z]+", text.lower()))
    named = words - _PLAIN
    axes = frozenset(_AXIS[w] for w in words if w in _AXIS)
    return (axes, bool(words & _PARTS)) if named <= _AXIS.keys() else (frozenset(), False)


def _kinds(c: Columns) -> list[frozenset[int]]:
    """Kinds of collectives of each group."""
    width, count = len(KIND), len(c.groups)
    seen = np.zeros(count * width, np.int64)
    for low in range(0, len(c), _BLOCK):
        group, kind = c.group[low : low + _BLOCK], c.kind[low : low + _BLOCK]
        known = (group >= 0) & (kind >= 0)
        seen += np.bincount(group[known] * width + kind[known], minlength=len(seen))
    return [frozenset(np.flatnonzero(row).tolist()) for row in seen.reshape(count, width)]


def _edges(c: Columns, groups: list[int]) -> dict[int, set[tuple[int, int]]]:
    """(sender, receiver) of the operations of ``groups``, as far as they are told, by group."""
    wanted = np.zeros(len(c.groups) + 1, np.bool_)
    wanted[groups] = True
    out: dict[int, set[tuple[int, int]]] = {}
    for low in range(0, len(c), _BLOCK):
        cut = slice(low, low + _BLOCK)
        group, rank, src, dst = c.group[cut], c.rank[cut], c.src[cut], c.dst[cut]
        take = wanted[group] & ((src >= 0) | (dst >= 0))
        source, target = np.where(src < 0, rank, src)[take], np.where(dst < 0, rank, dst)[take]
        for i, a, b in np.unique(np.column_stack((group[take], source, target)), axis=0).tolist():
            out.setdefault(i, set()).add((a, b))
    return out


def _is_chain(members: tuple[int, ...], edges: set[tuple[int, int]] | None) -> bool:
    """Its sends link neighbours, all of them; a link from end to end only beside sends in both directions.

    A one-way ring is how context parallelism passes its blocks, and no pipeline that is trained.
    """
    place = {rank: i for i, rank in enumerate(members)}
    last = len(members) - 1
    steps = {(place.get(a, -2), place.get(b, -2)) for a, b in edges or () if a != b}
    along = {(a, b) for a, b in steps if abs(a - b) == 1 and min(a, b) >= 0}
    ends = {(a, b) for a, b in steps if {a, b} == {0, last}} - along
    whole = {max(step) for step in along} == set(range(1, last + 1))
    return whole and along | ends == steps and (not ends or {b > a for a, b in along} == {True, False})


def _distinct(members: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Each set once: several groups may have the same ranks."""
    return sorted(set(members))


def _even(told: Sequence[tuple[int, ...]]) -> bool:
    """All of one size, and no rank in two."""
    every = [rank for members in told for rank in members]
    return len({len(members) for members in told}) == 1 and len(set(every)) == len(every)


def _within(where: Mapping[int, int], groups: Iterable[tuple[int, ...]]) -> bool:
    """No group holds ranks of two places."""
    return all(len({where[r] for r in members if r in where}) <= 1 for members in groups)


def _components(groups: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Ranks that are linked by groups."""
    return connected((members[0], rank) for members in groups for rank in members)


def _positions(told: Iterable[tuple[int, ...]], context: Iterable[tuple[int, ...]]) -> dict[int, int]:
    """Position of each rank in its group; ranks of one context group hold parts of one sample: one position."""
    sample = {rank: members[0] for members in _components(context) for rank in members}
    out: dict[int, int] = {}
    for members in told:
        number: dict[int, int] = {}
        for rank in members:
            out[rank] = number.setdefault(sample.get(rank, rank), len(number))
    return out


def _stride(members: tuple[int, ...]) -> int:
    """The constant stride of a group, 0 if it has none."""
    strides = {b - a for a, b in pairwise(members)}
    return strides.pop() if len(strides) == 1 else 0


def _data_axis(groups: Sequence[Axis]) -> tuple[list[tuple[int, ...]], bool]:
    """(ranks of each data-parallel axis by the descriptions, whether they were put together from its parts)."""
    data = [g for g in groups if g.axes in _DATA]
    whole = [g for g in data if not g.part]
    told = _distinct(g.members for g in [g for g in whole if g.axes == _DATA[0]] or whole)
    return (told, False) if told and _even(told) else (_components(g.members for g in data), True)


def _is_inner(group: Axis) -> bool:
    """By its shape a group that shares one copy of the model."""
    return group.chain or _stride(group.members) == 1


def _data_shaped(groups: Sequence[Axis], hosts: Mapping[int, str]) -> list[tuple[int, ...]]:
    """Groups without a description that can only be data parallel: one family of a stride above 1 that sums.

    Groups of stride 1 inside a host, and chains, hold the copies of the model; without any there is no telling.
    """
    plain = [g for g in groups if len(g.members) < len(hosts)]
    if any(g.axes for g in groups):
        return []
    inner = [g for g in plain if _is_inner(g)]
    found = [g for g in plain if not _is_inner(g)]
    local = all(g.chain or len({hosts.get(r) for r in g.members}) == 1 for g in inner)
    family = {(len(g.members), _stride(g.members)) for g in found}
    sums = all(any(k in g.kinds for k in _SUMS) and all(N_X_N[k] for k in g.kinds) for g in found)
    if not (inner and local and sums and len(family) == 1) or 0 in {stride for _, stride in family}:
        return []
    return _distinct(g.members for g in found)
