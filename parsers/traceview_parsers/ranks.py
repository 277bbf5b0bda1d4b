"""Which rank each part is: metadata, other files of the process, names of files and folders, order; always said."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from traceview.errors import TraceviewError
from traceview.run import MOST_RANKS, Part, PartMeta
from traceview.schema.nccl import NCCL_COMMS, NCCL_PROCS

# Of a file or folder name; the first that hits. Group 1 is the rank.
_NAMES = (
    re.compile(r"(?<![a-z])rank[-_=\[ ]?(\d+)", re.I),  # rank3, rank-3, rank[3] (Megatron, Primus), torchtitan
    re.compile(r"(?<![a-z])worker[-_=\[]?(\d+)", re.I),
    re.compile(r"(?<![a-z])(?:proc|process|gpu)[-_=\[]?(\d+)", re.I),
)
# Inference servers: -TP-0-DP-1 (SGLang), dp0_pp0_tp0 (vLLM). Outer dimension first.
_DIMENSIONS = ("dp", "pp", "ep", "tp")
_DIMENSION = re.compile(r"(?<![a-z])(dp|pp|ep|tp)[-_=]?(\d+)", re.I)
_NUMBER = re.compile(r"\d+")


def assign(parts: Sequence[Part], rank_regex: str | None, logs: Sequence[Part] = ()) -> list[str]:
    """Fill in ``meta.rank`` and ``meta.rank_source`` of every part; returns sentences on what was guessed.

    ``logs``: parts of NCCL logs, which tell the ranks of processes.

    Raises TraceviewError if ``rank_regex`` is no regular expression or has no number for a file.
    """
    notes = [note for part in parts for note in _impossible(part.meta)]
    if rank_regex is not None:
        _by_user(parts, rank_regex)
        return notes
    notes += _ranks_of_a_part_of_the_job(parts)
    _of_known_processes(parts)
    _of_logs(parts, logs)
    files = Counter(p.meta.source.path for p in parts)
    # the name of a file that holds several processes is the rank of none
    open_ = [p for p in parts if p.meta.rank is None and files[p.meta.source.path] == 1]
    if open_:
        for part, rank in zip(open_, _from_names([Path(p.meta.source.path) for p in open_]), strict=True):
            if rank is not None:
                part.meta.rank, part.meta.rank_source = rank, "name"
    rest = sorted((p for p in parts if p.meta.rank is None), key=lambda p: (p.meta.source.path, p.meta.pid or 0))
    taken = {p.meta.rank for p in parts if p.meta.rank is not None}
    free = (r for r in range(len(parts) + len(taken) + 1) if r not in taken)
    for part in rest:
        part.meta.rank, part.meta.rank_source = next(free), "order"
    if len(parts) > 1 and rest:
        first, last = rest[0].meta, rest[-1].meta
        one = first.source.path == last.source.path
        order, names = ("process ids", _pid) if one and first.pid is not None else ("paths", _process)
        better = "NCCL's payloads tell better (--include-blobs=true)" if one else "--rank-regex tells better"
        notes.append(
            f"no rank is told for {len(rest)} of {len(parts)} processes: numbered in order of their {order}, "
            f"{names(first)} is {first.rank}, {names(last)} is {last.rank}; {better}"
        )
    return notes


def _ranks_of_a_part_of_the_job(parts: Sequence[Part]) -> list[str]:
    """Forget ranks out of communicators if several processes claim one at the same time; says so.

    The widest communicator of a process need not be the job: torch makes that of the world only when it is used.
    """
    metas = [p.meta for p in parts if p.meta.rank_source == "payload"]
    first: dict[int | None, PartMeta] = {}
    for meta in metas:
        other = first.setdefault(meta.rank, meta)
        if (meta.host, meta.pid) != (other.host, other.pid) and _overlap(meta, other):
            for claim in metas:
                claim.rank, claim.rank_source, claim.world_size = None, "", None
            return [
                f"{meta.source.path} and {other.source.path} both claim a rank {meta.rank} of a communicator: "
                "these are ranks of parts of the job, not used"
            ]
    return []


def _of_known_processes(parts: Sequence[Part]) -> None:
    """A process whose rank another format tells has that rank: same process id, no other host, at the same time."""
    known = [p.meta for p in parts if p.meta.rank is not None and p.meta.pid is not None]
    for part in parts:
        own = part.meta
        if own.rank is not None or own.pid is None:
            continue
        found = {
            m.rank
            for m in known
            if m.pid == own.pid
            and m.source.format != own.source.format
            and (m.host == own.host or None in (m.host, own.host))
            and _overlap(m, own)
        }
        if len(found) == 1:
            own.rank, own.rank_source = found.pop(), "process"


def _of_logs(parts: Sequence[Part], logs: Sequence[Part]) -> None:
    """A process whose rank in the widest communicator of the job an NCCL log tells has that rank."""
    if not logs or all(p.meta.rank is not None for p in parts):
        return
    places = {r["proc"]: (_short(r["host"]), r["pid"]) for log in logs for r in log.table(NCCL_PROCS).to_pylist()}
    told = {
        (r["proc"], r["nranks"], r["rank"])
        for log in logs
        for r in log.table(NCCL_COMMS).select(["proc", "nranks", "rank"]).to_pylist()
        if r["nranks"] is not None and r["rank"] is not None
    }
    world = max((nranks for _, nranks, _ in told), default=0)
    seats: dict[tuple[str, int], set[int]] = {}
    for proc, nranks, rank in told:
        if nranks == world and proc in places:
            seats.setdefault(places[proc], set()).add(rank)
    for part in parts:
        own = part.meta
        found = seats.get((_short(own.host or ""), -1 if own.pid is None else own.pid), set())
        if own.rank is None and len(found) == 1 and own.world_size in (None, world):
            own.rank, own.rank_source, own.world_size = min(found), "log", world


def _short(host: str) -> str:
    return host.split(".")[0].lower()


def _overlap(a: PartMeta, b: PartMeta) -> bool:
    return (a.cover_start or 0) <= (b.cover_end or 0) and (b.cover_start or 0) <= (a.cover_end or 0)


def _pid(meta: PartMeta) -> str:
    return f"pid {meta.pid}"


def _process(meta: PartMeta) -> str:
    return meta.source.path + (f" (pid {meta.pid})" if meta.pid is not None else "")


def _impossible(meta: PartMeta) -> list[str]:
    """Forget a rank or world size that no job has; says so."""
    notes = []
    if meta.rank is not None and not 0 <= meta.rank < MOST_RANKS:
        notes.append(f"{meta.source.path}: tells an impossible rank: not used")
        meta.rank, meta.rank_source = None, ""
    if meta.world_size is not None and not 0 < meta.world_size <= MOST_RANKS:
        notes.append(f"{meta.source.path}: tells an impossible world size: not used")
        meta.world_size = None
    return notes


def _by_user(parts: Sequence[Part], rank_regex: str) -> None:
    try:
        pattern = re.compile(rank_regex)
    except re.error as error:
        raise TraceviewError(f"--rank-regex {rank_regex!r}: no regular expression ({error})") from error
    if not pattern.groups:
        raise TraceviewError(
            f"--rank-regex {rank_regex!r}: needs a group around the number, for example 'node(\\d+)'"
        )
    for part in parts:
        found = pattern.search(part.meta.source.path)
        text = (found["rank"] if "rank" in pattern.groupindex else found[1]) if found else None
        if text is None or not text.isdecimal() or int(text) >= MOST_RANKS:
            raise TraceviewError(f"{part.meta.source.path}: --rank-regex {rank_regex!r} finds no rank in this path")
        part.meta.rank, part.meta.rank_source = int(text), "user"


def _from_names(paths: list[Path]) -> list[int | None]:
    """Ranks out of the names of files, else of their folders from the nearest outwards."""
    ranks = [_named(p) for p in paths]
    if all(r is None for r in ranks):
        ranks = _by_dimensions(paths)
    if all(r is None for r in ranks) and len(paths) > 1:
        ranks = _by_number(paths)
    return ranks


def _named(path: Path) -> int | None:
    for name in reversed(path.parts):
        for pattern in _NAMES:
            if found := pattern.search(name):
                return int(found[1]) if int(found[1]) < MOST_RANKS else None
    return None


def _by_dimensions(paths: list[Path]) -> list[int | None]:
    """Global rank out of dp, pp, ep and tp places, dp outermost; sizes are those seen."""
    places = [{d.lower(): int(n) for d, n in _DIMENSION.findall(p.name)} for p in paths]
    sizes = {d: max((p.get(d, 0) for p in places), default=0) + 1 for d in _DIMENSIONS}
    out: list[int | None] = []
    for place in places:
        rank = 0
        for dimension in _DIMENSIONS:
            rank = rank * sizes[dimension] + place.get(dimension, 0)
        out.append(rank if place else None)
    return out


def _by_number(paths: list[Path]) -> list[int | None]:
    """The one number in which the names differ, if it takes the values 0, 1, 2... once each."""
    common = os.path.commonpath([str(p) for p in paths])
    names = [str(p.relative_to(common)) for p in paths]
    if len({_NUMBER.sub("#", n) for n in names}) == 1:
        for column in zip(*(map(int, _NUMBER.findall(n)) for n in names), strict=True):
            if sorted(column) == list(range(len(paths))):
                return list(column)
    return [None] * len(paths)
