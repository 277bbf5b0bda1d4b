"""The Markdown report, for a comment on a pull request or an issue."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from traceview.result import Result
from traceview_reports import verdict, views, views_places, views_quality, views_versus
from traceview_reports.names import clean
from traceview_reports.tables import View, parts

_TABLES: tuple[Callable[[Result], View], ...] = (
    views_versus.against,
    views.stragglers,
    partial(views_places.leading, most=2),
    views.steps,
    views.ranks,
    views.collectives,
    views.copies,
    views.kernels,
)
_ROWS = 10
_SPECIAL = re.compile(r"([\\`*_\[\]#|~])")


def render(result: Result) -> str:
    """GitHub-flavoured Markdown: verdict, bar, findings; tables (top rows) folded away."""
    blocks = [
        f"## {escape(result.verdict.headline)}",
        bullets(verdict.lines(result)),
        _bar(result),
        _findings(result),
    ]
    blocks += [table(build(result)) for build in _TABLES]
    blocks += [_quality(result), f"<sub>traceview {escape(result.tool_version)}, {escape(result.run.name)}</sub>"]
    return "\n\n".join(block for block in blocks if block) + "\n"


def escape(text: object, limit: int = 300) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no mention."""
    plain = clean(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", plain).replace("@", "@\u200b")


def bullets(lines: Sequence[verdict.Line]) -> str:
    """Labelled lines as a list."""
    return "\n".join(f"- **{line.label}** {escape(line.text, 600)}" for line in lines)


def _bar(result: Result) -> str:
    shown = [p for p in parts(result) if p.ns]
    if not shown:
        return ""
    rows = [f"| {p.group} | {p.percent} % | {'█' * max(round(p.share * 30), 0) or '▏'} |" for p in shown]
    head = ["| group | share | |", "|---|--:|---|"]
    return "\n".join([escape(verdict.hundred_percent(result)), "", *head, *rows])


def _findings(result: Result) -> str:
    out = []
    for n, f in enumerate(verdict.ordered(result)[:5], 1):
        out.append(f"{n}. **{escape(verdict.title(f))}** {escape(verdict.saving(result, f))}, {escape(f.confidence)}")
        out += [f"   - {escape(e, 600)}" for e in f.evidence[:3]]
        if f.advice:
            out.append(f"   - **Do:** {escape(f.advice, 400)}" + (f" ({escape(f.owner)})" if f.owner else ""))
    return "\n".join(["### What to fix first", "", *out]) if out else ""


def table(view: View, *, folded: bool = True) -> str:
    """A table, its first rows, folded away or not; nothing if it has none."""
    if not view.rows:
        return ""
    columns = [c for c in view.columns if c.need < 2]
    lines = [
        "| " + " | ".join(escape(c.label) for c in columns) + " |",
        "|" + "|".join("--:" if c.numeric else "---" for c in columns) + "|",
    ]
    for row in view.rows[:_ROWS]:
        lines.append("| " + " | ".join(escape(c.text(row), 80) for c in columns) + " |")
    if len(view.rows) > _ROWS:
        lines += ["", f"and {len(view.rows) - _ROWS:,} more"]
    note = [f"{view.note}", ""] if view.note else []
    if not folded:
        return "\n".join([*note, *lines])
    title = f"<details><summary>{view.title}</summary>"
    return "\n".join([title, "", *note, *lines, "", "</details>"])


def _quality(result: Result) -> str:
    notes = views_quality.notes(result)
    if not notes:
        return ""
    more = [f"- and {len(notes) - 15} more"] if len(notes) > 15 else []
    return "\n".join(["### Data quality", "", *(f"- {escape(n, 400)}" for n in notes[:15]), *more])
