"""The replay of a run (METHODS h.2), and its numbers in the result."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from traceview import units
from traceview.analysis.findings import common
from traceview.analysis.replay.answer import Answer, replay
from traceview.analysis.replay.chain import Inputs
from traceview.analysis.replay.meet import Met
from traceview.analysis.types import Ints
from traceview.config import Config
from traceview.pipeline.values import Across, Frame, StudyOptions
from traceview.result import Metric, Quality, Result, StragglerRow
from traceview.run import Run
from traceview.schema import GPU_OPS, HOST_RANGES
from traceview.schema.arrays import to_numpy

MOST_CULPRITS = 4
"""culprits, the largest first, that are replaced one by one"""


def answer(run: Run, base: Frame, across: Across, rows: list[StragglerRow], how: StudyOptions) -> Answer:
    """Replay the used steps, equalised and with each culprit, and all of them, replaced."""
    if len(run.ranks) < 2:
        return Answer(refused="one rank waits for nobody that was seen")
    if not len(base.step_of_row):
        return Answer(refused="the ranks communicate nothing that was seen")
    groups = culprits(rows)
    wanted = list(dict.fromkeys([*groups[:MOST_CULPRITS], *everybody(groups)]))
    return replay(inputs_of(run, base, across), wanted, how.config)


def inputs_of(run: Run, base: Frame, across: Across) -> Inputs:
    """What a replay reads of a run."""
    counts = {r: run.parts[r].meta.rows.get("collectives", 0) for r in run.ranks}

    def op_of_row(rank: int) -> Ints:
        own = base.collectives["op"].slice(base.first_row[rank], counts[rank])
        return to_numpy(own, -1).astype(np.int64, copy=False)

    clock = across.alignment.base
    begin = base.windows.start[base.windows.used]
    met = Met(across.columns, across.matches, across.waits, clock, int(begin.min()) if len(begin) else 0)
    return Inputs(
        met=met,
        windows=base.windows,
        step_of_row=base.step_of_row,
        gpu_ops=lambda r: run.table(GPU_OPS, r),
        gpu_rows=lambda r: run.parts[r].meta.rows.get("gpu_ops", 0),
        host_ranges=lambda r: run.table(HOST_RANGES, r),
        op_of_row=op_of_row,
        host_shift=lambda r: base.axes[r].host_shift,
    )


def culprits(rows: Iterable[StragglerRow]) -> list[frozenset[int]]:
    """The ranks of each node that is slow as a whole, and every other culprit alone; by origin blame."""
    return [frozenset(row.rank for row in own) for own in common.culprits(rows).values()]


def everybody(groups: list[frozenset[int]]) -> list[frozenset[int]]:
    """All culprits as one, if there are any."""
    return [frozenset().union(*groups)] if groups else []


def fill(result: Result, played: Answer, config: Config) -> None:
    """The metrics of the replay, and the step time without each culprit in its row."""
    result.metrics |= metrics(result, played, config)
    step = result.metrics["step_time"].value
    for ranks in culprits(result.straggler_rows):
        fixed = played.fixed.get(ranks)
        for row in result.straggler_rows:
            if row.rank in ranks and fixed is not None and step is not None:
                row.replay_step_ns = round(step - (played.step - fixed.step))


def metrics(result: Result, played: Answer, config: Config) -> dict[str, Metric]:
    """Step times and pipeline waiting of the replay; unavailable, with the reason, where it is refused.

    The saving of the replayed steps is taken off the step time of all used ones.
    """
    step = result.metrics["step_time"].value
    waits = result.budget.sub_ns.get("comm_wait.p2p", 0)
    named = everybody(culprits(result.straggler_rows))
    if step is None or not (waits or result.budget.sub_ns.get("comm_wait.nxn", 0)):
        return {}  # nobody waits: there is nothing to replay for
    n = len(played.steps)
    if played.refused:
        names = ["step_time_if_balanced_replay", *["step_time_if_replaced_replay"] * bool(named)]
        names += ["pipeline_straggler", "pipeline_bubble"] * bool(waits)
        return {k: Metric(None, "ns", n, f"replay: cannot tell, {played.refused}", "unavailable") for k in names}
    told = how_far(result, played, config)
    quality: Quality = "upper_bound" if played.partial else "estimated"  # what is not observed saves nothing
    out = {"replay_error": Metric(played.off, "fraction", n, f"base replay against the record; {told}", "proved")}

    def add(name: str, value: float, basis: str) -> None:
        out[name] = Metric(float(round(value)), "ns", n, f"{basis}; {told}", quality)

    add("step_time_if_balanced_replay", step - (played.step - played.balanced), "replay with equal op times")
    fixed = played.fixed.get(named[0]) if named else None
    if named and fixed is None:
        why = "replay: cannot tell, nobody makes the same communication calls as the late ranks"
        out["step_time_if_replaced_replay"] = Metric(None, "ns", n, why, "unavailable")
    if fixed is not None:
        basis = "replay with the late ranks typical"
        add("step_time_if_replaced_replay", step - (played.step - fixed.step), basis)
        if not played.partial:
            add("straggler_wait_left", fixed.left, f"mean of a rank and step: {basis}, less that with equal op times")
    if waits:
        out |= _pipeline(result, played, told, config)
    return out


def how_far(result: Result, played: Answer, config: Config) -> str:
    """What was replayed and how well, in words."""
    used = len(result.run.steps.used)
    text = f"{len(played.measured)} of {used} steps measured, base replay off by {units.share(played.off)}"
    if played.off > config.replay_warn:
        text += ": with care"
    return text + ("; communication with missing members is left as it is" if played.partial else "")


def _pipeline(result: Result, played: Answer, told: str, config: Config) -> dict[str, Metric]:
    """METHODS e.6: ``pipeline_straggler`` + ``pipeline_bubble`` = send/recv waiting, per rank and step."""
    n = len(result.window_rows)
    own = [w for w in result.window_rows if w.step in set(played.measured)]
    seen = sum(w.sub_ns.get("comm_wait.p2p", 0) for w in own) / max(len(own), 1)
    off = abs(played.waits - seen) / max(played.step, 1.0)
    if off > config.replay_refuse:
        why = f"replay: cannot tell, its waiting is off by {units.share(off)} of the step"
        return {k: Metric(None, "ns", n, why, "unavailable") for k in ("pipeline_straggler", "pipeline_bubble")}
    waits = result.budget.sub_ns["comm_wait.p2p"] / n
    straggler = min(waits, played.waits - played.bubble)
    least: Quality
    most: Quality
    least, most = ("lower_bound", "upper_bound") if played.partial else ("estimated", "estimated")
    parts: tuple[tuple[str, float, str, Quality], ...] = (
        ("pipeline_straggler", straggler, "send/recv waiting beyond a replay with equal op times", least),
        ("pipeline_uneven", min(straggler, played.uneven), "the part of it with typical ranks: uneven stages", least),
        ("pipeline_bubble", waits - straggler, "the rest of the send/recv waiting: the schedule", most),
    )
    told += f", its waiting by {units.share(off)} of the step"
    return {k: Metric(float(round(value)), "ns", n, f"{basis}; {told}", sure) for k, value, basis, sure in parts}
