"""The truth of a run, by brute force from the model's own knowledge (METHODS a, b, e), times absolute local ns.

Independent of traceview: nothing of it is imported. Segment by segment, in plain Python, slow and simple.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

from simulator.capture import Capture, Gpu, Host, capture
from simulator.program import Instance
from simulator.simulate import Sim

TAU_MIN, TAU_MAX, REFILL = 10_000, 50_000, 1_000_000
PRIORITY = (
    "compute", "gpu_opaque", "comm_transfer", "comm_unresolved", "comm_wait", "pcie_d2h", "pcie_h2d", "comm_host",
    "gpu_d2d", "gpu_memset", "gpu_other",
)  # fmt: skip
ACTIVITY = ("compute", "comm", "gpu_opaque")  # what moves a step boundary


@dataclass
class Window:
    """One device-step window and its exclusive leaves; they sum to ``end - start``."""

    rank: int
    step: int
    start: int
    end: int
    leaves: dict[str, int]


@dataclass
class Met:
    """One collective in true time: arrivals, the end of waiting, and whether all members were recorded."""

    instance: Instance
    arrival: dict[int, int]
    end: dict[int, int]
    full: bool

    @property
    def last(self) -> int:
        """True time of the last arrival."""
        return max(self.arrival.values())

    @property
    def waits(self) -> dict[int, int]:
        """Waiting per rank, ns."""
        return {r: self.last - a for r, a in self.arrival.items()}

    @property
    def transfer(self) -> int:
        """From the last arrival to the end, ns."""
        return max(self.end.values()) - self.last

    def airport(self) -> dict[int, float]:
        """Blame per rank of an n x n instance, METHODS e.3."""
        order = sorted(self.arrival, key=lambda r: self.arrival[r])
        blame = dict.fromkeys(order, 0.0)
        for k in range(1, len(order)):
            piece = k * (self.arrival[order[k]] - self.arrival[order[k - 1]])
            for rank in order[k:]:
                blame[rank] += piece / (len(order) - k)
        return blame


@dataclass
class Truth:
    """What is exactly known of a run. ``offsets``: host -> (theta ns, rho ppb) against the first present host."""

    windows: list[Window]
    met: list[Met]
    offsets: dict[str, tuple[int, int]]
    captures: list[Capture] = field(default_factory=list)

    def leaves(self, rank: int, step: int) -> dict[str, int]:
        """Leaves of one window without the zeros."""
        window = next(w for w in self.windows if (w.rank, w.step) == (rank, step))
        return {k: v for k, v in window.leaves.items() if v}

    def step_time(self, step: int) -> int:
        """Lower median over ranks of the window lengths."""
        lengths = sorted(w.end - w.start for w in self.windows if w.step == step)
        return lengths[(len(lengths) - 1) // 2]


def truth(sim: Sim) -> Truth:
    """The truth of what was captured of a run."""
    captures = [_on_gpu_axis(c) for c in capture(sim)]
    present = {c.rank for c in captures}
    recorded = {id(g.row) for c in captures for g in c.gpu}
    met = [_met(i, recorded) for i in sim.instances]
    windows = [w for cap in captures for w in rank_windows(sim, cap, recorded)]
    first = sim.job.host_of(min(present))
    base = sim.clocks[first]
    offsets = {}
    for rank in sorted(present):
        offset, ppb = sim.clocks[sim.job.host_of(rank)]
        offsets[sim.job.host_name(rank)] = (base[0] - offset, ppb - base[1])
    return Truth(windows, met, offsets, captures)


def _on_gpu_axis(cap: Capture) -> Capture:
    """The host axis moved where more than 1 % of the launches come after their kernel starts (METHODS a.5)."""
    latency = sorted(g.start - cap.calls[g.row.call].start for g in cap.gpu if g.row.call in cap.calls)
    if sum(ns < 0 for ns in latency) <= len(latency) / 100:
        return cap
    shift = latency[(len(latency) - 1) // 100]
    moved = {number: Host(h.row, number, h.start + shift, h.end + shift) for number, h in cap.calls.items()}
    marks = [(step, moved[h.number]) for step, h in cap.marks]
    return replace(cap, host=list(moved.values()), calls=moved, marks=marks)


def _met(instance: Instance, recorded: set[int]) -> Met:
    seen = {r: op for r, op in instance.ops.items() if id(op) in recorded}
    size = 2 if instance.p2p else len(instance.group.members)
    return Met(
        instance, {r: o.start for r, o in seen.items()}, {r: o.end for r, o in seen.items()}, len(seen) == size
    )


# phases -----------------------------------------------------------------------------------------------


def phases(sim: Sim, cap: Capture, recorded: set[int]) -> list[tuple[int, int, str]]:
    """(start, end, leaf name) of every GPU record of a rank; communication is cut at the end of its waiting."""
    out = []
    for gpu in cap.gpu:
        if gpu.end <= gpu.start:
            continue
        if gpu.row.cls != "comm":
            out.append((gpu.start, gpu.end, gpu.row.cls))
            continue
        wait_end, second = _wait_end(sim, cap.rank, gpu, recorded)
        out += [(gpu.start, wait_end, "comm_wait"), (wait_end, gpu.end, second)]
    return [p for p in out if p[1] > p[0]]


def _wait_end(sim: Sim, rank: int, gpu: Gpu, recorded: set[int]) -> tuple[int, str]:
    instance = gpu.row.instance
    assert instance is not None
    seen = [op for op in instance.ops.values() if id(op) in recorded]
    if gpu.row.graph or len(seen) < (2 if instance.p2p else len(instance.group.members)):
        last = gpu.row.start if instance.p2p else max(op.start for op in seen)
        return min(max(sim.local(rank, last), gpu.start), gpu.end), "comm_unresolved"
    last = max(op.start for op in seen)
    return min(max(sim.local(rank, last), gpu.start), gpu.end), "comm_transfer"


# windows, METHODS b.1 ------------------------------------------------------------------------------------


def rank_windows(sim: Sim, cap: Capture, recorded: set[int]) -> list[Window]:
    """Windows of one rank with their leaves."""
    bounds = window_bounds(cap)
    pieces = phases(sim, cap, recorded)
    idle = IdleCauses(cap)
    return [Window(cap.rank, step, b, e, exclusive(pieces, b, e, idle)) for step, b, e in bounds]


def window_bounds(cap: Capture) -> list[tuple[int, int, int]]:
    """(step, start, end) by METHODS b.1; a window that is not followed by its successor ends at its own end."""
    marks = cap.marks
    if not marks:
        return []
    starts = [m.start for _, m in marks]
    ops = [g for g in cap.gpu if g.row.cls in ACTIVITY] or cap.gpu
    by_step: dict[int, list[Gpu]] = {i: [] for i in range(-1, len(marks) + 1)}
    for gpu in ops:
        call = cap.calls.get(gpu.row.call)
        if call is None:
            by_step[-1].append(gpu)
        elif call.start >= marks[-1][1].end:
            by_step[len(marks)].append(gpu)
        else:
            by_step[bisect_left(starts, call.start + 1) - 1].append(gpu)
    cuts: list[int] = []
    ended = max((g.end for g in by_step[-1]), default=None)
    for i, h in enumerate(starts):
        first = min((g.start for g in by_step[i]), default=None)
        cut = h if ended is None or not i else max(h, ended)
        cut = cut if first is None else min(first, cut)
        cuts.append(max([cut, *cuts[-1:]]))
        ended = max([g.end for g in by_step[i]] + ([] if ended is None else [ended]), default=None)
    cuts.append(max([marks[-1][1].end, cuts[-1]] + ([] if ended is None else [ended])))
    return [(step, cuts[i], cuts[i + 1]) for i, (step, _) in enumerate(marks)]


# leaves, METHODS a.3 -------------------------------------------------------------------------------------


def exclusive(pieces: list[tuple[int, int, str]], begin: int, end: int, idle: IdleCauses) -> dict[str, int]:
    """Exclusive leaves of [begin, end): every segment goes to the first leaf of the priority list."""
    inside = [(max(s, begin), min(e, end), leaf) for s, e, leaf in pieces if s < end and e > begin]
    cuts = sorted({begin, end} | {s for s, _, _ in inside} | {e for _, e, _ in inside})
    out: dict[str, int] = {}
    inside.sort()
    active: list[tuple[int, int, str]] = []
    upcoming = 0
    for lo, hi in pairwise(cuts):
        while upcoming < len(inside) and inside[upcoming][0] <= lo:
            active.append(inside[upcoming])
            upcoming += 1
        active = [a for a in active if a[1] > lo]
        names = {a[2] for a in active}
        if names:
            leaf = next(p for p in PRIORITY if p in names)
            out[leaf] = out.get(leaf, 0) + hi - lo
        else:
            for leaf, ns in idle.split(lo, hi).items():
                out[leaf] = out.get(leaf, 0) + ns
    return out


class IdleCauses:
    """Why the GPU of a rank was idle, METHODS a.5."""

    def __init__(self, cap: Capture) -> None:
        self.cap = cap
        self.ops = sorted((g for g in cap.gpu if g.end > g.start), key=lambda g: g.start)
        self.starts = [g.start for g in self.ops]
        self.reach: list[int] = []
        for gpu in self.ops:
            self.reach.append(max(gpu.end, self.reach[-1] if self.reach else gpu.end))
        self.launches: dict[int, list[int]] = {}
        for gpu in cap.gpu:
            call = cap.calls.get(gpu.row.call)
            if call:
                self.launches.setdefault(call.row.thread, []).append(call.start)
        for starts in self.launches.values():
            starts.sort()
        self.tau = self._tau()

    def _gap(self, at: int) -> tuple[int | None, Gpu | None]:
        """The idle gap around ``at``: its begin and the operation that ends it."""
        i = bisect_left(self.starts, at + 1)
        g0 = self.reach[i - 1] if i else None
        if i == len(self.ops):
            return g0, None
        same = [g for g in self.ops[i:] if g.start == self.ops[i].start]
        return g0, max(same, key=lambda g: self._launch(g)[0] if self._launch(g) else -(2**63))

    def _launch(self, gpu: Gpu) -> tuple[int, int] | None:
        call = self.cap.calls.get(gpu.row.call)
        return (call.start, call.row.thread) if call else None

    def _tau(self) -> int:
        found = []
        for i, gpu in enumerate(self.ops):
            g0 = self.reach[i - 1] if i else self.cap.start
            launch = self._launch(gpu)
            if launch is None or (i and self.starts[i - 1] == gpu.start) or g0 >= gpu.start:
                continue
            if launch[0] > g0:
                found.append(max(0, gpu.start - min(launch[0], gpu.start)))
        twice = int(2 * median(found)) if found else 0
        return min(max(twice, TAU_MIN), TAU_MAX)

    def split(self, lo: int, hi: int) -> dict[str, int]:
        """Causes of the idle segment [lo, hi); it lies within one gap."""
        out: dict[str, int] = {}

        def put(leaf: str, start: int, end: int) -> None:
            start, end = max(start, lo), min(end, hi)
            if end > start:
                out[leaf] = out.get(leaf, 0) + end - start

        covered_lo, covered_hi = max(lo, self.cap.start), min(hi, self.cap.end)
        put("uncovered", lo, min(hi, self.cap.start))
        put("uncovered", max(lo, self.cap.end), hi)
        lo, hi = covered_lo, covered_hi
        if hi <= lo:
            return out
        g0, op = self._gap(lo)
        launch = self._launch(op) if op else None
        if op is None or launch is None:
            put("idle_unknown", lo, hi)
            return out
        g0 = self.cap.start if g0 is None else g0
        ls, g1 = min(launch[0], op.start), op.start
        if ls <= g0:
            put("idle_launch" if g1 - g0 <= self.tau else "idle_unknown", lo, hi)
            return out
        put("idle_launch", ls, min(ls + self.tau, g1))
        put("idle_unknown", ls + self.tau, g1)
        for start, end, leaf in self._host_time(g0, ls, launch[1]):
            put(leaf, start, end)
        return out

    def _host_time(self, g0: int, ls: int, thread: int) -> list[tuple[int, int, str]]:
        mine = [h for h in self.cap.host if h.row.thread == thread and h.start < ls and h.end >= g0]
        others = [h for h in self.cap.host if h.row.thread != thread and h.start < ls and h.end >= g0]
        refill = self._refill(mine, g0, ls, thread)
        cuts = {g0, ls} | {min(max(t, g0), ls) for h in mine + others for t in (h.start, h.end)}
        cuts |= {min(max(t, g0), ls) for r in refill for t in r}
        points = sorted(cuts)
        out = []
        for lo, hi in pairwise(points):
            leaf = _cause(mine, refill, lo)
            if leaf == "idle_unknown":
                leaf = _cause(others, [], lo)
            out.append((lo, hi, leaf))
        return out

    def _refill(self, mine: list[Host], g0: int, ls: int, thread: int) -> list[tuple[int, int]]:
        """After a sync that returned in the gap the Python time up to the next launch is a consequence of it."""
        out = []
        data = [h.start for h in mine if h.row.kind == "data"]
        for sync in (h for h in mine if h.row.kind == "sync" and g0 <= h.end < ls):
            stops = [t for t in data if t >= sync.end]
            starts = self.launches.get(thread, [])
            i = bisect_left(starts, sync.end)
            stops += starts[i : i + 1]
            out.append((sync.end, min([sync.end + REFILL, ls, *stops])))
        return out


def _cause(rows: list[Host], refill: list[tuple[int, int]], at: int) -> str:
    kinds = {h.row.kind for h in rows if h.start <= at < h.end}
    for kind, leaf in (("data", "idle_data"), ("sync", "idle_sync")):
        if kind in kinds:
            return leaf
    if any(lo <= at < hi for lo, hi in refill):
        return "idle_sync"
    if kinds & {"op", "runtime"}:  # Python calls are not read by default
        return "idle_host"
    return "idle_unknown"
