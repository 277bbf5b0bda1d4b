"""Records a real run: 4 processes train a small model with DistributedDataParallel on the CPU over gloo.

``python sample_traces/record_gloo.py FOLDER`` writes ``rank0.json.gz`` .. ``rank3.json.gz`` and prints the facts to
expect of them. Needs PyTorch (any build), which traceview itself does not; the result is not committed, since a
real recording differs every time.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

RANKS, STEPS, LAYERS, WIDTH = 4, 6, 6, 512
SLOW_RANK, SLOW_S = 2, 0.1
FACTS = f"""expect:
  {RANKS} ranks of one host, backend gloo, no GPU work, {STEPS} steps on every rank;
  every step has at least one gloo:all_reduce, the same number on all ranks;
  rank {SLOW_RANK} sleeps {SLOW_S * 1000:.0f} ms in every step before backward: its own all-reduces are the shortest;
  verdict: cannot tell from the GPU side (record CUDA activity), host communication is the largest cause of idle
  time."""


def train(rank: int, folder: str, port: int) -> None:
    """One process: STEPS profiled steps after one of warm-up."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    layers: list[Any] = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=STEPS, repeat=1)
    out = Path(folder) / f"rank{rank}.json.gz"
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=schedule,
        record_shapes=True,
        on_trace_ready=lambda prof: prof.export_chrome_trace(str(out)),
    ) as profiler:
        for _ in range(STEPS + 1):
            loss = model(torch.randn(64, WIDTH)).square().mean()
            if rank == SLOW_RANK:
                time.sleep(SLOW_S)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    dist.destroy_process_group()


def main(folder: Path) -> None:
    """Start the processes and wait for them."""
    try:
        import torch.multiprocessing as processes
    except ImportError:
        sys.exit("record_gloo.py needs PyTorch: pip install torch")
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes.spawn(train, args=(str(folder), port), nprocs=RANKS)
    print(FACTS)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "gloo_run"))
