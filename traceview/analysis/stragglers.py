"""Who straggles, how often, where, why, and how sure (METHODS e.7). Nobody is named on doubtful clocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import comb

import numpy as np

from traceview import units
from traceview.analysis.blame import Ledger
from traceview.analysis.cause import Cause, Late, Owing, explain, late_arrivals, passes_on, sentence
from traceview.analysis.groups import KIND, Columns
from traceview.analysis.hidden import hidden
from traceview.analysis.lateshare import Lateness, lateness
from traceview.analysis.match import K4
from traceview.analysis.origin import Facts, Origin, origin_at_least
from traceview.analysis.places import places
from traceview.analysis.suspects import suspects
from traceview.analysis.tally import Tally, tally
from traceview.analysis.timebase import TimeBase
from traceview.analysis.types import Ints
from traceview.config import DEFAULT, Config
from traceview.result import ArrivalRow, BlameRow, Clock, HiddenRow, Quality, StragglerRow
from traceview.schema import COLL_KINDS

MAX_ARRIVALS = 5_000  # rows of the arrival matrix, the latest first


@dataclass(frozen=True)
class Stragglers:
    """Culprits by origin blame, the whole ledger, the arrival matrix, and what could not be told."""

    rows: list[StragglerRow]
    blame: list[BlameRow]
    arrivals: list[ArrivalRow]
    notes: list[str] = field(default_factory=list)
    late_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    """(rank, step) -> lateness beyond the clock error; only where the rank has a collective"""
    hidden: list[HiddenRow] = field(default_factory=list)


@dataclass(frozen=True)
class Clocks:
    """The common axis and what is known of it."""

    base: TimeBase
    hosts: dict[int, str]
    rows: Clock | None = None

    def bound(self, rank: int) -> int | None:
        """Provable error of this rank against those that it shares collectives with, ns; None = none is known."""
        return self._bounds.get(self.hosts[rank]) if len(set(self.hosts.values())) > 1 else 0

    @cached_property
    def _bounds(self) -> dict[str, int | None]:
        """By host: its own error and the largest of the others that it shares collectives with."""
        out: dict[str, int | None] = {}
        rows = self.rows.hosts if self.rows else []
        for part in {h.component for h in rows}:
            near = [(h.host, h.bound_ns, h.join_bound_ns or 0) for h in rows if h.component == part]
            if all(bound is not None for _, bound, _ in near):
                errors = sorted(((bound or 0) - joined, host) for host, bound, joined in near)
                worst, next_worst = errors[-1], errors[-2][0] if len(errors) > 1 else 0
                out |= {host: ns + (next_worst if host == worst[1] else worst[0]) for ns, host in errors}
        return out


def find(
    facts: Facts, ledger: Ledger, origin: Origin, clocks: Clocks, used: list[int], config: Config = DEFAULT
) -> Stragglers:
    """Stragglers of the steps ``used``. ``origin``: where the blame began (``origin.origin``)."""
    c = facts.c
    arrived = tally(facts, clocks.base, np.array(sorted(used), np.int64), config)
    blamed = origin + origin_at_least(facts, ledger)
    at_any_cost = lateness(facts, arrived, used, config)
    found = suspects(facts, ledger, blamed, at_any_cost, used, config)
    late, listed = found.late, found.listed
    order = listed[np.lexsort((listed, -blamed.by_rank[listed]))]
    view = _View(facts, ledger, late, clocks, config)
    likely = _culprits(view, order.tolist(), blamed)
    rows = [row for row in likely if not _scant(row, config)]
    named = {row.rank for row in rows}
    relays = sorted(set(order.tolist()) - {row.rank for row in likely})
    scant = [row.rank for row in likely if row.rank not in named]
    place = places(named, clocks.hosts, c, config)
    for row in rows:
        row.place = place[row.rank]
    behind = hidden(facts, at_any_cost, (set(order.tolist()), named), clocks.hosts, used, config)
    notes = _notes(late, listed, found.doubtful)
    if scant:
        less = units.share(config.slower_share)
        notes.append(
            f"{units.named_ranks(scant)} came late with kernels that are less than {less} slower: no proof, not named"
        )
    if relays:
        notes.append(
            f"{units.named_ranks(relays)} came late after an earlier delay or wait, not by own work: no culprit"
        )
    steps, known = sorted(used), np.argwhere(~np.isnan(late.ns)).tolist()
    cells = {(r, steps[k]): int(late.ns[r, k]) for r, k in known}
    return Stragglers(rows, _blame_rows(ledger, origin, clocks), _arrivals(c, arrived), notes, cells, behind)


@dataclass(frozen=True)
class _View:
    """What a row of the table is made from."""

    facts: Facts
    ledger: Ledger
    late: Lateness
    clocks: Clocks
    config: Config


def _assumed(facts: Facts, owing: Owing) -> bool:
    """Most of what is owed rests on collectives whose group no file tells (K4, METHODS c: low confidence)."""
    level = facts.matches.level[facts.matches.instance[owing.row]]
    return bool(2 * owing.ns[level == K4].sum() > owing.ns.sum())


def _culprits(view: _View, suspected: list[int], blamed: Origin) -> list[StragglerRow]:
    """Rows of the suspects, without those that only pass on what they waited for.

    These are never named, also where nobody else is found: whom they waited for may be a missing rank, or the
    schedule of a pipeline.
    """
    owing = {r: _owing(view.facts, view.ledger, r) for r in suspected}
    late = late_arrivals(view.facts, owing, view.config)
    some = [r for r in suspected if r not in late or not late[r].passes_on]
    rows = [_row(view, r, int(blamed.by_rank[r]), owing[r], late.get(r)) for r in some]
    return [row for row in rows if not passes_on(row.cause_terms_ns)]


def _scant(row: StragglerRow, config: Config) -> bool:
    """Its kernels are hardly slower (METHODS e.7: less is no proof of a compute straggler)."""
    return row.slowdown is not None and row.slowdown < 1 + config.slower_share


def _row(view: _View, rank: int, blamed: int, owing: Owing, arrivals: Late | None) -> StragglerRow:
    facts, ledger, late, clocks, config = view.facts, view.ledger, view.late, view.clocks, view.config
    steps, lower = int(late.seen[rank]), ledger.at_least[rank] > 0
    cause = explain(facts, arrivals, config)
    typical = int(late.clear_ns[rank] / late.clear[rank])
    bound = clocks.bound(rank)
    clear = bound is not None and typical > bound and not _assumed(facts, owing)
    sure: Quality = "lower_bound" if lower else "proved" if clear else "estimated"
    steps_late = int(late.late[rank].sum())
    return StragglerRow(
        rank=rank,
        host=clocks.hosts.get(rank, ""),
        blame_ns=int(ledger.direct[rank] + ledger.at_least[rank]),
        origin_blame_ns=blamed,
        blame_inclusive_ns=int(ledger.inclusive[rank]),
        late_steps=steps_late,
        steps=steps,
        kind=kind_of(steps_late, steps, config),
        cause=cause.cause,
        cause_terms_ns=cause.terms_ns,
        quality=sure,
        last_ns=int(ledger.last[rank]),
        marginal_ns=int(ledger.marginal[rank]),
        last_count=int(ledger.last_count[rank]),
        collectives=int(ledger.instances[rank]),
        names=cause.names,
        reference_rank=cause.reference,
        slowdown=cause.ratio if cause.cause == "compute_slower" else None,
        explanation=_explanation(view, rank, blamed, cause, sure),
        tokens=cause.tokens,
        load=cause.experts.load if cause.experts and cause.experts.told else None,
    )


def _owing(facts: Facts, ledger: Ledger, rank: int) -> Owing:
    instance = facts.matches.instance
    rows = np.arange(*facts.c.head[rank : rank + 2])
    owed = ledger.row_ns[rows] + ledger.row_at_least[rows]
    rows, owed = rows[owed > 0], owed[owed > 0]
    medians = facts.waited.instances.median[instance[rows]]
    own = rows != medians
    return Owing(rows[own], medians[own], owed[own])


def kind_of(late_steps: int, steps: int, config: Config = DEFAULT) -> str:
    """persistent | intermittent | transient | too_few_steps."""
    if steps < config.min_steps_for_kind:
        return "too_few_steps"
    share = late_steps / steps
    if share >= config.persistent_share:
        return "persistent"
    return "transient" if share <= config.transient_share else "intermittent"


def significant_last(ranks: int, steps: int, config: Config = DEFAULT) -> int | None:
    """In how many of ``steps`` one rank must be last to be no chance (uniform null, Bonferroni over ranks).

    None = no count is enough.
    """
    tail = 0.0
    best = None
    for count in range(steps, 0, -1):
        tail += comb(steps, count) * (1 / ranks) ** count * (1 - 1 / ranks) ** (steps - count)
        if ranks * tail > config.last_significance:
            break
        best = count
    return best


def _explanation(view: _View, rank: int, blamed: int, cause: Cause, quality: str) -> str:
    late, steps, config = view.late, int(view.late.seen[rank]), view.config
    steps_late, first = int(late.late[rank].sum()), int(np.sum(late.worst == rank))
    typical = units.time(late.clear_ns[rank] / late.clear[rank])
    text = (
        f"rank {rank} arrives {typical} after the median member on average, in {late.clear[rank]} collectives, "
        f"late in {steps_late} of {steps} steps; "
        f"the others lost {units.time(blamed)} of GPU time waiting for it; {sentence(cause)}"
    )
    need = significant_last(late.share.shape[0], steps, config)
    if need is not None and first >= need:
        text += f"; latest of all in {first} of {steps} steps, more than chance"
    if steps < config.min_steps_for_kind:
        text += f"; {config.min_steps_for_kind - steps} more steps would tell how lasting it is"
    if quality == "lower_bound":
        text += "; at least, as ranks are missing"
    return text


def _notes(late: Lateness, listed: Ints, doubtful: Ints) -> list[str]:
    out = []
    unsure = np.setdiff1d(np.flatnonzero(late.unclear_ns > 0), listed)
    for ranks, why in ((unsure, "is within the clock error"), (doubtful, "may be chance: more steps would tell")):
        if len(ranks):
            out.append(
                f"cannot tell whether {units.named_ranks(ranks.tolist())} made the others wait: their lateness {why}"
            )
    return out


def _blame_rows(ledger: Ledger, origin: Origin, clocks: Clocks) -> list[BlameRow]:
    """The ledger, a row for every rank that was waited for or waited; sums to the blamed straggler wait."""
    some = ledger.direct + origin.by_rank + ledger.inclusive + ledger.waited > 0
    return [
        BlameRow(
            rank=r,
            host=clocks.hosts.get(r, ""),
            blame_ns=int(ledger.direct[r]),
            origin_blame_ns=int(origin.by_rank[r]),
            blame_inclusive_ns=int(ledger.inclusive[r]),
            last_ns=int(ledger.last[r]),
            marginal_ns=int(ledger.marginal[r]),
            waited_ns=int(ledger.waited[r]),
            by_schedule_ns=int(origin.by_schedule[r]),
        )
        for r in np.flatnonzero(some).tolist()
    ]


def _arrivals(c: Columns, arrived: Tally) -> list[ArrivalRow]:
    """Mean lateness after the median member and times last, per (group, kind, rank): n x n kinds, used steps."""
    ranks = max(arrived.shape[0], 1)
    key, inverse = np.unique(arrived.family * ranks + arrived.rank, return_inverse=True)
    count, late, last = (np.bincount(inverse, x, len(key)) for x in (arrived.count, arrived.late, arrived.last))
    mean = late / count
    shown = np.sort(np.argsort(-mean, kind="stable")[:MAX_ARRIVALS])
    return [_arrival(c, key[i], ranks, int(count[i]), round(float(mean[i])), int(last[i])) for i in shown.tolist()]


def _arrival(c: Columns, key: int, ranks: int, n: int, mean: int, last: int) -> ArrivalRow:
    family, rank = divmod(int(key), ranks)
    group, kind = divmod(family, len(KIND))
    return ArrivalRow(c.groups[group - 1].name if group else "", COLL_KINDS[kind], rank, n, mean, last)
