"""Overlap of communication and compute by brute force (METHODS a.4), over given windows of the model's records."""

from __future__ import annotations

from itertools import pairwise

from simulator.simulate import Sim
from simulator.truth import Truth, phases


def overlaps(sim: Sim, known: Truth, steps: list[int]) -> dict[str, float | None]:
    """overlap_comm and overlap_transfer over all ranks; None where nothing was communicated."""
    total = dict.fromkeys(("comm", "transfer", "hidden_comm", "hidden_transfer"), 0)
    recorded = {id(g.row) for c in known.captures for g in c.gpu}
    for cap in known.captures:
        pieces = phases(sim, cap, recorded)
        for window in (w for w in known.windows if w.rank == cap.rank and w.step in steps):
            inside = [(max(s, window.start), min(e, window.end), leaf) for s, e, leaf in pieces]
            inside = [p for p in inside if p[0] < p[1]]
            for low, high in pairwise(sorted({t for s, e, _ in inside for t in (s, e)})):
                active = {leaf for s, e, leaf in inside if s <= low and e >= high}
                communicates = any(leaf.startswith("comm_") for leaf in active)
                for name, is_on in (("comm", communicates), ("transfer", "comm_transfer" in active)):
                    total[name] += (high - low) * is_on
                    total[f"hidden_{name}"] += (high - low) * (is_on and "compute" in active)
    return {
        f"overlap_{name}": total[f"hidden_{name}"] / total[name] if total[name] else None
        for name in ("comm", "transfer")
    }
