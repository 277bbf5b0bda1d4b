"""The first screen as values for the template: verdict, bar, tiles, cards. The words come from ``verdict``."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from traceview import units
from traceview.result import Finding, Result
from traceview_reports import definitions, verdict
from traceview_reports.html.timeline_data import Detail
from traceview_reports.names import clean
from traceview_reports.tables import Part, parts

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


def first_screen(result: Result, detail: Detail | None) -> dict[str, Any]:
    """Every name the template of the first screen asks for; ``detail`` gives the links of the cards their window."""
    v, run = result.verdict, result.run
    cards = verdict.first(result)
    others = [f for f in verdict.ordered(result) if not any(f is c for c in cards)]
    lines = verdict.lines(result)
    headline = verdict.claim(result)
    lines = [replace(line, text=_without(line.text, headline)) for line in lines]
    lines = [line for line in lines if line.text]
    return {
        "status": v.status if v.status in verdict.STATUS else "cannot_tell",
        "status_word": verdict.STATUS.get(v.status, clean(v.status, 20)),
        "headline": headline,
        "lines": lines,
        "ticket": "\n".join(clean(line, 300) for line in v.ticket[:8000].split("\n")) if v.ticket else "",
        "bar": [_segment(p) for p in parts(result)],
        "hundred": verdict.hundred_percent(result),
        "tiles": [asdict(t) | {"hint": definitions.of(t.define)} for t in verdict.tiles(result)],
        "cards": [_card(result, f, detail) for f in cards],
        "others": [_card(result, f, detail) for f in others],
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
                    units.count(len(run.hosts), "host"),
                    ", ".join(clean(d, 40) for d in run.device_names[:2]),
                ),
            )
        ),
    }


def _without(text: str, headline: str) -> str:
    """A line that begins with the headline, less that: it stands above already."""
    begin = headline.rstrip(" .")
    if not text.lower().startswith(begin.lower()):
        return text
    rest = text[len(begin) :].lstrip(" .:;,")
    return rest[:1].upper() + rest[1:]


def _segment(part: Part) -> dict[str, Any]:
    return {
        "group": part.group,
        "key": part.key,
        "ns": part.ns,
        "percent": part.percent,
        "time": units.time(part.ns),
        "section": _SECTION_OF[part.group],
        "hint": definitions.of(f"group.{part.group}"),
    }


def _card(result: Result, finding: Finding, detail: Detail | None) -> Card:
    where = finding.where
    named = [(k, v) for k, v in (("rank", where.rank), ("step", where.step)) if v is not None]
    section = finding.section if re.fullmatch(r"[a-z-]+", finding.section) else ""
    owner = f" · owner: {clean(finding.owner, 60)}" if finding.owner else ""
    link = "&".join([*_window(finding, detail), *(f"{k}={v}" for k, v in named)]) or section
    return Card(
        verdict.saving(result, finding),
        verdict.title(finding),
        [clean(e, 600) for e in finding.evidence[:6]],
        clean(finding.advice, 500),
        f"{clean(finding.confidence, 30)} · by {clean(finding.basis, 120)}{owner}",
        f"#{link}" if link else "",
        "show " + " ".join(f"{k} {v}" for k, v in named) if named else f"see {section}",
    )


def _window(finding: Finding, detail: Detail | None) -> list[str]:
    """``t=`` of the link, on the axis of the timeline."""
    w = finding.where
    if detail is None or w.rank is None or w.start_ns is None or w.end_ns is None or w.rank not in detail.ranks:
        return []
    t0, t1 = detail.view(w.rank, w.start_ns, w.end_ns)
    return [f"t={t0}-{t1}"]
