"""Answers to what-if questions, in the terminal and in Markdown."""

from __future__ import annotations

from traceview import units
from traceview.result.whatif import WhatIf, WhatIfRow
from traceview_reports import markdown, terminal
from traceview_reports.names import clean
from traceview_reports.tables import Column, View
from traceview_reports.verdict import Line


def render(found: WhatIf, *, width: int | None = None, color: bool = False) -> str:
    """The step as it is, the answer or the table of answers, and what limits them."""
    page = terminal.Page(width, color)
    terminal.head(page.out, lines(found), "bold")
    if len(found.answers) > 1:
        terminal.table(page.out, answers(found), verbose=True)
        notes = told(found)
        if notes:
            page.out.print()
            terminal.head(page.out, [Line("NOTE", note) for note in notes], "bold")
    return page.text()


def to_markdown(found: WhatIf) -> str:
    """GitHub-flavoured Markdown."""
    first, *rest = lines(found)
    blocks = [f"## {markdown.escape(first.text, 600)}", markdown.bullets(rest)]
    if len(found.answers) > 1:
        blocks.append(markdown.table(answers(found), folded=False))
        blocks.append("\n".join(f"- {markdown.escape(note, 600)}" for note in told(found)))
    return "\n\n".join(b for b in blocks if b) + "\n"


def lines(found: WhatIf) -> list[Line]:
    """The recorded step, the one answer if there is one, limits and warnings."""
    texts = [("STEP", f"{units.time(found.step_ns)} a step of {found.run} as recorded{_made(found.made_of_ns)}")]
    if not found.answers:
        texts.append(("IF", "nothing to ask: no communication, copies, waiting or launch gaps were recorded"))
    if len(found.answers) == 1:
        texts += _answer(found, found.answers[0])
    texts += [("SEEN", _seen(found)), ("LIMITS", found.limits)]
    texts += [("NOTE", note) for note in found.warnings]
    return [Line(label, clean(text, 600)) for label, text in texts if text]


def _answer(found: WhatIf, row: WhatIfRow) -> list[tuple[str, str]]:
    if row.step_ns is None:
        return [("IF", f"{row.title}: {row.told}")]
    share = units.share(row.saving_share)
    hours = f"{row.gpu_hours_a_day:,.3g} GPU-h a day on {len(found.ranks)} GPU{'s' * (len(found.ranks) != 1)}"
    return [
        ("IF", f"{row.title}: {units.time(row.step_ns)} a step"),
        ("SAVES", f"{units.time(row.saving_ns)} a step, {share}, {hours} ({row.quality.replace('_', ' ')})"),
        ("RANGE", f"simple bound {_bound(row)}, replay {_replay(row)}"),
        ("WHY", row.told),
        ("NEXT", f"then the step is {_parts(row.made_of_ns)} along its critical path" if row.made_of_ns else ""),
    ]


def _made(groups: dict[str, int]) -> str:
    return f": {_parts(groups)} along its critical path" if groups else ""


def _parts(groups: dict[str, int]) -> str:
    total = sum(groups.values()) or 1
    return ", ".join(f"{name} {units.share(ns / total)}" for name, ns in groups.items() if ns)


def _seen(found: WhatIf) -> str:
    of = f"/{found.world_size}" if found.world_size else ""
    ranks = f"ranks {len(found.ranks)}{of}"
    if found.replay_refused:
        return f"{ranks} · {found.steps_used} steps, simple bounds only: {found.replay_refused}"
    off = f", base replay off by {units.share(found.replay_error)}" if found.replay_error is not None else ""
    return f"{ranks} · {found.steps_replayed} of {found.steps_used} steps replayed{off}"


def _bound(row: WhatIfRow) -> str:
    low, high = (units.time(ns) for ns in row.bound_ns or (None, None))
    return low if low == high else f"{low} to {high}"


def _replay(row: WhatIfRow) -> str:
    return "cannot tell" if row.replay_ns is None else units.time(row.replay_ns)


def told(found: WhatIf) -> list[str]:
    """The reasons of all rows, each said once."""
    same: dict[str, list[str]] = {}
    for row in found.answers:
        if row.told:
            same.setdefault(row.told, []).append(row.title)
    if found.replay_refused:
        same.pop(f"no replay: {found.replay_refused}", None)
    return [f"{'; '.join(titles)}: {why}" for why, titles in same.items()]


def answers(found: WhatIf) -> View:
    """One row per scenario."""
    columns = (
        Column("if", "text", lambda r: r.title, "whatif.title"),
        Column("saves", "time", lambda r: r.saving_ns, "whatif.saves"),
        Column("%", "share", lambda r: r.saving_share, "whatif.share"),
        Column("GPU-h/day", "number3", lambda r: r.gpu_hours_a_day, "whatif.hours"),
        Column("bound", "text", lambda r: _bound(r) if r.bound_ns else None, "whatif.bound"),
        Column("replay", "time", lambda r: r.replay_ns, "whatif.replay"),
        Column("then most of it", "text", lambda r: r.next.removesuffix(" of it"), "whatif.next", 1),
        Column("quality", "text", lambda r: r.quality.replace("_", " "), "whatif.quality", 2),
        Column("option", "text", lambda r: r.options, "whatif.options"),
    )
    return View("whatif", "If", columns, found.answers, "", "each alone, largest saving first; savings do not add up")
