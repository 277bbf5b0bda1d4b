"""The sections of the page below the first screen, in their order."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from traceview import units
from traceview.result import Result
from traceview_reports import definitions, views, views_places, views_quality
from traceview_reports.html import shell, stragglers
from traceview_reports.html.blocks import Chart, Section, grid
from traceview_reports.names import clean

# Only MFU of published runs: Megatron's figures count recomputation, which is another kind.
_MARKS = (
    "Published MFU for comparison: 38 to 43 % (Llama 3 405B, 8,192 to 16,384 H100, 2024), "
    "55.2 % (MegaScale 175B, 12,288 GPUs, 2024)."
)


_STEPS_FROM = {
    "profiler_step": "the profiler's step marks",
    "range": "ranges that count",
    "optimizer": "the optimizer",
    "period": "the period of the GPU operations (a guess)",
}


def _found(result: Result) -> str:
    """How many steps are used and what told them."""
    steps = result.run.steps
    if steps.source == "all":
        return "No steps were found: the whole record stands for one."
    told = _STEPS_FROM.get(steps.source, steps.source.replace("_", " "))
    return f"{units.count(len(steps.used), 'step')} used, found by {told}."


def before_timeline(result: Result, env: Environment, charts: dict[str, Chart]) -> list[Section]:
    """From the steps to the device memory."""
    return [
        Section(
            "steps",
            "Steps",
            f"{_found(result)} Step time is the median over ranks; colours are the groups of the bar.",
            _some(charts, "steps"),
            [grid(stragglers.slow_steps(result)), grid(views.steps(result), 30, stack=True)],
            nav="Steps",
        ),
        Section(
            "ranks",
            "Ranks",
            "A straggler has the most work and the least waiting: its row stands out in the heat maps."
            if "heat-compute" in charts
            else "",
            _some(charts, "heat-compute", "heat-wait", "heat-late"),
            [grid(views.ranks(result), 24, stack=True)],
            nav="Ranks",
        ),
        Section(
            "stragglers",
            "Stragglers",
            "Who made the others wait, and why. Every lost nanosecond has a culprit: direct blame adds up to "
            "the straggler "
            "wait of the bar; what a rank lost waiting itself is passed on to whom it waited for.",
            _some(charts, "arrivals"),
            [
                grid(views.stragglers(result), 20),
                *(grid(view, 8) for view in views_places.by_kind(result)),
                *([grid(views.experts(result), 16)] if result.experts else []),
                grid(views.blame(result), 16),
                grid(views_quality.arrivals(result), 16),
            ],
            _culprits(env, result),
            nav="Stragglers",
        ),
        Section(
            "communication",
            "Communication",
            "Waiting ends when the last member arrives; only what follows is transfer, and only transfer says "
            "something "
            "about the network.",
            _some(charts, "busbw", "phases"),
            [grid(views.collectives(result), 40)],
            nav="Communication",
        ),
        Section(
            "copies",
            "Copies over PCIe",
            "Copies between host and GPU. Pageable memory is slow and blocks the host; a low rate of pinned "
            "copies points at "
            "the link (width, generation, remote NUMA node).",
            _some(charts, "copies"),
            [grid(views.copies(result))],
            nav="Copies",
        ),
        Section(
            "idle",
            "Host and input",
            "Why the GPU had nothing to do, by what the launching thread did.",
            (),
            [grid(views.idle(result))],
            nav="Idle",
        ),
        Section("memory", "Device memory", "", (), [grid(views.memory(result), 16)]),
    ]


def after_timeline(result: Result, env: Environment) -> list[Section]:
    """From the kernels to the glossary."""
    return [
        Section(
            "kernels",
            "Kernels and operators",
            "By total time; the head of a column sorts, the field filters.",
            (),
            [grid(views.kernels(result), 100), grid(views.operators(result), 40)],
            nav="Kernels",
        ),
        Section(
            "path",
            "Critical path",
            "",
            (),
            [grid(views.path(result), 20)],
        ),
        Section(
            "clocks",
            "Clocks",
            f"Grade {result.clock.grade}. {definitions.of('grade')}",
            (),
            [
                grid(views_quality.hosts(result), 20),
                grid(views_quality.rank_clocks(result), 16),
                grid(views_quality.clock_gaps(result), 16),
            ],
        ),
        Section("matching", "Matching", definitions.of("level"), (), [grid(views_quality.matching(result), 20)]),
        Section(
            "quality",
            "Data quality and assumptions",
            "What was repaired, dropped, guessed or is unknown.",
            (),
            [grid(views_quality.unclassified(result), 12), grid(views_quality.excluded(result), 20)],
            _template(env, "notes.html.j2", notes=views_quality.notes(result)),
            nav="Quality",
        ),
        Section("inputs", "Inputs", _inputs(result), (), [grid(views_quality.sources(result), 20)]),
        Section(
            "metrics",
            "All metrics",
            _utilisation(result),
            (),
            [grid(views.metrics(result), 60)],
        ),
        Section("thresholds", "Thresholds", "", (), [grid(views_quality.thresholds(result), 100)], fold=True),
        shell.glossary(env),
    ]


def _utilisation(result: Result) -> str:
    """MFU beside what others published, or what it lacks."""
    value = result.metrics.get("mfu")
    if value is None:
        return ""
    return f"No MFU: {clean(value.basis, 600)}." if value.value is None else _MARKS


def _some(charts: dict[str, Chart], *ids: str) -> list[Chart]:
    return [charts[i] for i in ids if i in charts]


def _inputs(result: Result) -> str:
    total = sum(s.bytes for s in result.run.sources)
    return f"{units.count(len(result.run.sources), 'file')}, {units.size(total)}."


def _culprits(env: Environment, result: Result) -> Markup:
    return _template(env, "culprits.html.j2", culprits=stragglers.culprits(result))


def _template(env: Environment, name: str, **values: Any) -> Markup:
    return Markup(env.get_template(name).render(**values))
