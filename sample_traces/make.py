"""Writes the sample traces beside this file from fixed seeds: ``python sample_traces/make.py [FOLDER]``.

Two runs give the same bytes. What each sample shows, and the verdict to expect, is in README.md.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from simulator import (  # noqa: E402
    ClockDrift,
    ClockOffset,
    HostStaged,
    Job,
    Routing,
    SlowRank,
    simulate,
    write_kineto,
    write_nccl_log,
    write_nsight,
)

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


def host_staged(folder: Path) -> None:
    """Data parallel, 2 hosts x 2 GPUs without peer-to-peer and GPUDirect: NCCL goes through host memory."""
    job = Job(ranks=4, hosts=2, steps=10, layers=8, kernels=5, end_jitter_ns=3_000, layer_bytes=96_000_000, seed=7,
              faults=(HostStaged(),))  # fmt: skip
    sim = simulate(job)
    write_kineto(sim, folder, gz=True)
    write_nccl_log(sim, folder, "2.27", subsystems=("INIT", "GRAPH", "NET", "P2P", "TUNING"))


def hot_expert(folder: Path) -> None:
    """Mixture of experts, 2 hosts x 4 GPUs: the experts of rank 6 get 1.8 times the tokens of any other rank."""
    faults = (Routing((1.0,) * 6 + (1.8, 1.0)), ClockOffset(1, 600_000))
    job = Job(ranks=8, hosts=2, steps=8, layout="ep", layers=4, kernels=2, end_jitter_ns=3_000, seed=11,
              activation_bytes=4_000_000, faults=faults)  # fmt: skip
    write_kineto(simulate(job), folder, gz=True)


def nsight_before(folder: Path) -> None:
    """Fully sharded, one host x 4 GPUs, Nsight Systems: the run before a change."""
    write_nsight(simulate(GATE), folder, "2026.1")


def nsight_after(folder: Path) -> None:
    """The same job after a change: layers take 12 % longer to compute."""
    write_nsight(simulate(replace(GATE, layer_ns=GATE.layer_ns * 112 // 100, seed=10)), folder, "2026.1")


GATE = Job(layout="fsdp", ranks=4, steps=15, layers=4, kernels=3, end_jitter_ns=3_000, seed=9)
SAMPLES: tuple[Callable[[Path], None], ...] = (
    slow_rank,
    exposed_comm,
    host_staged,
    healthy,
    hot_expert,
    nsight_before,
    nsight_after,
)


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
