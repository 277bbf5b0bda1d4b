"""The page of ``history``: per job its course, its changes, who held the others up, its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jinja2 import Environment

from traceview import units
from traceview.config import DEFAULT
from traceview.history import Trend
from traceview_reports import history
from traceview_reports.html import shell
from traceview_reports.html.blocks import Section, grid
from traceview_reports.html.figures_trend import parts, step_times
from traceview_reports.names import clean

_MOST = 25  # jobs that are drawn; the others are rows of a table
_NAMED = 6  # jobs in the navigation
_LINES = 6  # of the one job, below the headline
_RUNS = 60  # rows of a table of runs; the others are CSV


def render(trends: Sequence[Trend]) -> str:
    """The page as text. TraceviewError above 20 MB."""
    env = shell.environment()
    ordered = sorted(trends, key=lambda t: -(t.runs[-1].started_ns or 0))
    names = _names(ordered)
    counts = f"{units.count(len(trends), 'job')}, {units.count(sum(len(t.runs) for t in trends), 'run')}"
    return shell.outcome_page(
        env,
        [
            *([_jobs(ordered)] if len(ordered) > 1 else []),
            *(_job(env, n, name, t) for n, (name, t) in enumerate(zip(names, ordered[:_MOST], strict=False))),
        ],
        [],
        **_first(ordered),
        run_line=counts,
        schema="traceview.history/1",
    )


def _first(trends: Sequence[Trend]) -> dict[str, Any]:
    """The one job in words, or how many of several changed."""
    changed = [t for t in trends if t.changes]
    few = all(len(t.runs) < DEFAULT.history_min_runs for t in trends)
    up = any(t.changes[-1].change > 0 for t in changed)
    first, *lines = history.lines(trends[0])
    alone = len(trends) == 1
    several = f"The step time of {len(changed)} of {len(trends)} jobs changed"
    return {
        "status": "cannot_tell" if few or up else "healthy",
        "status_word": "TOO FEW RUNS" if few else "CHANGED" if changed else "STEADY",
        "headline": first.text if alone else several,
        "lines": [line for line in lines if alone and line.label != "TREND"][:_LINES],
    }


def _jobs(trends: Sequence[Trend]) -> Section:
    more = len(trends) - _MOST
    intro = (
        f"The {_MOST} with the latest runs follow; `traceview history --job NAME` shows another." if more > 0 else ""
    )
    return Section("jobs", "Jobs", intro, (), [grid(history.jobs(trends), 200)], nav="Jobs")


def _names(trends: Sequence[Trend]) -> list[str]:
    """Names of the jobs, with ranks and GPU where one name stands for several."""
    seen = Counter(t.job for t in trends)
    return [
        clean(t.job if seen[t.job] == 1 else f"{t.job} ({t.world_size or '?'} ranks, {t.gpu or 'GPU not told'})", 80)
        for t in trends
    ]


def _job(env: Environment, n: int, name: str, trend: Trend) -> Section:
    """The section of a job; what it holds is told apart by its number and name."""
    views = [history.changes(trend), history.again(trend), history.runs(trend)]
    intro = (f"{units.time(trend.runs[-1].step_ns)} a step in the latest of {history.count(trend)}", *trend.notes)
    return Section(
        f"job-{n}",
        name,
        clean("; ".join(intro), 300) + ".",
        (),
        [grid(replace(v, id=f"{v.id}-{n}", title=f"{v.title}: {name}"), _RUNS) for v in views if v.rows],
        shell.drawn(env, step_times(trend, f"times-{n}"), parts(trend, f"parts-{n}")),
        nav=clean(name, 20) if n < _NAMED else "",
    )
