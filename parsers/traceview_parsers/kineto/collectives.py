"""The collectives table: every communication kernel and host collective with its facts from the best source.

Order: arguments on the kernel; else the ``record_param_comms`` that contains the launch call; else the records
waiting on that thread since the previous communication launch (a batch of sends and receives); else a range such as
``nccl:all_reduce`` around the launch; else the kernel's name (METHODS c and f.1).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from traceview.run import MOST_RANKS, parse_members
from traceview.schema import COLL_FACTS, COLL_KINDS, COLLECTIVES
from traceview.schema.arrays import from_numpy, to_numpy
from traceview.units import ranks as as_ranges
from traceview_parsers import kernels
from traceview_parsers.kineto.columns import Array, Interner, dictionary, nullable
from traceview_parsers.kineto.comms import NUMBERS, TEXT, CommStore, dtype_bytes, kind_of
from traceview_parsers.kineto.events import MISSING

_KIND = {kind: code for code, kind in enumerate(COLL_KINDS)}
_FACTS = {source: code for code, source in enumerate(COLL_FACTS)}
_P2P = [_KIND[k] for k in ("send", "recv", "sendrecv")]
_LOOK_BACK = 4  # nested records deep


def containing(intervals: dict[str, Array], thread: Array, time: Array) -> Array:
    """Per query the number of the innermost interval on ``thread`` that contains ``time``, or -1."""
    found = np.full(len(thread), -1, np.int64)
    if not len(intervals["start"]) or not len(thread):
        return found
    order, key, query = _keys(intervals, thread, time)
    at = np.searchsorted(key, query, "right") - 1
    for _ in range(_LOOK_BACK):
        candidate = order[np.maximum(at, 0)]
        fits = (found < 0) & (at >= 0) & (intervals["thread"][candidate] == thread) & (time != MISSING)
        fits &= (intervals["start"][candidate] <= time) & (time <= intervals["end"][candidate])
        found[fits] = candidate[fits]
        at -= 1
    return found


def _keys(intervals: dict[str, Array], thread: Array, time: Array) -> tuple[Array, Array, Array]:
    """(order of the intervals by thread and start, their keys in that order, keys of the queries)."""
    threads = np.unique(intervals["thread"])
    starts = intervals["start"]
    low = int(starts.min())
    span = int(starts.max()) - low + 2
    key = np.searchsorted(threads, intervals["thread"]) * span + (starts - low)
    order = np.argsort(key, kind="stable")
    query = np.searchsorted(threads, thread) * span + np.clip(time - low, -1, span - 2)
    return order, key[order], query


class _Facts:
    """Facts of kernels and records in one set of columns; row -1 stands for nothing known."""

    def __init__(self, store: CommStore, base: int) -> None:
        own, records = store.kernels.take_all(), store.records.take_all()
        for name in ("start", "end"):
            records[name] += base
        self.records = records
        self.kernel_rows = own["row"]
        self.offset = len(own["row"])  # of the records
        nothing = {name: store.text[name][None] for name in TEXT} | dict.fromkeys(NUMBERS, -1)
        self.text = {name: store.text[name].strings() for name in TEXT}
        self.columns = {
            name: np.concatenate([own[name], records[name], np.array([nothing[name]], own[name].dtype)])
            for name in (*TEXT, *NUMBERS)
        }
        kinds = [_KIND.get(kind_of(c) or "", -1) for c in self.text["collective"]]
        self.columns["kind"] = np.array(kinds, np.int64)[self.columns["collective"]]

    def of(self, name: str, rows: Array) -> Array:
        return self.columns[name][rows]


def collectives(store: CommStore, comm: dict[str, Array], names: list[str], groups: dict[str, str], base: int) -> Any:
    """``COLLECTIVES`` of the communication records; ``groups``: members by group name, from the metadata."""
    facts = _Facts(store, base)
    rows, source, coalesced = _choose(facts, comm)
    kind = facts.of("kind", rows).copy()
    unknown = kind < 0
    named = [_KIND.get(kernels.kernel(n).kind or "", -1) for n in names]
    by_name = np.array([*named, -1], np.int64)[comm["name"]]
    by_range = _range_kinds(store, comm, base)
    source[unknown & (rows < 0) & (by_range >= 0)] = _FACTS["cpu_record"]
    kind[unknown] = np.where(by_range >= 0, by_range, by_name)[unknown]
    kind[kind < 0] = _KIND["unknown"]
    # by the split sizes, not by the name: the form with lists of tensors is called all_to_all, even or not
    told = (rows >= 0) & np.isin(kind, [_KIND["alltoall"], _KIND["alltoallv"]])
    kind[told] = np.where(_is_even(facts, rows), _KIND["alltoall"], _KIND["alltoallv"])[told]
    columns = _shared_columns(facts, rows, kind, coalesced, groups)
    columns |= {
        **{name: comm[name] for name in ("op", "device", "stream", "start", "end")},
        "launch_start": nullable(comm["launch_start"], MISSING),
        "facts": source.astype(np.int8),
        "name": dictionary(comm["name"], names),
    }
    table = COLLECTIVES.build(columns, stored=True)
    host = _host_rows(store, base, only_members(groups))
    if host.num_rows:
        table = pa.concat_tables([table, host]).unify_dictionaries().combine_chunks()
    order = np.argsort(to_numpy(table["start"]), kind="stable")
    return table.take(from_numpy(order)) if (np.diff(order) != 1).any() else table


def _choose(facts: _Facts, comm: dict[str, Array]) -> tuple[Array, Array, Array]:
    """Per comm kernel: (row of its facts or -1, code of COLL_FACTS, operations in it)."""
    count = len(comm["op"])
    rows = np.full(count, -1, np.int64)
    source = np.full(count, _FACTS["name"], np.int64)
    coalesced = np.ones(count, np.int64)
    at = np.searchsorted(facts.kernel_rows, comm["source"])
    at[at == facts.offset] = 0
    own = facts.kernel_rows[at] == comm["source"] if facts.offset else np.zeros(count, bool)
    rows[own], source[own] = at[own], _FACTS["kernel_args"]
    thread, launch = comm["launch_thread"], comm["launch_start"]
    record = containing(facts.records, thread, launch)
    inherit = ~own & (record >= 0)
    rows[inherit] = facts.offset + record[inherit]
    batch, together = _batches(facts, record, thread, launch, ~own & (record < 0) & (launch != MISSING))
    pending = batch >= 0
    rows[pending], coalesced[pending] = facts.offset + batch[pending], together[pending]
    told = (inherit | pending) & (facts.of("kind", rows) >= 0)
    source[told] = _FACTS["cpu_record"]
    rows[(inherit | pending) & ~told] = -1
    return rows, source, coalesced


def _batches(facts: _Facts, record: Array, thread: Array, launch: Array, open_: Array) -> tuple[Array, Array]:
    """Records that contain no launch belong to the next communication launch of their thread if that has none.

    Returns per kernel (first record of its batch or -1, records in the batch). The sizes of a batch are summed into
    its first record.
    """
    first, count = np.full(len(record), -1, np.int64), np.ones(len(record), np.int64)
    records = facts.records
    free = np.setdiff1d(np.flatnonzero(facts.columns["kind"][facts.offset : -1] >= 0), record)
    if not open_.any() or not len(free):
        return first, count
    order, key, query = _keys({"thread": thread, "start": launch}, records["thread"][free], records["end"][free])
    at = np.searchsorted(key, query)
    inside = at < len(order)
    free, kernel = free[inside], order[at[inside]]
    fits = open_[kernel] & (thread[kernel] == records["thread"][free]) & (launch[kernel] >= records["end"][free])
    free, kernel = free[fits], kernel[fits]
    for k in np.unique(kernel).tolist():
        batch = free[kernel == k]
        first[k], count[k] = batch[0], len(batch)
        at_ = facts.offset + batch
        for name in ("elems_in", "elems_out"):
            facts.columns[name][at_[0]] = facts.columns[name][at_].clip(0).sum()
        kinds = np.unique(facts.columns["kind"][at_])
        if len(kinds) > 1:
            facts.columns["kind"][at_[0]] = _KIND["sendrecv"] if np.isin(kinds, _P2P).all() else _KIND["unknown"]
        if len(batch) > 1:
            facts.columns["src"][at_[0]] = facts.columns["dst"][at_[0]] = -1
    return first, count


def _range_kinds(store: CommStore, comm: dict[str, Array], base: int) -> Array:
    """Per comm kernel the kind told by a range around its launch, or -1."""
    ranges = store.ranges.take_all()
    for name in ("start", "end"):
        ranges[name] += base
    at = containing(ranges, comm["launch_thread"], comm["launch_start"])
    kinds = np.array([*(_KIND.get(kind_of(n) or "", -1) for n in store.names.strings()), -1], np.int64)
    names = np.append(ranges["name"], len(kinds) - 1)
    out: Array = kinds[names[at]]
    return out


def _is_even(facts: _Facts, rows: Array) -> Array:
    """No split sizes recorded on either side."""
    none = np.ones(len(rows), bool)
    for name in ("in_splits", "out_splits"):
        even = np.array([t in ("", "[]") for t in facts.text[name]], bool)
        none &= even[facts.of(name, rows)]
    return none


def _shared_columns(
    facts: _Facts, rows: Array, kind: Array, coalesced: Array, groups: dict[str, str]
) -> dict[str, Any]:
    """The columns that come from the facts."""
    names = Interner()
    keys = zip(
        *(facts.of(c, rows).tolist() for c in ("ranks", "first", "stride", "group_size", "group")), strict=True
    )
    code = names.codes(list(keys))
    members = [_members(facts, key, groups) for key in names]
    size = facts.of("group_size", rows).copy()
    known = np.array([len(parse_members(m)) if m else -1 for m in members] or [-1], np.int64)[code]
    size = np.where(size > 0, size, known)
    src, dst = _ends(facts, rows, kind, members, code)
    text = {name: _text(facts, name, rows) for name in ("group", "group_desc", "dtype", "in_splits", "out_splits")}
    return text | {
        "kind": kind.astype(np.int8),
        "members": dictionary(*_used(code, members), missing=True),
        "group_size": nullable(np.where(size > 0, size, -1).astype(np.int32)),
        "seq": nullable(facts.of("seq", rows)),
        "p2p": np.isin(kind, _P2P),
        "src": nullable(src.astype(np.int32)),
        "dst": nullable(dst.astype(np.int32)),
        "elems_in": nullable(facts.of("elems_in", rows)),
        "elems_out": nullable(facts.of("elems_out", rows)),
        "bytes": nullable(_message_bytes(facts, rows, kind, size)),
        "coalesced": coalesced.astype(np.int32),
        "comm_id": _text(facts, "comm_id", rows).dictionary_decode(),
    }


def _used(code: Array, values: list[str]) -> tuple[Array, list[str]]:
    """Codes with -1 for the empty text."""
    empty = np.array([not v for v in values] or [True], bool)
    return np.where(empty[code], -1, code) if len(code) else code, values


def _text(facts: _Facts, name: str, rows: Array) -> Any:
    return dictionary(*_used(facts.of(name, rows), facts.text[name]), missing=True)


def _members(facts: _Facts, key: tuple[int, ...], groups: dict[str, str]) -> str:
    """Members of a group as ranges, '' if nothing tells them; long lists are recorded cut ('...')."""
    ranks, first, stride, size, group = key
    text = facts.text["ranks"][ranks].strip("[] ")
    if text and "..." not in text:
        return as_ranges([int(r) for r in text.split(",") if r.strip().isdecimal() and len(r.strip()) < 7])
    if first >= 0 and stride > 0 and size > 0 and first + stride * size <= MOST_RANKS:
        return as_ranges(list(range(first, first + stride * size, stride)))
    return groups.get(facts.text["group"][group], only_members(groups))


def only_members(groups: dict[str, str]) -> str:
    """Members that every collective must have: all groups of this rank have the same; '' if they differ."""
    different = set(groups.values())
    return different.pop() if len(different) == 1 else ""


def _ends(facts: _Facts, rows: Array, kind: Array, members: list[str], code: Array) -> tuple[Array, Array]:
    """(src, dst): the peers of point-to-point as recorded; the root of 1->N and N->1, whose place is in ``Rank``."""
    src, dst = facts.of("src", rows).copy(), facts.of("dst", rows).copy()
    place = facts.of("rank", rows)
    lists = [parse_members(m) for m in members]
    for at in np.flatnonzero(
        np.isin(kind, [_KIND[k] for k in ("broadcast", "scatter", "reduce", "gather")])
    ).tolist():
        group, root = lists[code[at]], int(place[at])
        if 0 <= root < len(group):
            (src if kind[at] in (_KIND["broadcast"], _KIND["scatter"]) else dst)[at] = group[root]
    return src, dst


def _message_bytes(facts: _Facts, rows: Array, kind: Array, size: Array) -> Array:
    """S of METHODS f.1; -1 where it cannot be told."""
    given, got = facts.of("elems_in", rows), facts.of("elems_out", rows)
    elements = np.where(given > 0, given, got)
    elements = np.where(kind == _KIND["alltoallv"], np.maximum(given, got), elements)  # the busier direction
    elements = np.where((kind == _KIND["allgather"]) & (got > 0), got, elements)
    ranks = np.where(size > 0, size, 1)
    elements = np.where(kind == _KIND["gather"], given * ranks, elements)
    elements = np.where(kind == _KIND["scatter"], got * ranks, elements)
    each = np.array([dtype_bytes(d) or 0 for d in facts.text["dtype"]], np.int64)[facts.of("dtype", rows)]
    out: Array = np.where((elements > 0) & (each > 0) & (kind != _KIND["barrier"]), elements * each, -1)
    return out


def _host_rows(store: CommStore, base: int, members: str) -> Any:
    """Collectives of gloo, MPI, UCC: device -1, the stream is the thread; only the input is recorded."""
    rows = store.host.take_all()
    count = len(rows["start"])
    names = store.names.strings()
    kinds = np.array([_KIND.get(kind_of(n) or "", _KIND["unknown"]) for n in names] or [0], np.int8)
    kind = kinds[rows["name"]]
    size = len(parse_members(members))
    larger = kind == _KIND["allgather"]  # S counts what all members give (METHODS f.1)
    sent = np.where(larger, rows["bytes"] * (size or -1), rows["bytes"])
    return COLLECTIVES.build(
        {
            "device": np.full(count, -1, np.int32),
            "stream": rows["thread"],
            "start": rows["start"] + base,
            "end": rows["end"] + base,
            "kind": kind,
            "p2p": np.isin(kind, _P2P),
            "dtype": dictionary(*_used(rows["dtype"], store.text["dtype"].strings()), missing=True),
            "elems_in": nullable(rows["elements"]),
            "members": dictionary(np.full(count, 0 if members else -1), [members], missing=True),
            "group_size": nullable(np.full(count, size or -1, np.int32)),
            "bytes": nullable(np.where((rows["bytes"] >= 0) & (sent >= 0), sent, -1)),
            "coalesced": np.ones(count, np.int32),
            "facts": np.full(count, _FACTS["name"], np.int8),
            "name": dictionary(rows["name"], names),
        },
        stored=True,
    )
