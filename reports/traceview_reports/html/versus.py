"""The page of ``compare`` and ``gate``: the outcome first, every step of both sides, where the change is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jinja2 import Environment

from traceview import units
from traceview.result import Against
from traceview.result.versus import Comparison, Decision
from traceview_reports import definitions, versus, views_versus
from traceview_reports.html import shell
from traceview_reports.html.blocks import Section, grid
from traceview_reports.html.figures_versus import strip, waterfall
from traceview_reports.names import clean
from traceview_reports.verdict import TONES, Line

_BADGES = {"PASS": "healthy", "FAIL": "slow", "INCONCLUSIVE": "cannot_tell"}
_RULES = {
    "steps": "median of all pairs of steps, against their scatter and the spread between runs",
    "paired steps": "differences step by step, against their scatter and the spread between runs",
    "runs": "Welch's test on the medians of the runs",
    "run against runs": "the median of a run, against the spread of the baseline's runs",
}


def render(c: Comparison, d: Decision, words: dict[str, str] | None = None) -> str:
    """The page as text. ``words``: what outcomes are called instead. TraceviewError above 20 MB."""
    env = shell.environment()
    first, *lines = versus.lines(c, d, words)
    return shell.outcome_page(
        env,
        _sections(env, c, d),
        _tiles(c, d),
        status=_BADGES[d.outcome],
        status_word=first.label,
        headline=first.text[:1].upper() + first.text[1:],
        lines=lines,
        run_line=f"{clean(c.baseline, 60)} → {clean(c.candidate, 60)}",
        schema=f"{d.schema}, {c.schema}",
    )


def refused(names: Sequence[str], word: str, reason: str) -> str:
    """The page of two sides without a verdict, and why."""
    first, second = (clean(name, 60) for name in names)
    return shell.outcome_page(
        shell.environment(),
        [],
        [],
        status="cannot_tell",
        status_word=word,
        headline=f"No verdict on {second} against {first}",
        lines=[Line("WHY", clean(reason, 2000))],
        run_line=f"{first} → {second}",
        schema="no verdict",
    )


def is_ours(path: str) -> bool:
    """Whether a file is a page of traceview."""
    try:
        with open(path, "rb") as file:
            return shell.MARK in file.read(500)
    except OSError:
        return False


def section(env: Environment, beside: Against) -> Section:
    """The part of a report that was made with a baseline."""
    c, d = beside.comparison, beside.decision
    name = clean(beside.baseline, 80)
    if c is None or d is None:
        why = f"{name}: {clean(beside.refused, 600)}"
        return Section("against", "Against the baseline", why, nav="Baseline")
    tables = (views_versus.parts(c), *views_versus.work(c))
    return Section(
        "against",
        "Against the baseline",
        f"Beside {name}: {clean(d.reason, 300)} ({d.outcome}, by {d.rule}).",
        (),
        [grid(replace(v, id=f"against-{v.id}"), 10) for v in tables if v.rows],
        shell.drawn(env, strip(c, d), waterfall(c)),
        nav="Baseline",
    )


def _tiles(c: Comparison, d: Decision) -> list[dict[str, Any]]:
    """The change beside its threshold, both step times, the mean, the rule."""
    limit = f"fails over {d.threshold * 100:.1f} %, passes up to {d.minimum * 100:.1f} %"
    low = f"at least {units.change_share(d.low)} (95 %)" if d.low is not None else ""
    low = f"p = {d.p_value:.2g}" if d.p_value is not None else low
    mean = c.candidate_mean_ns - c.baseline_mean_ns
    shown = (
        ("change of the step time", units.change_share(d.change), limit, "versus.judged", low, TONES[d.outcome]),
        ("baseline", units.time(c.baseline_step_ns), "median over its used steps", "versus.step", "", ""),
        ("candidate", units.time(c.candidate_step_ns), "median over its used steps", "versus.step", "", ""),
        ("change of the mean step", units.change(mean), "what the parts sum to", "versus.change", "", ""),
        ("rule", d.rule, f"run to run {d.run_noise * 100:.2g} %", "versus.rule", "", ""),
    )
    keys = ("label", "value", "note", "define", "delta", "tone")
    return [dict(zip(keys, row, strict=True)) | {"hint": definitions.of(row[3])} for row in shown]


def _sections(env: Environment, c: Comparison, d: Decision) -> list[Section]:
    kernels, collectives = views_versus.work(c)
    return [
        Section(
            "steps",
            "Step times",
            f"Judged by {d.rule}: {_RULES.get(d.rule, 'see docs')}.",
            (),
            [grid(views_versus.runs(d), 40)],
            shell.drawn(env, strip(c, d)),
            nav="Steps",
        ),
        Section(
            "change",
            "Where the change is",
            "Means per rank and step: the parts sum to the change of the mean step to the nanosecond.",
            (),
            [grid(views_versus.parts(c)), grid(views_versus.leaves(c))],
            shell.drawn(env, waterfall(c)),
            nav="Change",
        ),
        Section(
            "findings",
            "Findings of one side only",
            "",
            (),
            [grid(views_versus.findings(c), 60)],
            nav="Findings",
        ),
        Section("work", "Kernels and collectives", "", (), [grid(kernels, 40), grid(collectives, 40)], nav="Kernels"),
        Section(
            "compared",
            "What was compared",
            "Runs that differ in kind are compared with --allow-different only.",
            (),
            [grid(views_versus.different([*c.different, *c.notes]))],
        ),
        Section("times", "Every step time", "", (), [grid(views_versus.step_times(d), 60)], fold=True),
    ]
