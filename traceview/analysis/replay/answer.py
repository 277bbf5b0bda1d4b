"""Replay of the used steps under scenarios (METHODS h.2), and what it says of a pipeline (e.6) and a straggler.

The answer is to "same program, faster part": no contention, the schedule and the host's own work stay as they are,
ranks that were not seen do not move.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from traceview import units
from traceview.analysis.intervals import Spans, subtract, union
from traceview.analysis.replay import equal
from traceview.analysis.replay.chain import Inputs, choose, lane_of
from traceview.analysis.replay.graph import Graph, build
from traceview.analysis.replay.ops import KERNEL
from traceview.analysis.replay.play import Played, Scenario, play
from traceview.analysis.types import Floats, Ints
from traceview.config import DEFAULT, Config


@dataclass(frozen=True)
class Fixed:
    """A replay in which some ranks are typical, ns."""

    step: float
    """step time"""
    left: float
    """exposed straggler wait beyond that of equalised op times, mean per rank and step"""


@dataclass(frozen=True)
class Answer:
    """What the replay says; times in ns, means per rank and step. ``refused``: why it says nothing."""

    steps: list[int] = field(default_factory=list)
    """those that were replayed"""
    refused: str = ""
    off: float = 0.0
    """largest relative error of the base replay over the steps"""
    step: float = 0.0
    """base replay: step time (METHODS b.1) of the replayed steps"""
    balanced: float = 0.0
    """step time with equalised op times"""
    fixed: dict[frozenset[int], Fixed | None] = field(default_factory=dict)
    """if these ranks were typical; None = nobody has their role"""
    waits: float = 0.0
    """exposed point-to-point waiting"""
    bubble: float = 0.0
    """that with equalised op times: the schedule's own"""
    uneven: float = 0.0
    """part of waits - bubble that goes only if the stages are made equal, not just the ranks of a stage"""
    partial: bool = False
    """some communication is not fully observed: its waits do not move"""

    @property
    def measured(self) -> list[int]:
        """The steps that all other numbers are of."""
        return self.steps[warm_up(len(self.steps)) :]


@dataclass(frozen=True)
class Base:
    """The graph of the replayed steps, and its base replay; without a graph ``refused`` says why."""

    steps: list[int] = field(default_factory=list)
    refused: str = ""
    off: float = 0.0
    graph: Graph | None = None
    played: Played | None = None


def base_replay(inputs: Inputs, config: Config = DEFAULT) -> Base:
    """The longest run of used steps that is affordable, as recorded (METHODS h.2, fidelity gate)."""
    chain, why = choose(inputs, config)
    if chain is None:
        return Base(refused=why)
    lanes = [lane_of(inputs, chain, i, config) for i in range(len(chain.ranks))]
    found = [x for x in lanes if x is not None]
    if len(found) < len(lanes):
        return Base(chain.steps, "some rank has no GPU work in the replayed steps")
    graph = build(found, inputs.met)
    del lanes, found
    if graph is None:
        return Base(chain.steps, "the order of events contradicts itself: a clock or a match is wrong")
    played = play(graph, Scenario())
    off = fidelity(graph, played)
    if off > config.replay_refuse:
        return Base(chain.steps, f"the base replay is off by {units.share(off)}", off)
    if 2 * np.count_nonzero(graph.known) < len(graph.row):
        return Base(chain.steps, "most communication is not fully observed, or the clocks cannot be compared", off)
    return Base(chain.steps, "", off, graph, played)


def replay(inputs: Inputs, culprits: list[frozenset[int]], config: Config = DEFAULT) -> Answer:
    """Replay as recorded, equalised, and with culprits replaced."""
    base = base_replay(inputs, config)
    if base.graph is None or base.played is None:
        return Answer(base.steps, base.refused, base.off)
    if not len(base.graph.row):
        return Answer(base.steps, "the steps hold no communication", base.off)
    return _answers(base.graph, base.played, inputs, culprits, Answer(base.steps, off=base.off))


def _answers(g: Graph, base: Played, inputs: Inputs, culprits: list[frozenset[int]], out: Answer) -> Answer:
    roles = equal.roles(g, inputs.met, inputs.step_of_row)
    even = play(g, equal.balanced(g, roles))
    fixed: dict[frozenset[int], Fixed | None] = dict.fromkeys(culprits)
    least = exposed_wait(g, even, point=False) if culprits else 0.0
    for ranks in culprits:
        if equal.comparable(g, roles, set(ranks)):
            played = play(g, equal.replaced(g, roles, set(ranks)))
            fixed[ranks] = Fixed(step_time(played), max(0.0, exposed_wait(g, played, point=False) - least))
    waits = bubble = uneven = 0.0
    if g.point.any():
        alike = play(g, equal.typical(g, roles))
        waits, bubble, inner = (exposed_wait(g, x, point=True) for x in (base, even, alike))
        uneven = max(0.0, min(inner, waits) - bubble)
    return Answer(
        steps=out.steps,
        off=out.off,
        step=step_time(base),
        balanced=step_time(even),
        fixed=fixed,
        waits=waits,
        bubble=min(bubble, waits),
        uneven=uneven,
        partial=not g.known.all(),
    )


def warm_up(steps: int) -> int:
    """Steps at the begin of a chain that are replayed and not measured: they start as late as was recorded."""
    return min(2, steps // 2)


def step_time(played: Played) -> float:
    """Median over the measured steps of the median rank's window, the lower of two in both (METHODS b.1)."""
    walls = np.diff(played.bounds, axis=1)
    walls = np.sort(walls[:, warm_up(walls.shape[1]) :], axis=0)
    by_step = np.sort(walls[(walls.shape[0] - 1) // 2])
    return float(by_step[(len(by_step) - 1) // 2])


def fidelity(g: Graph, base: Played) -> float:
    """Largest relative error of a step of the base replay."""
    want, have = np.diff(g.bounds, axis=1), np.diff(base.bounds, axis=1)
    middle = (want.shape[0] - 1) // 2
    steps = np.sort(want, axis=0)[middle], np.sort(have, axis=0)[middle]
    return float(np.max(np.abs(steps[1] - steps[0]) / np.maximum(steps[0], 1)))


def exposed_wait(g: Graph, played: Played, *, point: bool) -> float:
    """Waiting that no work or transfer of the rank hides, mean ns per rank and step: p2p (``point``) or the rest.

    Of the measured steps. As in METHODS a.3, straggler wait goes before pipeline wait.
    """
    span = float(np.max(played.bounds) - min(np.min(played.bounds), 0.0)) + 1e9
    lane = g.lane_of_stretch[g.blocks.stretch]
    first = warm_up(g.bounds.shape[1] - 1)

    def spans(start: Floats, end: Floats, which: Ints) -> Spans:
        low, high = played.bounds[which, first], played.bounds[which, -1]
        edges = (np.clip(x, low, high) + which * 2 * span for x in (start, end))
        return union(*(np.rint(x).astype(np.int64) for x in edges))

    rank = lane[g.block_of_row]
    waited = np.minimum(played.waited, played.end)
    waiting = g.joint & (g.point == point)
    moves = waiting | (g.joint & g.point)
    work = np.flatnonzero(g.blocks.kind == KERNEL)
    above = spans(
        np.concatenate((played.block_end[work] - played.busy[work], np.where(moves, waited, played.begin))),
        np.concatenate((played.block_end[work], played.end)),
        np.concatenate((lane[work], rank)),
    )
    found = subtract(spans(played.begin[waiting], waited[waiting], rank[waiting]), above)
    return found.measure / float(g.bounds[:, first + 1 :].size)
