"""One time axis for all hosts (METHODS d): offsets and drifts, their error and proof, and what cannot be compared."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from traceview import units
from traceview.analysis.causal import FAR, Bounds
from traceview.analysis.clocksample import Sample, deviates, deviation, sample_ends
from traceview.analysis.clocksets import Sets, move_sets, place_sets, sentences
from traceview.analysis.clockunits import Fit, bounded, fit_units, time_base
from traceview.analysis.groups import Columns, columns
from traceview.analysis.onesided import one_sided
from traceview.analysis.timebase import GRADE_A, GRADE_B, GRADE_C, GRADES, TimeBase
from traceview.analysis.types import Bools, Codes, Floats, Ints, Matches
from traceview.config import DEFAULT, Config
from traceview.result import Clock, HostClock, RankClock


@dataclass(frozen=True)
class Alignment:
    """The axis, its rows for the result, and sentences about what is wrong or was done."""

    base: TimeBase
    clock: Clock
    notes: list[str]
    mismatches: list[str] = field(default_factory=list)
    """proofs of a wrong match or a bad clock (an empty causal interval)"""


def align(
    collectives: Any | Columns,
    matches: Matches,
    hosts: dict[int, str],
    *,
    t_ref_ns: int | None = None,
    fit_drift: bool | None = None,
    config: Config = DEFAULT,
) -> Alignment:
    """Fit the clocks of all hosts to the ends of matched n x n collectives.

    ``hosts``: host by rank. Gauge: the host of the lowest rank of each component stands still. ``t_ref_ns``: where
    offsets are stated (default: first record of the lowest rank). ``fit_drift``: None = by the rule of d.2.
    One host: stamps stay as they are, bit for bit, unless a rank's own clock clearly deviates from the others.
    """
    c = collectives if isinstance(collectives, Columns) else columns(collectives)
    names = list(dict.fromkeys(hosts[r] for r in sorted(hosts)))
    top = max([*hosts, int(c.rank.max(initial=0))]) + 1
    number = {name: i for i, name in enumerate(names)}
    host = np.array([number.get(hosts.get(r, ""), 0) for r in range(top)], np.int64)
    sample = sample_ends(c, matches)
    own = sample_ends(c, matches, gpu_only=True) if c.on_host.any() else sample  # GPU ticks are converted by rank
    eta = deviation(own, host, config.eta_min_instances)
    odd = np.flatnonzero(deviates(own, host, eta, config))
    unit = host.copy()
    unit[odd] = len(names) + np.arange(len(odd))
    present = np.zeros(top, np.bool_)
    present[np.array(sorted(hosts), np.int64)] = True
    fit = fit_units(sample, unit, (len(names) + len(odd), present), fit_drift, config)
    pairs = one_sided(c, matches, unit)
    base, limits = bounded(fit, sample, pairs, config.eps_min_ns)
    if t_ref_ns is None:
        t_ref_ns = int(c.start[c.rank == c.rank.min()].min()) if len(c) else 0
    run = _Run(names, host, np.flatnonzero(present), odd, eta, t_ref_ns, config)
    bad, seen = _violations(fit, base, sample, config)
    usable = _grades(fit, limits, bad, seen, run, fit.gauge) < GRADE_C
    sets = place_sets(fit, base, usable, pairs, (c, run.ranks, matches.anchored), config)
    return _report(run, fit, limits, (bad, seen), sets)


@dataclass(frozen=True)
class _Run:
    """Who there is: host names, host by rank, ranks present, un-pooled ranks, deviation by rank."""

    names: list[str]
    host: Ints
    ranks: Ints
    odd: Ints
    eta: Floats
    t_ref: int
    config: Config


def _report(run: _Run, fit: Fit, limits: Bounds, counts: tuple[Ints, Ints], sets: Sets) -> Alignment:
    """The axis with its grades, rows and sentences. ``counts``: violations and members looked at, by unit."""
    ranks, component = run.ranks, fit.component
    move_sets(fit, sets)
    grade = _grades(fit, limits, *counts, run, sets.joined.placed[sets.of_unit])
    moved = np.array([sets.bound(u) is not None for u in range(len(component))], np.bool_)
    grade = np.where(moved, np.maximum(grade, GRADE_B), grade).astype(np.int8)
    lead = component[sets.records.unit][sets.joined.label][sets.of_unit]
    base = time_base(fit)
    base = replace(base, grade=grade[base.unit], component=lead[base.unit], links=sets.links(base.unit))
    hosts = [
        _host_row(fit, limits, u, (name, run.t_ref, int(counts[0][u]), int(grade[u])), sets, run.config)
        for u, name in enumerate(run.names)
    ]
    etas = np.where(base.unit == run.host, 0, base.shift - fit.shift[run.host])
    rows = [RankClock(r, int(etas[r]), 0) for r in ranks.tolist()]
    worst = int(max((grade[u] for u in np.unique(base.unit[ranks])), default=GRADE_A))
    notes = list(fit.notes)
    for r in run.odd.tolist():
        notes.append(
            f"rank {r}: its clock deviates from that of its host by {-run.eta[r] / 1000:.0f} µs; aligned apart"
        )
    for u in fit.jumps:
        notes.append(f"{_unit_name(run, u)}: the clock was stepped during the record; aligned piecewise")
    said = sentences(sets, [_unit_name(run, u) for u in range(len(component))], run.config)
    mismatches = [
        f"{_unit_name(run, u)}: no clock offset fits its collectives: a wrong match or a bad clock"
        for u in np.flatnonzero(limits.empty).tolist()
    ]
    clock = Clock(run.t_ref, hosts, rows, GRADES[worst], apart=said.apart + said.mismatches)
    clock.neighbours_ns = max((bound for _, _, bound in sets.joined.links), default=None)
    return Alignment(base, clock, [*notes, *said.notes, *said.apart], mismatches + said.mismatches)


def _unit_name(run: _Run, unit: int) -> str:
    return run.names[unit] if unit < len(run.names) else f"rank {run.odd[unit - len(run.names)]}"


def _violations(fit: Fit, base: TimeBase, sample: Sample, config: Config) -> tuple[Ints, Ints]:
    """Per unit: sampled members that end before the last arrival, and all sampled members."""
    begin, end = base.to_true(sample.rank, sample.begin), base.to_true(sample.rank, sample.end)
    arrived = np.full(int(sample.instance.max(initial=-1)) + 1, -FAR * 2)
    np.maximum.at(arrived, sample.instance, begin)
    node = fit.unit[sample.rank]
    broken = end < arrived[sample.instance] - config.eps_min_ns
    units = len(fit.shift)
    return np.bincount(node, broken, units).astype(np.int64), np.bincount(node, minlength=units)


def _grades(fit: Fit, limits: Bounds, bad: Ints, seen: Ints, run: _Run, tied: Bools) -> Codes:
    """A, B or C per unit (METHODS d.3). ``tied``: by unit, its set has a place among others by sends and receives."""
    config = run.config
    share = bad / np.maximum(seen, 1)
    lonely = (fit.used < config.fit_min_instances) & (len(fit.shift) > 1) & ~(tied & fit.gauge)
    sigma = np.where(fit.gauge, 0.0, fit.sigma)
    grade = np.where(
        sigma <= config.grade_a_sigma_ns, GRADE_A, np.where(sigma <= config.grade_b_sigma_ns, GRADE_B, GRADE_C)
    )
    grade = np.where((grade == GRADE_A) & (bad > 0), GRADE_B, grade)
    apart = lonely if len(run.names) > 1 else lonely & ~fit.gauge
    weak = (share > config.grade_max_violations) | limits.empty | apart
    out: Codes = np.where(weak, GRADE_C, grade).astype(np.int8)
    return out


def _host_row(
    fit: Fit, limits: Bounds, u: int, facts: tuple[str, int, int, int], sets: Sets, config: Config
) -> HostClock:
    name, t_ref, bad, grade = facts
    offset = fit.shift[u] + fit.frac[u] + fit.drift[u] * (t_ref - fit.pivot[u])
    reach = max(int(limits.high[u]), -int(limits.low[u]))
    fitted = fit.used[u] >= config.fit_min_instances
    known = fit.gauge[u] or fitted or len(fit.shift) == 1
    placed = sets.bound(u)
    proved = 0 if fit.gauge[u] else (reach if reach < FAR else None)
    return HostClock(
        host=name,
        offset_ns=round(float(offset)),
        drift_ppm=float(fit.drift[u] * 1e6),
        sigma_ns=float(fit.sigma[u]) + (placed or 0) if known else None,
        bound_ns=None if proved is None else proved + (placed or 0),
        grade=GRADES[grade],
        violations=bad,
        component=int(fit.component[u]),
        instances=int(fit.used[u]),
        basis=_basis(bool(fit.gauge[u]), bool(fitted), placed),
        join_bound_ns=placed,
    )


def _basis(gauge: bool, fitted: bool, placed: int | None) -> str:
    """What the offset rests on."""
    if placed is not None:
        messages = f"sends and receives only, \u00b1 {units.time(placed)}"
        return messages if gauge else f"collectives within its set; the set by {messages}"
    if gauge:
        return "reference"
    return "collectives" if fitted else "too few collectives"
