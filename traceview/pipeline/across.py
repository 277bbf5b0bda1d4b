"""The stages that look across ranks: matching, clocks, waits, then blame."""

from __future__ import annotations

from dataclasses import replace

from traceview.analysis import blame, clock, experts, match, origin, path, stragglers, waits
from traceview.analysis.groups import columns
from traceview.pipeline import whatif
from traceview.pipeline.values import Across, Blamed, Frame, Lanes, StudyOptions
from traceview.run import Run
from traceview.schema import GPU_OPS, HOST_RANGES


def align(run: Run, base: Frame, how: StudyOptions) -> Across:
    """Match the collectives of all ranks, fit their clocks, split waiting from transfer (METHODS c, d, e.2)."""
    hosts = {r: run.host(r) for r in run.ranks}
    anchored = base.marks.source in ("profiler_step", "range") and base.marks.anchored
    c = columns(base.collectives)
    matches = match.match(c, base.step_of_row, run.world_size, hosts, anchored=anchored, config=how.config)
    alignment = clock.align(c, matches, hosts, config=how.config)
    for row in alignment.clock.ranks:
        row.host_axis_shift_ns = base.axes[row.rank].host_shift
    waited = waits.waits(c, matches, alignment.base, config=how.config)
    alignment.clock.clock_free_gap_ns = waited.clock_free_gap
    return Across(c, matches, alignment, waited)


def attribute(run: Run, base: Frame, across: Across, lanes: Lanes, how: StudyOptions) -> Blamed:
    """Who owes the exposed waiting, who started it, why, the critical path, the replay (METHODS e.3 to e.8, h.2)."""
    c = across.columns
    pieces = lanes.all_pieces()
    owed = blame.blame(pieces, c, across.matches, across.waits, base.step_of_row, base.used_row)
    segments = {lane.rank: lane.segments for lane in reversed(lanes.lanes)}
    facts = origin.Facts(
        c=c,
        matches=across.matches,
        waited=across.waits,
        pieces=pieces,
        windows=base.windows,
        step_of_row=base.step_of_row,
        segments=segments.get,
        gpu_ops=lambda r: run.table(GPU_OPS, r),
        host_ranges=lambda r: run.table(HOST_RANGES, r),
    )
    used = base.marks.used
    accounts = experts.accounts(facts, used, how.config)
    facts = replace(facts, tokens=experts.tokens(c, accounts))
    clocks = stragglers.Clocks(across.alignment.base, {r: run.host(r) for r in run.ranks}, across.alignment.clock)
    found = stragglers.find(facts, owed, origin.origin(facts, owed), clocks, used, how.config)
    told = experts.rows(c, accounts, lanes.exposed_of_row, how.config)
    gain = experts.step_gain(facts, accounts, used)
    played = whatif.answer(run, base, across, found.rows, how)
    walked = path.critical_path(facts, across.alignment.base, used)
    return Blamed(owed, found, walked, told, gain, facts.tokens, played)
