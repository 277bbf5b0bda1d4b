"""Process groups of a run whose ranks come in different formats (METHODS c).

PyTorch names a group and lists its members; Nsight knows the communicator, its size, and members only as far as it
recorded them. The two are one group if the members allow it and nothing else does: never by a guess among several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from traceview.analysis.groups import N_X_N, POINT
from traceview.run import parse_members
from traceview.schema import COLL_KINDS
from traceview.units import named_ranks
from traceview.units import ranks as rank_list

_SHOWN = 5
_RECORD_AGAIN = "export with `nsys export --include-blobs=true` (NCCL 2.25 or newer tells communicators)"
Call = tuple[str, int | None]


@dataclass
class _Group:
    """A group as one format tells it. ``members``: None if not told."""

    name: str
    members: frozenset[int] | None
    text: str | None
    size: int
    ranks: set[int] = field(default_factory=set)
    """ranks whose traces have calls of it"""
    calls: set[Call] = field(default_factory=set)
    """(kind, bytes)"""

    def alike(self, other: _Group) -> bool:
        """Whether the calls may be those of one group: mostly the same kinds and, where both tell them, sizes."""
        if any(size is None for _, size in self.calls | other.calls):
            return bool({k for k, _ in self.calls} & {k for k, _ in other.calls})
        return 2 * len(self.calls & other.calls) >= min(len(self.calls), len(other.calls))


def unify(collectives: Any, formats: Mapping[int, str]) -> tuple[Any, list[str]]:
    """(the ``collectives`` table of all ranks with one name and member list per group, notes).

    ``formats``: format by rank. Nothing changes in a run of one format. Sizes of joined groups are told alike:
    elements are replaced by the message size that both formats tell, or left out.
    """
    if len(set(formats.values())) < 2 or not len(collectives):
        return collectives, []
    rows = _rows(collectives)  # those of the host (gloo, MPI) stay as they are
    told, comms = _sides(rows)
    pairs, notes = _pairs(told, comms)
    rows = _renamed(rows, pairs)
    rows, more = _without_facts(rows, told)
    if rows["joined"].any():
        collectives = _written(collectives, _sizes_alike(rows))
    return collectives, [*notes, *more]


def _rows(collectives: Any) -> pl.DataFrame:
    facts = ("group", "group_desc", "members", "group_size", "comm_id", "bytes", "elems_in", "elems_out", "dtype")
    columns = {name: collectives[name] for name in ("rank", "device", "kind", "p2p", *facts)}
    plain = {n: c.cast(pa.string()) if pa.types.is_dictionary(c.type) else c for n, c in columns.items()}
    point = [COLL_KINDS[i] for i in range(len(COLL_KINDS)) if POINT[i]]
    frame = pl.DataFrame({n: pl.from_arrow(c) for n, c in plain.items()})
    kind = pl.when(pl.col("kind").is_in(point)).then(pl.lit("p2p")).otherwise(pl.col("kind"))
    return frame.with_columns(kind.alias("call"), pl.lit(False).alias("joined"))


def _sides(rows: pl.DataFrame) -> tuple[list[_Group], list[_Group]]:
    """(groups that are named with their members, communicators)."""
    told: dict[tuple[str, str | None], _Group] = {}
    comms: dict[str, _Group] = {}
    facts = ("group", "members", "group_size", "comm_id", "rank", "call", "bytes")
    calls = rows.filter(pl.col("group").is_not_null() & (pl.col("device") >= 0)).select(facts).unique().sort(facts)
    for name, text, size, comm, rank, call, count in calls.rows():
        members = frozenset(parse_members(text)) if text else None
        if comm is None:
            own = told.setdefault((name, text), _Group(name, members, text, size or len(members or ())))
        else:
            own = comms.setdefault(name, _Group(name, None, None, 0))
            own.members, own.text, own.size = own.members or members, own.text or text, max(own.size, size or 0)
        own.ranks.add(rank)
        own.calls.add((call, count))
    for own in comms.values():
        if own.members is None and len(own.ranks) == own.size:
            own.members = frozenset(own.ranks)
    return [g for g in told.values() if g.members], [*comms.values()]


def _fits(group: _Group, comm: _Group) -> bool:
    members = group.members or frozenset()
    return (
        group.size == comm.size
        and comm.ranks <= members
        and not comm.ranks & group.ranks  # a rank is told in one format
        and comm.members in (None, members)
        and group.alike(comm)
    )


def _pairs(told: list[_Group], comms: list[_Group]) -> tuple[dict[str, _Group], list[str]]:
    """(communicator -> the group it is, notes on those that stay apart)."""
    fit = {c.name: [g for g in told if _fits(g, c)] for c in comms}
    exact = {c.name: [g for g in fit[c.name] if g.calls == c.calls] for c in comms}
    fit = {n: exact[n] if len(found) > 1 and len(exact[n]) == 1 else found for n, found in fit.items()}
    claims = {id(g): sum(g in found for found in fit.values()) for found in fit.values() for g in found}
    pairs = {n: found[0] for n, found in fit.items() if len(found) == 1 and claims[id(found[0])] == 1}
    notes = []
    if pairs:
        names = ", ".join(f"{g.name} = {n}" for n, g in [*pairs.items()][:_SHOWN])
        notes.append(f"groups matched across formats by their members: {len(pairs)} ({names})")
    apart = [c for c in comms if c.name not in pairs and (fit[c.name] or len(c.ranks) < c.size)]
    for c in apart[:_SHOWN]:
        several = ", ".join(sorted({g.name for g in fit[c.name]}))
        why = (
            f"may be more than one group of the others ({several})" if several else "is no group that the others tell"
        )
        notes.append(f"communicator {c.name} of ranks {rank_list(sorted(c.ranks))} {why}: not matched across formats")
    if len(apart) > _SHOWN:
        notes.append(f"{len(apart) - _SHOWN} more communicators are not matched across formats")
    return pairs, notes


def _renamed(rows: pl.DataFrame, pairs: dict[str, _Group]) -> pl.DataFrame:
    """Rows of joined communicators under the name and members of the group; ``joined`` marks both sides."""
    if not pairs:
        return rows
    names = {n: g.name for n, g in pairs.items()}
    texts = {n: g.text for n, g in pairs.items()}
    hit = pl.col("comm_id").is_not_null() & pl.col("group").is_in([*pairs])
    partner = pl.DataFrame({"group": [*names.values()], "members": [*texts.values()], "partner": True})
    renamed = rows.with_columns(
        pl.when(hit).then(pl.col("group").replace(texts)).otherwise(pl.col("members")).alias("members"),
        pl.when(hit).then(pl.col("group").replace(names)).otherwise(pl.col("group")).alias("group"),
    )
    both = renamed.join(partner, on=("group", "members"), how="left", maintain_order="left")
    return both.with_columns(pl.col("partner").fill_null(False).alias("joined")).drop("partner")


def _without_facts(rows: pl.DataFrame, told: list[_Group]) -> tuple[pl.DataFrame, list[str]]:
    """Ranks that tell no groups: where the others use only that of all ranks, theirs is assumed to be it (K4)."""
    kinds = [COLL_KINDS[i] for i in range(len(COLL_KINDS)) if N_X_N[i]]
    wide = pl.col("kind").is_in(kinds) & ~pl.col("p2p") & (pl.col("device") >= 0)
    bare = sorted(rows.filter(wide & pl.col("group").is_null())["rank"].unique().to_list())
    used = rows.filter(wide & pl.col("group").is_not_null()).select("group", "members", "comm_id").unique()
    if not bare or not len(used):
        return rows, []
    who = f"{named_ranks(bare)} {'tell' if len(bare) > 1 else 'tells'}"
    one = next((g for g in told if len(used) == 1 and used.rows()[0][:2] == (g.name, g.text)), None)
    if one is None or not set(bare) <= (one.members or set()) or set(bare) & one.ranks:
        return rows, [f"{who} no groups, the others several: not matched across formats; {_RECORD_AGAIN}"]
    assumed = wide & (pl.col("group").is_null() | (pl.col("group") == one.name))
    hidden = [pl.when(assumed).then(None).otherwise(pl.col(c)).alias(c) for c in ("group", "members", "group_size")]
    note = f"{who} no groups: their collectives are assumed to be of group {one.name}, the only one of the others"
    return rows.with_columns(*hidden, (pl.col("joined") | assumed).alias("joined")), [note]


def _sizes_alike(rows: pl.DataFrame) -> pl.DataFrame:
    """Joined rows tell the message size as elements in and out if all rows of their group have one, else nothing.

    Of an all-to-all-v that is the busier direction only, which is neither.
    """
    known = pl.col("bytes").is_not_null().all().over("group", "members") & (pl.col("kind") != "alltoallv")
    size = pl.when(known).then(pl.col("bytes")).otherwise(None)
    return rows.with_columns(
        *(pl.when("joined").then(size).otherwise(pl.col(c)).alias(c) for c in ("elems_in", "elems_out")),
        pl.when("joined").then(None).otherwise(pl.col("dtype")).alias("dtype"),
    )


def _written(collectives: Any, rows: pl.DataFrame) -> Any:
    for name in ("group", "members", "group_size", "elems_in", "elems_out", "dtype"):
        at = collectives.schema.get_field_index(name)
        declared = collectives.schema.field(at)
        column = rows[name].to_arrow()
        if pa.types.is_dictionary(declared.type):
            column = column.cast(pa.string()).dictionary_encode()
        collectives = collectives.set_column(at, declared, column.cast(declared.type))
    return collectives
