"""Baseline against candidate: the gate's verdict and what changed, in the terminal and in Markdown."""

from __future__ import annotations

from traceview import units
from traceview.result.versus import Comparison, Decision
from traceview_reports import markdown, terminal
from traceview_reports.names import clean
from traceview_reports.verdict import Line
from traceview_reports.views_versus import views

_STYLE = {"PASS": "bold green", "FAIL": "bold red", "INCONCLUSIVE": "bold yellow"}
SMALL = 0.001  # changes below this share of the step are summed up as "rest"


def render(
    c: Comparison,
    d: Decision,
    *,
    words: dict[str, str] | None = None,
    width: int | None = None,
    color: bool = False,
    verbose: bool = False,
) -> str:
    """The lines, then what changed. ``words``: what outcomes are called instead."""
    page = terminal.Page(width, color)
    terminal.head(page.out, lines(c, d, words), _STYLE[d.outcome])
    for view in views(c) if verbose else views(c)[:3]:
        terminal.table(page.out, view, verbose)
    return page.text()


def to_markdown(c: Comparison, d: Decision, words: dict[str, str] | None = None) -> str:
    """GitHub-flavoured Markdown for a comment on a pull request."""
    first, *rest = lines(c, d, words)
    blocks = [f"## {first.label}: {markdown.escape(first.text, 600)}", markdown.bullets(rest)]
    blocks += [markdown.table(view) for view in views(c)]
    return "\n\n".join(b for b in blocks if b) + "\n"


def lines(c: Comparison, d: Decision, words: dict[str, str] | None = None) -> list[Line]:
    """Outcome, why, where the change is, what is new, what is gone, what was compared."""
    percent = units.change_share(d.change)
    outcome = "FASTER" if words and d.improved else (words or {}).get(d.outcome, d.outcome)
    texts = (
        (outcome, f"step time {units.time(c.baseline_step_ns)} → {units.time(c.candidate_step_ns)}, {percent}"),
        ("WHY", d.reason),
        ("WHERE", _where(c)),
        ("NEW", "; ".join(c.found[:3])),
        ("GONE", "; ".join(c.gone[:3])),
        ("BUT", "; ".join([*c.different, *c.notes])),
        ("SEEN", _seen(c, d)),
    )
    return [Line(label, clean(text, 600)) for label, text in texts if text]


def _where(c: Comparison) -> str:
    """'straggler wait +11.2 ms, compute +1.3 ms = +12.5 ms of the mean step': the parts add up."""
    total = c.candidate_mean_ns - c.baseline_mean_ns
    least = SMALL * max(c.baseline_mean_ns, 1)
    shown = [g for g in c.groups if abs(g.delta_ns) >= least]
    rest = total - sum(g.delta_ns for g in shown)
    parts = [f"{g.name} {units.change(g.delta_ns)}" for g in shown] + (
        [f"rest {units.change(rest)}"] if rest and shown else []
    )
    return f"{', '.join(parts)} = {units.change(total)} of the mean step" if parts else "every part as before"


def _seen(c: Comparison, d: Decision) -> str:
    sides = [
        f"{len(s.names)} run{'s' * (len(s.names) > 1)} of {sum(s.steps)} used steps"
        for s in (d.baseline, d.candidate)
    ]
    noise = f"run to run {d.run_noise * 100:.2g} %"
    names = f"{clean(c.baseline, 80)} against {clean(c.candidate, 80)}"
    return f"{names} · {sides[0]} against {sides[1]} · by {d.rule} · {noise}"
