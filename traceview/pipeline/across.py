"""The stages that look across ranks: matching, clocks, waits, then blame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from traceview.analysis import blame, clock, match, steps, waits
from traceview.analysis.types import Matches
from traceview.run import Run

if TYPE_CHECKING:
    from traceview.pipeline.flow import Frame, Lanes, StudyOptions


@dataclass(frozen=True)
class Across:
    """Matched instances, the common time axis, and who waited until when."""

    matches: Matches
    alignment: clock.Alignment
    waits: waits.Waits


def align(run: Run, base: Frame, how: StudyOptions) -> Across:
    """Match the collectives of all ranks, fit their clocks, split waiting from transfer (METHODS c, d, e.2)."""
    hosts = {r: run.host(r) for r in run.ranks}
    anchored = base.marks.source in ("profiler_step", "range")
    matches = match.match(
        base.collectives, base.step_of_row, run.world_size, hosts, anchored=anchored, config=how.config
    )
    matches.notes.extend(steps.disagreement(base.step_of_row, matches.instance))
    alignment = clock.align(base.collectives, matches, hosts, config=how.config)
    for row in alignment.clock.ranks:
        row.host_axis_shift_ns = base.axes[row.rank].host_shift
    waited = waits.waits(base.collectives, matches, alignment.base, config=how.config)
    return Across(matches, alignment, waited)


def ledger(base: Frame, across: Across, lanes: Lanes) -> blame.Ledger:
    """Who owes the exposed waiting of the used steps (METHODS e.3)."""
    pieces = lanes.all_pieces()
    return blame.blame(pieces, base.collectives, across.matches, across.waits, base.step_of_row, base.used_row)
