"""Values that pass between the analysis modules: columns as numpy arrays, all times int64 nanoseconds.

Row order of everything named ``*_row`` is that of the run's concatenated ``collectives`` table (rank order, then
the stored order of each part).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]
Rows = np.ndarray[Any, np.dtype[np.int32]]
"""row numbers that are kept: half the memory, and never computed with"""
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Codes = np.ndarray[Any, np.dtype[np.int8]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

TRANSFER, UNRESOLVED = 0, 1  # second phase of a communication record, METHODS a.2
NXN, P2P = 0, 1  # whose waiting it is: straggler (n x n and rooted) or pipeline (point to point)


@dataclass(frozen=True)
class Marks:
    """Host step marks of one chosen source, METHODS b.2; arrays have one element per (rank, step)."""

    source: str
    rank: Ints
    step: Ints
    start: Ints
    end: Ints
    thread: Ints
    excluded: dict[int, str] = field(default_factory=dict)
    """step -> reason it is not used in statistics"""
    notes: list[str] = field(default_factory=list)
    estimated: bool = False
    """fewer than 3 steps would be left without the first one: it is used, and metrics are estimates"""
    anchored: bool = True
    """a number means the same step on every rank; False where ranks mark steps in two ways that do not tell"""
    tails: dict[int, str] = field(default_factory=dict)
    """rank -> why its last step is no whole one"""

    @property
    def used(self) -> list[int]:
        """Steps that are in the statistics, ascending."""
        return sorted(set(self.step.tolist()) - set(self.excluded))


@dataclass(frozen=True)
class Windows:
    """Device-step windows, METHODS b.1: one element per (rank, device, step), on the rank's local axis."""

    rank: Ints
    device: Ints
    step: Ints
    start: Ints
    end: Ints
    used: Bools


@dataclass(frozen=True)
class Matches:
    """Instances of collectives, METHODS c."""

    instance: Ints
    """per collectives row: instance number, -1 if unmatched"""
    level: Codes
    """per instance: 1-4 for K1-K4"""
    size: Ints
    """per instance: expected number of members (0 = unknown)"""
    seen: Ints
    """per instance: members present"""
    full: Bools
    """per instance: every member was seen"""
    ambiguous: Bools
    """per instance: matched, but the match is not certain (stays unresolved)"""
    groups: list[Any] = field(default_factory=list)
    """``traceview.result.MatchRow`` per group"""
    notes: list[str] = field(default_factory=list)
    anchored: bool = True
    """step numbers mean the same step on every rank, so ordinals in a step cannot slip over its ends"""


@dataclass(frozen=True)
class Phases:
    """Waiting of every collectives row, METHODS a.2 and e.2, on the rank's local axis."""

    wait_end: Ints
    """L clipped to [start, end]: the row waits in [start, wait_end)"""
    second: Codes
    """phase of [wait_end, end): TRANSFER or UNRESOLVED"""
    sub: Codes
    """NXN or P2P"""
    violated: Bools
    """per row: ends before the last arrival (clock or match error), METHODS e.2"""


@dataclass(frozen=True)
class WaitPieces:
    """Exposed waiting in used windows: segments whose leaf is comm_wait, METHODS e.3, on the rank's local axis."""

    start: Ints
    end: Ints
    row: Rows
    """collectives row that the piece belongs to: the waiting instance with the latest L"""


@dataclass(frozen=True)
class Tokens:
    """What the tokens of its experts do to every arrival at a combine (METHODS e.6), by ascending collectives row."""

    rows: Ints
    told: Bools
    """the trace tells how many"""
    load: Floats
    """received over the mean of the group"""
    work: Ints
    """compute between dispatch and combine, ns"""
    delay: Floats
    """how much later its tokens make it than the mean would, ns"""
    pace: Floats
    """time per token over that of a typical rank"""
    dispatched: Ints
    """end of the dispatch on the rank's own axis, ns"""

    def at(self, rows: Ints) -> Ints:
        """Position of collectives rows here, -1 for those that are no combine."""
        near = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.where(self.rows[near] == rows, near, -1)


@dataclass(frozen=True)
class OpPhases:
    """``Phases`` of one rank, brought to the rows of its ``gpu_ops`` table (one element per row)."""

    row: Ints
    """collectives row of the run, -1 = none"""
    wait_end: Ints
    second: Codes
    sub: Codes


@dataclass(frozen=True)
class Segments:
    """A device's record cut into stretches of one phase: stretch i is [bounds[i], bounds[i + 1])."""

    bounds: Ints
    phase: Codes
    """index into ``phases.PHASES``; leaf = ``phases.LEAF_OF[phase]``"""


@dataclass(frozen=True)
class IdleCause:
    """Idle time of one cause and tag, per window, with the host ranges that cover most of it."""

    leaf: str
    tag: str
    ns: Ints
    names: list[str]


@dataclass(frozen=True)
class Decomposition:
    """The exclusive decomposition of the windows of one (rank, device), METHODS a. Arrays are int64 ns."""

    rank: int
    device: int
    window: Ints
    """row numbers of these windows in the ``Windows`` given"""
    leaves: Ints
    """[windows, len(LEAVES)]: each row sums to its window exactly"""
    sub: Ints
    """[windows, len(SUB_LEAVES)]: those of one leaf sum to it"""
    masks: Ints
    """sets of active phases, bit = index into ``phases.PHASES``, idle causes left out"""
    coactivity: Ints
    """[windows, len(masks)]: each row sums to its window exactly (METHODS a.1)"""
    companions: dict[str, Ints]
    """METHODS a.4 by name, per window; they overlap and do not sum"""
    idle: list[IdleCause]
    segments: Segments
    waits: WaitPieces
    """exposed waiting in the used windows"""
    exposed: Ints
    """per gpu_ops row of the rank: its exclusive share of comm_transfer, comm_unresolved or pcie_*, used windows"""
    tau_ns: int
