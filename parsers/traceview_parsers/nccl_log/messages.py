"""Warnings and errors with their meaning: what the line says about the machine, and what to look at."""

from __future__ import annotations

import re
from dataclasses import dataclass

from traceview_parsers.nccl_log.state import Notable, Proc, State

_IB_STATUS = {
    "12": (
        "error",
        "transport retries exceeded: the peer or the link is gone, or the fabric drops packets",
    ),
    "4": ("error", "local protection error: GPU memory is not mapped for the NIC (GPUDirect, peer memory module)"),
    "5": ("warning", "work request flushed: a consequence of an earlier error on the same connection"),
    "10": ("error", "remote access error: the peer's memory registration is gone"),
    "13": ("error", "receiver not ready: the peer posts no buffers, it is stuck or overloaded"),
}


@dataclass(frozen=True)
class Rule:
    """What a line with this pattern is, how bad it is, and what to look at."""

    kind: str
    level: str
    pattern: re.Pattern[str]
    meaning: str


def _rule(kind: str, level: str, pattern: str, meaning: str) -> Rule:
    return Rule(kind, level, re.compile(pattern), meaning)


# The first rule that finds its pattern in a line names it.
RULES = (
    _rule("ib_completion", "error", r"Got completion .*?(?:error|status=(?:\w+\()?)\s*(\d+)|CQE with error", ""),
    _rule(
        *("ib_speed", "warning", r"speed change detected"),
        "a link runs slower than before: look at cable, optics and switch port",
    ),
    _rule("ib_device_failed", "error", r"marked as failed|Replacing QP|Retransmitting", "a NIC failed over"),
    _rule(
        *("ib_gid_changed", "warning", r"GID table changed"),
        "the addresses of a RoCE port changed while it was in use",
    ),
    _rule(
        *("ib_async", "error", r"(?:Got|async) .*?event"),
        "the NIC driver reported an event on a port or connection",
    ),
    _rule(
        *("watchdog_timeout", "error", r"Watchdog caught collective operation timeout"),
        "a collective did not finish in time: look for the rank that launched fewer calls",
    ),
    _rule(
        *("mismatch", "error", r"[Mm]ismatched collective|collective mismatch|[Mm]essage truncated"),
        "ranks called different collectives or sizes: an ordering bug in the program",
    ),
    _rule(
        *("iommu", "warning", r"iommu=pt"),
        "the IOMMU translates DMA, so peer-to-peer and GPUDirect are slow: boot with iommu=pt",
    ),
    _rule(
        *("numa_balancing", "warning", r"NUMA auto balancing"),
        "NUMA balancing moves pages and makes times scatter: switch it off",
    ),
    _rule("duplicate_gpu", "error", r"Duplicate GPU detected", "two ranks use one GPU: wrong device selection"),
    _rule(
        *("nvls_bind", "error", r"Failed to bind NVLink SHARP"),
        "NVLink SHARP memory could not be bound: look at fabric manager and driver",
    ),
    _rule("cuda", "error", r"Cuda failure", "a CUDA call failed; NCCL only reports it"),
    _rule(
        *("gdr_module", "warning", r"peermem|peer memory|nv_peer"),
        "the peer-memory module decides whether GPUDirect works",
    ),
    _rule(
        *("socket", "error", r"[Cc]onnection (?:refused|reset|closed by remote)|Connect to .* failed|socket\w*: "),
        "a peer is gone, or a firewall or a wrong interface is in the way",
    ),
    _rule(*("no_ibverbs", "note", r"Failed to open libibverbs"), "no InfiniBand library: NCCL uses TCP sockets"),
    _rule("timeout", "error", r"[Tt]imed? ?out", "a peer did not answer in time"),
)
TRAIL = re.compile(r"[\w./]+:\d+ -> \d+(?: .*)?")
RANK = re.compile(r"\[Rank (\d+)\]|\[rank(\d+)\]")
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_LIMIT = 20_000
_TEXT = 500


def note(state: State, proc: Proc | None, text: str, *, warning: bool) -> bool:
    """Keep a line if a rule knows it, or if it is a warning. True if it was kept."""
    rule = next((r for r in RULES if r.pattern.search(text)), None)
    if rule is None and not warning:
        return False
    kind, level, meaning = ("warning", "warning", "") if rule is None else (rule.kind, rule.level, rule.meaning)
    if rule is not None and kind == "ib_completion":
        found = rule.pattern.search(text)
        status = found[1] if found and found[1] else ""
        level, meaning = _IB_STATUS.get(status, ("error", "a work request of the NIC failed"))
        kind = f"ib_completion_{status}" if status else kind
    _keep(state, proc, (level, kind, text[:_TEXT], meaning))
    return True


def _keep(state: State, proc: Proc | None, what: tuple[str, str, str, str]) -> None:
    level, kind, text, meaning = what
    key = (proc, kind, _NUMBERS.sub("#", text))
    known = state.notables.get(key)
    if known is not None:
        known.count += 1
    elif len(state.notables) < _LIMIT:
        named = RANK.search(text)
        rank = int(named[1] or named[2]) if named else None
        state.notables[key] = Notable(proc, level, kind, text, meaning, state.lines, rank)
