"""Where the ranks stand and what links they have: hosts, a topology file, device names, peaks, NCCL logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from traceview.analysis import fabric, peaks, rails, tiers, topology
from traceview.analysis.bandwidth import Fabric
from traceview.analysis.roles import Places
from traceview.pipeline.values import StudyOptions
from traceview.run import Run
from traceview.schema.nccl import NCCL_EDGES, NCCL_MESSAGES, NCCL_PROCS


def wire(run: Run, collectives: Any, how: StudyOptions) -> tuple[Fabric, Places, list[str]]:
    """Tiers and links of METHODS f.2 and f.3, rails, and what to note; what no file tells stays unknown."""
    places = tiers.load_places(Path(how.topology)) if how.topology else {}
    table = peaks.load(Path(how.peaks) if how.peaks else None)
    found, joined = fabric.fabric(run, collectives, table, places, how.config)
    rail = rails.rails({r: run.host(r) for r in run.ranks}, places, rails.logged_nics(run, joined))
    if joined is None:
        return found, rail, []
    return (
        found,
        rail,
        [
            *joined.notes,
            *topology.notices({t.name: run.log_tables(t) for t in (NCCL_PROCS, NCCL_EDGES, NCCL_MESSAGES)}),
        ],
    )
