"""The discrete-event engine: a graph of activities with start and end edges, and transfers over shared links.

All times are integer nanoseconds. An activity starts when all its edges are satisfied and lasts its duration.
Members of an instance (a collective) start like any other activity; the data moves when all have arrived, over
links shared at fair rates, and all members end together.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

SECOND = 1_000_000_000
Edge = tuple[int, str, int]  # (activity, "s" after its start | "e" after its end, lag in ns)


@dataclass
class Transfer:
    """What an instance moves: ``fixed`` ns, or latency plus ``loads`` (link -> bytes) at fair rates."""

    fixed: int | None = None
    latency: int = 0
    loads: dict[str, int] = field(default_factory=dict)
    members: list[int] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    """per member: how much later than the transfer it ends, ns"""
    arrived: int = 0
    last_arrival: int = -1
    end: int = -1
    left: float = 1.0
    needed: int = 0
    version: int = 0


class Graph:
    """Activities and their edges; ``run`` computes ``start`` and ``end`` of every one."""

    def __init__(self, capacity: dict[str, int] | None = None, tick: int = 1) -> None:
        self.capacity = capacity or {}  # bytes per second
        self.tick = tick  # every computed time is a multiple of this
        self.duration: list[int] = []
        self.not_before: list[int] = []
        self.pending: list[int] = []
        self.after_start: list[list[tuple[int, int]]] = []
        self.after_end: list[list[tuple[int, int]]] = []
        self.transfer_of: dict[int, Transfer] = {}
        self.start: list[int] = []
        self.end: list[int] = []
        self._heap: list[tuple[int, int, int, object, int]] = []
        self._order = 0
        self._active: list[Transfer] = []
        self._updated = 0

    def add(self, duration: int, edges: Iterable[Edge] = (), not_before: int = 0) -> int:
        """A new activity; returns its number."""
        me = len(self.duration)
        self.duration.append(duration)
        self.not_before.append(not_before)
        self.pending.append(0)
        self.after_start.append([])
        self.after_end.append([])
        for edge in edges:
            self.edge(me, edge)
        return me

    def edge(self, me: int, edge: Edge) -> None:
        """``me`` starts at or after the other's start or end plus the lag."""
        other, side, lag = edge
        (self.after_end if side == "e" else self.after_start)[other].append((me, lag))
        self.pending[me] += 1

    def join(self, me: int, transfer: Transfer, lag: int = 0) -> None:
        """``me`` is a member of the instance: it ends ``lag`` ns after the transfer ends."""
        transfer.members.append(me)
        transfer.lags.append(lag)
        self.transfer_of[me] = transfer

    def run(self) -> None:
        """Compute all times. RuntimeError if some activity never starts (a cycle, an absent member)."""
        count = len(self.duration)
        self.start, self.end = [-1] * count, [-1] * count
        self._ready = list(self.not_before)
        self._waiting = list(self.pending)
        for me in range(count):
            if not self._waiting[me]:
                self._push(self._ready[me], 1, me)
        while self._heap:
            now, kind, _, what, version = heapq.heappop(self._heap)
            if kind == 0:
                self._ended(what, now)
            elif kind == 1:
                self._started(what, now)
            elif kind == 2:
                self._move(what, now)
            elif what.version == version:
                self._arrive(what, now)
        if -1 in self.end:
            raise RuntimeError(f"activity {self.end.index(-1)} never ends: a cycle or a missing member")

    def _push(self, time: int, kind: int, what: object, version: int = 0) -> None:
        self._order += 1
        heapq.heappush(self._heap, (time, kind, self._order, what, version))

    def _release(self, waiters: list[tuple[int, int]], now: int) -> None:
        for me, lag in waiters:
            self._ready[me] = max(self._ready[me], now + lag)
            self._waiting[me] -= 1
            if not self._waiting[me]:
                self._push(self._ready[me], 1, me)

    def _started(self, me: int, now: int) -> None:
        self.start[me] = now
        self._release(self.after_start[me], now)
        transfer = self.transfer_of.get(me)
        if transfer is None:
            self._push(now + self.duration[me], 0, me)
            return
        transfer.arrived += 1
        if transfer.arrived == len(transfer.members):
            transfer.last_arrival = now
            if transfer.fixed is not None:
                self._push(now + transfer.fixed, 3, transfer, transfer.version)
            else:
                self._push(now + transfer.latency, 2, transfer)

    def _ended(self, me: int, now: int) -> None:
        self.end[me] = now
        self._release(self.after_end[me], now)

    def _move(self, transfer: Transfer, now: int) -> None:
        self._progress(now)
        self._active.append(transfer)
        self._reschedule(now)

    def _arrive(self, transfer: Transfer, now: int) -> None:
        transfer.end = now
        if transfer in self._active:
            self._progress(now)
            self._active.remove(transfer)
            self._reschedule(now)
        for me, lag in zip(transfer.members, transfer.lags, strict=True):
            self._push(now + lag, 0, me)

    def _progress(self, now: int) -> None:
        for flow in self._active:
            if flow.needed:
                flow.left = max(0.0, flow.left - (now - self._updated) / flow.needed)
        self._updated = now

    def _reschedule(self, now: int) -> None:
        """New fair rates: each link is divided equally among the transfers that use it."""
        users: dict[str, int] = {}
        for flow in self._active:
            for link in flow.loads:
                users[link] = users.get(link, 0) + 1
        for flow in self._active:
            needed = max(
                (-(-size * users[k] * SECOND // self.capacity[k]) for k, size in flow.loads.items()), default=0
            )
            if needed == flow.needed and flow.version:
                continue  # same rate: the end that was computed stands
            flow.needed, flow.version = needed, flow.version + 1
            rest = max(0, math.ceil(flow.left * needed - 1e-3))  # 1e-3: the rounding of `left` is no time
            self._push(now + -(-rest // self.tick) * self.tick, 3, flow, flow.version)
