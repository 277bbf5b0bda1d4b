"""Environment settings that cost time, and settings that differ between ranks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from traceview import units
from traceview.config import Config
from traceview.result import Finding, Result

PREFIX = "env."
# Different on every rank by their meaning.
_OWN = {"RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "CUDA_VISIBLE_DEVICES"}


@dataclass(frozen=True)
class Knob:
    """A setting that is slow if its value matches."""

    names: tuple[str, ...]
    slow: str
    cost: str


_ON = r"1|true|yes|on"
KNOBS = (
    Knob(("CUDA_LAUNCH_BLOCKING",), _ON, "every launch waits for its kernel: nothing overlaps"),
    Knob(("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"), _ON, "the host waits for every collective"),
    Knob(("NCCL_P2P_DISABLE",), _ON, "GPUs of a host do not talk to each other directly"),
    Knob(("NCCL_IB_DISABLE",), _ON, "TCP sockets instead of InfiniBand or RoCE"),
    Knob(("NCCL_NET_GDR_LEVEL", "NCCL_IB_GDR_LEVEL"), r"0|LOC", "network traffic passes host memory"),
    Knob(("NCCL_NVLS_ENABLE",), r"0", "no in-switch reduction on NVLink"),
    Knob(("NCCL_ALGO", "NCCL_PROTO"), r".+", "NCCL's own choice per message is overridden"),
    Knob(("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS"), r"[1-4]", "few channels: large messages do not fill the links"),
    Knob(("NCCL_DEBUG",), r"TRACE", "a log line per internal step"),
    Knob(("NCCL_DEBUG_SUBSYS",), r".*\b(ALL|COLL)\b.*", "a log line per collective"),
    Knob(
        ("CUDA_DEVICE_MAX_CONNECTIONS",), r"1", "launches of all streams queue in order: meant for tensor parallelism"
    ),
    Knob(("OMP_NUM_THREADS",), r"1", "one thread for work on the CPU (torchrun's default)"),
)


def find(result: Result, config: Config) -> list[Finding]:
    """What the recorded environment tells; nothing where none was recorded."""
    by_rank = _environments(result)
    return _slow(by_rank) + _different(by_rank)


def _environments(result: Result) -> dict[int, dict[str, str]]:
    """rank -> name -> value, of ranks whose files hold an environment."""
    out = {}
    for source in result.run.sources:
        told = {k.removeprefix(PREFIX): v for k, v in source.facts.items() if k.startswith(PREFIX)}
        if source.rank is not None and told:
            out[source.rank] = told
    return out


def _slow(by_rank: dict[int, dict[str, str]]) -> list[Finding]:
    said = []
    for knob in KNOBS:
        for name in knob.names:
            hit = {r: e[name] for r, e in by_rank.items() if re.fullmatch(knob.slow, e.get(name, ""), re.I)}
            if hit:
                values = "/".join(sorted(set(hit.values())))
                where = "" if len(hit) == len(by_rank) else f" ({units.named_ranks(list(hit))})"
                said.append(f"{name}={values}{where}: {knob.cost}")
    if not said:
        return []
    return [
        Finding(
            id="slow-settings",
            title=f"environment settings that can cost time: {', '.join(s.partition('=')[0] for s in said)}",
            saving_ns_per_step=None,
            basis="the environment recorded with the trace",
            confidence="possible",
            evidence=said,
            advice="Unset what is not needed on purpose, and measure again.",
            owner="launch configuration",
            section="quality",
        )
    ]


def _different(by_rank: dict[int, dict[str, str]]) -> list[Finding]:
    said = []
    for name in sorted({n for e in by_rank.values() for n in e} - _OWN):
        ranks: dict[str | None, list[int]] = {}
        for rank, environment in sorted(by_rank.items()):
            ranks.setdefault(environment.get(name), []).append(rank)
        if len(ranks) > 1:
            told = [f"{'unset' if v is None else v} on {units.named_ranks(r)}" for v, r in ranks.items()]
            said.append(f"{name}: {', '.join(told)}")
    if not said:
        return []
    return [
        Finding(
            id="settings-differ",
            title=f"environment settings differ between ranks: {', '.join(s.partition(':')[0] for s in said)}",
            saving_ns_per_step=None,
            basis="the environment recorded with the traces",
            confidence="possible",
            evidence=said,
            advice="Start all ranks with the same settings.",
            owner="launch configuration",
            section="quality",
        )
    ]
