"""Cross-rank analysis from tables: matching, clocks, waits, blame, origin, stragglers and causes.

    python benchmarks/cross.py            the two target sizes, and one size doubled
    python benchmarks/cross.py 1024 5000  one size: ranks, collectives per rank

Prints CPU seconds per stage, the peak memory of the process and that of the table alone (GB of 1e9 bytes). Targets:
1,024 ranks x 5,000 within 12 CPU-s and 1.5 GB, 16,384 x 500 within 30 CPU-s, twice the collectives at most 2.3 times
the time.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa

from traceview.analysis.blame import blame
from traceview.analysis.clock import align
from traceview.analysis.groups import columns
from traceview.analysis.match import match
from traceview.analysis.origin import Facts, origin
from traceview.analysis.phases import CODE
from traceview.analysis.stragglers import Clocks, find
from traceview.analysis.types import NXN, Segments, WaitPieces, Windows
from traceview.analysis.waits import waits
from traceview.schema import COLL_FACTS, COLL_KINDS, COLLECTIVES
from traceview.units import ranks as as_ranges

SLOW, STEPS, HOST = 37, 10, 8
SIZES = ((1024, 2500), (1024, 5000), (16384, 500))
START = 1_700_000_000_000_000_000


def job(ranks: int, count: int) -> tuple[Any, Any, dict[int, str]]:
    """(collectives, step per row, hosts): a tensor group per host of 8, every 5th one data-parallel."""
    rng = np.random.default_rng(0)
    hosts = ranks // HOST
    host = np.arange(ranks) // HOST
    start, end = np.empty((ranks, count), np.int64), np.empty((ranks, count), np.int64)
    now = np.zeros(ranks)
    slow = np.ones(ranks)
    slow[SLOW] = 1.3
    data = np.arange(count) % 5 == 4
    for k in range(count):
        now = now + 200_000 * slow * (1 + 0.02 * rng.standard_normal(ranks))
        start[:, k] = now
        last = now.reshape(hosts, HOST).max(axis=0 if data[k] else 1)
        now = (np.tile(last, hosts) if data[k] else np.repeat(last, HOST)) + 50_000.0
        end[:, k] = now + np.abs(rng.normal(0, 1_000, ranks))
    clock = START + (rng.integers(-2_000_000, 2_000_000, hosts) * (np.arange(hosts) > 0))[host]
    is_data = np.tile(data, ranks)
    local = np.repeat(np.arange(ranks) % HOST, count)
    group = np.where(is_data, hosts + local, np.repeat(host, count)).astype(np.int32)
    members = [as_ranges(list(range(h * HOST, h * HOST + HOST))) for h in range(hosts)]
    members += [as_ranges(list(range(i, ranks, HOST))) for i in range(HOST)]
    names = [f"tp{h}" for h in range(hosts)] + [f"dp{i}" for i in range(HOST)]
    n = ranks * count
    kinds = np.where(is_data, COLL_KINDS.index("reduce_scatter"), COLL_KINDS.index("allreduce")).astype(np.int8)
    table = COLLECTIVES.build(
        {
            "rank": np.repeat(np.arange(ranks, dtype=np.int32), count),
            "op": np.tile(np.arange(count), ranks),
            "device": np.zeros(n, np.int32),
            "stream": np.full(n, 20),
            "start": (start + clock[:, None]).ravel(),
            "end": (end + clock[:, None]).ravel(),
            "kind": kinds,
            "group": pa.DictionaryArray.from_arrays(group, pa.array(names)),
            "members": pa.DictionaryArray.from_arrays(group, pa.array(members)),
            "group_size": np.where(is_data, hosts, HOST).astype(np.int32),
            "seq": np.tile(np.arange(count), ranks),
            "p2p": np.zeros(n, bool),
            "elems_in": np.full(n, 1 << 20),
            "elems_out": np.full(n, 1 << 20),
            "bytes": np.full(n, 4 << 20),
            "coalesced": np.ones(n, np.int32),
            "facts": np.full(n, COLL_FACTS.index("kernel_args"), np.int8),
            "name": pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), pa.array(["ncclDevKernel_AllReduce"])),
        }
    )
    step = np.tile(np.arange(count) * STEPS // count, ranks)
    return table, step, {r: f"node-{r // HOST}" for r in range(ranks)}


def segments_of(start: Any, wait_end: Any, end: Any) -> Segments:
    """A rank that computes between its collectives."""
    bounds = np.column_stack((start, wait_end, end)).ravel()
    phase = np.tile([CODE["comm_wait.nxn"], CODE["comm_transfer.nxn"], CODE["compute.plain"]], len(start))
    order = np.maximum.accumulate(bounds)
    return Segments(
        np.insert(order, 0, order[0] - 200_000), np.insert(phase, 0, CODE["compute.plain"])[:-1].astype(np.int8)
    )


def measure(ranks: int, count: int) -> dict[str, float]:
    """CPU seconds per stage, all of them in ``total``; peak memory in ``rss_gb``."""
    table, step, hosts = job(ranks, count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times: dict[str, float] = {}
    mark = time.process_time()

    def lap(name: str) -> None:
        nonlocal mark
        times[name] = time.process_time() - mark
        mark = time.process_time()

    c = columns(table)
    found = match(c, step, ranks, hosts)
    lap("match")
    clock = align(c, found, hosts)
    lap("clock")
    waited = waits(c, found, clock.base)
    lap("waits")
    rows = np.flatnonzero((waited.phases.wait_end > c.start) & (waited.phases.sub == NXN))
    rows = rows.astype(np.int32)
    pieces = WaitPieces(c.start[rows], waited.phases.wait_end[rows], rows)
    first = np.flatnonzero(np.diff(step, prepend=-1) != 0)
    last = np.append(first[1:], len(step))
    windows = Windows(
        c.rank[first],
        np.zeros(len(first), np.int64),
        step[first],
        c.start[first],
        c.end[last - 1],
        np.ones(len(first), bool),
    )

    def segments(rank: int) -> Segments:
        a, b = rank * count, rank * count + count
        return segments_of(c.start[a:b], waited.phases.wait_end[a:b], c.end[a:b])

    lap("(pieces)")
    ledger = blame(pieces, c, found, waited, step)
    lap("blame")
    facts = Facts(c, found, waited, pieces, windows, step, segments)
    origins = origin(facts, ledger)
    lap("origin")
    verdict = find(facts, ledger, origins, Clocks(clock.base, hosts, clock.clock), list(range(STEPS)))
    lap("stragglers")
    times["total"] = sum(v for k, v in times.items() if k != "(pieces)")
    times["rss_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    times["table_rss_gb"] = before * 1024 / 1e9
    assert [r.rank for r in verdict.rows] == [SLOW], [r.rank for r in verdict.rows]
    assert ledger.direct.sum() + ledger.unblamed == ledger.total
    return times


def main() -> None:
    """Each size in a process of its own, so that the peak memory is its own."""
    if len(sys.argv) == 3:
        print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
        return
    totals = {}
    for ranks, count in SIZES:
        child = subprocess.run(
            [sys.executable, __file__, str(ranks), str(count)], check=True, capture_output=True, text=True
        )
        times = json.loads(child.stdout)
        totals[ranks, count] = times["total"]
        print(f"{ranks:,} ranks x {count:,}: " + ", ".join(f"{k} {v:.2f}" for k, v in times.items()))
    print(f"twice the collectives: {totals[1024, 5000] / totals[1024, 2500]:.2f} x the time")


if __name__ == "__main__":
    main()
