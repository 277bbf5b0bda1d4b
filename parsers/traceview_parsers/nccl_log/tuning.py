"""NCCL's own expectation (a table of latency and bandwidth) and its choice per call."""

from __future__ import annotations

import re
from functools import lru_cache

from traceview_parsers.nccl_log import grammar
from traceview_parsers.nccl_log.state import Comm, Context, State

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


def choice(state: State, ctx: Context, message: str) -> bool:
    """``[Name: ]B Bytes -> Algo .. proto ..`` in its forms of 2.20 to 2.30."""
    found = _choice(message)
    if found is None:
        return False
    key = (ctx.proc, _comm(ctx, found[0]), *found)
    state.choices[key] = state.choices.get(key, 0) + 1
    return True


@lru_cache(maxsize=4096)
def _choice(message: str) -> tuple[str | None, int, str, str | None, int | None] | None:
    """(function, bytes, algorithm, protocol, channels)"""
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


def _comm(ctx: Context, function: str | None) -> Comm | None:
    """The communicator of a choice line, which does not name it: the only one, or that of the call before."""
    if len(ctx.proc.comms) == 1:
        return ctx.proc.comms[0]
    return ctx.proc.last if function and function == ctx.proc.last_function else None
