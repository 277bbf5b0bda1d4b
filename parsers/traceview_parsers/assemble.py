"""Parts -> one run: at most one part per rank, and never two jobs merged into one."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from traceview.errors import TraceviewError
from traceview.run import ABSOLUTE_NS, Part, Run
from traceview.units import named_ranks, ranks_are
from traceview.units import ranks as as_ranges
from traceview.units import time as as_time
from traceview_parsers.ranks import assign

# Ranks of one job record at about the same time; hosts may disagree on what the time is, but not by this.
MAX_GAP_NS = 600 * 1_000_000_000
SESSION = "session_start_ns"
"""Fact of a source: when the recording session of its report began, UTC, ns."""


def assemble(name: str, parts: Sequence[Part], logs: list[Part], rank_regex: str | None) -> Run:
    """A ``Run`` of the parts. Raises TraceviewError where they are of more than one job or claim the same rank."""
    run = Run(name=name, parts={}, logs=logs)
    parts = _one_export(parts, run.problems)
    run.problems += assign(parts, rank_regex, logs)
    run.world_size = _world_size(parts)
    run.problems += _own_clocks(parts)
    parts = _without_copies(parts, run.problems)
    parts = _one_format(parts, run.problems)
    _one_job(parts)
    parts = _one_cycle(parts, run.problems)
    by_rank = _by_rank(parts)
    for rank, found in sorted(by_rank.items()):
        if len(found) > 1:
            paths = " and ".join(p.meta.source.path for p in found[:2])
            raise TraceviewError(
                f"rank {rank} is claimed by {len(found)} files at the same time, {paths}: "
                "pass one of them, or tell the ranks apart with --rank-regex"
            )
        run.parts[rank] = found[0]
    _without_gpu(run)
    if run.world_size is None and len(parts) == 1 and not logs and not parts[0].meta.rows.get("collectives"):
        run.world_size = 1
    if run.world_size is not None and run.parts and max(run.parts) >= run.world_size:
        run.problems.append(f"rank {max(run.parts)} is outside the world of {run.world_size} that the files tell")
        run.world_size = None
    return run


def _without_gpu(run: Run) -> None:
    """A rank without GPU records among ranks with them lost them: what its GPU did is unknown, not idle."""
    absent = [r for r, p in run.parts.items() if not p.meta.rows.get("gpu_ops")]
    if not absent or len(absent) == len(run.parts):
        return
    for rank in absent:
        meta = run.parts[rank].meta
        if meta.cover is not None:
            meta.holes = [meta.cover]
    run.problems.append(
        f"{named_ranks(absent)}: no GPU records, which other ranks have: their time counts as not recorded"
    )


def _by_rank(parts: Sequence[Part]) -> dict[int, list[Part]]:
    out: dict[int, list[Part]] = defaultdict(list)
    for part in parts:
        out[part.meta.rank or 0].append(part)
    return out


def _folder(part: Part) -> str:
    return str(Path(part.meta.source.path).parent)


def _world_size(parts: Sequence[Part]) -> int | None:
    """The world size that the files tell; TraceviewError if they tell several."""
    told = {p.meta.world_size: p for p in parts if p.meta.world_size}
    if len(told) > 1:
        which = ", ".join(f"{p.meta.source.path} (world {size})" for size, p in sorted(told.items()))
        raise TraceviewError(f"these files are of different jobs: {which}; pass the folder or the files of one")
    return next(iter(told), None)


def _own_clocks(parts: Sequence[Part]) -> list[str]:
    """A part with times from an unknown start among others has a clock of its own: it shares no host with them."""
    relative = [p for p in parts if (p.meta.cover_start or 0) < ABSOLUTE_NS]
    if not relative or len(relative) == len(parts):
        return []
    for part in relative:
        part.meta.host = None
    paths = ", ".join(p.meta.source.path for p in relative[:3])
    return [f"{len(relative)} files have times from an unknown start, others absolute ones: {paths}"]


def _one_export(parts: Sequence[Part], problems: list[str]) -> list[Part]:
    """Of several exports of one report, per process the whole one, that with most GPU records, then the first.

    A report is known by the time at which its session began, to the nanosecond.
    """
    best: dict[tuple[object, ...], Part] = {}
    for number, part in enumerate(parts):
        m = part.meta
        session = m.source.facts.get(SESSION)
        key = (session, m.host, m.pid) if session else (number,)
        known = best.get(key)
        if known is not None and known.meta.source.path == m.source.path:
            key = (number,)  # two processes of one file are not two exports
            known = None
        if known is None or _worth(part) > _worth(known):
            best[key] = part
    kept = {id(p) for p in best.values()}
    left = [p for p in parts if id(p) not in kept]
    gone = dict.fromkeys(p.meta.source.path for p in left)
    for path in gone:
        problems.append(f"{path} is another export of a report that is here too: its {_count(left, path)} left out")
    return [p for p in parts if id(p) in kept]


def _worth(part: Part) -> tuple[bool, int, bool]:
    m = part.meta
    return not m.source.truncated, m.rows.get("gpu_ops", 0), m.rank is not None


def _count(parts: Sequence[Part], path: str) -> str:
    number = sum(p.meta.source.path == path for p in parts)
    return "process is" if number == 1 else f"{number} processes are"


def _one_format(parts: list[Part], problems: list[str]) -> list[Part]:
    """Of a rank that is recorded at the same time in two formats, the format that most ranks have; on a tie
    PyTorch's, which tells groups and sequence numbers."""
    by_rank = _by_rank(parts)
    count = Counter(f for found in by_rank.values() for f in {p.meta.source.format for p in found})
    left: list[Part] = []
    for found in by_rank.values():
        for part in found:
            rivals = [p for p in found if p.meta.source.format != part.meta.source.format and _together(p, part)]
            own = part.meta.source.format
            if any(_rank_of(p.meta.source.format, count) > _rank_of(own, count) for p in rivals):
                left.append(part)
    if not left:
        return parts
    ranks = sorted({p.meta.rank or 0 for p in left})
    used = sorted({p.meta.source.format for r in ranks for p in by_rank[r]} - {p.meta.source.format for p in left})
    paths = list(dict.fromkeys(p.meta.source.path for p in left))
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    problems.append(
        f"{ranks_are(ranks)} given in two formats: {', '.join(used)} is used, which most ranks have "
        f"(on a tie the one that tells more); left out: {', '.join(paths[:3])}{more}"
    )
    gone = {id(p) for p in left}
    return [p for p in parts if id(p) not in gone]


def _rank_of(name: str, count: Counter[str]) -> tuple[int, bool]:
    return count[name], name == "kineto"


def _together(a: Part, b: Part) -> bool:
    return len(_clusters([a, b], 0)) == 1


def _without_copies(parts: Sequence[Part], problems: list[str]) -> list[Part]:
    """Leave out files that repeat another one (same rank, window, and row counts)."""
    kept: dict[tuple[object, ...], Part] = {}
    for part in parts:
        m = part.meta
        same = (m.rank, m.pid, m.cover_start, m.cover_end, tuple(sorted(m.rows.items())))
        if same in kept:
            problems.append(f"{m.source.path} repeats {kept[same].meta.source.path}: left out")
        else:
            kept[same] = part
    return list(kept.values())


def _one_job(parts: Sequence[Part]) -> None:
    """TraceviewError if the parts are of two jobs: a rank with two processes in turn, or windows far apart."""
    by_rank = _by_rank(parts)
    for rank, found in by_rank.items():
        processes = {(p.meta.host, p.meta.pid) for p in found if p.meta.pid is not None}
        turns = _clusters(found, 0)
        if len(processes) > 1 and len(turns) > 1:
            first, last = (_where(turns[0][0], turns[-1][0]), _where(turns[-1][0], turns[0][0]))
            raise TraceviewError(
                f"two runs in one folder: rank {rank} is in {first} and in {last}, by other processes; pass one"
            )
    groups = _clusters(parts, MAX_GAP_NS)
    if len(groups) > 1 and all(len(found) == 1 for found in by_rank.values()):
        early, late = groups[0][0], groups[-1][0]
        gap = as_time((late.meta.cover_start or 0) - (early.meta.cover_end or 0))
        raise TraceviewError(
            f"two runs in one folder: {_where(late, early)} begins {gap} after {_where(early, late)} ends; pass one"
        )


def _where(part: Part, other: Part) -> str:
    """The folder of a part if that tells it from the other, else its path."""
    return _folder(part) if _folder(part) != _folder(other) else part.meta.source.path


def _clusters(parts: Sequence[Part], gap: int) -> list[list[Part]]:
    """Parts whose windows overlap or lie at most ``gap`` ns apart, in order of time; without times all are one."""
    timed = [p for p in parts if (p.meta.cover_start or 0) >= ABSOLUTE_NS and p.meta.cover_end is not None]
    if len(timed) < len(parts):
        return [list(parts)]
    out: list[list[Part]] = []
    reach = 0
    for part in sorted(timed, key=lambda p: p.meta.cover_start or 0):
        if not out or (part.meta.cover_start or 0) > reach + gap:
            out.append([])
        out[-1].append(part)
        reach = max(reach, part.meta.cover_end or 0)
    return out


def _one_cycle(parts: list[Part], problems: list[str]) -> list[Part]:
    """Of several recordings of the same processes, the one with most ranks, the latest of those."""
    by_rank = _by_rank(parts)
    if max((len(found) for found in by_rank.values()), default=1) == 1:
        return parts
    cycles = _clusters(parts, 0)
    if any(len(_by_rank(c)) < len(c) for c in cycles) or len(cycles) == 1:
        cycles = _by_ordinal(by_rank)
    if not cycles:
        return parts
    chosen = max(cycles, key=lambda c: (len(_by_rank(c)), max(p.meta.cover_start or 0 for p in c)))
    missing = sorted(set(by_rank) - set(_by_rank(chosen)))
    first = os.path.basename(chosen[0].meta.source.path)
    problems.append(
        f"{len(cycles)} recordings of the same ranks: used number {cycles.index(chosen) + 1} in time "
        f"({len(chosen)} files, {first}); {len(parts) - len(chosen)} files left out"
        + (f"; ranks {as_ranges(missing)} are not in it" if missing else "")
    )
    return chosen


def _by_ordinal(by_rank: dict[int, list[Part]]) -> list[list[Part]]:
    """The k-th recording of each rank, if every rank has as many and they follow each other; else none."""
    ordered = [sorted(found, key=lambda p: p.meta.cover_start or 0) for found in by_rank.values()]
    if len({len(o) for o in ordered}) != 1:
        return []
    for found in ordered:
        for before, after in pairwise(found):
            if (before.meta.cover_end or 0) > (after.meta.cover_start or 0):
                return []
    return [list(cycle) for cycle in zip(*ordered, strict=True)]
