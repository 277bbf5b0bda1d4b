"""What a capture must hold for a scenario to have an answer, and how to record it."""

from __future__ import annotations

import numpy as np

from traceview import units
from traceview.analysis.findings.common import has_gpu, metric
from traceview.analysis.whatif.asked import Asked
from traceview.analysis.whatif.facts import Moved, chosen
from traceview.result import Result


def untold(result: Result, m: Moved, asked: Asked) -> str:
    """Why neither bound nor replay can say anything, and what to record; empty = they can."""
    checks = (_network(result, m, asked), _host(result, asked), _tokens(result, asked))
    return next((why for why in checks if why), "")


def _network(result: Result, m: Moved, asked: Asked) -> str:
    seen = np.bincount(m.kind[m.window >= 0], m.transfer[m.window >= 0], len(m.group))
    for name, _ in asked.network:
        if not seen[chosen(m, name)].any():
            missing = result.run.missing_ranks
            add = f"add the traces of ranks {units.ranks(missing)}" if missing else "record all ranks at once"
            return f"because no transfer of {name} is fully observed: {add}"
    return ""


def _host(result: Result, asked: Asked) -> str:
    if asked.data_wait and asked.launch_gaps:
        return ""
    if not has_gpu(result):
        return "because no work on a GPU was recorded: record CUDA or ROCm activity"
    idle = {k: v for k, v in result.budget.leaves_ns.items() if k.startswith("idle_") and v}
    if idle and set(idle) == {"idle_unknown"}:
        return "because the record holds nothing of the host: record CPU activity too"
    return ""


def _tokens(result: Result, asked: Asked) -> str:
    gain = metric(result, "even_tokens_gain")
    if not asked.even_tokens or (gain is not None and any(e.told for e in result.experts)):
        return ""
    if result.experts:
        return (
            "because the trace has no sizes of the experts' all-to-alls: record them with record_shapes=True "
            "(PyTorch 2.4 or later), or NCCL 2.25 or newer and nsys export --include-blobs=true"
        )
    return "because there are no all-to-alls that hand out tokens to experts and take them back"
