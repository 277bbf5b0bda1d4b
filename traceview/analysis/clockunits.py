"""Offsets and drifts of all hosts of a run, component by component (METHODS d.1-d.3)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from traceview.analysis import clockfit
from traceview.analysis.causal import FAR, Bounds, bounds
from traceview.analysis.clocksample import Sample, fields, linked, per_unit, relative
from traceview.analysis.instances import begins
from traceview.analysis.onesided import Pairs
from traceview.analysis.timebase import TimeBase
from traceview.analysis.types import Bools, Floats, Ints
from traceview.config import Config


@dataclass
class Fit:
    """State of the fit; arrays over units (hosts first, then un-pooled ranks)."""

    unit: Ints
    """by rank"""
    shift: Ints
    frac: Floats
    drift: Floats
    pivot: Ints
    sigma: Floats
    used: Ints
    """instances that a unit's offset rests on"""
    component: Ints
    gauge: Bools
    centre: Ints
    """the middle of what a unit's offset rests on, local time"""
    adrift: Floats
    """largest drift that a unit may have although none was fitted and it would matter"""
    jumps: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def fit_units(sample: Sample, unit: Ints, who: tuple[int, Bools], fit_drift: bool | None, config: Config) -> Fit:
    """Offsets and drifts of all units, component by component. ``who``: number of units, ranks present."""
    units, present = who
    zero, real = np.zeros(units, np.int64), np.zeros(units)
    node = unit[sample.rank]
    label = linked(units, node, sample.instance)
    owner = np.full(units, len(present))
    np.minimum.at(owner, unit[present], np.flatnonzero(present))
    lead = np.full(units, len(present))
    np.minimum.at(lead, label, owner)
    gauge = owner == lead[label]
    start = np.full(units, FAR * 2)
    np.minimum.at(start, node, sample.end)
    start = np.where(start < FAR * 2, start, 0)
    fit = Fit(unit, zero, real, real.copy(), start, real.copy(), zero.copy(), label, gauge, start.copy(), real.copy())
    joint = per_unit(sample, node)
    several = np.bincount(joint.instance)[joint.instance] > 1 if len(joint.instance) else np.zeros(0, np.bool_)
    for part in np.unique(label[joint.rank[several]]).tolist():
        take = several & (label[joint.rank] == part)
        _fit_component(fit, Sample(*(x[take] for x in fields(joint))), fit_drift, config)
    return fit


def _fit_component(fit: Fit, joint: Sample, fit_drift: bool | None, config: Config) -> None:
    """Fit one component in two passes (the second on what the rounded first one leaves), then look for jumps."""
    units = np.unique(joint.rank)
    node = np.searchsorted(units, joint.rank)
    instance = np.unique(joint.instance, return_inverse=True)[1]
    span = np.zeros(len(units))
    np.maximum.at(span, node, (joint.end - fit.pivot[joint.rank]).astype(np.float64))
    span = np.maximum(span, 1.0)
    s = (joint.end - fit.pivot[joint.rank]) / span[node]
    count = np.bincount(node, minlength=len(units))
    drifting = _may_drift(count, span, fit_drift, config) & ~fit.gauge[units]
    fit.centre[units] += (span / 2).astype(np.int64)
    limit = config.drift_assumed_ppm * 1e-6
    unseen = ~drifting & ~fit.gauge[units] & (span.max() * limit > config.drift_min_effect_ns)
    fit.adrift[units] = np.where(unseen, limit, 0.0)
    extra = np.zeros(len(joint.rank), np.int64)
    owned = np.split(np.argsort(node, kind="stable"), np.cumsum(count)[:-1])
    for attempt in range(3):
        p, x = _two_passes(fit, joint, (units, node, instance, s, drifting), extra)
        residual = clockfit.residuals(p.instance, p.y + p.model(x))
        fit.drift[units] = x[len(units) :] / span
        if attempt == 2 or not _jumps(fit, joint, (units, owned), residual, extra, config):
            break
    for i, u in enumerate(units.tolist()):
        own = owned[i]
        fit.used[u] = len(own)
        scale = clockfit.spread(residual[own]) if len(own) > 4 else clockfit.spread(residual)
        fit.sigma[u] = 0.0 if fit.gauge[u] else scale / np.sqrt(len(own))


def _two_passes(
    fit: Fit, joint: Sample, parts: tuple[Ints, Ints, Ints, Floats, Bools], extra: Ints
) -> tuple[clockfit.Problem, Floats]:
    units, node, instance, s, drifting = parts
    fit.shift[units] = 0
    sample = Sample(instance, joint.rank, joint.begin, joint.end, joint.weight)
    for _ in range(2):
        p = clockfit.Problem(
            node=node,
            instance=instance,
            y=relative(sample, fit.shift[joint.rank] + extra),
            s=s,
            weight=joint.weight,
            free_theta=~fit.gauge[units],
            free_rho=drifting,
        )
        theta, rho = clockfit.solve(p)
        whole = np.rint(theta).astype(np.int64)
        fit.shift[units] += whole
        fit.frac[units] = theta - whole
    return p, np.concatenate((theta, rho))


def _may_drift(count: Ints, span: Floats, fit_drift: bool | None, config: Config) -> Bools:
    """METHODS d.2: enough instances over enough of the record for a drift to matter."""
    if fit_drift is not None:
        return np.full(len(count), fit_drift)
    wide = span >= config.drift_min_span * span.max()
    matters = span * config.drift_assumed_ppm * 1e-6 > config.drift_min_effect_ns
    out: Bools = (count >= config.drift_min_instances) & wide & matters
    return out


def _jumps(
    fit: Fit, joint: Sample, parts: tuple[Ints, list[Ints]], residual: Floats, extra: Ints, config: Config
) -> bool:
    """Look for clocks that were stepped; ``extra`` gets what to add after the step. True if one was found."""
    units, owned = parts
    found = False
    for i, u in enumerate(units.tolist()):
        own = owned[i]
        if fit.gauge[u]:
            continue
        jump = clockfit.find_jump(joint.end[own], residual[own], float(config.eta_min_ns))
        if jump is None:
            continue
        order = own[np.argsort(joint.end[own], kind="stable")]
        at, height = jump[0], round(jump[1])
        extra[order[at:]] += height
        begin = int(joint.end[order[at - 1]]) + 1
        old = fit.jumps.get(u, (np.zeros(0, np.int64), np.zeros(0, np.int64)))
        times = np.append(old[0], begin)
        steps = np.append(np.diff(old[1], prepend=0), height)
        by = np.argsort(times)
        fit.jumps[u] = (times[by], np.cumsum(steps[by]))
        found = True
    return found


def time_base(fit: Fit) -> TimeBase:
    """The axis of the fit, all grades A as yet."""
    unit = fit.unit
    jumps = {r: fit.jumps[u] for r, u in enumerate(unit.tolist()) if u in fit.jumps}
    grade = np.zeros(len(unit), np.int8)
    return TimeBase(
        fit.shift[unit], fit.drift[unit], fit.pivot[unit], fit.sigma[unit], unit, fit.component[unit], grade, jumps
    )


def bounded(fit: Fit, sample: Sample, pairs: Pairs, slack_ns: int) -> tuple[TimeBase, Bounds]:
    """Causal bounds around the fit; an estimate outside its interval is projected into it and flagged.

    A component of which no offsets satisfy all bounds stays as it is; the others do not feel it. Messages may be
    under way for so short a time that the error of the stamps counts: where they contradict, ``slack_ns`` is allowed.
    """
    base = time_base(fit)
    slack = np.zeros(len(fit.component), np.int64)
    for _ in range(2):
        limits = _limits(fit, base, sample, pairs, slack)
        broken = np.isin(fit.component, fit.component[limits.empty])
        if not (broken & (slack == 0)).any():
            break
        slack[broken] = slack_ns
    off = ((limits.low > 0) | (limits.high < 0)) & ~fit.gauge & ~broken
    if off.any():
        move = np.where(off, np.clip(0, limits.low, limits.high), 0)
        fit.shift += move
        fit.notes.append(f"{int(off.sum())} clock offsets were outside what causality allows and were moved into it")
        base = time_base(fit)
        limits = Bounds(limits.low - move, limits.high - move, limits.empty)
    return base, limits


def _limits(fit: Fit, base: TimeBase, sample: Sample, pairs: Pairs, slack: Ints) -> Bounds:
    """Bounds from instances and messages; ``slack``: by unit, how much earlier than sent a message may have come."""
    first, second = _group_constraints(fit, base, sample), _pair_constraints(fit, base, pairs, slack)
    instance = np.concatenate((first[0], second[0] + int(first[0].max(initial=-1)) + 1))
    unit, begin, end = (np.concatenate((a, b)) for a, b in zip(first[1:], second[1:], strict=True))
    return bounds(instance, unit, begin, end, fit.gauge)


def _group_constraints(fit: Fit, base: TimeBase, sample: Sample) -> tuple[Ints, Ints, Ints, Ints]:
    """(instance, unit, latest begin, earliest end) of sampled instances of several units."""
    begin = base.to_true(sample.rank, sample.begin) - _adrift(fit, sample.rank, sample.begin)
    end = base.to_true(sample.rank, sample.end) + _adrift(fit, sample.rank, sample.end)
    order = np.lexsort((fit.unit[sample.rank], sample.instance))
    instance, unit = sample.instance[order], fit.unit[sample.rank][order]
    head = np.flatnonzero(begins(instance, unit))
    late = np.maximum.reduceat(begin[order], head) if len(head) else head
    early = np.minimum.reduceat(end[order], head) if len(head) else head
    instance, unit = instance[head], unit[head]
    crossing = np.bincount(instance)[instance] > 1 if len(head) else np.zeros(0, np.bool_)
    return instance[crossing], unit[crossing], late[crossing], early[crossing]


def _pair_constraints(fit: Fit, base: TimeBase, pairs: Pairs, slack: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """The same of send and receive: the sender has no end, the receiver no begin. Within a component only."""
    source, sink = fit.unit[pairs.sender], fit.unit[pairs.receiver]
    fit_pair = (source != sink) & (fit.component[source] == fit.component[sink])
    number, far = np.arange(int(fit_pair.sum())), np.full(int(fit_pair.sum()), FAR)
    begin = (base.to_true(pairs.sender, pairs.begin) - _adrift(fit, pairs.sender, pairs.begin))[fit_pair]
    end = (base.to_true(pairs.receiver, pairs.end) + _adrift(fit, pairs.receiver, pairs.end) + slack[sink])[fit_pair]
    return (
        np.concatenate((number, number)),
        np.concatenate((source[fit_pair], sink[fit_pair])),
        np.concatenate((begin, -far)),
        np.concatenate((far, end)),
    )


def _adrift(fit: Fit, rank: Ints, ns: Ints) -> Ints:
    """How far a clock of which no drift was fitted may have drifted from the middle of the fit, ns."""
    unit = fit.unit[rank]
    out: Ints = np.ceil(fit.adrift[unit] * np.abs(ns - fit.centre[unit])).astype(np.int64)
    return out
