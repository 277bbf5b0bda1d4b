"""The timeline of the report: its data within the budget, and the viewer that draws it (``assets/timeline*``)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np

from traceview.analysis.phases import PHASES
from traceview.analysis.types import Bools
from traceview.config import DEFAULT
from traceview.result import Result
from traceview.run import Run
from traceview.schema import COLL_KINDS, COLLECTIVES, GPU_CLASSES, GPU_OPS, HOST_KINDS, HOST_RANGES
from traceview_reports.html.timeline_bins import all_bins
from traceview_reports.html.timeline_chunk import Chunk, Shared, build_chunk
from traceview_reports.html.timeline_data import (
    GROUP_NAMES,
    GROUP_OF_PHASE,
    Budget,
    Detail,
    RankDetail,
    TimelineSection,
)
from traceview_reports.html.timeline_lanes import FactTable, Names
from traceview_reports.html.timeline_pack import json_bytes, script_data
from traceview_reports.html.timeline_pick import pick, wanted_cells

_SCRIPTS = ("decode", "model", "draw", "frame", "detail", "input")
_GUESS = 12.0  # bytes of text an event takes, before the first chunk has shown it

__all__ = ["Budget", "Detail", "RankDetail", "TimelineSection", "timeline_section"]


def timeline_section(result: Result, run: Run, detail: Detail, budget: Budget | None = None) -> TimelineSection:
    """The section of the page: utilisation of every rank, full events as far as the budget goes.

    ``html`` is what stands under the section's heading; the viewer answers and sends ``tv:select`` on ``document``
    ({step, rank, t0, t1} in ns since ``detail.origin_ns``) and reads ``location.hash``
    (``#t=start-end&rank=23&step=41``). ``body[data-ready-timeline]`` says that it stands.
    """
    budget = budget or Budget()
    ranks = [r for r in run.ranks if r in detail.ranks]
    span = _span(detail, ranks)
    bins, count = all_bins(detail, ranks, span)
    bin_data = script_data("tv-tl-bins", bins)
    shared = Shared(Names(), FactTable())
    steps = _steps(result, detail, ranks)
    chunks = _chunks(result, run, detail, budget, shared, [s["step"] for s in steps])
    embedded = sum(c.events for c in chunks)
    candidates = sum(_rows(run, r) for r in ranks)
    meta = {
        "origin": str(detail.origin_ns),
        "span": span,
        "bins": count,
        "ranks": _ranks(result, run, ranks),
        "steps": {"list": steps},
        "groups": GROUP_NAMES,
        "phases": PHASES,
        "phaseGroup": GROUP_OF_PHASE.tolist(),
        "gpu": GPU_CLASSES,
        "host": HOST_KINDS,
        "kinds": COLL_KINDS,
        "names": list(shared.names.index),
        "facts": list(shared.facts.index),
        "chunks": [c.head for c in chunks],
        "embedded": embedded,
        "candidates": candidates,
    }
    data = script_data("tv-tl-meta", json_bytes(meta)) + bin_data
    data += "".join(f'<script type="text/plain" id="tv-tl-{c.head["rank"]}">{c.text}</script>\n' for c in chunks)
    html = _asset("timeline.html").replace("__LEAD__", _lead(ranks, len(chunks), embedded, candidates))
    return TimelineSection(html, (_script(),), _asset("timeline.css"), data, embedded, candidates)


def _lead(ranks: list[int], detailed: int, embedded: int, candidates: int) -> str:
    if not ranks:
        return "Nothing was recorded that could be drawn."
    text = f"Where the time of every rank went; {embedded:,} of {candidates:,} records are here in full"
    if embedded == candidates:
        return f"{text}."
    return (
        f"{text} ({detailed} of {len(ranks)} ranks: the latest, its reference and neighbours, the median and the "
        "fastest first). Striped stretches are not embedded: re-run with --focus rank=R,step=S."
    )


@lru_cache
def _asset(name: str) -> str:
    return resources.files("traceview_reports").joinpath("assets", name).read_text(encoding="utf-8")


@lru_cache
def _script() -> str:
    body = "\n".join(_asset(f"timeline_{name}.js") for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{body}}})();\n'


def _rows(run: Run, rank: int) -> int:
    """Records that could be drawn: GPU records, host ranges, and collectives that are neither."""
    rows = run.parts[rank].meta.rows
    on_host = run.parts[rank].table(COLLECTIVES)["op"].null_count
    return int(rows.get(GPU_OPS.name, 0) + rows.get(HOST_RANGES.name, 0) + on_host)


def _span(detail: Detail, ranks: list[int]) -> int:
    """End of the last window or segment of any rank, ns since the origin; at least 1."""
    ends = [
        int(detail.ranks[r].common(a.max())) - detail.origin_ns
        for r in ranks
        for a in (detail.ranks[r].step_end, detail.ranks[r].segments.bounds)
        if len(a)
    ]
    return max([1, *ends])


def _ranks(result: Result, run: Run, ranks: list[int]) -> list[dict[str, Any]]:
    """Rank, host, and what it costs the others a step (ns) where that is worth a mark: a share of all blame, and of
    the time of one rank."""
    steps = max(1, len(result.run.steps.used))
    blame = {b.rank: b.origin_blame_ns for b in result.blame}
    of_rank = result.budget.wall_ns / max(1, len(ranks))
    least = max(DEFAULT.min_blame_share * sum(blame.values()), DEFAULT.finding_min_share * of_rank)
    late = {rank: ns // steps for rank, ns in blame.items() if ns >= least}
    return [{"rank": r, "host": run.parts[r].meta.host or "", "late": late.get(r, 0)} for r in ranks]


def _steps(result: Result, detail: Detail, ranks: list[int]) -> list[dict[str, Any]]:
    """Every step over all ranks: from the median begin to the median end (ns since the origin), in time order."""
    bounds: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for rank in ranks:
        mine = detail.ranks[rank]
        start, end = (mine.common(a) - detail.origin_ns for a in (mine.step_start, mine.step_end))
        for step, t0, t1 in zip(mine.step.tolist(), start.tolist(), end.tolist(), strict=True):
            bounds[step].append((t0, t1))
    reasons = {e.step: e.reason for e in result.run.steps.excluded}
    out = []
    for step, pairs in bounds.items():
        t0, t1 = (int(x) for x in np.median(np.array(pairs), axis=0))
        out.append({"step": step, "t0": t0, "t1": t1, "excluded": reasons.get(step, "")})
    return sorted(out, key=lambda s: s["t0"])


def _chunks(
    result: Result, run: Run, detail: Detail, budget: Budget, shared: Shared, steps: Iterable[int]
) -> list[Chunk]:
    """Chunks of the picked ranks. What an event costs is learnt from the first rank, then the rest is picked."""
    ranks = [r for r in run.ranks if r in detail.ranks]
    steps, cost = list(steps), _GUESS
    first = pick(
        run, detail, wanted_cells(result, ranks, steps, budget), min(budget.events, int(budget.bytes / cost) // 4)
    )
    for rank, chosen in list(first.chosen.items())[:1]:
        trial = build_chunk(run, detail, rank, chosen, Shared(Names(), FactTable()))
        if trial.events:
            cost = len(trial.text) / trial.events
    found = pick(
        run, detail, wanted_cells(result, ranks, steps, budget), min(budget.events, int(budget.bytes / cost))
    )
    return _within(run, detail, found.chosen, budget.bytes, shared)


def _within(run: Run, detail: Detail, chosen: dict[int, Bools], limit: int, shared: Shared) -> list[Chunk]:
    """Chunks in order of interest, until the text reaches the limit: the estimate may be off, the limit is not."""
    out, used = [], 0
    for rank, cells in chosen.items():
        chunk = build_chunk(run, detail, rank, cells, shared)
        if used + len(chunk.text) > limit:
            continue
        used += len(chunk.text)
        out.append(chunk)
    return out
