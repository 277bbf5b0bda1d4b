"""Writes the sample traces beside this file from fixed seeds: ``python sample_traces/make.py [FOLDER]``.

Two runs give the same bytes. What each sample shows, and the verdict to expect, is in README.md.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from simulator import ClockDrift, ClockOffset, Job, SlowRank, simulate, write_kineto  # noqa: E402

MS = 1_000_000
TWO_NODES = {"ranks": 8, "hosts": 2, "steps": 10, "layers": 8, "kernels": 5, "end_jitter_ns": 3_000}


def slow_rank(folder: Path) -> None:
    """Data parallel, 2 hosts x 4 GPUs with clocks 1.7 ms and 12 ppm apart; rank 5 computes 1.35 times as long."""
    faults = (SlowRank(5, 1.35), ClockOffset(1, 1_700_000), ClockDrift(1, 12_000))
    write_kineto(simulate(Job(**TWO_NODES, faults=faults, seed=5, layer_bytes=24_000_000)), folder, gz=True)


def exposed_comm(folder: Path) -> None:
    """Fully sharded, 2 hosts x 4 GPUs: gathering the parameters of a layer takes longer than computing one."""
    job = Job(
        **TWO_NODES, layout="fsdp", seed=6, layer_bytes=500_000_000, faults=(ClockOffset(1, -900_000),)
    )  # fmt: skip
    write_kineto(simulate(job), folder, gz=True)


def healthy(folder: Path) -> None:
    """Data parallel, 2 hosts x 4 GPUs: communication is hidden, ranks are even."""
    write_kineto(simulate(Job(**TWO_NODES, seed=8, layer_bytes=24_000_000, buckets=8)), folder, gz=True)


SAMPLES: tuple[Callable[[Path], None], ...] = (slow_rank, exposed_comm, healthy)


def main(target: Path) -> None:
    """Write every sample into a folder of its name under ``target``, replacing what is there."""
    for sample in SAMPLES:
        folder = target / sample.__name__
        shutil.rmtree(folder, ignore_errors=True)
        sample(folder)
        size = sum(p.stat().st_size for p in folder.iterdir())
        print(f"{folder.name}: {len(list(folder.iterdir()))} files, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
