"""Host step marks: the first source that passes, and the steps that are left out of statistics, METHODS b.1, b.2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from traceview import units
from traceview.analysis.marks import from_ranges, from_table, main_thread, stops
from traceview.analysis.ops import NONE, ints
from traceview.analysis.periods import from_period
from traceview.analysis.stepjoin import joined
from traceview.analysis.types import Ints, Marks
from traceview.config import DEFAULT, Config
from traceview.errors import TraceviewError
from traceview.schema import HOST_KINDS, codes
from traceview.schema.arrays import from_numpy
from traceview.units import ranks as rank_list

SOURCES = ("profiler_step", "range", "optimizer", "period", "all")
FIRST = "first recorded step"
_RECURS = 3
_SHOWN = 3


@dataclass(frozen=True)
class StepInputs:
    """What the choice of marks reads. The getters give a declared table of one rank; they are asked when needed."""

    step_marks: Any
    """``step_marks`` of all ranks, rank column included"""
    cover: Mapping[int, tuple[int, int]]
    """rank -> recorded range in ns, for every rank of the run"""
    gpu_ops: Callable[[int], Any]
    host_ranges: Callable[[int], Any]
    collectives: Callable[[int], Any]


def choose_marks(
    inputs: StepInputs,
    *,
    pattern: str | None = None,
    source: str | None = None,
    shift: Mapping[int, int] | None = None,
    config: Config = DEFAULT,
) -> Marks:
    """Marks of the first source that passes, with the steps that are not used and why.

    ``pattern`` is a regular expression of host ranges that are steps; its first group, if any, is the step's number.
    ``source`` forces one of SOURCES. ``shift`` is added to the numbers of a rank's steps (``steplink``).
    TraceviewError if what was asked for is not in the traces.
    """
    if pattern is not None:
        marks = from_ranges(pattern, {r: inputs.host_ranges(r) for r in inputs.cover})
        missing = f"no host range matches {pattern!r}; look at the names with 'traceview inspect -v'"
    else:
        marks = _first_source(inputs, SOURCES if source is None else (source,), config)
        missing = f"no step marks of source {source!r}; known sources: {', '.join(SOURCES)}"
    if marks is None:
        raise TraceviewError(missing)
    if marks.source == "all":
        return marks
    if shift:
        marks = replace(marks, step=marks.step + np.array([shift.get(r, 0) for r in marks.rank.tolist()], np.int64))
    return _exclude(_agree(marks, list(inputs.cover)), inputs, config)


def _first_source(inputs: StepInputs, sources: tuple[str, ...], config: Config) -> Marks | None:
    for source in sources:
        if source == "all":
            return _one_window(inputs)
        if source == "period":
            found = from_period(inputs.gpu_ops, inputs.collectives, inputs.cover, config)
        else:
            cover = _work(inputs) if source == "range" else inputs.cover
            found = from_table(inputs.step_marks, source, cover, config)
        if found is not None:
            return _with_others(found, inputs, config)
    return None


def _with_others(marks: Marks, inputs: StepInputs, config: Config) -> Marks:
    """Marks of the source, and those of ranks that have none of it but others (traces of another format)."""
    bare = sorted(set(inputs.cover) - set(marks.rank.tolist()))
    if not bare or marks.source == "period":
        return marks
    mine = np.isin(ints(inputs.step_marks, "rank"), bare)
    own = replace(
        inputs,
        step_marks=inputs.step_marks.take(from_numpy(np.flatnonzero(mine))),
        cover={r: inputs.cover[r] for r in bare},
    )
    others = _first_source(own, ("range", "optimizer"), config)
    return marks if others is None else joined(marks, others, config)


def _work(inputs: StepInputs) -> dict[int, tuple[int, int]]:
    """rank -> span of its launches: a report that begins with the process records minutes before any step."""
    out = {}
    for rank, cover in inputs.cover.items():
        launch = ints(inputs.gpu_ops(rank), "launch_start")
        launch = launch[launch != NONE]
        out[rank] = (int(launch.min()), int(launch.max())) if len(launch) else cover
    return out


def _one_window(inputs: StepInputs) -> Marks:
    """One window over the record of each rank; statistics per step are refused."""
    ranks = list(inputs.cover)
    bounds = np.array([inputs.cover[r] for r in ranks], np.int64).reshape(-1, 2)
    return Marks(
        source="all",
        rank=np.array(ranks, np.int64),
        step=np.zeros(len(ranks), np.int64),
        start=bounds[:, 0],
        end=bounds[:, 1],
        thread=np.array([main_thread(inputs.gpu_ops(r), inputs.host_ranges(r)) for r in ranks], np.int64),
        notes=["no steps were found: one window over the whole record, no statistics per step" + _recurring(inputs)],
    )


def _recurring(inputs: StepInputs) -> str:
    """Which ranges of the first rank may be steps: those that recur, the ones with most time first."""
    if not inputs.cover:
        return ""
    table = inputs.host_ranges(min(inputs.cover))
    marks = pl.DataFrame({n: pl.from_arrow(table[n]) for n in ("name", "start", "end")}).filter(
        pl.Series(codes(table["kind"], HOST_KINDS) == HOST_KINDS.index("annotation"))
    )
    found = (
        marks.group_by(pl.col("name").cast(pl.String))
        .agg(pl.len().alias("n"), (pl.col("end") - pl.col("start")).sum().alias("ns"))
        .filter(pl.col("n") >= _RECURS)
        .sort("ns", "name", descending=(True, False))
        .head(_SHOWN)
    )
    names = ", ".join(f"{name[:60]!r} {n}" for name, n, _ in found.rows())
    return f"; ranges that recur, one of which may be the step (--step-range): {names}" if names else ""


def _agree(marks: Marks, ranks: list[int]) -> Marks:
    """Note ranks without marks and steps that some ranks lack; nothing is padded."""
    notes = list(marks.notes)
    bare = sorted(set(ranks) - set(marks.rank.tolist()))
    if bare:
        notes.append(f"ranks {rank_list(bare)} have no step marks of source {marks.source}")
    marked = len(ranks) - len(bare)
    step, count = np.unique(marks.step, return_counts=True)
    partial = step[count < marked]
    if len(partial):
        notes.append(
            f"ranks disagree on steps: {rank_list(partial.tolist())} are not on every rank "
            f"(on {int(count[count < marked].min())} of {marked})"
        )
    return replace(marks, notes=notes)


def _exclude(marks: Marks, inputs: StepInputs, config: Config) -> Marks:
    """Leave out an incomplete last step and the first one of every rank, as long as 3 steps are left."""
    excluded = dict(marks.excluded)
    for rank in np.unique(marks.rank).tolist():
        last, reason = _incomplete(marks, rank, inputs, config)
        if reason:
            excluded.setdefault(last, reason)
    left = set(marks.step.tolist()) - set(excluded)
    first = {int(marks.step[marks.rank == r][0]) for r in np.unique(marks.rank).tolist()} & left
    if len(left - first) >= config.step_min_used:
        return replace(marks, excluded=excluded | dict.fromkeys(sorted(first), FIRST))
    note = f"only {units.count(len(left), 'whole step')}: the first recorded one is kept, and metrics are estimates"
    return replace(marks, excluded=excluded, notes=[*marks.notes, note], estimated=True)


def _incomplete(marks: Marks, rank: int, inputs: StepInputs, config: Config) -> tuple[int, str]:
    """(last step of the rank, why it is incomplete or '')."""
    mine = np.flatnonzero(marks.rank == rank)
    last = int(marks.step[mine[-1]])
    if rank in marks.tails:
        return last, marks.tails[rank]
    if inputs.cover[rank][1] < marks.end[mine[-1]]:
        return last, f"incomplete: the record of rank {rank} ends before it"
    launch = np.sort(ints(inputs.gpu_ops(rank), "launch_start"))
    bounds = np.append(marks.start[mine], marks.end[mine[-1]])
    counts = np.diff(np.searchsorted(launch[launch != NONE], bounds, "left"))
    if len(counts) < 2 or counts[-1] >= config.step_min_launch_share * np.median(counts):
        return last, ""
    return last, f"incomplete: {counts[-1]} launches on rank {rank}, the median step has {np.median(counts):.0f}"


def disagreement(step: Ints, instance: Ints) -> list[str]:
    """A note if the members of one instance are in different steps, METHODS b.2; arrays per collectives row.

    Negative numbers mean no step and no instance.
    """
    rows = np.flatnonzero((step >= 0) & (instance >= 0))
    if not len(rows):
        return []
    order = rows[np.lexsort((step[rows], instance[rows]))]
    first = np.flatnonzero(np.diff(instance[order], prepend=-1))
    last = np.append(first[1:], len(order)) - 1
    split = int((step[order[first]] != step[order[last]]).sum())
    note = f"ranks disagree on steps: {split:,} of {len(first):,} collectives are in different steps on their ranks"
    return [note] if split else []


def step_of(marks: Marks, rank: int, time: Ints) -> Ints:
    """Step of a rank in which each host time lies (launches, say); ``NONE`` outside."""
    mine = np.flatnonzero(marks.rank == rank)
    if not len(mine):
        return np.full(len(time), NONE)
    until = stops(marks.step[mine], marks.start[mine], marks.end[mine])
    i = np.searchsorted(marks.start[mine], time, "right") - 1
    inside = (i >= 0) & (time < until[np.maximum(i, 0)])
    return np.where(inside, marks.step[mine][np.maximum(i, 0)], NONE)
