"""Records about the machine: versions, settings, NICs, GPUDirect, the printed topology."""

from __future__ import annotations

from traceview_parsers.nccl_log import grammar
from traceview_parsers.nccl_log.state import Context, State


def version(state: State, ctx: Context, message: str) -> bool:
    """``NCCL version 2.27.3+cuda12.9`` as a record of its process."""
    found = grammar.VERSION.match(message)
    if found is not None:
        ctx.proc.version, ctx.proc.cuda = found[2] + found[3], found[4]
        ctx.proc.vendor = found[1].lower()
        return True
    return message.startswith("NCCL git version") or environment(state, ctx, message)


def environment(state: State, ctx: Context, message: str) -> bool:
    """``NCCL_X set by environment to Y``."""
    found = grammar.ENV.fullmatch(message)
    if found is not None:
        ctx.proc.env[found[1]] = found[2].strip()
    return found is not None


def using(state: State, ctx: Context, message: str) -> bool:
    """``Using network IB``."""
    found = grammar.USING_NETWORK.fullmatch(message)
    if found is not None:
        ctx.proc.network = found[1].strip()
    return True


def net(state: State, ctx: Context, message: str) -> bool:
    """NIC lists, speeds, and whether the driver of a NIC can do GPUDirect."""
    if message.startswith("NET/0 "):
        return True
    found = grammar.NIC_LIST.fullmatch(message)
    if found is not None:
        ctx.proc.nics |= {int(i): name for i, name in grammar.NIC.findall(found[1].split(" OOB ")[0])}
        return True
    found = grammar.NIC_SPEED.fullmatch(message)
    if found is not None:
        ctx.proc.nic_gbs[int(found[1])] = int(found[2]) / 8000
        return True
    found = grammar.GDR_HCA.fullmatch(message)
    if found is not None:
        ctx.proc.gdr_hca = bool(ctx.proc.gdr_hca) or found[1] == "Enabled"
        return True
    return False


def gdr_pair(state: State, ctx: Context, message: str) -> bool:
    """``GPU Direct RDMA Disabled for GPU x / HCA y (distance a > b)``: the reason, path types named."""
    found = grammar.GDR_PAIR_OFF.fullmatch(message)
    if found is None:
        return message.startswith("GPU Direct RDMA Enabled") or message.startswith("GPU Direct RDMA (")
    _, hca, distance, limit, module = found.groups()
    if module:
        reason = "the peer-memory kernel module is not loaded"
    else:
        known = ctx.proc.version or state.version
        reason = f"distance {grammar.path_type(int(distance), known)} > {grammar.path_type(int(limit), known)}"
    ctx.proc.gdr_reasons[f"NIC {hca}: {reason}"] = None
    return True


def graph(state: State, ctx: Context, message: str) -> bool:
    """A line of the printed topology tree: ``+ PCI[24.0] - GPU/81000 (1)``, ``+ NET[25.0] - NET/0 (..)``."""
    found = grammar.GRAPH_NIC.fullmatch(message)
    if found is not None:
        ctx.proc.nic_gbs.setdefault(int(found[2]), float(found[1]))
        return True
    found = grammar.GRAPH_LINK.fullmatch(message)
    if found is None:
        return False
    if found[1] == "PCI":
        ctx.proc.pcie_gbs = min(float(found[2]), ctx.proc.pcie_gbs or float("inf"))
        ctx.proc.nvlink = bool(ctx.proc.nvlink)
    else:
        ctx.proc.nvlink = True
    return True
