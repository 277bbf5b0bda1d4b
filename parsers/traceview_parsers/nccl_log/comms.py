"""Records about communicators and their edges."""

from __future__ import annotations

import re
from typing import Any

from traceview_parsers.nccl_log import grammar
from traceview_parsers.nccl_log.state import Comm, Context, Edge, State


def init(state: State, ctx: Context, message: str) -> bool:
    """``... Init START`` and ``... Init COMPLETE``."""
    found = grammar.INIT.fullmatch(message)
    if found is None:
        return False
    _, pointer, rank, nranks, cuda, nvml, bus, parent, split, color, key, comm_id, what = found.groups()
    if int(rank) >= int(nranks):
        return False
    comm = _comm_of_init(ctx, pointer, (int(rank), int(nranks)), what)
    comm.votes = comm.votes + 1 if comm.rank == int(rank) else 1
    comm.rank, comm.nranks = int(rank), int(nranks)
    comm.comm_id = comm_id or comm.comm_id
    for name, value in (("cuda_dev", cuda), ("nvml_dev", nvml), ("color", color), ("split", split), ("key", key)):
        if value is not None:
            comm.facts[name] = int(value)
    if bus:
        comm.facts["bus_id"] = bus
    if parent and comm.parent is None:
        comm.parent = ctx.proc.by_pointer.get(parent)
        comm.facts.setdefault("split", sum(c.parent is comm.parent for c in ctx.proc.comms) - 1)
    if what == "COMPLETE":
        comm.complete = True
        ctx.proc.last = comm
        ctx.proc.open.pop(ctx.tid, None)
    return True


def _comm_of_init(ctx: Context, pointer: str, place: tuple[int, int], what: str) -> Comm:
    """The communicator that an Init line speaks of: one begun on this thread or pointer, else a new one."""
    proc = ctx.proc
    known = proc.by_pointer.get(pointer)
    if known is not None and not known.complete and (known.rank, known.nranks) in (place, (None, place[1])):
        return known
    draft = proc.open.get(ctx.tid)
    comm = draft if draft is not None and draft.pointer is None else Comm(proc)
    comm.pointer = pointer
    comm.number = sum(c.pointer == pointer for c in proc.comms)
    proc.comms.append(comm)
    proc.by_pointer[pointer] = comm
    proc.open[ctx.tid] = comm
    return comm


def shape_or_end(state: State, ctx: Context, message: str) -> bool:
    """``comm P rank r nRanks n nNodes N ...``, ``... Destroy COMPLETE``, and Init lines without a function name."""
    found = grammar.SHAPE.fullmatch(message)
    if found is not None:
        comm = ctx.proc.by_pointer.get(found[1])
        if comm is not None and (comm.rank, comm.nranks) == (int(found[2]), int(found[3])):
            comm.votes += 1
            comm.facts |= {"nodes": int(found[4]), "local_ranks": int(found[5]), "mnnvl": found[7] != "0"}
        return True
    found = grammar.END.fullmatch(message)
    if found is None:
        return init(state, ctx, message)
    comm = ctx.proc.by_pointer.get(found[1])
    if comm is not None and comm.rank == int(found[2]):
        comm.votes += 1
        comm.facts["end"] = found[6].lower()
    return True


def connected(state: State, ctx: Context, message: str) -> bool:
    """``Connected all rings, use ring PXN b GDR b``; the other ``Connected`` lines say nothing more."""
    found = grammar.RINGS_CONNECTED.fullmatch(message) if message.startswith("Connected all rings,") else None
    if found is not None:
        _with_pointer(state, ctx, found[2]).facts["gdr"] = found[1] == "1"
    return found is not None or message.startswith("Connect")


def _with_pointer(state: State, ctx: Context, pointer: str | None) -> Comm:
    known = ctx.proc.by_pointer.get(pointer) if pointer else None
    return known or state.draft(ctx)


def channels(state: State, ctx: Context, message: str) -> bool:
    """``n coll channels, ..., p p2p channels, q p2p channels per peer``."""
    found = grammar.CHANNELS.fullmatch(message)
    if found is None:
        return False
    facts = state.draft(ctx).facts
    facts |= {"channels": int(found[1]), "p2p_channels": int(found[3])}
    if found[2] is not None:
        facts["nvls"] = found[2] != "0"
    return True


def times(state: State, ctx: Context, message: str) -> bool:
    """``Init timings`` follows its COMPLETE; ``Bootstrap timings`` stands between START and COMPLETE."""
    found = grammar.BOOTSTRAP_TIME.fullmatch(message)
    if found is not None:
        state.draft(ctx).facts["bootstrap_s"] = float(found[1])
        return True
    found = grammar.INIT_TIME.fullmatch(message)
    if found is None:
        return False
    comm = ctx.proc.last
    if comm is not None and (comm.rank, comm.nranks) == (int(found[1]), int(found[2])):
        comm.facts["init_s"] = float(found[3])
    return True


def pattern(state: State, ctx: Context, message: str) -> bool:
    """``Pattern 4`` is the ring: path types between GPUs and between GPU and NIC."""
    found = grammar.RING_PATTERN.fullmatch(message)
    if found is not None and found[1] != "0":
        state.draft(ctx).facts |= {"intra": found[2], "inter": found[3]}
    return found is not None or message.startswith("Pattern ")


def mnnvl(state: State, ctx: Context, message: str) -> bool:
    """``MNNVL busId .. fabric UUID .. cliqueId ..``: the NVLink domain (UUID 0.0 = none)."""
    found = grammar.MNNVL.fullmatch(message)
    if found is not None and found[1] != "0.0":
        state.draft(ctx).facts["clique"] = f"{found[1]}/{found[2]}"
    return found is not None or re.fullmatch(r"MNNVL \d+ cliqueId .*", message) is not None


def edge(state: State, ctx: Context, message: str) -> bool:
    """``Channel cc : a[x] -> b[y] via ...``; also ring orders and ring graphs, which begin with the same words."""
    found = grammar.EDGE.fullmatch(message)
    if found is None:
        return bool(grammar.RING_ORDER.fullmatch(message) or grammar.RING_GRAPH.fullmatch(message))
    channel, conn, src, label, dst, label2, side, via, pointer, nranks = found.groups()
    wire = _wire(via)
    if wire is None or (wire["wire"] == "net") != (side is not None) or src == dst:
        return False
    if nranks is not None and max(int(src), int(dst)) >= int(nranks):
        return False
    comm = _with_pointer(state, ctx, pointer)
    state.edges.append(Edge(ctx.proc, comm, int(channel), int(conn or 0), int(src), int(dst), side or "send", **wire))
    state.edges[-1].labels = (label, label2)
    return True


def collnet_edge(state: State, ctx: Context, message: str) -> bool:
    """``CollNet cc : r [send] via COLLNET/...``: the other end is the switch, written as -1."""
    found = grammar.COLLNET_EDGE.fullmatch(message)
    if found is None:
        return False
    channel, conn, rank, side, via, pointer, _ = found.groups()
    wire = _wire(via)
    if wire is None or wire["wire"] != "collnet":
        return False
    ends = (int(rank), -1) if side == "send" else (-1, int(rank))
    comm = _with_pointer(state, ctx, pointer)
    state.edges.append(Edge(ctx.proc, comm, int(channel), int(conn or 0), *ends, side, **wire))
    return True


def _wire(via: str) -> dict[str, Any] | None:
    """Columns of an edge that its ``via`` text decides; None if the text is not whole."""
    found = grammar.VIA_NET.fullmatch(via)
    if found is not None:
        name, nic, pxn, gdr, _ = found.groups()
        return {
            "wire": "collnet" if name.startswith("COLLNET/") else "net",
            "via": name,
            "nic": int(nic),
            "gdr": gdr is not None,
            "pxn": None if pxn is None else int(pxn),
        }
    if grammar.VIA_SHM.fullmatch(via):
        return {"wire": "shm", "via": "SHM"}
    found = grammar.VIA_P2P.fullmatch(via)
    if found is None:
        return None
    wire = {"P2P/MNNVL": "mnnvl"}.get(found[1], "indirect" if "indirect" in found[1] else "p2p")
    return {"wire": wire, "via": found[1].split("/indirect")[0] if wire == "indirect" else found[1]}
