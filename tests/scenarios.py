"""The worked examples of ``check/scenarios.json`` as declared tables; microseconds become nanoseconds.

``load(shared_dir)`` gives every scenario by id. A scenario has one device (0) and one host thread (``THREAD``) per
rank. Matching is given: ``instances`` names the instance of every collectives row. Nothing here computes a number
that a test expects, except ``simple_phases``, a per-row Python reading of METHODS e.2 for tests which need phases.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from traceview.analysis.types import NXN, P2P, TRANSFER, UNRESOLVED, Marks, Matches, Phases, Windows
from traceview.schema import COLLECTIVES, GPU_OPS, HOST_RANGES

US = 1_000
THREAD = 1
ONE_TO_N, N_TO_ONE = {"broadcast", "scatter"}, {"reduce", "gather"}
HOST_KIND = {"cpu": "op", "data": "data", "sync": "sync", "host_comm": "host_comm"}


def ns(us: float | None) -> int | None:
    """Microseconds to integer nanoseconds; None stays None."""
    return None if us is None else round(us * US)


@dataclass(frozen=True)
class Scenario:
    """One scenario; ``raw`` is its JSON (times still in microseconds)."""

    id: str
    raw: dict[str, Any] = field(repr=False)

    @property
    def ranks(self) -> list[int]:
        return sorted(int(r) for r in self.raw["ranks"])

    def _gpu(self, rank: int) -> list[dict[str, Any]]:
        """GPU records in the declared order (start, end; launch order among equals)."""
        return sorted(self.raw["ranks"][str(rank)]["gpu"], key=lambda g: (g["s"], g["e"]))

    def gpu_ops(self, rank: int) -> Any:
        """The ``gpu_ops`` table of a rank, rank column included."""
        ops = self._gpu(rank)
        launch = [ns(g["ls"]) for g in ops]
        return GPU_OPS.build(
            {
                "rank": [rank] * len(ops),
                "device": [0] * len(ops),
                "stream": [g["stream"] for g in ops],
                "start": [ns(g["s"]) for g in ops],
                "end": [ns(g["e"]) for g in ops],
                "cls": [g["cls"] for g in ops],
                "fused_comm": [False] * len(ops),
                "name": [g.get("coll", g["cls"]) for g in ops],
                "launch_start": launch,
                "launch_end": launch,
                "launch_thread": [None if t is None else THREAD for t in launch],
                "bytes": [g.get("bytes") for g in ops],
                "mem": [g.get("mem") for g in ops],
            }
        )

    def host_ranges(self, rank: int) -> Any:
        """The ``host_ranges`` table of a rank, rank column included."""
        host = sorted(self.raw["ranks"][str(rank)].get("host", []), key=lambda h: h["s"])
        return HOST_RANGES.build(
            {
                "rank": [rank] * len(host),
                "thread": [THREAD] * len(host),
                "start": [ns(h["s"]) for h in host],
                "end": [ns(h["e"]) for h in host],
                "kind": [HOST_KIND[h["kind"]] for h in host],
                "name": [h["kind"] for h in host],
            }
        )

    @cached_property
    def _comm(self) -> list[dict[str, Any]]:
        """Communication records of all ranks in row order of ``collectives``."""
        return [
            g | {"rank": r, "row": i} for r in self.ranks for i, g in enumerate(self._gpu(r)) if g["cls"] == "comm"
        ]

    def _present(self, name: str) -> list[int]:
        return sorted(c["rank"] for c in self._comm if c["coll"] == name)

    def collectives(self) -> Any:
        """The ``collectives`` table of all ranks, in rank order; group = instance name, seq = 0."""
        return pa.concat_tables(
            [COLLECTIVES.empty(), *(self._collective(c) for c in self._comm)]
        ).unify_dictionaries()

    def _collective(self, c: dict[str, Any]) -> Any:
        present = self._present(c["coll"])
        size = c.get("size", len(present))
        p2p = "role" in c
        other = next((r for r in present if r != c["rank"]), None)
        src, dst = (c["rank"], other) if c.get("role") == "send" else (other, c["rank"])
        kind = c["role"] if p2p else c.get("type", "allreduce")
        return COLLECTIVES.build(
            {
                "rank": [c["rank"]],
                "op": [c["row"]],
                "device": [0],
                "stream": [c["stream"]],
                "start": [ns(c["s"])],
                "end": [ns(c["e"])],
                "launch_start": [ns(c["ls"])],
                "kind": [kind],
                "group": [c["coll"]],
                "members": [",".join(map(str, present)) if size == len(present) else None],
                "group_size": [size],
                "seq": [0],
                "p2p": [p2p],
                "src": [src if p2p else c.get("root") if kind in ONE_TO_N else None],
                "dst": [dst if p2p else c.get("root") if kind in N_TO_ONE else None],
                "bytes": [c.get("bytes")],
                "coalesced": [1],
                "facts": ["kernel_args"],
                "name": [c["coll"]],
            }
        )

    @property
    def instances(self) -> list[str]:
        """Per collectives row: the name of its instance (the given matching)."""
        return [c["coll"] for c in self._comm]

    def matches(self) -> Matches:
        """The given matching as ``Matches``; instance numbers follow the sorted names."""
        names = sorted(set(self.instances))
        seen = np.array([len(self._present(n)) for n in names], np.int64)
        size = np.array(
            [next(c.get("size", len(self._present(n))) for c in self._comm if c["coll"] == n) for n in names]
        )
        return Matches(
            instance=np.array([names.index(n) for n in self.instances], np.int64),
            level=np.ones(len(names), np.int8),
            size=size.astype(np.int64),
            seen=seen,
            full=seen == size,
            ambiguous=np.zeros(len(names), np.bool_),
        )

    def marks(self) -> Marks:
        """Host step marks: those of ``steps``, else the given window as the one step 0. Nothing is excluded."""
        rows = [
            (r, int(k), ns(b), ns(e))
            for r in self.ranks
            for k, (b, e) in self.raw["ranks"][str(r)].get("steps", {"0": self._bounds(r)}).items()
        ]
        rank, step, start, end = (np.array(x, np.int64) for x in zip(*rows, strict=True))
        return Marks("profiler_step", rank, step, start, end, np.full(len(rank), THREAD, np.int64))

    @property
    def has_steps(self) -> bool:
        """Whether windows follow from host marks (METHODS b.1) instead of being given."""
        return any("steps" in d for d in self.raw["ranks"].values())

    def _bounds(self, rank: int) -> tuple[float, float]:
        data = self.raw["ranks"][str(rank)]
        if "window" in data:
            return tuple(data["window"])
        bounds = [x for step in data["steps"].values() for x in step]
        return min(bounds), max(bounds)

    def cover(self, rank: int) -> tuple[int, int]:
        """The recorded range of a rank: the window, or all its steps."""
        begin, end = self._bounds(rank)
        return round(begin * US), round(end * US)

    def windows(self) -> Windows:
        """The given windows (one per rank, step 0, used). Only for scenarios without ``steps``."""
        bounds = np.array([self.cover(r) for r in self.ranks], np.int64)
        n = len(bounds)
        zeros = np.zeros(n, np.int64)
        return Windows(np.array(self.ranks, np.int64), zeros, zeros, bounds[:, 0], bounds[:, 1], np.ones(n, np.bool_))

    def expect_leaves(self) -> dict[tuple[int, int], dict[str, int]]:
        """(rank, step) -> leaf -> ns; leaves that are not listed are 0."""
        return {
            _key(k): {leaf: round(v * US) for leaf, v in leaves.items()} for k, leaves in self.raw["expect"].items()
        }

    def expect_metrics(self) -> dict[tuple[int, int], dict[str, Any]]:
        """(rank, step) -> metric -> ns (``window``: [start, end] in ns)."""
        return {
            _key(k): {
                m: [round(x * US) for x in v] if isinstance(v, list) else round(v * US) for m, v in metrics.items()
            }
            for k, metrics in self.raw["expect_metrics"].items()
        }

    def expect_coll(self) -> dict[str, dict[str, Any]]:
        """Instance name -> the asserted facts as written (microseconds)."""
        return self.raw["expect_coll"]

    def simple_phases(self) -> Phases:
        """METHODS e.2 read row by row: enough to test the decomposition without the cross-rank modules."""
        rows = [_phase(c, [m for m in self._comm if m["coll"] == c["coll"]]) for c in self._comm]
        wait_end, second, sub, violated = zip(*rows, strict=True) if rows else ((), (), (), ())
        return Phases(
            np.array(wait_end, np.int64),
            np.array(second, np.int8),
            np.array(sub, np.int8),
            np.array(violated, np.bool_),
        )


def _phase(c: dict[str, Any], members: list[dict[str, Any]]) -> tuple[int, int, int, bool]:
    """(wait end, second phase, sub, violated) of one record among the members seen of its instance."""
    arrivals = {m["rank"]: m["s"] for m in members}
    last, own = max(arrivals.values()), c["s"]
    full = len(members) == c.get("size", len(members))
    kind = c.get("type", "allreduce")
    if c.get("role") == "send" or kind in N_TO_ONE or (kind in ONE_TO_N and c["rank"] == c["root"]):
        eager = c["e"] < last and not (kind in N_TO_ONE and c["rank"] == c["root"])
        end = own if eager else last
    elif kind in ONE_TO_N:
        end = max(own, arrivals[c["root"]])
    else:
        end = last
    violated = "role" not in c and kind not in ONE_TO_N | N_TO_ONE and c["e"] < last
    clipped = min(max(end, own), c["e"])
    return round(clipped * US), TRANSFER if full else UNRESOLVED, P2P if "role" in c else NXN, violated


def _key(text: str) -> tuple[int, int]:
    rank, step = text.split("/")
    return int(rank), int(step)


def load(shared_dir: Path) -> dict[str, Scenario]:
    """Every scenario of ``shared_dir/check/scenarios.json`` by id."""
    return {s["id"]: Scenario(s["id"], s) for s in json.loads((shared_dir / "check/scenarios.json").read_text())}


def load_extras(shared_dir: Path) -> dict[str, Any]:
    """``check/extras.json`` as written (microseconds)."""
    return json.loads((shared_dir / "check/extras.json").read_text())
