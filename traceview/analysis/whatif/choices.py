"""Which scenarios a run is worth asking, each on its own (METHODS h)."""

from __future__ import annotations

from collections.abc import Iterable

from traceview.analysis.findings.common import has_gpu, metric
from traceview.analysis.tiers import TIERS
from traceview.analysis.whatif.asked import Asked
from traceview.analysis.whatif.facts import Facts

FASTER = 2.0
"""how many times as fast a network of the table is"""


def choices(f: Facts, culprits: Iterable[frozenset[int]]) -> list[Asked]:
    """Those that take something away which the run has."""
    leaves = f.result.budget.leaves_ns
    subs = f.result.budget.sub_ns

    def some(*names: str) -> bool:
        return any(leaves.get(name, 0) or subs.get(name, 0) for name in names)

    m = f.moved
    exposed = {m.tier[k] for k in m.kind[(m.window >= 0) & (m.exposed > 0)].tolist()}
    tiers = [t for t in TIERS if t in exposed]
    every = (
        *((True, Asked(network=((tier, FASTER),))) for tier in tiers),
        *((True, Asked(replace=ranks)) for ranks in culprits),
        (some("comm_wait.nxn", "comm_wait.p2p"), Asked(balance=True)),
        (some("pcie_h2d", "pcie_d2h") or bool((m.unstaged > 1).any()), Asked(staging=False)),
        (has_gpu(f.result) and some("idle_data"), Asked(data_wait=False)),
        (has_gpu(f.result) and some("idle_host", "idle_launch"), Asked(launch_gaps=False)),
        (some("comm_transfer"), Asked(overlap=True)),
        (some("comm_transfer", "comm_unresolved"), Asked(communication=False)),
        (bool(metric(f.result, "even_tokens_gain")), Asked(even_tokens=True)),
    )
    return [asked for there, asked in every if there]
