"""NCCL's own expectation (a table of latency and bandwidth) and its choice per call."""

from __future__ import annotations

import re

from traceview_parsers.nccl_log import grammar
from traceview_parsers.nccl_log.state import Context, State

_HEADER = re.compile(r"\s*(Algorithm|Protocol|Max NThreads|Latency/AlgBw)\s*\|(.*)\|?\s*")
_ROW = re.compile(
    r"\s*(Broadcast|Reduce|AllGather|ReduceScatter|AllReduce)\s*\|((?:\s*\d+\.\d+/\s*\d+\.\d+\s*\|)+)\s*"
)
_CELL = re.compile(r"(\d+\.\d+)/\s*(\d+\.\d+)")
_NAMES = {
    **{name.upper(): name for name in (*grammar.ALGORITHMS, *grammar.PROTOCOLS)},
    **{"COLLNET_DIRECT": "CollNetDirect", "COLLNET_CHAIN": "CollNetChain", "NVLS_TREE": "NVLSTree"},
    "COLLNET": "CollNetDirect",
}


def table(state: State, ctx: Context, message: str) -> bool:
    """A header or row of the tuning table."""
    found = _HEADER.fullmatch(message)
    if found is not None:
        cells = [c.strip() for c in found[2].split("|") if c.strip()]
        if found[1] == "Algorithm":
            ctx.proc.columns[ctx.tid] = [(_name(a), p) for a in cells for p in grammar.PROTOCOLS]
        elif found[1] == "Latency/AlgBw":
            pairs = [c.partition("/") for c in cells]
            ctx.proc.columns[ctx.tid] = [(_name(a), _name(p)) for a, _, p in pairs]
        return True
    found = _ROW.fullmatch(message)
    if found is None:
        return False
    comm = state.draft(ctx)
    cells2 = _CELL.findall(found[2])
    for (algorithm, protocol), (latency, gbs) in zip(ctx.proc.columns.get(ctx.tid, []), cells2, strict=False):
        if float(gbs) > 0:
            state.models.append((comm, found[1], algorithm, protocol, float(latency), float(gbs)))
    return True


def _name(text: str) -> str:
    return _NAMES.get(text.strip().upper(), text.strip())


def count(ctx: Context, message: bytes) -> None:
    """Take a ``[Name: ]B Bytes -> ..`` line; there may be one per call, so it is only counted here."""
    proc = ctx.proc
    key = proc.last, proc.last_function, message
    ctx.choices[key] = ctx.choices.get(key, 0) + 1


def settle(state: State, ctx: Context) -> None:
    """Parse the counted lines of a thread; their communicator is the only one, or the one called before."""
    for (last, function, message), n in ctx.choices.items():
        found = _choice(message.decode("utf8", "replace"))
        if found is None:
            state.torn += n
            ctx.proc.torn += n
            continue
        called = found[0] or function or None  # 2.20 to 2.22 do not name the function
        comm = last if called is not None and called == function else None
        if len(ctx.proc.comms) == 1:
            comm = ctx.proc.comms[0]
        key = (ctx.proc, comm, called, *found[1:])
        state.choices[key] = state.choices.get(key, 0) + n


def _choice(message: str) -> tuple[str | None, int, str, str | None, int | None] | None:
    """(function, bytes, algorithm, protocol, channels) in the forms of 2.20 to 2.30."""
    found = grammar.CHOICE_NAMES.fullmatch(message)
    if found is not None:
        channels = int(found[6]) - int(found[5]) + 1
        return found[1], int(found[2]), _name(found[3]), _name(found[4]), channels
    found = grammar.CHOICE_NUMBERS.fullmatch(message)
    if found is not None:
        algorithm, protocol = _numbered(grammar.ALGORITHMS, found[3]), _numbered(grammar.PROTOCOLS, found[4])
        return found[1], int(found[2]), algorithm, protocol, None
    found = grammar.CHOICE_KERNEL.fullmatch(message)
    if found is not None:
        return found[1], int(found[2]), found[3], None, int(found[4]) if found[4] else None
    return None


def _numbered(names: tuple[str, ...], number: str) -> str:
    return names[int(number)] if int(number) < len(names) else number
