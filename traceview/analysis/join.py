"""What an NCCL log says of the ranks and groups of a trace: processes, communicators, calls.

Nothing is guessed: a communicator that fits several groups, or a group that fits several communicators, keeps all
of them, and what they disagree in is said to be ambiguous.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from traceview.analysis.bandwidth import Logged
from traceview.analysis.callalign import Signature, align
from traceview.analysis.topology import merged
from traceview.config import DEFAULT, Config
from traceview.run import Run
from traceview.schema.nccl import NCCL_CALLS, NCCL_COMMS, NCCL_EDGES, NCCL_PROCS, NCCL_TUNING

Row = dict[str, Any]
Members = tuple[int, ...]
_KIND = {
    "AllReduce": "allreduce",
    "AllGather": "allgather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "AlltoAll": "alltoall",
    "Gather": "gather",
    "Scatter": "scatter",
}
_PER_RANK = ("AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter")
_SHOWN = 6
_CALLS = 500_000


@dataclass(frozen=True)
class Trace:
    """What the traces know: place of each rank, and the groups that communicate."""

    hosts: dict[int, str]
    pids: dict[int, int]
    world_size: int | None
    groups: tuple[Members, ...]
    comm_ids: dict[Members, frozenset[str]] = field(default_factory=dict)
    """communicators that a trace itself names for a group (Nsight: the hash that newer NCCL prints)"""
    calls: Callable[[Members, int], list[Signature]] | None = None
    """(group, rank) -> its calls in order; asked only where a group has several communicators"""


@dataclass(frozen=True)
class Edge:
    """All channels of one pair of ranks over one wire."""

    src: int
    dst: int
    via: str
    gdr: bool | None
    staged: bool
    conn: int
    channels: int
    nics: tuple[int, ...] = ()


@dataclass
class Comm:
    """A communicator of the job: its members as global ranks (by rank in it, as far as known)."""

    name: str
    nranks: int
    ranks: dict[int, int] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def fits(self, members: Members) -> bool:
        """Whether it can be the communicator of a group: of its size, and each known rank in its place."""
        return len(members) == self.nranks and all(members[i] == r for i, r in self.ranks.items() if i < len(members))


@dataclass
class Joined:
    """The log, in terms of the trace."""

    procs: dict[str, Row]
    rank_of: dict[str, int]
    """communicator instance -> global rank"""
    comms: dict[str, Comm]
    groups: dict[Members, list[Comm]]
    choices: dict[str, Counter[tuple[str, int, str, str | None, int | None]]]
    """instance (or process, where the instance is unknown) -> (function, bytes, algorithm, protocol, channels)"""
    models: dict[str, dict[tuple[str, str, str], tuple[float, float]]]
    """instance (or process) -> what NCCL expects, see ``bandwidth.Logged.expected``"""
    procs_of: dict[int, list[Row]]
    """global rank -> its processes"""
    notes: list[str] = field(default_factory=list)


def join(run: Run, trace: Trace, config: Config = DEFAULT) -> Joined | None:
    """Join the logs of a run with its traces; None without a log."""
    if not run.logs:
        return None
    procs = {r["proc"]: r for r in merged(run.log_tables(NCCL_PROCS).to_pylist(), "proc", "rank")}
    rows = merged(run.log_tables(NCCL_COMMS).to_pylist(), "instance", "rank")
    notes: list[str] = []
    rank_of = _ranks(procs, rows, trace, notes)
    comms = _comms(rows, rank_of)
    _add_edges(comms, rows, run.log_tables(NCCL_EDGES))
    groups = _groups(comms, trace)
    if trace.calls is not None:
        least = config.calls_agree
        groups = {g: _by_calls(g, found, run, trace.calls, rank_of, least) for g, found in groups.items()}
    owner = {r["instance"]: r["proc"] for r in rows}
    procs_of: dict[int, list[Row]] = defaultdict(list)
    for name, rank in sorted({(owner[i], r) for i, r in rank_of.items()}):
        procs_of[rank] += [procs[name]] if name in procs else []
    tuning = run.log_tables(NCCL_TUNING).to_pylist()
    return Joined(procs, rank_of, comms, groups, _choices(tuning), _models(tuning), dict(procs_of), notes)


def _short(host: str) -> str:
    return host.split(".")[0].lower()


def _ranks(procs: dict[str, Row], rows: list[Row], trace: Trace, notes: list[str]) -> dict[str, int]:
    """Global rank of each communicator instance: by the world communicator, host and pid, or wrapper."""
    seat = {r["instance"]: (r["proc"], r["bus_id"] or r["cuda_dev"]) for r in rows}
    world = max((r["nranks"] or 0 for r in rows if r["rank"] is not None), default=0)
    by_seat: dict[Any, int] = {}
    if trace.world_size in (None, world):
        by_seat = {seat[r["instance"]]: r["rank"] for r in rows if r["nranks"] == world and r["rank"] is not None}
        if _elsewhere(by_seat, procs, trace):
            notes.append("the NCCL log is of other hosts than the traces: it is not used")
            return {}
    known = {(_short(trace.hosts[r]), p): r for r, p in trace.pids.items() if r in trace.hosts}
    for instance, (proc, bus) in seat.items():
        row = procs.get(proc)
        if row is None or (proc, bus) in by_seat:
            continue
        found = known.get((_short(row["host"]), row["pid"]))
        if found is None and row["rank_basis"] == "assumed":
            found = row["rank"]
            notes.append(f"rank {found} of {proc} is taken from the prefix of its lines")
        if found is not None:
            by_seat[seat[instance]] = found
    return {i: by_seat[s] for i, s in seat.items() if s in by_seat}


def _elsewhere(by_seat: dict[Any, int], procs: dict[str, Row], trace: Trace) -> bool:
    """Whether most ranks that both know stand on different hosts."""
    pairs = [
        (_short(procs[proc]["host"]), _short(trace.hosts[rank]))
        for (proc, _), rank in by_seat.items()
        if proc in procs and not trace.hosts.get(rank, "?").startswith("?")
    ]
    return bool(pairs) and sum(a != b for a, b in pairs) * 2 > len(pairs)


def _comms(rows: list[Row], rank_of: dict[str, int]) -> dict[str, Comm]:
    out: dict[str, Comm] = {}
    for row in rows:
        if not row["nranks"] or row["nranks"] < 2:
            continue
        comm = out.setdefault(row["comm"], Comm(row["comm"], row["nranks"]))
        comm.rows.append(row)
        rank = rank_of.get(row["instance"])
        if rank is not None and row["rank"] is not None:
            comm.ranks[row["rank"]] = rank
    return out


def _add_edges(comms: dict[str, Comm], rows: list[Row], table: Any) -> None:
    """Edges of each communicator, channels of a pair together, in global ranks where they are known."""
    name = {r["instance"]: r["comm"] for r in rows}
    keys = ["instance", "src", "dst", "via", "gdr", "host_staged", "conn"]
    pairs = table.group_by(keys).aggregate([("channel", "count_distinct"), ("nic", "distinct")]).to_pylist()
    seen: set[tuple[str, Edge]] = set()
    for p in sorted(pairs, key=lambda p: (p["src"], p["dst"], p["conn"], p["via"])):
        comm = comms.get(name.get(p["instance"], ""))
        if comm is None:
            continue
        src, dst = comm.ranks.get(p["src"], p["src"]), comm.ranks.get(p["dst"], p["dst"])
        nics = tuple(sorted(n for n in p["nic_distinct"] if n is not None))
        edge = Edge(src, dst, p["via"], p["gdr"], p["host_staged"], p["conn"], p["channel_count_distinct"], nics)
        if (comm.name, edge) not in seen:  # both ends of a network edge print it
            seen.add((comm.name, edge))
            comm.edges.append(edge)


def _groups(comms: dict[str, Comm], trace: Trace) -> dict[Members, list[Comm]]:
    """Communicators of each group: those the trace names, else those with its ranks, as far as the log knows them."""
    whole: dict[Members, list[Comm]] = defaultdict(list)
    partial: list[Comm] = []
    for comm in comms.values():
        if len(comm.ranks) == comm.nranks:
            whole[tuple(sorted(comm.ranks.values()))].append(comm)
        elif comm.ranks:
            partial.append(comm)
    out = {}
    for members in trace.groups:
        named = trace.comm_ids.get(members, frozenset())
        exact = [c for n in sorted(named) if (c := comms.get(n)) is not None]
        out[members] = exact or whole.get(members, []) + [c for c in partial if c.fits(members)]
    return out


def _by_calls(
    members: Members,
    found: list[Comm],
    run: Run,
    calls: Callable[[Members, int], list[Signature]],
    rank_of: dict[str, int],
    least: float,
) -> list[Comm]:
    """Of several communicators with a group's ranks, those whose logged calls are the group's; all if none is."""
    if len(found) < 2:
        return found
    agreed = []
    for comm in found:
        row = next((r for r in comm.rows if r["instance"] in rank_of), None)
        if row is None:
            continue
        alignment = align(_logged_calls(run, row["instance"]), calls(members, rank_of[row["instance"]]))
        if alignment is not None and alignment.agree > least:
            agreed.append(comm)
    return agreed or found


def _logged_calls(run: Run, instance: str) -> list[Signature]:
    out: list[Signature] = []
    for part in run.logs:
        table = part.table(NCCL_CALLS)
        own = table.filter(pc.equal(table["instance"].cast("string"), instance)).slice(0, _CALLS)
        pairs = zip(own["function"].to_pylist(), own["bytes"].to_pylist(), strict=True)
        out += [(_KIND.get(f, f.lower()), b or 0) for f, b in pairs]
    return out


def _models(tuning: list[Row]) -> dict[str, dict[tuple[str, str, str], tuple[float, float]]]:
    out: dict[str, dict[tuple[str, str, str], tuple[float, float]]] = defaultdict(dict)
    for row in tuning:
        kind = _KIND.get(row["function"] or "")
        if row["kind"] == "model" and kind is not None:
            what = kind, row["algorithm"], row["protocol"] or ""
            out[row["instance"] or row["proc"]][what] = row["latency_us"], row["gbs"]
    return out


def _choices(tuning: list[Row]) -> dict[str, Counter[tuple[str, int, str, str | None, int | None]]]:
    out: dict[str, Counter[tuple[str, int, str, str | None, int | None]]] = defaultdict(Counter)
    for row in tuning:
        if row["kind"] == "choice" and row["function"] is not None and row["bytes"]:
            what = (row["function"], row["bytes"], row["algorithm"], row["protocol"], row["channels"])
            out[row["instance"] or row["proc"]][what] += row["n"]
    return out


def logged(joined: Joined) -> dict[Members, Logged]:
    """What the log says of each group that has a communicator in it."""
    return {members: _logged(members, comms, joined) for members, comms in joined.groups.items() if comms}


def _logged(members: Members, comms: list[Comm], joined: Joined) -> Logged:
    edges = [e for c in comms for e in c.edges]
    kinds = {frozenset((e.via, e.gdr, e.staged) for e in c.edges) for c in comms if c.edges}
    rows = [r for c in comms for r in c.rows]
    facts: dict[str, str] = {"communicator": ", ".join(c.name for c in comms)}
    if len(kinds) > 1:
        facts["ambiguous"] = f"{len(comms)} communicators of these ranks use different wires"
    staged = [e for e in edges if e.staged]
    if staged:
        facts["staged_edges"] = _list_edges(staged)
        facts["staged_why"] = _why(staged, rows, joined)
    net = [e.gdr for e in edges if e.gdr is not None]
    channels = {r["channels"] for r in rows if r["channels"]}
    return Logged(
        transport=_transport(edges),
        staged=bool(staged) if edges else None,
        shm=any(e.via == "SHM" for e in staged),
        gdr=all(net) if net else None,
        nvls=any(r["nvls"] for r in rows),
        channels=max(channels) if channels else None,
        choices=_group_choices(rows, joined, len(members)),
        expected=next((m for r in rows if (m := joined.models.get(r["instance"]))), {}),
        facts=facts,
    )


def _transport(edges: list[Edge]) -> str:
    """Wires of a group, the commonest first: 'P2P/CUMEM + NET/IB/GDRDMA'."""
    count = Counter(e.via + ("/GDRDMA" if e.gdr else "") for e in edges)
    return " + ".join(via for via, _ in sorted(count.items(), key=lambda item: (-item[1], item[0])))


def _list_edges(edges: list[Edge]) -> str:
    pairs = sorted({(e.src, e.dst, e.via) for e in edges})
    shown = ", ".join(f"{src}->{dst} {via}" for src, dst, via in pairs[:_SHOWN])
    return shown + (f" and {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else "")


def _why(staged: list[Edge], rows: list[Row], joined: Joined) -> str:
    """Why edges pass host memory, as far as the log says."""
    procs = [joined.procs[n] for n in sorted({r["proc"] for r in rows}) if n in joined.procs]
    reasons: list[str] = []
    if any(e.via.startswith("NET/Socket") for e in staged):
        reasons.append("TCP sockets cannot read GPU memory")
    elif any(e.gdr is False for e in staged):
        told = list(dict.fromkeys(p["gdr_reason"] for p in procs if p["gdr_reason"]))
        reasons.append("GPUDirect RDMA is off" + (f" ({told[0]})" if told else ""))
    if any(e.via == "SHM" for e in staged):
        reasons.append("no peer-to-peer between GPUs of a host" + _setting(procs, "NCCL_P2P_"))
    return "; ".join(reasons) + _setting(procs, "NCCL_NET_GDR_")


def _setting(procs: list[Row], prefix: str) -> str:
    found = {s for p in procs for s in (p["env"] or "").split(";") if s.startswith(prefix)}
    return f" ({', '.join(sorted(found))})" if found else ""


def _group_choices(rows: list[Row], joined: Joined, n: int) -> dict[tuple[str, int], tuple[str, str, int | None]]:
    """(kind, S) -> the choice made most often; bytes of newer NCCL are per rank and are made whole here."""
    count: dict[tuple[str, int], Counter[tuple[str, str, int | None]]] = defaultdict(Counter)
    for row in rows:
        found = joined.choices.get(row["instance"]) or joined.choices.get(row["proc"]) or Counter()
        version = (joined.procs.get(row["proc"]) or {}).get("version")
        scale = n if _version(version) >= (2, 24) else 1
        for (function, size, algorithm, protocol, channels), times in found.items():
            kind = _KIND.get(function)
            if kind is not None:
                whole = size * (scale if function in _PER_RANK else 1)
                count[kind, whole][algorithm, protocol or "", channels] += times
    return {key: most.most_common(1)[0][0] for key, most in count.items()}


def _version(text: str | None) -> tuple[int, ...]:
    return tuple(int(x) for x in (text or "0.0").split(".")[:2] if x.isdigit())
