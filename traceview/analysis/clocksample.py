"""What the clock fit looks at: ends of sampled collectives, and how far a rank deviates from its host (METHODS d)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from traceview.analysis import clockfit
from traceview.analysis.causal import FAR
from traceview.analysis.groups import N_X_N, Columns
from traceview.analysis.instances import begins
from traceview.analysis.p2p import components
from traceview.analysis.types import Bools, Floats, Ints, Matches
from traceview.config import US, Config

MAX_ROWS = 120_000  # sampled for the fit; <= 200 instances of a group are enough (METHODS d.2)


@dataclass(frozen=True)
class Sample:
    """Ends of members of sampled n x n instances: one element per (instance, rank), instance by instance."""

    instance: Ints
    rank: Ints
    begin: Ints
    end: Ints
    weight: Floats


def sample_ends(c: Columns, m: Matches, *, gpu_only: bool = False) -> Sample:
    """At most 200 instances of every group, spread evenly, fewer of big groups; all members seen of each."""
    order = np.argsort(m.instance, kind="stable")
    rows = order[np.searchsorted(m.instance[order], 0) :]
    first = np.searchsorted(m.instance[rows], np.arange(len(m.size) + 1))
    if not len(m.size):
        no = np.zeros(0, np.int64)
        return Sample(no, no, no, no, no.astype(np.float64))
    lead = rows[first[:-1]]
    fit = np.flatnonzero(N_X_N[c.kind[lead]] & (m.seen > 1) & ~m.ambiguous & ~(gpu_only & c.on_host[lead]))
    group = c.group[lead[fit]]
    by_group = np.argsort(group, kind="stable")
    group, fit = group[by_group], fit[by_group]
    head = np.searchsorted(group, group)
    count = np.bincount(group + 1)[group + 1]
    wanted = np.minimum(count, 200)
    share = min(1.0, MAX_ROWS / max(1.0, float(np.sum(m.seen[fit] * wanted / count))))
    wanted = np.minimum(count, np.maximum(20, (wanted * share).astype(np.int64)))
    place = np.arange(len(fit)) - head
    chosen = np.sort(fit[(place * wanted) // count != ((place - 1) * wanted) // count])
    size = np.diff(first)[chosen]
    at = np.repeat(first[chosen] - (np.cumsum(size) - size), size) + np.arange(int(size.sum()))
    return _hulls(c, rows[at], np.repeat(np.arange(len(chosen)), size))


def _hulls(c: Columns, rows: Ints, instance: Ints) -> Sample:
    """One element per member: first begin, last end; short collectives weigh more."""
    rank = c.rank[rows]
    head = np.flatnonzero(begins(instance, rank))
    begin = np.minimum.reduceat(c.start[rows], head) if len(head) else head
    end = np.maximum.reduceat(c.end[rows], head) if len(head) else head
    instance, rank = instance[head], rank[head]
    length = end - begin
    shortest = np.full(int(instance.max(initial=-1)) + 1, FAR)
    np.minimum.at(shortest, instance, length)
    return Sample(instance, rank, begin, end, 1.0 / np.maximum(shortest[instance], 20 * US) * (20 * US))


def relative(sample: Sample, shift: Ints | None = None) -> Floats:
    """Ends relative to the first end of their instance, so that float64 is exact enough; ns."""
    end = sample.end if shift is None else sample.end + shift
    first = np.full(int(sample.instance.max(initial=-1)) + 1, FAR * 2)
    np.minimum.at(first, sample.instance, end)
    return (end - first[sample.instance]).astype(np.float64)


def deviation(sample: Sample, host: Ints, least: int) -> Floats:
    """Deviation of every rank from its host's clock (d.1), ns; nan for a rank in fewer than ``least`` instances."""
    out = np.full(len(host), np.nan)
    pair = sample.instance * (int(host.max(initial=0)) + 1) + host[sample.rank]
    _, inverse, count = np.unique(pair, return_inverse=True, return_counts=True)
    same = count[inverse] > 1
    if not same.any():
        return out
    node = sample.rank[same]
    family = inverse[same]
    label = linked(len(host), node, family)
    n = len(host)
    free = np.zeros(n, np.bool_)
    free[node] = True
    free[np.unique(label[node])] = False
    dense = np.unique(family, return_inverse=True)[1]
    p = clockfit.Problem(
        node=node,
        instance=dense,
        y=relative(Sample(dense, node, sample.begin[same], sample.end[same], sample.weight[same])),
        s=np.zeros(len(node)),
        weight=sample.weight[same],
        free_theta=free,
        free_rho=np.zeros(n, np.bool_),
    )
    theta, _ = clockfit.solve(p)
    seen = np.bincount(node, minlength=n)
    judged = np.flatnonzero(seen >= least)
    group = np.unique(label[judged], return_inverse=True)[1]
    middle = clockfit.median_of(group, theta[judged]) if len(judged) else theta[:0]
    pairs = np.bincount(group)[group] == 2  # of two nobody knows which deviates: the lower rank stands
    out[judged] = theta[judged] - np.where(pairs, 0.0, middle[group])
    return out


def linked(count: int, node: Ints, family: Ints) -> Ints:
    """Component of every node that shares a family with others."""
    order = np.argsort(family, kind="stable")
    node, family = node[order], family[order]
    same = family[1:] == family[:-1]
    return components(count, node[:-1][same], node[1:][same])


def deviates(sample: Sample, host: Ints, eta: Floats, config: Config) -> Bools:
    """Ranks whose clock is not their host's: |eta| > max(20 us, 3 x 1.4826 x MAD / sqrt n)."""
    out = np.zeros(len(host), np.bool_)
    suspects = np.flatnonzero(np.abs(np.nan_to_num(eta)) > config.eta_min_ns)
    if not len(suspects):
        return out
    aligned = relative(sample, np.rint(np.nan_to_num(eta)).astype(np.int64)[sample.rank])
    apart = clockfit.residuals(sample.instance, aligned)
    for r in suspects.tolist():
        own = sample.rank == r
        noise = clockfit.spread(apart[own])
        out[r] = abs(eta[r]) > 3 * noise / np.sqrt(own.sum())
    return out


def fields(s: Sample) -> tuple[Any, ...]:
    return s.instance, s.rank, s.begin, s.end, s.weight


def per_unit(sample: Sample, node: Ints) -> Sample:
    """One element per (instance, unit): latest begin, lower median end. ``rank`` holds the unit."""
    order = np.lexsort((sample.end, node, sample.instance))
    instance, node = sample.instance[order], node[order]
    head = np.flatnonzero(begins(instance, node))
    size = np.diff(np.append(head, len(order)))
    begin = np.maximum.reduceat(sample.begin[order], head) if len(head) else head
    end = sample.end[order][head + (size - 1) // 2]
    return Sample(instance[head], node[head], begin, end, sample.weight[order][head])
