"""The critical path over ranks, METHODS e.8, by walking back over the model's own records (clocks must agree).

Where several collectives are active at once the path is not unique, so use it for layouts with one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.capture import Capture
from simulator.simulate import Sim
from simulator.truth import IdleCauses, Truth, exclusive, phases


@dataclass
class Path:
    """Leaves of the path, which sum to ``wall``; ranks in the order of the walk."""

    wall: int
    leaves: dict[str, int] = field(default_factory=dict)
    hops: list[int] = field(default_factory=list)

    def take(self, leaf: str, ns: int) -> None:
        """Time on the path."""
        if ns:
            self.leaves[leaf] = self.leaves.get(leaf, 0) + ns


@dataclass
class _Rank:
    """One rank's phases, where they change, and its communication."""

    cap: Capture
    pieces: list[tuple[int, int, str]]
    cuts: list[int]
    idle: IdleCauses


def critical_path(sim: Sim, known: Truth, step: int) -> Path:
    """The path of one step, from its last end back to the earliest begin of its windows."""
    windows = [w for w in known.windows if w.step == step]
    begin, last = min(w.start for w in windows), max(windows, key=lambda w: w.end)
    recorded = {id(g.row) for c in known.captures for g in c.gpu}
    ranks = {c.rank: _lane(sim, c, recorded) for c in known.captures}
    path, rank, at = Path(last.end - begin), last.rank, last.end
    while at > begin:
        if path.hops[-1:] != [rank]:
            path.hops.append(rank)
        rank, at = _step_back(sim, ranks[rank], at, begin, path)
    return path


def _lane(sim: Sim, cap: Capture, recorded: set[int]) -> _Rank:
    pieces = phases(sim, cap, recorded)
    cuts = sorted({s for s, _, _ in pieces} | {e for _, e, _ in pieces})
    return _Rank(cap, pieces, cuts, IdleCauses(cap))


def _step_back(sim: Sim, lane: _Rank, at: int, begin: int, path: Path) -> tuple[int, int]:
    """One piece of the walk; returns the rank and time where it goes on."""
    low = max([c for c in lane.cuts if c < at] + [begin])
    low = max(low, begin)
    here = exclusive(lane.pieces, low, at, lane.idle)
    if here.keys() & {"comm_wait", "comm_transfer"}:
        gpu = next(g for g in lane.cap.gpu if g.row.instance and g.start < at <= g.end)
        assert gpu.row.instance is not None
        ops = gpu.row.instance.ops
        late = max(sorted(ops), key=lambda r: ops[r].start)
        arrived = sim.local(late, ops[late].start)
        if "comm_wait" in here:
            return late, at
        path.take("comm_transfer", at - max(arrived, begin))
        return late, max(arrived, begin)
    for leaf, ns in here.items():
        path.take(leaf, ns)
    return lane.cap.rank, low
