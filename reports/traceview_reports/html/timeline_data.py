"""What the timeline is given: the detail that the analysis fills in, the budget, and the section that comes back.

Times named ``*_start`` and ``*_end`` of a rank are int64 nanoseconds on that rank's own (GPU) axis, as in the
tables. ``RankDetail.common`` puts them on the run's common axis; views and links count from ``Detail.origin_ns``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceview.analysis.phases import PHASES, leaf_name
from traceview.analysis.timebase import TimeBase
from traceview.analysis.types import Codes, Ints, Segments
from traceview.errors import TraceviewError
from traceview.schema import GROUPS


def no_ints() -> Ints:
    """An empty int64 array."""
    return np.empty(0, np.int64)


def no_codes() -> Codes:
    """An empty int8 array."""
    return np.empty(0, np.int8)


def no_segments() -> Segments:
    """No segment."""
    return Segments(no_ints(), no_codes())


GROUP_NAMES = tuple(GROUPS)
"""Groups in the order of ``schema.GROUPS``; their codes are used in the page."""
GROUP_OF_PHASE: Codes = np.array(
    [next(g for g, leaves in enumerate(GROUPS.values()) if leaf_name(p) in leaves or p in leaves) for p in PHASES],
    np.int8,
)
"""index into ``analysis.phases.PHASES`` -> index into ``GROUP_NAMES``"""


@dataclass(frozen=True)
class RankDetail:
    """One rank as the analysis saw it. Every array may be left empty where the analysis has nothing to say.

    ``step*`` have one element per device-step window, ascending; ``wait_end`` to ``instance`` have one element per
    row of the rank's stored ``collectives`` table, in its order.
    """

    offset_ns: int = 0
    """clock of the rank's host, METHODS d.1: common = local + offset_ns + drift * (local - t_ref_ns)"""
    drift: float = 0.0
    """a plain fraction (1 ppm = 1e-6)"""
    t_ref_ns: int = 0
    jumps: tuple[Ints, Ints] | None = None
    """(local times, ns added from each on) of a clock that was stepped, ``TimeBase.jumps``"""
    host_shift_ns: int = 0
    """added to host stamps of this rank (not to GPU stamps) before everything else, METHODS a.5"""
    device: int = 0
    """device ordinal whose windows and segments these are"""
    step: Ints = field(default_factory=no_ints)
    step_start: Ints = field(default_factory=no_ints)
    step_end: Ints = field(default_factory=no_ints)
    wait_end: Ints = field(default_factory=no_ints)
    """``Phases.wait_end``: the row waits in [start, wait_end); equal to start where it does not wait"""
    second: Codes = field(default_factory=no_codes)
    """``Phases.second``: what [wait_end, end) is, TRANSFER or UNRESOLVED"""
    sub: Codes = field(default_factory=no_codes)
    """``Phases.sub``: NXN or P2P"""
    late_rank: Ints = field(default_factory=no_ints)
    """the rank whose arrival ended the wait; -1 unknown or no wait"""
    instance: Ints = field(default_factory=no_ints)
    """``Matches.instance`` of the row; -1 unmatched"""
    segments: Segments = field(default_factory=no_segments)
    """``Decomposition.segments`` of the device: what the budget counts, idle causes included"""

    def common(self, ns: Ints) -> Ints:
        """Stamps of this rank's GPU axis on the common axis (int64 ns, same shape)."""
        ns = np.asarray(ns, np.int64)
        out: Ints = ns + self.offset_ns
        if self.drift:
            out += np.rint(self.drift * (ns - self.t_ref_ns)).astype(np.int64)
        if self.jumps:
            out += np.append(0, self.jumps[1])[np.searchsorted(self.jumps[0], ns, side="right")]
        return out

    def common_host(self, ns: Ints) -> Ints:
        """Stamps of this rank's host axis on the common axis."""
        return self.common(np.asarray(ns, np.int64) + self.host_shift_ns)

    def pieces(self, origin_ns: int) -> tuple[Ints, Ints, Codes]:
        """Begin and end (ns since the origin, common axis) and phase of every segment of positive length."""
        bounds = self.common(self.segments.bounds) - origin_ns
        start, end = bounds[:-1], bounds[1:]
        some = end > start
        return start[some], end[some], self.segments.phase[some]


def clock_of(base: TimeBase, rank: int) -> dict[str, Any]:
    """The clock fields of ``RankDetail`` for a rank of the run's time base."""
    return {
        "offset_ns": int(base.shift[rank]),
        "drift": float(base.drift[rank]),
        "t_ref_ns": int(base.pivot[rank]),
        "jumps": base.jumps.get(rank),
    }


@dataclass(frozen=True)
class Detail:
    """All ranks of the run. ``ranks`` may be any mapping, also one that computes a rank when it is asked for."""

    ranks: Mapping[int, RankDetail]
    origin_ns: int
    """common time of t = 0 of every view: not after the first window of any rank"""

    def view(self, rank: int, start_ns: int, end_ns: int) -> tuple[int, int]:
        """A window on a rank's own axis as (t0, t1) of ``tv:select`` and of links: ns since the origin."""
        t0, t1 = self.ranks[rank].common(np.array([start_ns, end_ns])) - self.origin_ns
        return int(t0), int(t1)


def origin_of(ranks: Mapping[int, RankDetail]) -> int:
    """The earliest window or segment of all ranks on the common axis; 0 if there is none."""
    firsts = [int(d.common(a[:1])[0]) for d in ranks.values() for a in (d.step_start, d.segments.bounds) if len(a)]
    return min(firsts, default=0)


@dataclass(frozen=True)
class Focus:
    """Cells to embed before all others; None = every one."""

    rank: int | None = None
    step: int | None = None

    def covers(self, rank: int, step: int) -> bool:
        """Whether a cell is asked for."""
        return self.rank in (None, rank) and self.step in (None, step)


def parse_focus(text: str) -> Focus:
    """``rank=23,step=41`` (either part may be missing). TraceviewError on anything else.

    >>> parse_focus("rank=23,step=41")
    Focus(rank=23, step=41)
    """
    found: dict[str, Any] = {}
    for piece in text.split(","):
        key, _, value = piece.strip().partition("=")
        if key not in ("rank", "step") or not value.strip().isdigit():
            raise TraceviewError(f"focus {text!r}: {piece!r} is not rank=NUMBER or step=NUMBER")
        found[key] = int(value)
    return Focus(**found)


@dataclass(frozen=True)
class Budget:
    """How much detail goes into the page. ``bytes`` counts the text as embedded (base64)."""

    events: int = 2_000_000
    bytes: int = 14_000_000
    focus: tuple[Focus, ...] = ()


@dataclass(frozen=True)
class TimelineSection:
    """Parts of the page; everything in them is already escaped.

    ``html`` goes where the section stands and ``data`` anywhere after it; each of ``scripts`` becomes one script
    element (hash its exact text for the CSP), after ``data``; ``styles`` is CSS. ``embedded`` counts events.
    """

    html: str
    scripts: tuple[str, ...]
    styles: str
    data: str
    embedded: int = 0
    candidates: int = 0
