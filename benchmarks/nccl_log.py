"""Speed and memory of reading an NCCL log: MB/s on one core, peak memory for a short and a long log.

    python benchmarks/nccl_log.py [MB]

The log is made here: calls, choices, edges and proxy lines of 16 processes, interleaved, with lines of a program.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from traceview_parsers import nccl_log
from traceview_parsers.reader import ReadOptions

RANKS = 16


def front(rank: int) -> str:
    """Prefix of a record."""
    return f"gpu-node-{rank // 8:03d}:{1000 + rank}:{2000 + rank} [{rank % 8}] NCCL INFO "


def init(rank: int) -> str:
    """The line that gives a process its rank."""
    return (
        f"{front(rank)}ncclCommInitRankConfig comm 0x55{rank:02x}a0 rank {rank} nranks {RANKS} cudaDev {rank % 8}"
        f" nvmlDev {rank % 8} busId {rank % 8 + 1}000 commId 0xabcdef - Init COMPLETE\n"
    )


def line(rng: random.Random, number: int) -> str:
    """A line of a log with all subsystems: 45 % calls, 15 % choices, 0.5 % edges."""
    rank, kind = rng.randrange(RANKS), rng.random()
    if kind < 0.45:
        return (
            f"{front(rank)}AllReduce: opCount {number:x} sendbuff 0x152a37e0{number % 9999:04d} recvbuff 0x152a37e00"
            f" count {4096 << rng.randrange(14)} datatype 9 op 0 root 0 comm 0x55{rank:02x}a0 [nranks={RANKS}]"
            " stream 0x7f8e1c\n"
        )
    if kind < 0.6:
        size = 8192 << rng.randrange(14)
        return f"{front(rank)}AllReduce: {size} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..23}}\n"
    if kind < 0.605:
        peer = (rank + 1) % RANKS
        edge = f"Channel {number % 24:02d}/0 : {rank}[{rank % 8}] -> {peer}[{peer % 8}]"
        return f"{front(rank)}{edge} [send] via NET/IB/3/GDRDMA/Shared\n"
    if kind < 0.9:
        return f"{front(rank)}New proxy send connection {number % 64} from local rank {rank % 8}, transport 2\n"
    return f"epoch {number} loss 2.345 lr 1e-4 tokens 123456 throughput 99.2\n"


def make(path: Path, megabytes: int, *, stamped: bool) -> None:
    """Write a log of about this size (one block, repeated), with a time stamp before every line if asked."""
    rng = random.Random(1)
    stamps = [f"2025-11-09T15:39:{i // 1000:02d}.{i % 1000:03d}Z " if stamped else "" for i in range(40_000)]
    block = "".join(stamps[i] + line(rng, i) for i in range(40_000))
    with path.open("w") as file:
        file.write("".join(init(r) for r in range(RANKS)))
        for _ in range(max(1, megabytes * 1_000_000 // len(block))):
            file.write(block)


def read(path: Path, out: Any) -> None:
    """Read in a process of its own: CPU seconds, peak MB, rows."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        (part,) = nccl_log.read(path, Path(folder), ReadOptions(), None)
        seconds = time.process_time() - started
    out.put((seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000, part.meta.rows))


def main(megabytes: int) -> None:
    """Print MB/s and peak memory of a log, of one four times as long, and of one with a stamp before every line."""
    for size, stamped in ((megabytes, False), (4 * megabytes, False), (megabytes, True)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "nccl.log")
            make(path, size, stamped=stamped)
            queue: Any = multiprocessing.get_context("spawn").Queue()
            process = multiprocessing.get_context("spawn").Process(target=read, args=(path, queue))
            process.start()
            seconds, peak, rows = queue.get()
            process.join()
            real = path.stat().st_size / 1e6
        kept = ", ".join(f"{n:,} {name}" for name, n in rows.items() if n)
        what = f"{real:6.0f} MB{' stamped' if stamped else ''}"
        print(f"{what}: {real / seconds:5.1f} MB per CPU-s, peak {peak:.0f} MB  ({kept})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
