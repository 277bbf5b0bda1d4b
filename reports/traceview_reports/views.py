"""The tables of the report: one function per table, ``Result -> View``."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter as at
from typing import Any

from traceview import units
from traceview.result import Result, StepRow
from traceview_reports import definitions
from traceview_reports.names import host
from traceview_reports.tables import Column, View, group_columns, metric


def steps(result: Result) -> View:
    """Steps in time order; slow ones are marked. Group columns are means over ranks."""
    rows = result.step_rows
    columns = (
        Column("step", "id", at("step"), "step"),
        Column("step time", "time", at("wall_ns"), "wall"),
        Column("min", "time", at("min_ns"), "min", 1),
        Column("max", "time", at("max_ns"), "max", 1),
        Column("slowest", "id", _slowest, "slowest_rank", 1),
        Column("slow", "flag", at("outlier"), "outlier", 1),
        *group_columns(rows),
    )
    return View(
        "steps",
        "Steps",
        columns,
        rows,
        "No step was found. Record with a profiler schedule and call its step() in the loop, or pass a step "
        "range name.",
        "groups in % of the rank time of the step",
    )


def _slowest(row: StepRow) -> int | None:
    """No rank where all are even: in step with each other, the one with the longest window is chance."""
    return row.slowest_rank if row.max_ns - row.min_ns >= 0.01 * row.wall_ns else None


def ranks(result: Result) -> View:
    """Ranks, the latest first."""
    started = {b.rank: b.origin_blame_ns for b in result.blame}
    rows = sorted(result.rank_rows, key=lambda r: (-r.late_ns, -started.get(r.rank, 0), r.rank))
    columns = (
        Column("rank", "id", at("rank"), "rank"),
        Column("host", "name", lambda r: host(r.host), "host"),
        Column("GPU", "id", at("device"), "device", 2),
        Column("model", "name", at("device_name"), "device_name", 2),
        Column("rank time", "time", at("wall_ns"), "ranks.wall"),
        Column("late", "time", at("late_ns"), "late"),
        *group_columns(rows),
        Column("cut", "flag", at("truncated"), "truncated", 2),
    )
    return View(
        "ranks",
        "Ranks",
        columns,
        rows,
        "No rank has a used step.",
        "groups in % of the rank time; the latest rank comes first",
    )


def stragglers(result: Result) -> View:
    """Culprits by origin blame."""
    columns = (
        Column("rank", "id", at("rank"), "rank"),
        Column("host", "name", lambda r: host(r.host), "host"),
        Column("place", "text", at("place"), "place", 2),
        Column("cause", "text", lambda r: r.cause.replace("_", " "), "cause"),
        Column("how often", "text", lambda r: r.kind.replace("_", " "), "straggler.kind"),
        Column("late steps", "text", lambda r: f"{r.late_steps}/{r.steps}", "late_steps"),
        Column("started GPU-s", "gpu", at("origin_blame_ns"), "origin_blame"),
        Column("direct GPU-s", "gpu", at("blame_ns"), "blame"),
        Column("inclusive GPU-s", "gpu", at("blame_inclusive_ns"), "blame_inclusive", 2),
        Column("last arriver GPU-s", "gpu", at("last_ns"), "last", 2),
        Column("fix one GPU-s", "gpu", at("marginal_ns"), "marginal", 2),
        Column("last", "text", lambda r: f"{r.last_count}/{r.collectives}", "last_count", 2),
        Column("tokens x mean", "number", lambda r: _round(r.load), "straggler.load", 2),
        Column("quality", "text", lambda r: r.quality.replace("_", " "), "quality", 2),
    )
    return View(
        "stragglers",
        "Stragglers",
        columns,
        result.straggler_rows,
        "Nobody straggles: no rank is late in enough steps with enough blame."
        if len(result.run.ranks) > 1
        else "One rank only: a straggler shows when the traces of the other ranks are given too.",
        "GPU time of other ranks lost waiting for this one, over the used steps",
    )


_BLAME = ("blame_ns", "origin_blame_ns", "blame_inclusive_ns", "last_ns", "marginal_ns", "waited_ns")


def blame(result: Result) -> View:
    """The ledger: every lost nanosecond has a culprit."""
    rows = [r for r in result.blame if any(getattr(r, k) for k in _BLAME)]
    rows.sort(key=lambda r: (-r.origin_blame_ns, r.rank))
    columns = (
        Column("rank", "id", at("rank"), "rank"),
        Column("host", "name", lambda r: host(r.host), "host"),
        Column("direct GPU-s", "gpu", at("blame_ns"), "blame"),
        Column("started GPU-s", "gpu", at("origin_blame_ns"), "origin_blame"),
        Column("inclusive GPU-s", "gpu", at("blame_inclusive_ns"), "blame_inclusive", 1),
        Column("last arriver GPU-s", "gpu", at("last_ns"), "last"),
        Column("fix one GPU-s", "gpu", at("marginal_ns"), "marginal"),
        Column("itself waited GPU-s", "gpu", at("waited_ns"), "waited"),
    )
    sums = [units.gpu_seconds(sum(getattr(r, k) for r in rows)) for k in _BLAME]
    return View(
        "blame",
        "Blame ledger",
        columns,
        rows,
        "No exposed waiting in fully observed collectives, so there is nobody to blame.",
        "direct blame adds up to the straggler wait of the bar",
        ("sum", "", *sums) if rows else (),
    )


def experts(result: Result, *, short: bool = False) -> View:
    """Tokens of the expert-parallel groups. ``short``: only where a finding is about them."""
    told = not short or any(f.id == "expert-imbalance" for f in result.findings)
    columns = (
        Column("group", "name", at("group"), "group"),
        Column("ranks", "name", at("members"), "members", 1),
        Column("layers", "int", lambda r: r.pairs // max(r.steps, 1), "experts.pairs", 2),
        Column("busiest x mean", "number", lambda r: _round(r.imbalance), "experts.imbalance"),
        Column("at most", "number", lambda r: _round(r.imbalance_max), "experts.imbalance", 1),
        Column("rank", "id", lambda r: r.ranks[0].rank if r.ranks else None, "experts.rank"),
        Column("moves", "text", lambda r: f"by {r.moves}" if r.moves else "", "experts.moves"),
        Column("gain a step", "time", lambda r: r.gain_ns // max(r.steps, 1) if r.told else None, "experts.gain"),
        Column("wait a step", "time", lambda r: r.wait_ns // max(r.steps, 1), "experts.wait"),
        Column("busiest last", "text", lambda r: f"{r.loaded_last}/{r.pairs}" if r.told else "-", "experts.last"),
        Column("time a token x", "number", lambda r: _round(r.ranks[0].pace if r.ranks else None), "experts.pace", 1),
        Column("follows tokens %", "share", at("token_share"), "experts.share", 2),
        Column("rank correlation", "number", lambda r: _round(r.correlation), "experts.correlation", 2),
        Column("sizes", "text", lambda r: "told" if r.told else "not told", "experts.told", 2),
    )
    return View(
        "experts",
        "Experts",
        columns,
        result.experts if told else [],
        "No pairs of all-to-alls that bring tokens to experts and back.",
        "received tokens of a rank over the mean of its group; what even tokens would gain",
    )


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def collectives(result: Result) -> View:
    """Classes of collectives, the most exposed first."""
    rows = sorted(result.collective_rows, key=lambda r: -(r.exposed_ns + r.wait_ns))
    columns = (
        Column("group", "name", at("group"), "group"),
        Column("ranks", "int", at("group_size"), "group_size", 2),
        Column("kind", "text", at("kind"), "kind"),
        Column("size class", "text", at("size_class"), "size_class", 1),
        Column("n", "int", at("n"), "n"),
        Column("matched", "int", at("matched"), "matched", 2),
        Column("size", "size", at("bytes"), "collectives.bytes", 2),
        Column("wait", "time", lambda r: r.wait_ns if r.matched or r.wait_ns else None, "wait"),
        Column("transfer", "time", at("transfer_ns"), "transfer"),
        Column("exposed", "time", at("exposed_ns"), "exposed"),
        Column("algbw GB/s", "rate", at("algbw"), "algbw", 2),
        Column("busbw GB/s", "rate", at("busbw"), "busbw"),
        Column("bound GB/s", "rate", at("peak"), "peak", 2),
        Column("of bound %", "share", at("efficiency"), "efficiency"),
        Column("tier", "text", at("tier"), "tier", 2),
        Column("transport", "name", at("transport"), "transport", 2),
        Column("algorithm", "name", at("algorithm"), "algorithm", 2),
        Column("verdict", "name", at("verdict"), "verdict", 2),
    )
    return View(
        "collectives",
        "Collectives",
        columns,
        rows,
        "No communication was found. If the job has several ranks, record GPU activity of all of them.",
        "times summed over members and used steps, the most exposed first",
    )


DIRECTIONS = {
    "pcie_h2d": "host to GPU",
    "pcie_d2h": "GPU to host",
    "gpu_d2d": "within the GPU",
    "peer_copy": "GPU to GPU",
    "gpu_memset": "memory set",
}


def copies(result: Result) -> View:
    """Copies by direction and memory kind."""
    columns = (
        Column("direction", "text", lambda r: DIRECTIONS.get(r.direction, r.direction), "direction"),
        Column("memory", "text", at("mem"), "mem"),
        Column("copies", "int", at("count"), "count"),
        Column("bytes", "size", lambda c: c.bytes or None, "bytes"),
        Column("time", "time", at("total_ns"), "total"),
        Column("exposed", "time", at("exposed_ns"), "exposed"),
        Column("GB/s", "rate", at("rate"), "rate"),
        Column("of copies", "int", at("rate_n"), "rate_n", 2),
    )
    return View("copies", "Copies", columns, result.copies, "No copy between host and device in the used steps.", "")


def idle(result: Result) -> View:
    """Idle time by cause and tag, the largest first."""
    total = max(result.budget.wall_ns, 1)
    columns = (
        Column("cause", "text", lambda r: r.cause.removeprefix("idle_"), "idle.cause"),
        Column("host did", "name", at("tag"), "tag"),
        Column("time", "time", at("ns"), "time"),
        Column("% of rank time", "share", lambda r: r.ns / total, "share"),
        Column("names", "lines", at("names"), "names", 2),
    )
    return View(
        "idle",
        "Idle GPU, by cause",
        columns,
        sorted(result.idle, key=lambda r: -r.ns),
        "The GPU is never idle in the used steps."
        if not sum(v for k, v in result.budget.leaves_ns.items() if k.startswith("idle"))
        else "Idle time was not split further. Record CPU activity beside the GPU's.",
        "",
    )


def memory(result: Result) -> View:
    """Peaks of device memory."""
    columns = (
        Column("rank", "id", at("rank"), "rank"),
        Column("GPU", "id", at("device"), "device"),
        Column("allocated", "size", at("peak_allocated"), "peak_allocated"),
        Column("reserved", "size", at("peak_reserved"), "peak_reserved"),
        Column("driver allocations", "int", at("allocator_calls"), "allocator_calls"),
    )
    return View(
        "memory",
        "Device memory",
        columns,
        result.memory,
        "The traces hold no memory samples. Record with profile_memory=True.",
        "",
    )


def kernels(result: Result) -> View:
    """Kernels by total time."""
    columns = (
        Column("kernel", "name", at("name"), "kernel"),
        Column("class", "text", at("cls"), "class"),
        Column("n", "int", at("count"), "count"),
        Column("total", "time", at("total_ns"), "total"),
        Column("mean", "time", at("mean_ns"), "mean"),
        Column("longest", "time", at("max_ns"), "longest", 2),
        Column("ranks", "int", at("ranks"), "ranks_n", 2),
        Column("launched by", "name", at("op"), "op", 2),
    )
    return View(
        "kernels",
        "Kernels",
        columns,
        sorted(result.kernels, key=lambda r: -r.total_ns),
        "No GPU record lies in a used step. Record CUDA (or ROCm) activity.",
        "the names with most time, over all ranks and used steps",
    )


def operators(result: Result) -> View:
    """GPU time by the host ranges that launched it."""
    columns = (
        Column("range", "name", at("name"), "op"),
        Column("kind", "text", at("kind"), "range.kind"),
        Column("n", "int", at("count"), "range.count"),
        Column("launched", "int", at("ops"), "range.ops"),
        Column("own", "time", at("self_ns"), "range.self"),
        Column("with inner", "time", at("gpu_ns"), "range.gpu"),
        Column("ranks", "int", at("ranks"), "ranks_n"),
    )
    return View(
        "operators",
        "Operators and ranges",
        columns,
        result.ranges,
        "No host range is known. Record CPU activity or NVTX ranges: they say what launched a kernel.",
        "summed GPU time of what was launched inside, over all ranks and used steps; the names with most",
    )


def path(result: Result) -> View:
    """Cross-rank critical path of each step."""
    rows = [_PathRow(p) for p in result.critical_path]
    columns = (
        Column("step", "id", at("step"), "step"),
        Column("span", "time", at("wall_ns"), "path.wall"),
        *group_columns(rows),
        Column("ranks visited", "text", lambda r: " → ".join(map(str, r.hops[:12])), "hops", 2),
    )
    return View(
        "path",
        "Critical path",
        columns,
        rows,
        "No critical path: it needs matched collectives of all ranks on comparable clocks.",
        "what the step is made of across ranks, in %: waiting takes no time, the path jumps to the late rank",
    )


class _PathRow:
    """A path row with the (empty) sub-leaves that group columns look at."""

    sub_ns: dict[str, int] = {}

    def __init__(self, row: Any) -> None:
        self.step, self.wall_ns, self.leaves_ns, self.hops = row.step, row.wall_ns, row.leaves_ns, row.hops


def metrics(result: Result) -> View:
    """Every metric with its basis and quality."""
    columns = (
        Column("metric", "name", lambda m: m[0].replace("_", " "), "value"),
        Column("value", "text", lambda m: metric(m[1].value, m[1].unit), "value"),
        Column("n", "int", lambda m: m[1].n, "n"),
        Column("quality", "text", lambda m: m[1].quality.replace("_", " "), "quality"),
        Column("basis", "prose", lambda m: m[1].basis, "basis", 2),
        Column("meaning", "prose", lambda m: definitions.of(m[0]), "value", 2),
    )
    return View("metrics", "Metrics", columns, list(result.metrics.items()), "No metric could be computed.", "")


VIEWS: tuple[Callable[[Result], View], ...] = (
    steps,
    stragglers,
    blame,
    experts,
    ranks,
    collectives,
    copies,
    idle,
    memory,
    kernels,
    operators,
    path,
    metrics,
)
