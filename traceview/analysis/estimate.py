"""How much of the unresolved communication is waiting, when the peers are missing (METHODS k.3).

From one rank alone a collective's waiting cannot be told, but the transfer takes no longer than the fastest of its
class did as a whole: what is exposed beyond that is waiting. All of the rest may be waiting too. The interval stands
beside ``comm_unresolved``, never inside it.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from traceview.analysis.types import UNRESOLVED, Bools, Ints, Phases
from traceview.config import DEFAULT, Config
from traceview.schema.arrays import to_numpy


def waiting_at_least(
    collectives: Any, phases: Phases, exposed: Ints, some: Bools, config: Config = DEFAULT
) -> tuple[int, int]:
    """(ns of exposed unresolved communication beyond the smallest of its class, number of collectives compared).

    A class is (rank, group, kind, size). ``exposed``: ns per row; ``some``: rows to look at (of used steps, of peers
    or of groups).
    """
    rows = pl.DataFrame(
        {
            "rank": to_numpy(collectives["rank"]),
            "group": pl.from_arrow(collectives["group"]).cast(pl.String),
            "kind": pl.from_arrow(collectives["kind"]).cast(pl.String),
            "bytes": pl.from_arrow(collectives["bytes"]),
            "name": pl.from_arrow(collectives["name"]).cast(pl.String),
            "ns": to_numpy(collectives["end"]) - to_numpy(collectives["start"]),
            "exposed": exposed,
            "open": (phases.second == UNRESOLVED) & some,
        }
    ).filter(pl.col("open"))
    keys = ["rank", "group", "kind", "bytes", "name"]
    rows = rows.with_columns(least=pl.col("ns").min().over(keys), n=pl.len().over(keys))
    rows = rows.filter(pl.col("n") >= config.estimate_min_collectives)
    above = (pl.col("exposed") - pl.col("least")).clip(lower_bound=0).sum()
    found = rows.select(above=above, n=pl.len())
    return int(found["above"][0] or 0), int(found["n"][0])
