"""From what was learnt to the declared tables: names resolved, torn records checked against each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pyarrow as pa

from traceview.schema import TABLES
from traceview.schema.nccl import NCCL_FUNCTIONS
from traceview_parsers.nccl_log.bench import Row
from traceview_parsers.nccl_log.state import Comm, Edge, Proc, State

_RARE = 5
"""A damaged host name is at least this much rarer than the whole one."""


def settle(state: State) -> None:
    """Give drafts their communicator, glued hosts their process, and drop what contradicts the rest of the log."""
    _merge_glued(state)
    for edge in state.edges:
        _place(edge)
    for comm in {id(m[0]): m[0] for m in state.models}.values():
        known = _candidate(comm) if comm.pointer is None else None
        if known is not None:
            comm.pointer, comm.number = known.pointer, known.number
    if state.torn:
        _drop_contradictions(state)


def _merge_glued(state: State) -> None:
    """A host with text glued to it (``0node0``) or cut off from it (``de0``) is what the others say it is."""
    by_pid: dict[int, list[tuple[tuple[str, int], Proc]]] = defaultdict(list)
    for key, proc in state.procs.items():
        by_pid[proc.pid].append((key, proc))
    for same in by_pid.values():
        for key, proc in same if len(same) > 1 else []:
            twin = next((p for _, p in same if _is_rest(proc, p)), None)
            if twin is not None:
                _merge(state, proc, twin)
                del state.procs[key]


def _is_rest(proc: Proc, other: Proc) -> bool:
    """Whether ``proc`` is a damaged spelling of ``other``: one name ends with the other, and it is the rare one."""
    if proc is other or not (proc.host.endswith(other.host) or other.host.endswith(proc.host)):
        return False
    glued = not proc.clean and other.clean and len(proc.host) > len(other.host)
    return glued or proc.records * _RARE <= other.records


def _merge(state: State, proc: Proc, twin: Proc) -> None:
    proc.host = twin.host
    same: dict[Comm, Comm] = {}
    for comm in proc.comms:
        place = (comm.pointer, comm.rank, comm.nranks)
        known = next((c for c in twin.comms if (c.pointer, c.rank, c.nranks) == place), None)
        if known is None:
            comm.number = sum(c.pointer == comm.pointer for c in twin.comms)
            twin.comms.append(comm)
        else:
            same[comm] = known
            known.votes += comm.votes
            known.complete = known.complete or comm.complete
            known.facts = comm.facts | known.facts
    twin.heads += proc.heads
    for name in ("records", "torn", "unknown"):
        setattr(twin, name, getattr(twin, name) + getattr(proc, name))
    for comm in proc.comms:
        comm.proc = twin
    for edge in (e for e in state.edges if e.proc is proc):
        edge.proc, edge.comm = twin, same.get(edge.comm, edge.comm) if edge.comm is not None else None
    state.tear(twin)


def _candidate(draft: Comm, rank: int | None = None) -> Comm | None:
    """The communicator that lazily connected edges of a draft belong to: of that rank, the one used before."""
    fits = [c for c in draft.proc.comms if c.complete and rank in (None, c.rank)]
    if draft.before in fits:
        return draft.before
    return fits[0] if len(fits) == 1 else (fits[-1] if fits else None)


def _place(edge: Edge) -> None:
    draft = edge.comm
    if draft is None:
        return
    own = edge.src if edge.side == "send" else edge.dst
    if draft.pointer is not None and not (edge.conn == 1 and draft.before is not None):
        edge.basis = "logged" if draft.rank == own else "inferred"
        return
    fits = [c for c in edge.proc.comms if c.complete and c.rank == own]
    edge.comm = _candidate(draft, own) or (draft if draft.pointer else None)
    edge.basis = "inferred" if len(fits) == 1 else "assumed"
    if edge.comm is not None and draft.pointer is None:
        edge.comm.facts = draft.facts | edge.comm.facts


def _drop_contradictions(state: State) -> None:
    """In a torn log two halves of different records can look like one: what one record alone says is not used."""
    pairs = Counter(_claim(e) for e in state.edges)
    own = Counter((e.comm, e.src if e.side == "send" else e.dst) for e in state.edges)
    for proc in state.procs.values():
        for comm in proc.comms:
            heads = proc.heads.count((comm.pointer or "", comm.rank or 0, comm.nranks or 0))
            if comm.rank is not None and comm.votes + heads + own[comm, comm.rank] < 2:
                comm.rank = None
                state.tear(proc)
    _one_owner(state)
    kept = [e for e in state.edges if pairs[_claim(e)] > 1 and _possible(e)]
    for edge in set(state.edges) - set(kept):
        state.tear(edge.proc)
    state.edges = kept
    used = {e.proc for e in kept}
    for key, proc in list(state.procs.items()):
        if proc.records < 3 and proc not in used and all(c.rank is None for c in proc.comms):
            del state.procs[key]


def _claim(edge: Edge) -> tuple[Comm | None, int, int, str, bool | None]:
    return edge.comm, edge.src, edge.dst, edge.via, edge.gdr


def _one_owner(state: State) -> None:
    """Of two processes that claim one rank of a communicator, the one that more records name keeps it."""
    claims: dict[tuple[str, int], list[Comm]] = defaultdict(list)
    for comm in (c for p in state.procs.values() for c in p.comms):
        if comm.comm_id is not None and comm.rank is not None:
            claims[comm.comm_id, comm.rank].append(comm)
    for same in claims.values():
        for comm in sorted(same, key=lambda c: -c.votes)[1:]:
            comm.rank = None


def _possible(edge: Edge) -> bool:
    comm = edge.comm
    if comm is None or comm.nranks is None:
        return True
    own = edge.src if edge.side == "send" else edge.dst
    return comm.rank in (None, own) and max(edge.src, edge.dst) < comm.nranks


def tables(state: State, rows: list[Row]) -> dict[str, Any]:
    """All tables of a log but the calls, by name (shapes: as declared, stored form)."""
    procs = sorted(state.procs.values(), key=lambda p: (p.host, p.pid))
    comms = [c for p in procs for c in p.comms]
    ids = {c: _comm_id(c) for c in comms}
    found = {
        "nccl_procs": [_proc_row(p, state) for p in procs],
        "nccl_comms": [_comm_row(c, ids) for c in comms],
        "nccl_tuning": [*_model_rows(state), *_choice_rows(state)],
        "nccl_messages": [_message_row(n) for n in state.notables.values()],
        "nccl_bench": [_bench_row(r) for r in rows],
    }
    built = {name: _build(name, rows) for name, rows in found.items()}
    return built | {"nccl_edges": _edge_table(state.edges)}


def _build(name: str, rows: list[dict[str, Any]]) -> Any:
    schema = TABLES[name].arrow(stored=True)
    return pa.Table.from_pylist(rows, schema=schema)


def _proc_row(proc: Proc, state: State) -> dict[str, Any]:
    ranks = _world_ranks(proc)
    rank = next(iter(ranks)) if len(ranks) == 1 else None
    basis = "logged" if rank is not None else None
    if not ranks and proc.wrapper_rank is not None:
        rank, basis = proc.wrapper_rank, "assumed"
    version = proc.version or state.version
    return {
        "proc": proc.name,
        "host": proc.host,
        "pid": proc.pid,
        "rank": rank,
        "rank_basis": basis,
        "vendor": proc.vendor if proc.version else state.vendor,
        "version": version,
        "version_basis": None if version is None else ("logged" if proc.version else "inferred"),
        "cuda": proc.cuda or state.cuda,
        "network": proc.network,
        "nics": ";".join(f"{i}={n}" for i, n in sorted(proc.nics.items())) or None,
        "nic_gbs": sum(proc.nic_gbs.values()) or None,
        "nvlink": proc.nvlink,
        "pcie_gbs": proc.pcie_gbs,
        "gdr_hca": proc.gdr_hca,
        "gdr_reason": "; ".join(proc.gdr_reasons) or None,
        "env": ";".join(f"{k}={v}" for k, v in sorted(proc.env.items())) or None,
        "records": proc.records,
        "torn": proc.torn,
        "unknown": proc.unknown,
    }


def _world_ranks(proc: Proc) -> set[int]:
    """Ranks of the process in its largest communicator (several if one process drives several GPUs)."""
    sizes = [c.nranks or 0 for c in proc.comms if c.rank is not None]
    return {c.rank for c in proc.comms if c.rank is not None and c.nranks == max(sizes)}


def _comm_id(comm: Comm) -> tuple[str, str]:
    """(id, basis). Without a printed id: place in the family of its parent, else place among those of its size."""
    if comm.comm_id:
        return comm.comm_id, "logged"
    split = comm.facts.get("split")
    if comm.parent is not None and split is not None:
        return f"{_comm_id(comm.parent)[0]}/split{split}.{comm.facts.get('color')}", "inferred"
    same = [c for c in comm.proc.comms if c.nranks == comm.nranks and not c.comm_id and c.rank == comm.rank]
    return f"n{comm.nranks}#{same.index(comm)}", "assumed"


def _comm_row(comm: Comm, ids: dict[Comm, tuple[str, str]]) -> dict[str, Any]:
    names = TABLES["nccl_comms"].arrow(stored=True).names
    facts = {k: v for k, v in comm.facts.items() if k in names}
    return facts | {
        "instance": comm.instance,
        "proc": comm.proc.name,
        "comm": ids[comm][0],
        "comm_basis": ids[comm][1],
        "rank": comm.rank,
        "nranks": comm.nranks,
        "parent": ids[comm.parent][0] if comm.parent in ids else None,
        "complete": comm.complete,
    }


def _edge_table(edges: list[Edge]) -> Any:
    """Column by column: a log of a large job has a million edges."""
    plain = {n: [getattr(e, n) for e in edges] for n in ("channel", "conn", "src", "dst", "nic", "gdr", "pxn")}
    named = {
        "proc": [e.proc.name for e in edges],
        "instance": [e.comm.instance if e.comm is not None else None for e in edges],
        "instance_basis": [e.basis if e.comm is not None else None for e in edges],
        **{n: [getattr(e, n) for e in edges] for n in ("side", "wire", "via")},
    }
    staged = [e.wire == "shm" or (e.wire in ("net", "collnet") and not e.gdr) for e in edges]
    return TABLES["nccl_edges"].build(plain | named | {"host_staged": staged}, stored=True)


def _model_rows(state: State) -> list[dict[str, Any]]:
    return [
        {
            "kind": "model",
            "proc": comm.proc.name,
            "instance": comm.instance if comm.pointer else None,
            "function": function,
            "algorithm": algorithm,
            "protocol": protocol,
            "latency_us": latency,
            "gbs": gbs,
            "n": 1,
        }
        for comm, function, algorithm, protocol, latency, gbs in state.models
    ]


def _choice_rows(state: State) -> list[dict[str, Any]]:
    return [
        {
            "kind": "choice",
            "proc": proc.name,
            "instance": comm.instance if comm is not None else None,
            "function": function if function in NCCL_FUNCTIONS else None,
            "bytes": size,
            "algorithm": algorithm,
            "protocol": protocol,
            "channels": channels,
            "n": n,
        }
        for (proc, comm, function, size, algorithm, protocol, channels), n in state.choices.items()
    ]


def _message_row(note: Any) -> dict[str, Any]:
    names = ("level", "kind", "text", "meaning", "count", "line", "rank")
    return {n: getattr(note, n) for n in names} | {"proc": note.proc.name if note.proc is not None else "?"}


def _bench_row(row: Row) -> dict[str, Any]:
    names = ("test", "ranks", "count", "dtype", "in_place", "time_us", "algbw", "busbw", "wrong")
    return {n: getattr(row, n) for n in names} | {"bytes": row.size}
