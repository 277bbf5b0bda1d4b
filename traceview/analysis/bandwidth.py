"""Bandwidth of collectives with the waiting taken out, against what the links allow (METHODS f)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from traceview import units
from traceview.analysis import bounds
from traceview.analysis.bounds import Links
from traceview.analysis.tiers import Layout, Placement
from traceview.analysis.types import Bools, Ints, Matches
from traceview.config import DEFAULT, Config
from traceview.result import CollectiveRow
from traceview.run import parse_members
from traceview.schema import COLL_KINDS, codes
from traceview.schema.arrays import to_numpy

_FIT_SIZES = 64


@dataclass(frozen=True)
class Timing:
    """What clocks and waits say. The first is per instance, the others per collectives row; ns."""

    transfer: Ints
    """T = last end - last arrival; negative = not fully observed"""
    waited_row: Ints
    transfer_row: Ints
    exposed_row: Ints
    used_row: Bools | None = None
    """rows of used steps, the only ones that are counted; None = all"""


@dataclass(frozen=True)
class Logged:
    """What an NCCL log says of a group; empty = it says nothing."""

    transport: str = ""
    staged: bool | None = None
    shm: bool = False
    """some of it between the GPUs of a host"""
    gdr: bool | None = None
    nvls: bool = False
    channels: int | None = None
    choices: Mapping[tuple[str, int], tuple[str, str, int | None]] = field(default_factory=dict)
    """(kind, message bytes) -> (algorithm, protocol, channels)"""
    expected: Mapping[tuple[str, str, str], tuple[float, float]] = field(default_factory=dict)
    """(kind, algorithm, protocol) -> NCCL's own model: latency µs, algorithm bandwidth GB/s"""
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Fabric:
    """Where ranks are, what links they have, and what a log says of groups (by their members)."""

    placement: Placement
    links: Mapping[int, Links] = field(default_factory=dict)
    """rank -> its links"""
    logged: Mapping[tuple[int, ...], Logged] = field(default_factory=dict)
    measured: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """(kind, ranks) -> best busbw that nccl-tests printed on this machine, GB/s"""


@dataclass
class _Class:
    """One (group, kind, size class): its rows, and S and T of its instances."""

    group: str
    members: tuple[int, ...]
    kind: str
    bits: int
    size: int
    rows: Ints
    instances: Ints
    sizes: Ints
    ns: Ints
    unmatched: int
    group_size: int | None


def collective_rows(
    collectives: Any, matches: Matches, timing: Timing, fabric: Fabric, config: Config = DEFAULT
) -> list[CollectiveRow]:
    """One row per (group, kind, size class), largest exposed time first.

    ``collectives``: the run's concatenated table, whose row order ``matches`` and ``timing`` follow.
    """
    classes = _classes(collectives, matches, timing)
    rows = [_row(c, timing, fabric, config) for c in classes]
    _peers(rows, config)
    _fits(classes, rows)
    return sorted(rows, key=lambda r: (-r.exposed_ns, r.group, r.kind, r.bytes or 0))


def _classes(collectives: Any, matches: Matches, timing: Timing) -> list[_Class]:
    if not len(collectives):
        return []
    group, names = _dictionary(collectives["group"])
    member, lists = _dictionary(collectives["members"])
    kind = codes(collectives["kind"], COLL_KINDS).astype(np.int64)
    size = _largest(to_numpy(collectives["bytes"], 0), kind, matches.instance)
    count = to_numpy(collectives["group_size"], 0)
    bits = np.frexp(size.astype(np.float64))[1].astype(np.int64)  # 2^(bits-1) <= S < 2^bits; 0 for no size
    key = (((group + 1) * (len(lists) + 1) + member + 1) * (len(COLL_KINDS) + 1) + kind + 1) * 64 + bits
    order = np.argsort(key, kind="stable")
    order = order if timing.used_row is None else order[timing.used_row[order]]
    if not len(order):
        return []
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    out = []
    for rows in np.split(order, cuts):
        first = rows[0]
        instances, sizes = _sizes(matches.instance[rows], size[rows])
        out.append(
            _Class(
                group=names[group[first]] if group[first] >= 0 else "",
                members=parse_members(lists[member[first]]) if member[first] >= 0 else (),
                kind=COLL_KINDS[kind[first]] if kind[first] >= 0 else "unknown",
                bits=int(bits[first]),
                size=int(np.median(size[rows])),
                rows=rows,
                instances=instances,
                sizes=sizes,
                ns=timing.transfer[instances],
                unmatched=int((matches.instance[rows] < 0).sum()),
                group_size=int(count[first]) or None,
            )
        )
    return out


def _dictionary(column: Any) -> tuple[Ints, list[str]]:
    """int64 codes (-1 = null) and the names of a text column."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return to_numpy(column.indices, -1).astype(np.int64), column.dictionary.to_pylist()


def _largest(size: Ints, kind: Ints, instance: Ints) -> Ints:
    """S of every row: of an all-to-all-v the largest of its members, so that all are in one class (METHODS f.1)."""
    uneven = np.flatnonzero((kind == COLL_KINDS.index("alltoallv")) & (instance >= 0))
    if not len(uneven):
        return size
    most = np.zeros(int(instance.max()) + 1, np.int64)
    np.maximum.at(most, instance[uneven], size[uneven])
    out = size.copy()
    out[uneven] = most[instance[uneven]]
    return out


def _sizes(instance: Ints, size: Ints) -> tuple[Ints, Ints]:
    """Instances of these rows and the S of each: the largest of its members."""
    known = instance >= 0
    found, number = np.unique(instance[known], return_inverse=True)
    largest = np.zeros(len(found), np.int64)
    np.maximum.at(largest, number, size[known])
    return found, largest


def _row(c: _Class, timing: Timing, fabric: Fabric, config: Config) -> CollectiveRow:
    row = CollectiveRow(
        group=c.group,
        kind=c.kind,
        size_class=size_class(c.bits),
        n=c.unmatched + len(c.instances),
        matched=int((c.ns >= 0).sum()),
        wait_ns=int(timing.waited_row[c.rows].sum()),
        transfer_ns=int(timing.transfer_row[c.rows].sum()),
        exposed_ns=int(timing.exposed_row[c.rows].sum()),
        group_size=c.group_size or len(c.members) or None,
        bytes=c.size or None,
        members=units.ranks(list(c.members)),
        tier=fabric.placement.tier(c.members) if c.members else "unknown",
    )
    factor = bounds.bus_factor(c.kind, row.group_size or 0)
    timed = (c.ns > 0) & (c.sizes > 0)
    if factor is not None and timed.any():
        row.algbw = float(np.median(c.sizes[timed] / c.ns[timed]))
        row.busbw = row.algbw * factor
    known = fabric.logged.get(c.members)
    if known is not None:
        _say_logged(row, known)
    if c.members:
        _against_bound(row, c, fabric, known, config.over_bound)
    _against_measured(row, fabric)
    row.verdict = _verdict(row, config)
    return row


def size_class(bits: int) -> str:
    """Name of the class of sizes 2^(bits-1) <= S < 2^bits.

    >>> size_class(27), size_class(0)
    ('64-128 MiB', 'no size')
    """
    if bits <= 0:
        return "no size"
    unit, scale = next(((u, s) for u, s in (("GiB", 31), ("MiB", 21), ("KiB", 11)) if bits >= s), ("B", 1))
    low = 1 << (bits - scale)
    return f"{low}-{2 * low} {unit}"


def _say_logged(row: CollectiveRow, known: Logged) -> None:
    """Transport, GPUDirect, algorithm and protocol of a row as the log tells them."""
    row.transport = known.transport
    row.facts |= known.facts
    row.host_staged = known.staged
    if known.gdr is not None:
        row.facts["gpudirect"] = "yes" if known.gdr else "no"
    if known.channels is not None:
        row.facts["channels"] = str(known.channels)
    choice = _choice(known, row.kind, row.bytes or 0)
    if choice is not None:
        row.algorithm, protocol, channels = choice
        row.facts |= {"protocol": protocol} if protocol else {}
        row.facts |= {"channels": str(channels)} if channels else {}
        model = known.expected.get((row.kind, row.algorithm, protocol))
        if model is not None and row.bytes:
            row.facts["nccl_expects_us"] = f"{model[0] + row.bytes / model[1] / 1000:.1f}"


def _choice(known: Logged, kind: str, size: int) -> tuple[str, str, int | None] | None:
    """The logged choice for this message: of that size, else of the nearest size within a factor of two."""
    sizes = [s for k, s in known.choices if k == kind and s and max(s, size) <= 2 * min(s, size)]
    if not sizes:
        return None
    return known.choices[kind, min(sizes, key=lambda s: abs(s - size))]


def group_links(members: Iterable[int], fabric: Fabric) -> Links | None:
    """The poorest links among the members of a group; None if nothing is known of one of them."""
    found = [fabric.links.get(r) for r in members]
    known = [f for f in found if f is not None]
    if not known or len(known) < len(found):
        return None
    distinct = list(dict.fromkeys(known))
    lowest: dict[str, Any] = {
        name: _lowest([getattr(k, name) for k in distinct]) for name in ("ring", "nvlink", "pcie", "node_nics", "nic")
    }
    return replace(
        distinct[0],
        **lowest,
        node_ranks=max(k.node_ranks for k in distinct),
        shared_uplink=any(k.shared_uplink for k in distinct),
        basis="; ".join(dict.fromkeys(k.basis for k in distinct)),
    )


def _lowest(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return min(known) if len(known) == len(values) else None


def _against_bound(row: CollectiveRow, c: _Class, fabric: Fabric, known: Logged | None, over: float) -> None:
    """Peak, efficiency and the load of the NICs of a row."""
    layout = fabric.placement.layout(c.members)
    links = group_links(c.members, fabric)
    if links is None or row.busbw is None:
        return
    if known is not None and known.staged:
        free = bounds.bound(c.kind, layout, links, row.algorithm)
        row.unstaged_peak = free.gbs if free else None
        row.pcie = links.pcie / 2 if links.pcie and links.shared_uplink else links.pcie
        links = replace(links, staged=known.gdr is False, shm=known.shm)
    limit = _limit(row, layout, links, over)
    if limit is not None:
        row.peak, row.efficiency = limit.gbs, row.busbw / limit.gbs
        row.facts |= {"bound": limit.what, "bound_basis": links.basis}
    _nic_load(row, layout, links)


def _against_measured(row: CollectiveRow, fabric: Fabric) -> None:
    """What nccl-tests reached with as many ranks: a fact beside the bound, and the peak where there is no bound."""
    best = fabric.measured.get((row.kind, row.group_size or 0))
    if best is None or row.busbw is None:
        return
    row.facts["measured_gbs"] = f"{best:.1f}"
    if row.peak is None:
        row.peak, row.efficiency = best, row.busbw / best
        row.facts |= {"bound": "best row of nccl-tests", "bound_basis": "measured"}


def _limit(row: CollectiveRow, layout: Layout, links: Links, over: float) -> bounds.Bound | None:
    """The bound; that of NVLink SHARP if no algorithm is logged and the row is faster than any ring."""
    limit = bounds.bound(row.kind, layout, links, row.algorithm)
    if limit is None or row.algorithm or layout.nodes > 1 or (row.busbw or 0.0) <= over * limit.gbs:
        return limit
    raised = bounds.bound(row.kind, layout, links, "NVLS")
    if raised is None or raised.gbs <= limit.gbs:
        return limit
    row.facts["algorithm_basis"] = "NVLS, inferred: faster than any ring"
    return raised


def _nic_load(row: CollectiveRow, layout: Layout, links: Links) -> None:
    """Bandwidth that the NICs of a node carry, beside busbw: it cannot exceed what they have."""
    if row.bytes is None or row.algbw is None:
        return
    out = bounds.nic_bytes(row.kind, row.bytes, layout, row.algorithm)
    if out is None:
        return
    load = out * row.algbw / row.bytes
    row.facts["nic_gbs"] = f"{load:.1f}"
    if links.node_nics:
        row.facts["nic_share"] = f"{load / links.node_nics:.3f}"


def _verdict(row: CollectiveRow, config: Config) -> str:
    """healthy | degraded | suspect, or why there is none."""
    if bounds.bus_factor(row.kind, row.group_size or 0) is None:
        return "no payload"
    if not row.bytes:
        return "size unknown"
    if row.busbw is None:
        return "not fully observed"
    near = row.tier in ("nvlink", "pcie", "intra-host")
    if row.bytes < (config.busbw_min_bytes_intra if near else config.busbw_min_bytes_inter):
        return "small message: latency"
    if row.efficiency is None:
        return "no peak known"
    if row.efficiency >= config.efficiency_healthy:
        return "healthy"
    return "degraded" if row.efficiency >= config.efficiency_degraded else "suspect"


def _peers(rows: list[CollectiveRow], config: Config) -> None:
    """Compare groups of one class with each other: the stronger evidence, it needs no peak (METHODS f.3)."""
    classes: dict[tuple[Any, ...], list[CollectiveRow]] = defaultdict(list)
    for row in rows:
        if row.busbw is not None:
            classes[row.kind, row.size_class, row.group_size, row.tier].append(row)
    for same in classes.values():
        for row in same if len(same) > 2 else []:
            others = [r.busbw for r in same if r is not row and r.busbw]
            ratio = (row.busbw or 0.0) / median(others) if others else None
            if ratio is None:
                continue
            row.peers_ratio = ratio
            slow = ratio * config.class_transfer_ratio <= 1
            if slow and row.verdict in ("healthy", "no peak known"):
                row.verdict = "degraded"


def _fits(classes: list[_Class], rows: list[CollectiveRow]) -> None:
    """Latency and bandwidth of every (group, kind) that has enough sizes: facts ``alpha_us`` and ``fit_gbs``."""
    together: dict[tuple[str, tuple[int, ...], str], list[int]] = defaultdict(list)
    for i, c in enumerate(classes):
        together[c.group, c.members, c.kind].append(i)
    for same in together.values():
        factor = bounds.bus_factor(classes[same[0]].kind, rows[same[0]].group_size or 0)
        if factor is None:
            continue
        sizes = np.concatenate([classes[i].sizes for i in same])
        ns = np.concatenate([classes[i].ns for i in same])
        found = fit(sizes[ns > 0], ns[ns > 0], factor)
        if found is None:
            continue
        for i in same:
            rows[i].facts |= {"alpha_us": f"{found[0] / 1e3:.1f}", "fit_gbs": f"{found[1]:.1f}"}


def fit(sizes: Ints, ns: Ints, factor: float) -> tuple[float, float] | None:
    """(alpha ns, B GB/s) of ``T = alpha + S f / B`` by Theil-Sen over the median T of each size.

    None unless there are three sizes that span a factor of eight and T grows with S.
    """
    distinct = np.unique(sizes[sizes > 0])
    if len(distinct) < 3 or distinct[-1] < 8 * distinct[0]:
        return None
    if len(distinct) > _FIT_SIZES:
        distinct = distinct[np.linspace(0, len(distinct) - 1, _FIT_SIZES).astype(int)]
    x = distinct * factor
    y = np.array([np.median(ns[sizes == s]) for s in distinct])
    i, j = np.triu_indices(len(x), 1)
    slope = float(np.median((y[j] - y[i]) / (x[j] - x[i])))
    return (float(np.median(y - slope * x)), 1 / slope) if slope > 0 else None
