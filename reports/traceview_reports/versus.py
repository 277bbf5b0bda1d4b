"""Baseline against candidate: the gate's verdict and what changed, in the terminal and in Markdown."""

from __future__ import annotations

from operator import attrgetter as at
from typing import Any

from traceview import units
from traceview.compare import Change, Comparison, WorkChange
from traceview.gate import Decision
from traceview_reports import markdown, terminal
from traceview_reports.names import clean
from traceview_reports.tables import Column, View
from traceview_reports.verdict import Line

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
    head = [f"## {first.label}: {markdown.escape(first.text, 600)}", ""]
    blocks = ["\n".join([*head, *(f"- **{line.label}** {markdown.escape(line.text, 600)}" for line in rest)])]
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


def views(c: Comparison) -> tuple[View, ...]:
    """Parts of the step, kernels, collectives, leaves."""
    note = "per rank and step; the changes sum to the change of the mean step"
    return (
        _parts("groups", "What changed", c.groups, note),
        _work("kernels", "Kernels", c.kernels, "GPU time per rank and step, hidden or not; the largest changes"),
        _work("collectives", "Collectives", c.collectives, "transfer time per rank and step, waits left out"),
        _parts("leaves", "What changed, leaf by leaf", c.leaves, note),
    )


def _parts(name: str, title: str, rows: list[Change], note: str) -> View:
    columns = (
        Column("part", "name", at("name"), "versus.part"),
        Column("baseline", "time", at("baseline_ns"), "versus.baseline"),
        Column("candidate", "time", at("candidate_ns"), "versus.candidate"),
        Column("change", "delta", at("delta_ns"), "versus.change"),
    )
    shown = [r for r in rows if r.baseline_ns or r.candidate_ns]
    sums = [sum(getattr(r, key) for r in shown) for key in ("baseline_ns", "candidate_ns", "delta_ns")]
    total = ("sum", units.time(sums[0]), units.time(sums[1]), units.change(sums[2]))
    return View(name, title, columns, shown, "Nothing was measured.", note, total)


def _work(name: str, title: str, rows: list[WorkChange], note: str) -> View:
    columns = (
        Column("name", "name", at("name"), "versus.name"),
        Column("change", "delta", at("delta_ns"), "versus.change"),
        Column("longer", "delta", at("longer_ns"), "versus.longer"),
        Column("more", "delta", at("more_ns"), "versus.more"),
        Column("each before", "time", at("baseline_each_ns"), "versus.each", 1),
        Column("each now", "time", at("candidate_each_ns"), "versus.each", 1),
        Column("count before", "number", _count("baseline_count"), "versus.count", 1),
        Column("count now", "number", _count("candidate_count"), "versus.count", 1),
    )
    return View(name, title, columns, rows, "No change.", note)


def _count(key: str) -> Any:
    return lambda row: round(getattr(row, key), 2)
