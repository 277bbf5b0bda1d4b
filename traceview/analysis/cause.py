"""Why a culprit was late, from its own record against that of a reference rank (METHODS e.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceview import units
from traceview.analysis.groups import Columns
from traceview.analysis.instances import by_value, ranges
from traceview.analysis.intervals import subtract, union
from traceview.analysis.lateness import Arrivals, terms
from traceview.analysis.ops import names as names_of
from traceview.analysis.origin import Facts, lateness_of
from traceview.analysis.types import Bools, Floats, Ints
from traceview.analysis.uneven import Uneven, sections, uneven
from traceview.config import DEFAULT, Config
from traceview.schema import GPU_CLASSES, HOST_KINDS, LEAVES, codes
from traceview.schema.arrays import to_numpy

BUCKETS: dict[str, tuple[str, ...]] = {
    "compute": ("compute", "gpu_opaque"),
    "data": ("idle_data",),
    "host": ("idle_sync", "idle_host", "idle_launch", "idle_unknown"),
    "copies": ("pcie_d2h", "pcie_h2d", "gpu_d2d", "gpu_memset"),
    "communication": ("comm_transfer", "comm_unresolved", "comm_host"),
    "unknown": ("carry",),
}
GPU_OF = {"compute": ("compute",), "copies": ("pcie_h2d", "pcie_d2h", "gpu_d2d", "gpu_memset")}
HOST_OF = {"data": ("data",), "host": ("sync", "op", "runtime")}
SHOWN = 3
Split = tuple[float, float, float | None, list[tuple[float, int]]]
Sums = dict[tuple[str, str], tuple[int, int]]
"""(name, launch configuration or "") -> (count, ns): another configuration is other work, not slower work"""


@dataclass(frozen=True)
class Cause:
    """``terms_ns`` sum to the lateness over the late arrivals looked at, exactly (I6)."""

    cause: str
    terms_ns: dict[str, int]
    names: list[str]
    reference: int | None
    late_ns: int
    arrivals: int
    ratio: float | None = None
    """same kernels, total time of the culprit / of the reference"""
    uniform: bool = False
    group: str = ""
    experts: Uneven | None = None
    """its late arrivals at a combine, if tokens may explain them"""
    windows: Arrivals | None = field(default=None, repr=False)

    @property
    def tokens(self) -> str:
        """What the tokens of its experts explain: '' | uneven | untold (``StragglerRow.tokens``)."""
        if self.experts is None or not self.experts.told:
            return "untold" if self.experts else ""
        more = self.terms_ns.get("compute_more_work", 0)
        return "uneven" if self.cause == "compute_more_work" and 2 * self.experts.tokens_ns > more else ""


UNKNOWN = Cause("unknown", {}, [], None, 0, 0)


@dataclass(frozen=True)
class Owing:
    """Rows with which one rank made others wait, the row of the median member of each, and what it owes, ns."""

    row: Ints
    median: Ints
    ns: Floats


@dataclass(frozen=True)
class Late:
    """Late arrivals of one rank in the group in which it owes most, and the sum of their terms."""

    arrivals: Arrivals
    terms_ns: dict[str, int]
    group: str

    @property
    def passes_on(self) -> bool:
        """See ``passes_on``."""
        return passes_on(self.terms_ns)


def passes_on(terms_ns: dict[str, int]) -> bool:
    """Most of the lateness is waiting, communication that may be waiting, or older than what was compared."""
    waited = sum(max(terms_ns.get(leaf, 0), 0) for leaf in ("comm_wait", "comm_unresolved", "carry"))
    return waited > 0 and waited >= max(terms_ns.values())


def late_arrivals(facts: Facts, owing: dict[int, Owing], config: Config = DEFAULT) -> dict[int, Late]:
    """By rank, where both it and its reference have a record: for many at once, as suspects may be thousands."""
    unequal = facts.meetings if owing else np.zeros(0, np.bool_)
    parts = [_main_group(facts.c, o, unequal, config) for o in owing.values() if len(o.row)]
    sizes = np.append(0, np.cumsum([len(o.row) for o in parts]))
    out: dict[int, Late] = {}
    for low, high in ranges(sizes):
        out |= _late_arrivals(facts, parts[low:high])
    return out


def _late_arrivals(facts: Facts, parts: list[Owing]) -> dict[int, Late]:
    c = facts.c
    rows, medians = (np.concatenate([getattr(o, name) for o in parts]) for name in ("row", "median"))
    late = lateness_of(facts, rows, medians)
    found = terms(c, late, facts.segments)
    known = np.flatnonzero(found.known)
    out = {}
    for rank, at in by_value(c.rank[late.row[known]]):
        own = known[at]
        total = {leaf: int(x) for leaf, x in zip(LEAVES, found.leaves[own].sum(axis=0), strict=True)}
        total["carry"] = int(found.carry[own].sum())
        group = c.group[late.row[own[0]]]
        name = c.groups[group].name if group >= 0 else ""
        out[rank] = Late(_take(late, own), {k: v for k, v in total.items() if v}, name)
    return out


def _main_group(c: Columns, owing: Owing, unequal: Bools, config: Config) -> Owing:
    """Those in the group in which the rank owes most; where stages meet they show their schedule, not the rank."""
    by_group = np.bincount(c.group[owing.row] + 1, owing.ns)
    equal = by_group * ~np.roll(unequal, 1)[: len(by_group)]  # the first is of rows without a group
    if equal.sum() >= config.min_own_share * by_group.sum():
        by_group = equal
    main = np.argmax(by_group) - 1
    take = c.group[owing.row] == main
    return Owing(owing.row[take], owing.median[take], owing.ns[take])


def explain(facts: Facts, late: Late | None, config: Config = DEFAULT) -> Cause:
    """Cause of the late arrivals of one rank; None = nothing is known of them."""
    if late is None:
        return UNKNOWN
    total = dict(late.terms_ns)
    _only_later(facts, late.arrivals, total)
    return _name(facts, late.arrivals, {k: v for k, v in total.items() if v}, late.group, config)


def _only_later(facts: Facts, late: Arrivals, total: dict[str, int]) -> None:
    """Move to ``carry`` what communication exposes without taking longer: an earlier delay moved it.

    Such a rank waited beside its computing, and what it shows of the following transfers is no slow link.
    """
    own, other = (
        _transfers(facts, *side) for side in ((late.row, late.start), (late.reference, late.reference_start))
    )
    longer = 0.0
    for size in own.keys() & other.keys():  # as often as both: one more in the window was moved there, too
        (n, t), (k, s) = own[size], other[size]
        longer += min(n, k) * (t / n - s / k)
    exposed = total.get("comm_transfer", 0)
    moved = exposed - round(max(longer, 0))
    if exposed > 0 and moved > 0:
        total["comm_transfer"] -= moved
        total["carry"] = total.get("carry", 0) + moved


def _transfers(facts: Facts, rows: Ints, start: Ints) -> dict[tuple[int, int], tuple[int, int]]:
    """Transfers that begin between ``start`` and each row: count and ns without waits, by kind and size."""
    c, out = facts.c, dict[tuple[int, int], tuple[int, int]]()
    for r in np.unique(c.rank[rows]).tolist():
        mine = c.rank[rows] == r
        own = slice(*c.head[r : r + 2])
        begin, given = facts.waited.phases.wait_end[own], c.elems_of(r)
        order = np.argsort(begin, kind="stable")
        low, high = (np.searchsorted(begin[order], x[mine]) for x in (start, c.start[rows]))
        inside = np.zeros(len(begin) + 1, np.int64)
        np.add.at(inside, low, 1)
        np.subtract.at(inside, np.maximum(low, high), 1)
        there = order[np.cumsum(inside[:-1]) > 0]
        size, at = np.unique(np.column_stack((c.kind[own][there], given[there])), axis=0, return_inverse=True)
        ns = np.bincount(at.ravel(), (c.end[own] - begin)[there], len(size))
        count = np.bincount(at.ravel(), minlength=len(size))
        for key, n, t in zip(size.tolist(), count.tolist(), ns.tolist(), strict=True):
            have = out.get((key[0], key[1]), (0, 0))
            out[key[0], key[1]] = (have[0] + n, have[1] + round(t))
    return out


def _take(late: Arrivals, take: Ints) -> Arrivals:
    return Arrivals(*(x[take] for x in (late.row, late.reference, late.late, late.start, late.reference_start)))


def _name(facts: Facts, late: Arrivals, total: dict[str, int], group: str, config: Config) -> Cause:
    """The largest positive bucket; compute is split into more work and slower kernels by matched names."""
    c = facts.c
    size = {b: sum(total.get(leaf, 0) for leaf in leaves) for b, leaves in BUCKETS.items()}
    bucket = max(size, key=lambda b: size[b])
    reference = int(np.bincount(c.rank[late.reference]).argmax())
    shared: dict[str, Any] = {
        "reference": reference,
        "late_ns": int(late.late.sum()),
        "arrivals": len(late),
        "group": group,
        "windows": late,
    }
    if size[bucket] <= 0:
        return Cause("unknown", total, [], **shared)
    untold = total.get("idle_unknown", 0) + total.get("idle_sync", 0)  # what follows a sync may be the input too
    if bucket == "host" and 2 * untold > size[bucket] and not _host_seen(facts, late):
        return Cause("unknown", total, [], **shared)
    own, other = _both(facts, late, bucket)
    if bucket != "compute":
        return Cause(bucket, total, _different(own, other), **shared)
    own, other = _whole_steps(facts, late, reference) or (own, other)
    shared["names"] = _different(own, other)
    slower, more, ratio, ratios = _split(own, other)
    experts = uneven(facts, late, config)
    if experts is not None:
        apart = _whole_steps(facts, late, reference, apart=True)
        beside = _split(*apart) if apart else (0.0, 0.0, None, [])
        if experts.told:
            slower, more, ratio, ratios = _by_tokens(total.get("compute", 0), experts, beside)
        elif slower >= more and not _slower_anyway(size[bucket], experts, beside[2], config):
            return Cause("unknown", total, experts=experts, **shared)
    if not own or not other or slower + more <= 0:
        return Cause("unknown", total, **shared)
    compute = total.pop("compute", 0)
    part = round(compute * slower / (slower + more))
    total |= {k: v for k, v in (("compute_slower", part), ("compute_more_work", compute - part)) if v}
    cause = "compute_slower" if slower >= more else "compute_more_work"
    shared["experts"] = experts if experts is not None and experts.told else None
    return Cause(cause, total, ratio=ratio, uniform=_uniform(ratio, ratios, config), **shared)


def _by_tokens(compute: int, experts: Uneven, beside: Split) -> Split:
    """Slower and more work where tokens are told: experts by their tokens, only what runs beside them by names."""
    slower, more, ratio, ratios = beside
    rest = max(compute - max(experts.experts_ns, 0), 0) / (slower + more) if slower + more else 0.0
    slower = slower * rest + max(experts.experts_ns, 0) - experts.tokens_ns
    return slower, more * rest + experts.tokens_ns, ratio if ratio is not None else experts.pace, ratios


def _slower_anyway(compute: int, experts: Uneven, ratio: float | None, config: Config) -> bool:
    """Whether untold tokens are not the question: the same kernels are slower outside of the experts too."""
    return 2 * experts.experts_ns < compute or (ratio is not None and ratio >= 1 + config.slower_share)


def _host_seen(facts: Facts, late: Arrivals) -> bool:
    """Whether the record of the late rank holds more of its host than the calls to the GPU."""
    table = facts.host_ranges(int(facts.c.rank[late.row[0]]))
    seen = [HOST_KINDS.index(kind) for kind in ("op", "data", "python", "annotation")]
    return table is not None and bool(np.isin(codes(table["kind"], HOST_KINDS), seen).any())


def _both(facts: Facts, late: Arrivals, bucket: str) -> tuple[Sums, Sums]:
    """Sums by name inside P of the culprit and of the reference."""
    c = facts.c
    sides = ((late.row, late.start), (late.reference, late.reference_start))
    if bucket in GPU_OF:
        return _pair(c, sides, facts.gpu_ops, ("cls", GPU_CLASSES, GPU_OF[bucket]))
    if bucket in HOST_OF:
        return _pair(c, sides, facts.host_ranges, ("kind", HOST_KINDS, HOST_OF[bucket]))
    return {}, {}


def _whole_steps(facts: Facts, late: Arrivals, reference: int, *, apart: bool = False) -> tuple[Sums, Sums] | None:
    """Compute by name over the whole steps; None if that does not show the culprit behind its reference.

    Inside P the reference has fewer kernels left: beside its waiting collective it computed on. ``apart``: without
    the kernels of the experts, whose time follows their tokens.
    """
    w = facts.windows
    pair = (int(facts.c.rank[late.row[0]]), reference)
    steps = np.unique(facts.step_of_row[late.row])
    for r in pair:  # steps that both have whole: a record may begin later
        steps = np.intersect1d(steps, w.step[(w.rank == r) & w.used])
    out: list[Sums] = []
    for r in pair:
        own, table = (w.rank == r) & np.isin(w.step, steps), facts.gpu_ops(r)
        if table is None or not own.any():
            return None
        whole = union(w.start[own], w.end[own])
        whole = subtract(whole, sections(facts, r)) if apart else whole
        out.append(sums_by_name(table, whole.start, whole.end, ("cls", GPU_CLASSES, GPU_OF["compute"])))
    slower, more, _, _ = _split(out[0], out[1])
    return (out[0], out[1]) if slower + more > 0 else None


def _pair(
    c: Columns, sides: Any, source: Callable[[int], Any], which: tuple[str, tuple[str, ...], tuple[str, ...]]
) -> tuple[Sums, Sums]:
    out = []
    for rows, start in sides:
        sums: Sums = {}
        for r in np.unique(c.rank[rows]).tolist():
            mine = c.rank[rows] == r
            table = source(r)
            if table is not None:
                _add(sums, sums_by_name(table, start[mine], c.start[rows[mine]], which))
        out.append(sums)
    return out[0], out[1]


def _add(into: Sums, more: Sums) -> None:
    for name, (count, ns) in more.items():
        have = into.get(name, (0, 0))
        into[name] = (have[0] + count, have[1] + ns)


def sums_by_name(table: Any, start: Ints, end: Ints, which: tuple[str, tuple[str, ...], tuple[str, ...]]) -> Sums:
    """Count and ns by name and configuration of the rows of one rank that begin in any window ``[start, end)``.

    ``which``: (column, its declared values, the values wanted). A row in several windows counts once.
    """
    column, declared, wanted = which
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order]) if len(end) else end
    begin = to_numpy(table["start"])
    at = np.searchsorted(start, begin, side="right") - 1
    code = codes(table[column], declared)
    inside = (at >= 0) & np.isin(code, [declared.index(w) for w in wanted])
    inside &= begin < np.append(end, 0)[at] if len(end) else False
    index, texts = names_of(table, "name")
    shape, shapes = names_of(table, "config") if "config" in table.column_names else (np.full(len(index), -1), [])
    found, number = np.unique((index * (len(shapes) + 1) + shape + 1)[inside], return_inverse=True)
    length = (to_numpy(table["end"]) - begin)[inside]
    count = np.bincount(number, minlength=len(found))
    total = np.bincount(number, length, len(found))
    keys = [(texts[k // (len(shapes) + 1)], ["", *shapes][k % (len(shapes) + 1)]) for k in found.tolist()]
    return {key: (int(count[i]), int(total[i])) for i, key in enumerate(keys)}


def _different(own: Sums, other: Sums) -> list[str]:
    """Names with more time on the culprit, the largest difference first."""
    gap: dict[str, int] = {}
    for sums, sign in ((own, 1), (other, -1)):
        for (name, _), (_, ns) in sums.items():
            gap[name] = gap.get(name, 0) + sign * ns
    return [n for n in sorted(gap, key=lambda n: -gap[n]) if gap[n] > 0][:SHOWN]


def _split(own: Sums, other: Sums) -> Split:
    """(slower ns, more-work ns, ratio of the same kernels, (ratio, ns) of each); negative parts count as 0."""
    slower = more = 0.0
    mine = theirs = 0.0
    ratios: list[tuple[float, int]] = []
    for name in own.keys() | other.keys():
        (n, t), (k, s) = own.get(name, (0, 0)), other.get(name, (0, 0))
        both = min(n, k)
        change = both * (t / n - s / k) if both else 0.0
        slower += change
        more += (t - s) - change
        if both and s:
            mine, theirs = mine + both * t / n, theirs + both * s / k
            ratios.append(((t / n) / (s / k), s))
    ratio = mine / theirs if theirs else None
    return max(slower, 0.0), max(more, 0.0), ratio, ratios


def _uniform(ratio: float | None, ratios: list[tuple[float, int]], config: Config) -> bool:
    """Whether all kernels are slower by about one factor, weighted with their time."""
    if len(ratios) < 2 or not ratio:
        return False
    near = sum(ns for r, ns in ratios if abs(r / ratio - 1) <= config.uniform_share)
    return near >= config.uniform_weight * sum(ns for _, ns in ratios)


def _of_tokens(experts: Uneven) -> str:
    """What the tokens of its experts explain, or would if they were told."""
    extra = units.time(experts.experts_ns)
    if not experts.told:
        return (
            f"it computes {extra} longer between the all-to-alls of its group and no slower elsewhere: "
            "more tokens or slower experts, the trace does not tell"
        )
    return (
        f"its experts get {experts.load:.2f}x the mean tokens, {extra} more compute "
        f"at {experts.pace:.2f}x the time per token of a typical rank"
    )


def _short(name: str) -> str:
    return name if len(name) <= 60 else name[:57] + "..."


def sentence(cause: Cause) -> str:
    """The cause in plain words, with the numbers it rests on."""
    if cause.reference is None:
        return "its own record does not say why"
    base = f"since the last common sync, against rank {cause.reference}"
    named = f" ({', '.join(_short(n) for n in cause.names)})" if cause.names else ""
    amount = {b: sum(cause.terms_ns.get(leaf, 0) for leaf in leaves) for b, leaves in BUCKETS.items()}
    if cause.cause == "compute_slower":
        how = "all of them, so clocks, heat or power" if cause.uniform else "not all of them"
        more = f"; its experts get {cause.experts.load:.2f}x the mean tokens" if cause.experts else ""
        return f"{base}: the same kernels take {cause.ratio:.2f}x as long, {how}{named}{more}"
    if cause.experts is not None and cause.tokens:
        return f"{base}: {_of_tokens(cause.experts)}{named}"
    if cause.cause == "compute_more_work":
        extra = units.time(cause.terms_ns.get("compute_more_work", 0))
        return f"{base}: it runs more or larger kernels, {extra} more{named}"
    words = {
        "data": "it waits longer for input data",
        "host": "its host launches later",
        "copies": "it spends more time in copies",
        "communication": "its earlier communication takes longer",
    }
    if cause.cause in words:
        return f"{base}: {words[cause.cause]}, {units.time(amount[cause.cause])} more{named}"
    idle = cause.terms_ns.get("idle_unknown", 0)
    if idle > 0 and idle == max(cause.terms_ns.values()):
        return f"{base}: its GPU is idle {units.time(idle)} more, and what its host did was not recorded"
    return f"{base}: no single cause stands out"
