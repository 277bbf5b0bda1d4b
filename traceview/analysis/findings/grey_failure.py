"""A host, or its network, that is slow in every group that crosses it; groups without it are not (METHODS e.7)."""

from __future__ import annotations

from traceview.analysis.findings.common import matters
from traceview.config import Config
from traceview.result import CollectiveRow, Finding, Result
from traceview.run import parse_members

LEAST = 2
"""groups that must cross the host: one slow group does not tell its host from its others"""


def find(result: Result, config: Config) -> list[Finding]:
    """One finding per suspect host; none if the slow groups share no host that healthy ones avoid."""
    compared = [r for r in result.collective_rows if r.peers_ratio is not None and r.members]
    slow = [r for r in compared if (r.peers_ratio or 1.0) * config.class_transfer_ratio <= 1]
    hosts = {h: set(ranks) for h, ranks in result.run.hosts.items()}
    suspects = {
        h: crossing
        for h, ranks in hosts.items()
        if (crossing := _crossing(compared, ranks)) and _all_in(crossing, slow)
    }
    if not suspects or 2 * len(suspects) > len(hosts):
        return []
    found = (_finding(result, host, rows) for host, rows in suspects.items())
    return [f for f in found if matters(result, f.saving_ns_per_step, config.finding_min_share)]


def _crossing(rows: list[CollectiveRow], ranks: set[int]) -> list[CollectiveRow]:
    return [r for r in rows if ranks.intersection(parse_members(r.members))]


def _all_in(rows: list[CollectiveRow], slow: list[CollectiveRow]) -> bool:
    return len({r.members for r in rows}) >= LEAST and all(r in slow for r in rows)


def _finding(result: Result, host: str, rows: list[CollectiveRow]) -> Finding:
    saving = sum(int(r.exposed_ns * (1 - (r.peers_ratio or 1.0))) for r in rows) // max(1, len(result.window_rows))
    groups = len({r.members for r in rows})
    name = host.lstrip("?")
    return Finding(
        id=f"grey-failure-{name}",
        title=f"all {groups} groups that cross {name} are slow, groups without it are not",
        saving_ns_per_step=saving,
        basis="exposed time of these groups, if they ran like the same collectives of other groups",
        confidence="likely",
        evidence=[
            f"{r.kind} of group {r.group} ({r.members}): {(r.peers_ratio or 0) * 100:.0f} % of the rate of its peers"
            for r in sorted(rows, key=lambda r: r.peers_ratio or 1.0)[:4]
        ],
        advice=f"Take {name} out and test its NICs and links: error counters, PCIe width, a two-node bandwidth test.",
        owner="network",
        section="communication",
    )
