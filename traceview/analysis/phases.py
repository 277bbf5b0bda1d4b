"""The phases of a window and their priority, METHODS a.2 and a.3.

A segment of a window has a set of active phases; its leaf is that of the first active one in ``PHASES``. The order
is that of METHODS a.3, with the sub-leaves in order inside their leaf. Idle causes are phases too: they exist only
inside gaps, so ``idle_data`` can stand before ``comm_host`` (METHODS a.5) without touching anything else. The tag of
an idle phase stands after a colon.
"""

from __future__ import annotations

import numpy as np

from traceview.schema import LEAVES, SUB_LEAVES

PHASES = (
    "compute.plain",
    "compute.fused_comm",
    "gpu_opaque",
    "comm_transfer.nxn",
    "comm_transfer.p2p",
    "comm_unresolved.nxn",
    "comm_unresolved.p2p",
    "comm_wait.nxn",
    "comm_wait.p2p",
    "pcie_d2h.pageable",
    "pcie_d2h.pinned",
    "pcie_d2h.unknown",
    "pcie_h2d.pageable",
    "pcie_h2d.pinned",
    "pcie_h2d.unknown",
    "idle_data",
    "comm_host",
    "gpu_d2d",
    "gpu_memset",
    "gpu_other",
    "uncovered",
    "idle_sync",
    "idle_sync:refill",
    "idle_host:alloc",
    "idle_host:module_load",
    "idle_host:gc",
    "idle_host:compile",
    "idle_host",
    "idle_launch",
    "idle_unknown:queued",
    "idle_unknown:queued:comm?",
    "idle_unknown",
)
CODE = {name: code for code, name in enumerate(PHASES)}


def leaf_name(phase: str) -> str:
    """'comm_wait.nxn' -> 'comm_wait', 'idle_sync:refill' -> 'idle_sync'."""
    return phase.partition(":")[0].partition(".")[0]


def idle_tag(phase: str) -> str:
    """'idle_sync:refill' -> 'refill'; '' where there is none."""
    return phase.partition(":")[2]


LEAF_OF = np.array([LEAVES.index(leaf_name(p)) for p in PHASES], np.int8)
"""phase -> index into LEAVES"""
SUB_OF = np.array([SUB_LEAVES.index(p) if p in SUB_LEAVES else -1 for p in PHASES], np.int8)
"""phase -> index into SUB_LEAVES, -1 = the leaf has none"""


def bits(*prefixes: str) -> int:
    """Mask of all phases of the named leaves (or of one sub-leaf).

    >>> bits("compute") == 3, bits("comm_wait.p2p") == 1 << CODE["comm_wait.p2p"]
    (True, True)
    """
    return sum(1 << code for name, code in CODE.items() if name in prefixes or leaf_name(name) in prefixes)


IDLE_PHASES = tuple(code for name, code in CODE.items() if name.startswith("idle_"))
ACTIVE = ((1 << len(PHASES)) - 1) & ~bits("idle_data", "idle_sync", "idle_host", "idle_launch", "idle_unknown")
"""Phases of the co-activity table: everything but the idle causes, METHODS a.1"""


def coactivity_name(mask: int) -> str:
    """Leaf names of a set of phases in priority order: 'compute+comm_transfer', '' for nothing."""
    return "+".join(dict.fromkeys(leaf_name(p) for code, p in enumerate(PHASES) if mask >> code & 1))
