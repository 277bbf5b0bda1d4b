"""Where the ranks stand and what links they have: hosts, a topology file, device names, NCCL logs."""

from __future__ import annotations

from pathlib import Path

from traceview.analysis import peaks, tiers
from traceview.analysis.bandwidth import Fabric
from traceview.analysis.bounds import Links
from traceview.run import Run


def fabric(run: Run, topology: str | None) -> Fabric:
    """Tiers and links of METHODS f.2 and f.3; what no file tells stays unknown."""
    table = peaks.load()
    places = tiers.load_places(Path(topology)) if topology else {}
    placement = tiers.Placement(hosts={r: run.host(r) for r in run.ranks}, places=places)
    return Fabric(placement, {r: _links(table, run, r) for r in run.ranks})


def _links(table: peaks.Peaks, run: Run, rank: int) -> Links:
    device = table.device(run.parts[rank].meta.device_name)
    slot = table.pcie_of(device.pcie_gen) if device else None
    return Links(
        ring=device.ring_gbs if device else None,
        nvlink=device.nvlink_gbs if device else None,
        pcie=slot.practical_gbs if slot else None,
        node_nics=table.nics_of(run.host(rank)),
    )
