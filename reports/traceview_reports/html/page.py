"""The page: one self-contained file. ``render`` builds it, ``write`` puts it on disk whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from traceview import files, units
from traceview.errors import TraceviewError
from traceview.result import Result
from traceview_reports.html import embed, sections, shell, versus
from traceview_reports.html.blocks import Section
from traceview_reports.html.charts import Drawn, draw
from traceview_reports.html.first import first_screen
from traceview_reports.html.palette import asset, colours
from traceview_reports.html.timeline import timeline_section
from traceview_reports.html.timeline_data import Budget, Detail, TimelineSection
from traceview_reports.names import clean

if TYPE_CHECKING:
    from traceview.run import Run

_TIMELINE = Section("timeline", "Timeline", nav="Timeline")


def render(
    result: Result,
    run: Run | None = None,
    *,
    detail: Detail | None = None,
    budget: Budget | None = None,
    charts: bool = True,
    max_bytes: int = shell.MOST_BYTES,
) -> str:
    """The HTML report as text, at most ``max_bytes`` of UTF-8.

    The timeline needs the ``run`` and the ``detail`` that the pipeline made of it; it gives way until the page fits.
    Without ``charts`` no drawing library is imported. TraceviewError if the page does not fit even so.
    """
    drawn = draw(result) if charts else []
    budget = budget or Budget()
    while True:
        timeline = timeline_section(result, run, detail, budget) if run is not None and detail is not None else None
        text = _page(result, detail, drawn, timeline)
        size = len(text.encode())
        if size <= max_bytes:
            return text
        room = len(timeline.data) - (size - max_bytes) if timeline else 0
        if room <= 0 or budget.bytes == 0:
            raise TraceviewError(
                f"the report takes {units.size(size)}, more than {units.size(max_bytes)}: leave out the charts"
            )
        budget = replace(budget, bytes=room if room < 0.9 * budget.bytes else budget.bytes // 2)


def write(path: Path, result: Result, run: Run | None = None, **options: Any) -> None:
    """Render to a temporary file beside ``path`` and rename it; TraceviewError if it cannot be written."""
    text = render(result, run, **options)
    with files.replacing(path) as out:
        out.write(text.encode())


def _page(result: Result, detail: Detail | None, drawn: list[Drawn], timeline: TimelineSection | None) -> str:
    env = shell.environment()
    before = sections.before_timeline(result, env, {d.chart.id: d.chart for d in drawn})
    if result.against:
        before.insert(0, versus.section(env, result.against))
    after = sections.after_timeline(result, env)
    scripts, data = [asset("charts.js")] if drawn else [], [_chart_data(drawn)] if drawn else []
    styles = asset("figures.css") if result.against else ""
    if timeline:
        scripts += timeline.scripts
        styles += timeline.styles
        data.append(Markup(timeline.data))
    return env.get_template("page.html.j2").render(
        **shell.frame(scripts, [embed.bokeh_js()] if drawn else [], styles, Markup("\n").join(data)),
        title=f"traceview: {clean(result.verdict.headline, 120)}",
        nav=[s for s in (*before, _TIMELINE, *after) if s.nav],
        before=before,
        after=after,
        timeline=Markup(timeline.html) if timeline else Markup(),
        no_timeline="This page was made without the traces. Run traceview analyze on them to embed the timeline.",
        version=result.tool_version,
        schema=result.schema,
        **first_screen(result, detail),
    )


def _chart_data(drawn: list[Drawn]) -> Markup:
    """The documents, the variables of the colours they use, and BokehJS once."""
    names = {value: name for name, value in colours().items()}
    items = [embed.data_element(f"chart-{d.chart.id}", {"item": d.item, "ramp": d.ramp}) for d in drawn]
    return Markup("\n").join([*items, embed.data_element("chart-colours", names), embed.bokeh_element()])
