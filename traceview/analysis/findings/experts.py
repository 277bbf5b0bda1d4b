"""Experts that get uneven tokens: the most loaded rank holds up the combine, whatever its GPU (METHODS e.6)."""

from __future__ import annotations

from traceview import units
from traceview.analysis.findings.common import (
    has_uneven_experts,
    of_step,
    on_host,
    uneven_experts_ns,
    worst_of_rank,
)
from traceview.config import Config
from traceview.result import ExpertRow, Finding, Result


def find(result: Result, config: Config) -> list[Finding]:
    """One finding over all expert groups; none if even tokens would save little."""
    if not has_uneven_experts(result, config):
        return []
    saving = uneven_experts_ns(result)
    rows = [r for r in result.experts if r.gain_ns]
    first = rows[0]
    return [
        Finding(
            id="expert-imbalance",
            title=_title(result, first, len(rows), config),
            saving_ns_per_step=saving,
            basis="largest minus mean of the compute that follows the tokens, between dispatch and combine, as far "
            "as others wait for it; part of the straggler wait, in no other finding",
            confidence="proved" if first.loaded_last >= config.persistent_share * first.pairs else "likely",
            evidence=_evidence(result, first, saving, config),
            advice="Balance the routing: load-balancing loss or router bias, a capacity factor, or hot experts "
            "replicated or placed on other ranks.",
            where=worst_of_rank(result, first.ranks[0].rank),
            owner="model code",
            section="stragglers",
        )
    ]


def _title(result: Result, row: ExpertRow, groups: int, config: Config) -> str:
    where = f"expert group {row.group}" if row.group else "its expert group"
    more = f", and {groups - 1} more group{'s' * (groups > 2)} are uneven" if groups > 1 else ""
    if row.moves:
        return (
            f"from {row.moves} to {row.moves} another rank of {where} is overloaded, {row.imbalance:.2f}x the mean "
            f"tokens; the others wait{more}"
        )
    hot = [x for x in row.ranks if x.pairs > config.one_rank_share * row.pairs] or row.ranks[:1]
    hosts = {r.host for r in result.rank_rows if r.rank in {x.rank for x in hot}}
    place = on_host(hosts.pop()) if len(hosts) == 1 else ""
    one, others = len(hot) == 1, row.group_size - len(hot)
    return (
        f"{units.named_ranks([x.rank for x in hot])}{place} get{'s' * one} {hot[0].load:.2f}x "
        f"the mean tokens of {where}; {others} other{'s' * (others != 1)} wait{'s' * (others == 1)}{more}"
    )


def _evidence(result: Result, row: ExpertRow, saving: int, config: Config) -> list[str]:
    hot = row.ranks[0]
    out = [
        f"the most loaded rank receives {row.imbalance:.2f}x the mean over {row.pairs} dispatches, "
        f"at most {row.imbalance_max:.2f}x; this costs {units.time(saving)} a step, {of_step(result, saving)}",
        f"it arrives last at {row.loaded_last} of {row.pairs} combines",
    ]
    if row.wait_ns:
        out.append(
            f"even tokens would end {units.share(min(1.0, row.gain_ns / row.wait_ns))} of the waiting at the combines"
        )
    if row.correlation is not None:
        out.append(
            f"rank correlation of tokens and arrival at the combine {row.correlation:.2f} "
            f"over {row.correlation_n:,} arrivals"
        )
    hardware = "not a matter of hardware" if hot.pace < 1 + config.slower_share else "slower hardware comes on top"
    out.append(f"rank {hot.rank} needs {hot.pace:.2f}x the time per token of a typical rank: {hardware}")
    each = row.transfer_ns // max(1, row.steps)
    if each:
        out.append(
            f"its all-to-alls would be up to {units.time(each)} a step shorter too: exposed communication counts it"
        )
    return out
