"""The causes of the stragglers as signed bars, and what is different in slow steps."""

from __future__ import annotations

from dataclasses import dataclass

from traceview import units
from traceview.result import Result, StragglerRow, group_ns
from traceview.schema import GROUPS
from traceview_reports.names import clean, host
from traceview_reports.tables import GROUP_KEYS, Column, View


@dataclass(frozen=True)
class Term:
    """One term of the explanation of a lateness, as a bar around a middle line (percent of the track)."""

    name: str
    value: str
    left: float
    width: float
    key: str


@dataclass(frozen=True)
class Culprit:
    """One straggler with its explanation."""

    row: StragglerRow
    title: str
    text: str
    terms: list[Term]
    names: list[str]


_TERMS = {
    "carry": "late before already",
    "compute_slower": "same kernels, slower",
    "compute_more_work": "more kernels or larger ones",
}


def culprits(result: Result, limit: int = 5) -> list[Culprit]:
    """The first stragglers with the terms that explain them."""
    return [_culprit(row) for row in result.straggler_rows[:limit]]


def _culprit(row: StragglerRow) -> Culprit:
    against = "" if row.reference_rank is None else f", against rank {row.reference_rank}"
    where = "" if host(row.host) == "-" else f" on {clean(row.host, 60)}"
    title = f"Rank {row.rank}{where}: {row.cause.replace('_', ' ')}{against}"
    text = clean(row.explanation, 1_200)
    return Culprit(
        row, title, text[:1].upper() + text[1:], _terms(row.cause_terms_ns), [clean(n) for n in row.names[:8]]
    )


def _terms(terms_ns: dict[str, int]) -> list[Term]:
    ordered = sorted((kv for kv in terms_ns.items() if kv[1]), key=lambda kv: -abs(kv[1]))[:8]
    largest = max((abs(ns) for _, ns in ordered), default=1)
    out = []
    for leaf, ns in ordered:
        width = 50 * abs(ns) / largest
        value = ("+" if ns > 0 else "−") + units.time(abs(ns))
        name = _TERMS.get(leaf) or clean(leaf.replace("_", " "), 40)
        out.append(Term(name, value, 50 if ns > 0 else 50 - width, width, _group_key(leaf)))
    return out


def _group_key(leaf: str) -> str:
    """Colour of the group that a leaf, or a part of compute, belongs to."""
    for group, leaves in GROUPS.items():
        if any(leaf in (x, x.split(".")[0]) or (x == "compute" and leaf.startswith(x)) for x in leaves):
            return GROUP_KEYS[group][0]
    return "idle"


@dataclass(frozen=True)
class _Tail:
    group: str
    slow: int
    typical: int

    @property
    def more(self) -> int:
        return self.slow - self.typical


def slow_steps(result: Result) -> View:
    """What the slow steps hold more than a typical one, per group and rank.

    Slow = the outliers, or the slowest step if there is none; typical = the median of those that are no outlier.
    """
    rows = sorted(result.step_rows, key=lambda s: s.wall_ns)
    slow = [s for s in rows if s.outlier] or rows[-1:]
    ranks = max(len(result.run.ranks), 1)
    tail: list[_Tail] = []
    note = ""
    usual_steps = [s for s in rows if not s.outlier]
    if len(rows) > 2 and usual_steps:
        typical = usual_steps[(len(usual_steps) - 1) // 2]
        sums = [group_ns(s.leaves_ns, s.sub_ns) for s in slow]
        usual = group_ns(typical.leaves_ns, typical.sub_ns)
        tail = [_Tail(g, sum(s[g] for s in sums) // (len(slow) * ranks), usual[g] // ranks) for g in GROUPS]
        tail = sorted((t for t in tail if t.slow or t.typical), key=lambda t: -t.more)
        named = ", ".join(str(s.step) for s in slow[:8]) + (" ..." if len(slow) > 8 else "")
        kind = "outliers" if any(s.outlier for s in slow) else "no outlier, so the slowest"
        note = f"mean over ranks; slow: step {named} ({kind}), typical: step {typical.step}"
    columns = (
        Column("group", "text", lambda t: t.group, "slow_median"),
        Column("slow", "time", lambda t: t.slow, "slow_median"),
        Column("typical", "time", lambda t: t.typical, "slow_median"),
        Column("difference", "delta", lambda t: t.more, "slow_median"),
    )
    return View(
        "tail", "Slow steps against a typical one", columns, tail, "Fewer than three steps: no tail to look at.", note
    )
