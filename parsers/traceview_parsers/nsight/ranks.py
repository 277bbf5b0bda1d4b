"""Which rank each process of a report is, from the best evidence in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from traceview_parsers.nsight.environment import RANK_NAMES
from traceview_parsers.nsight.nccl import Calls
from traceview_parsers.nsight.process import Process
from traceview_parsers.nsight.report import Report

# 'rank3', 'rank_3', 'rep.3' (nsys profile -o rep.%q{RANK}); 'report1' is nsys's own default name, not a rank.
_IN_NAME = (re.compile(r"rank[-_.=]?(\d{1,5})(?!\d)", re.I), re.compile(r"\.(\d{1,5})$"))


@dataclass(frozen=True)
class Identity:
    """Rank of a process; None = not told. ``source`` as in ``PartMeta.rank_source``."""

    rank: int | None = None
    source: str = ""
    world: int | None = None


def rank_in_name(path: Path) -> int | None:
    """A rank number in a file name.

    >>> [rank_in_name(Path(p)) for p in ("rep.12.sqlite", "job_rank3_a.sqlite", "report1.sqlite")]
    [12, 3, None]
    """
    found = next((m for p in _IN_NAME if (m := p.search(path.stem))), None)
    return int(found.group(1)) if found else None


def identify(
    processes: list[Process], calls: dict[int, Calls | None], report: Report, mpi: dict[int, int], path: Path
) -> dict[int, Identity]:
    """globalPid -> identity: NCCL init payload, MPI, environment, file name. Two processes never get one rank."""
    found = {p.key: _one(p, calls.get(p.key), report, mpi) for p in processes}
    if len(processes) == 1:
        key, world = processes[0].key, _world(report)
        if found[key].rank is None and not report.launcher:
            told = next((report.environment[n] for n in RANK_NAMES if report.environment.get(n, "").isdigit()), None)
            found[key] = Identity(int(told), "env", world) if told else found[key]
        named = rank_in_name(path)
        if found[key].rank is None and named is not None:
            found[key] = Identity(named, "name", world)
    told_ranks = [i.rank for i in found.values() if i.rank is not None]
    if len(set(told_ranks)) < len(told_ranks):
        report.warnings.append("several processes of the report claim the same rank: their claims are not used")
        return {key: Identity(world=i.world) for key, i in found.items()}
    return found


def _world(report: Report) -> int | None:
    told = report.environment.get("WORLD_SIZE", "")
    return int(told) if told.isdigit() and not report.launcher else None


def _one(process: Process, calls: Calls | None, report: Report, mpi: dict[int, int]) -> Identity:
    world = _world(report)
    comms = calls.inits if calls else []
    if comms:
        widest = max(comms, key=lambda c: c.nranks)
        if world in (None, widest.nranks):
            return Identity(widest.rank, "payload", widest.nranks)
    rank = mpi.get(process.pid, process.mpi_rank)
    return Identity(rank, "metadata" if rank is not None else "", world)


def members(
    processes: list[Process], calls: dict[int, Calls | None], found: dict[int, Identity], report: Report
) -> dict[int, list[int]]:
    """Communicator -> global ranks in the order of its own ranks, where the report has every member, or where it is
    that of a world whose size the environment tells too."""
    seen: dict[int, dict[int, int]] = {}
    size: dict[int, int] = {}
    for process in processes:
        own, identity = calls.get(process.key), found[process.key]
        if own is None or identity.rank is None:
            continue
        for comm, told in own.comms.items():
            if comm is None:
                continue
            seen.setdefault(comm, {})[told.rank] = identity.rank
            size[comm] = told.nranks
            if told.nranks == _world(report) and told.rank == identity.rank:
                seen[comm] = {r: r for r in range(told.nranks)}  # the world: every rank is its own number
    return {c: [ranks[i] for i in range(size[c])] for c, ranks in seen.items() if len(ranks) == size[c]}
