"""Communication that passes host memory because the GPUs or the NIC cannot reach GPU memory (METHODS f.4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from traceview import units
from traceview.analysis.findings.common import matters
from traceview.config import Config
from traceview.result import CollectiveRow, Finding, Result


def find(result: Result, config: Config) -> list[Finding]:
    """One finding for all groups whose edges pass host memory, if it costs or may cost something."""
    rows = staged(result)
    if not rows:
        return []
    gain = saving(result, config)
    flat = _at_the_ceiling(rows, config)
    copies = _slow_copies(result, rows, config)
    slow = [r for r in rows if _share(r) is not None and (_share(r) or 0.0) < config.efficiency_healthy]
    at = units.share(config.attained_share)
    confidence = "possible"
    if flat:
        confidence = "proved"
    elif slow:
        confidence = "likely"
    if not matters(result, gain, config.finding_min_share):
        return []
    return [
        Finding(
            id="host-staged",
            title=f"communication of group {_groups(rows)} passes host memory: {_why(rows)}",
            saving_ns_per_step=gain,
            basis=f"exposed time of these groups at {at} of their bound without staging",
            confidence=confidence,
            evidence=[*_edges(rows), *_bounds(result, rows), *flat, *copies],
            advice=_advice(rows),
            owner="hardware",
            section="communication",
        )
    ]


def staged(result: Result) -> list[CollectiveRow]:
    """Classes of collectives of which the NCCL log says that they pass host memory (evidence E1)."""
    return [r for r in result.collective_rows if r.host_staged]


def saving(result: Result, config: Config) -> int:
    """ns a rank and step that the staged groups would win without staging; 0 where no bound is known."""
    if not result.window_rows:
        return 0
    healthy = config.attained_share
    total = sum(int(r.exposed_ns * (1 - min(1.0, (_share(r) or healthy) / healthy))) for r in staged(result))
    return total // len(result.window_rows)


def _share(row: CollectiveRow) -> float | None:
    """busbw as a share of the bound without staging."""
    return row.busbw / row.unstaged_peak if row.busbw and row.unstaged_peak else None


def _groups(rows: list[CollectiveRow]) -> str:
    names = list(dict.fromkeys(r.group or "?" for r in rows))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more groups" if len(names) > 3 else "")


def _why(rows: list[CollectiveRow]) -> str:
    told = list(dict.fromkeys(r.facts.get("staged_why", "") for r in rows))
    return next((t for t in told if t), "the NCCL log shows no direct path")


def _edges(rows: list[CollectiveRow]) -> list[str]:
    """E1: the edges, and the path with its slowest hop."""
    out = []
    for group in dict.fromkeys(r.group for r in rows):
        row = next(r for r in rows if r.group == group)
        out.append(f"edges in the NCCL log: {row.facts.get('staged_edges', row.transport)} of group {group}")
    pcie = next((r.pcie for r in rows if r.pcie), None)
    hop = f", {pcie:.3g} GB/s" if pcie else ""
    over_net = any("NET" in r.transport for r in rows)
    middle = "NIC > network > NIC > " if over_net else ""
    far = "host memory > GPU" if over_net else "GPU"
    out.append(f"path: GPU > host memory > {middle}{far}; slowest hop: GPU to host memory over PCIe{hop}")
    return out


def _bounds(result: Result, rows: list[CollectiveRow]) -> list[str]:
    """What the classes reach, their bound now and without staging, and what they cost a step."""
    out = []
    for r in sorted(rows, key=lambda r: -r.exposed_ns)[:3]:
        if r.busbw is None:
            continue
        now = f", bound {r.peak:.3g}" if r.peak else ""
        free = f", {r.unstaged_peak:.3g} without staging" if r.unstaged_peak else ""
        out.append(f"{r.kind} {r.group} {r.size_class}: busbw {r.busbw:.3g} GB/s{now}{free}")
    cost = sum(r.exposed_ns for r in rows) // max(1, len(result.window_rows))
    return [*out, f"these groups expose {units.time(cost)} a step"]


def _at_the_ceiling(rows: list[CollectiveRow], config: Config) -> list[str]:
    """E2: three or more large sizes at one rate, at most the PCIe ceiling, while the wire allows clearly more."""
    series: dict[tuple[str, str], list[CollectiveRow]] = defaultdict(list)
    for r in rows:
        if r.busbw and (r.bytes or 0) >= config.busbw_min_bytes_inter:
            series[r.group, r.kind].append(r)
    return [text for same in series.values() if (text := _flat_rate(same, config))]


def _flat_rate(same: list[CollectiveRow], config: Config) -> str:
    rates = [r.busbw for r in same if r.busbw]
    pcie, free = same[0].pcie, same[0].unstaged_peak
    if len(rates) < 3 or pcie is None or free is None:
        return ""
    middle = sorted(rates)[len(rates) // 2]
    flat = all(abs(rate - middle) <= config.rate_flat_share * middle for rate in rates)
    if not flat or max(rates) > config.rate_at_ceiling * pcie or free < config.rate_headroom * middle:
        return ""
    sizes = f"{len(rates)} sizes of {same[0].kind} {same[0].group}"
    return f"rate: {sizes} all near {middle:.3g} GB/s, PCIe allows {pcie:.3g}, the wire {free:.3g}"


def _slow_copies(result: Result, rows: Iterable[CollectiveRow], config: Config) -> list[str]:
    """E3: pinned copies far below the PCIe peak: a slot of the wrong width or generation, or far memory."""
    pcie = next((r.pcie for r in rows if r.pcie), None)
    return [
        f"copies: {c.direction} pinned at {c.rate:.3g} of {pcie:.3g} GB/s: slot width, generation or NUMA distance"
        for c in result.copies
        if pcie and c.rate and c.mem == "pinned" and c.direction.startswith("pcie")
        if c.rate <= config.copy_slow_share * pcie
    ]


def _advice(rows: list[CollectiveRow]) -> str:
    """What to change, the nearest cause first."""
    why = " ".join(r.facts.get("staged_why", "") for r in rows)
    out = []
    if "module" in why:
        out.append("Load nvidia-peermem (or use a driver with DMA-BUF) on every host.")
    elif "distance" in why:
        out.append("Put each GPU and its NIC under one PCIe switch, or allow the distance (NCCL_NET_GDR_LEVEL=SYS).")
    elif "GPUDirect" in why:
        out.append("Enable GPUDirect RDMA (nvidia-peermem or DMA-BUF), and check NCCL_NET_GDR_LEVEL.")
    if "TCP" in why:
        out.append("Use the RDMA network instead of TCP: check NCCL_IB_DISABLE, NCCL_IB_HCA and the plug-in.")
    if "peer-to-peer" in why:
        out.append("Allow peer-to-peer between GPUs: unset NCCL_P2P_DISABLE, set ACS and IOMMU to pass-through.")
    return " ".join(out) or "Give the GPUs a direct path: GPUDirect RDMA, peer-to-peer, no IOMMU translation."
