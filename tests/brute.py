"""METHODS a read instant by instant, in plain Python: the reference that the vectorised decomposition must equal.

Operations: dicts of ``tiny.gpu``, for ``cls`` comm with ``L``, ``second`` (transfer | unresolved) and ``sub``. Host
ranges: tuples of ``tiny.host``. One device; integer times of a few hundred ns; thresholds are given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any

ORDER = ["compute", "gpu_opaque", "comm_transfer", "comm_unresolved", "comm_wait", "pcie_d2h", "pcie_h2d"]
AFTER_COMM_HOST = ["gpu_d2d", "gpu_memset", "gpu_other"]


@dataclass
class Brute:
    ops: list[dict[str, Any]]
    host: list[tuple[Any, ...]]
    begin: int
    end: int
    """the record"""
    holes: list[tuple[int, int]] = field(default_factory=list)
    tau_min: int = 10
    tau_max: int = 50
    refill: int = 100

    def __post_init__(self) -> None:
        self.busy = {t for o in self.ops for t in range(o["s"], o["e"])}
        self.gaps = self._gaps()
        late = [g1 - ls for g0, g1, ls, _ in self.gaps if ls is not None and ls > g0]
        self.tau = min(max(int(2 * median(late)) if late else 0, self.tau_min), self.tau_max)
        self.launching = {o["thread"] for o in self.ops if o["ls"] is not None}

    def _gaps(self) -> list[tuple[int, int, int | None, int | None]]:
        out, start = [], None
        for t in range(self.begin, self.end + 1):
            idle = t < self.end and t not in self.busy
            if idle and start is None:
                start = t
            if not idle and start is not None:
                following = [o for o in self.ops if o["s"] == t and o["e"] > t and o["ls"] is not None]
                n = max(following, key=lambda o: o["ls"], default=None)
                out.append((start, t, None if n is None else min(n["ls"], t), None if n is None else n["thread"]))
                start = None
        return out

    def phases(self, t: int) -> set[str]:
        found = set()
        for o in self.ops:
            if o["s"] <= t < o["e"]:
                if o["cls"] == "comm":
                    found.add("comm_wait" if t < o["L"] else "comm_" + o["second"])
                else:
                    found.add("comm_transfer" if o["cls"] == "peer_copy" else o["cls"])
        return found

    def on(self, kinds: tuple[str, ...], t: int, threads: set[int] | None = None) -> bool:
        return any(h[0] in kinds and h[1] <= t < h[2] and (threads is None or h[3] in threads) for h in self.host)

    def leaf(self, t: int) -> str:
        active = self.phases(t)
        for name in ORDER:
            if name in active:
                return name
        uncovered = any(s <= t < e for s, e in self.holes)
        idle = self.idle(t) if not active else ""
        if idle == "idle_data" and not uncovered:
            return idle
        if self.on(("host_comm",), t):
            return "comm_host"
        for name in AFTER_COMM_HOST:
            if name in active:
                return name
        return "uncovered" if uncovered else idle

    def idle(self, t: int) -> str:
        g0, g1, ls, thread = next(g for g in self.gaps if g[0] <= t < g[1])
        if ls is None or thread is None:
            return "idle_unknown"
        if ls <= g0:
            return "idle_launch" if g1 - g0 <= self.tau else "idle_unknown"
        if t >= ls:
            return "idle_launch" if t < ls + self.tau else "idle_unknown"
        own = self.doing(t, {thread}, self.refilling(t, g0, thread))
        return own or self.doing(t, self.launching) or "idle_unknown"

    def doing(self, t: int, threads: set[int], refill: bool = False) -> str:
        if self.on(("data",), t, threads):
            return "idle_data"
        if refill or self.on(("sync",), t, threads):
            return "idle_sync"
        return "idle_host" if self.on(("op", "runtime", "python"), t, threads) else ""

    def refilling(self, t: int, g0: int, thread: int) -> bool:
        for kind, _, back, of, *_ in self.host:
            if kind == "sync" and of == thread and g0 <= back <= t < back + self.refill:
                launches = [o["ls"] for o in self.ops if o["ls"] is not None and o["thread"] == thread]
                stopped = any(back <= x <= t for x in launches) or any(
                    self.on(("data",), x, {thread}) or self.on(("host_comm",), x) for x in range(back, t + 1)
                )
                if not stopped:
                    return True
        return False
