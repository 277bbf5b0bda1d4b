"""The page: one self-contained file. ``render`` builds it, ``write`` puts it on disk whole or not at all."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from traceview import units
from traceview.errors import TraceviewError
from traceview.result import Finding, Result
from traceview_reports import definitions, verdict
from traceview_reports.html import embed, sections
from traceview_reports.html.charts import Drawn, draw
from traceview_reports.html.palette import asset, colours, stylesheet
from traceview_reports.html.timeline import timeline_section
from traceview_reports.html.timeline_data import Budget, Detail, TimelineSection
from traceview_reports.names import clean
from traceview_reports.tables import parts

if TYPE_CHECKING:
    from traceview.run import Run

# Group -> the section that explains it.
_SECTION_OF = {
    "compute": "kernels",
    "exposed communication": "communication",
    "straggler wait": "stragglers",
    "pipeline wait": "communication",
    "PCIe staging": "copies",
    "other GPU": "kernels",
    "idle": "idle",
    "uncovered": "quality",
}


@dataclass(frozen=True)
class Card:
    """A finding, laid out."""

    saving: str
    title: str
    evidence: list[str]
    advice: str
    meta: str
    href: str
    link: str


def render(
    result: Result,
    run: Run | None = None,
    *,
    detail: Detail | None = None,
    budget: Budget | None = None,
    charts: bool = True,
    max_bytes: int = 20_000_000,
) -> str:
    """The HTML report as text. ``run`` and ``detail`` add the timeline, within ``budget``.

    Without ``charts`` no drawing library is imported. TraceviewError if the page is larger than ``max_bytes``.
    """
    section = timeline_section(result, run, detail, budget) if run is not None and detail is not None else None
    text = _page(result, charts, section)
    if len(text.encode()) > max_bytes:
        raise TraceviewError(
            f"the report takes {units.size(len(text.encode()))}, more than {units.size(max_bytes)}: "
            "leave out the charts or raise the limit"
        )
    return text


def write(path: Path, result: Result, run: Run | None = None, **options: Any) -> None:
    """Render to a temporary file beside ``path`` and rename it; TraceviewError if it cannot be written."""
    text = render(result, run, **options)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as out:
                out.write(text)
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise TraceviewError(f"{path}: cannot write the report: {error.strerror}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _environment() -> Environment:
    env = Environment(
        loader=PackageLoader("traceview_reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters["slug"] = lambda key: re.sub(r"[^a-z0-9]+", "-", str(key).lower())
    return env


def _page(result: Result, charts: bool, timeline: TimelineSection | None) -> str:
    env = _environment()
    drawn = draw(result) if charts else []
    before = sections.before_timeline(result, env, {d.chart.id: d.chart for d in drawn})
    after = sections.after_timeline(result, env)
    head, scripts, data = asset("theme.js"), [asset("page.js")], Markup()
    allowed = [head, *scripts]
    if drawn:
        scripts.append(asset("charts.js"))
        allowed += [scripts[-1], embed.bokeh_js()]
        data = _chart_data(drawn)
    if timeline:
        scripts += timeline.scripts
        allowed += timeline.scripts
        data += Markup(timeline.data)
    return env.get_template("page.html.j2").render(
        csp=embed.policy(allowed),
        title=f"traceview: {clean(result.verdict.headline, 120)}",
        styles=Markup(stylesheet() + (timeline.styles if timeline else "")),
        head_script=Markup(head),
        scripts=[Markup(s) for s in scripts],
        data=data,
        nav=[s for s in (*before, *after) if s.nav],
        before=before,
        after=after,
        timeline=Markup(timeline.html if timeline else ""),
        no_timeline="This page was made without the traces. Run traceview analyze on them to embed the timeline.",
        version=result.tool_version,
        schema=result.schema,
        **_first_screen(result),
    )


def _chart_data(drawn: list[Drawn]) -> Markup:
    """The documents, the variables of the colours they use, and BokehJS once."""
    names = {value: name for name, value in colours().items()}
    items = [embed.data_element(f"chart-{d.chart.id}", {"item": d.item, "ramp": d.ramp}) for d in drawn]
    return Markup("\n").join([*items, embed.data_element("chart-colours", names), embed.bokeh_element()])


def _first_screen(result: Result) -> dict[str, Any]:
    v, run = result.verdict, result.run
    cards = verdict.first(result)
    others = [f for f in verdict.ordered(result) if not any(f is c for c in cards)]
    lines = verdict.lines(result)
    headline = clean(v.headline, 300)
    if lines and lines[0].text.startswith(headline):
        rest = lines[0].text.removeprefix(headline).strip()
        lines = [replace(lines[0], text=rest), *lines[1:]] if rest else lines[1:]
    return {
        "status": v.status if v.status in verdict.STATUS else "cannot_tell",
        "status_word": verdict.STATUS.get(v.status, clean(v.status, 20)),
        "headline": headline,
        "lines": lines,
        "ticket": "\n".join(clean(line, 300) for line in v.ticket[:8000].split("\n")) if v.ticket else "",
        "bar": [_segment(p) for p in parts(result)],
        "hundred": verdict.hundred_percent(result),
        "tiles": [
            {"label": t.label, "value": t.value, "note": t.note, "define": t.define, "hint": definitions.of(t.define)}
            for t in verdict.tiles(result)
        ],
        "cards": [_card(f) for f in cards],
        "others": [_card(f) for f in others],
        "cards_hidden": len(others) if len(cards) == 1 else 0,
        "no_cards": "Nothing to fix was found."
        if v.status == "healthy"
        else "No finding saves enough of a step to be worth a card.",
        "run_line": " · ".join(
            filter(
                None,
                (
                    clean(run.name, 80),
                    f"{len(run.ranks):,} of {run.world_size:,} ranks"
                    if run.world_size
                    else f"{len(run.ranks):,} ranks",
                    f"{len(run.hosts):,} host{'s' * (len(run.hosts) != 1)}",
                    ", ".join(clean(d, 40) for d in run.device_names[:2]),
                ),
            )
        ),
    }


def _segment(part: Any) -> dict[str, Any]:
    return {
        "group": part.group,
        "key": part.key,
        "ns": part.ns,
        "percent": part.percent,
        "time": units.time(part.ns),
        "section": _SECTION_OF[part.group],
        "hint": definitions.of(f"group.{part.group}"),
    }


def _card(finding: Finding) -> Card:
    where = finding.where
    selects = "&".join(f"{k}={v}" for k, v in (("rank", where.rank), ("step", where.step)) if v is not None)
    section = finding.section if re.fullmatch(r"[a-z-]+", finding.section) else ""
    owner = f" · owner: {clean(finding.owner, 60)}" if finding.owner else ""
    named = " ".join(f"{k} {v}" for k, v in (("rank", where.rank), ("step", where.step)) if v is not None)
    return Card(
        verdict.saving(finding),
        clean(finding.title),
        [clean(e, 300) for e in finding.evidence[:6]],
        clean(finding.advice, 500),
        f"{clean(finding.confidence, 30)} · by {clean(finding.basis, 80)}{owner}",
        f"#{selects}" if selects else f"#{section}" if section else "",
        f"show {named}" if selects else f"see {section}",
    )
