"""The story of a log: what it names, and what it notices between hosts and ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from traceview.analysis.topology import differences, nic_shared, notices, story
from traceview.schema import LOG_TABLES
from traceview.schema.nccl import NCCL_LINKS
from traceview_parsers import nccl_log
from traceview_parsers.reader import ReadOptions

Load = Callable[[str], dict[str, Any]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def read(text: str) -> dict[str, Any]:
        path = tmp_path / "nccl.log"
        path.write_text(text)
        out = tmp_path / "out"
        out.mkdir()
        (part,) = nccl_log.read(path, out, ReadOptions(), None)
        return {t.name: part.table(t) for t in LOG_TABLES}

    return read


def line(rank: int, text: str, per_host: int = 2) -> str:
    return f"h{rank // per_host}:{100 + rank}:{100 + rank} [{rank % per_host}] NCCL INFO {text}\n"


def init(rank: int, ranks: int, **more: str) -> str:
    where = f"comm 0x1{rank} rank {rank} nranks {ranks} cudaDev 0 nvmlDev 0 busId {rank + 1}000 commId 0xabc"
    middle = "".join(line(rank, text) for text in more.values())
    return line(rank, f"{where} - Init START") + middle + line(rank, f"{where} - Init COMPLETE")


def test_a_real_log(load: Load, shared_dir: Path) -> None:
    text = (shared_dir / "traces/nccl/13_2node_gdr_off_all_reduce.txt").read_text()
    assert story(load(text)) == [
        "NCCL 2.16.5 (CUDA 11.8): 2 processes on 2 hosts: n013 (rank 1), n014 (rank 0)",
        "Network IB; NICs mlx5_2:1/IB; 25 GB/s a host",
        "Communicator 0x75d37966778428c0 (2 ranks on 2 hosts, 2 channels): NET/IB without GPUDirect",
        "Through host memory: 0->1 NET/IB, 1->0 NET/IB; GPUDirect RDMA is off (NIC 0: distance PHB > PXB)"
        " although the NIC driver offers it",
        "Measured by all_reduce_perf: busbw 13.64 GB/s at 1.07 GB on 2 ranks",
    ]


def test_what_hosts_differ_in(load: Load) -> None:
    text = "".join(line(r, "NCCL_IB_HCA set by environment to mlx5") for r in (0, 1, 2, 3, 4))
    text += "".join(line(r, "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>") for r in (0, 2))
    text += line(4, "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.3<0>")
    text += line(4, "NCCL_ALGO set by environment to Ring") + line(4, "NCCL_HOSTID set by environment to h2")
    found = {d.what: d.values for d in differences(load(text)["nccl_procs"].to_pylist())}
    assert found == {
        "NICs": {"mlx5_0:1/IB": ["h0", "h1"], "mlx5_0:1/RoCE": ["h2"]},
        "link layer": {"IB": ["h0", "h1"], "RoCE": ["h2"]},
        "setting NCCL_ALGO": {"": ["h0", "h1"], "Ring": ["h2"]},
    }


def test_a_late_starter_and_a_rank_that_is_behind(load: Load) -> None:
    call = "AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x1 count 500 datatype 7 op 0 root 0 comm 0x1{r}"
    call += " [nranks=4] stream 0x1"
    boot = "Bootstrap timings total {s:.6f} (create 0.1, send 0.1)"
    text = "".join(init(r, 4, boot=boot.format(s=0.1 if r == 2 else 9.0)) for r in range(4))
    text += "".join(line(r, call.format(r=r)) * (3 if r != 1 else 2) for r in range(4))
    told = story(load(text))
    assert "Late start: rank 2 waited 0.1 s for the others, they up to 9 s for it" in told
    assert "AllReduce of 0xabc: 3 calls and 6.00 kB a rank; fewer calls by rank 1: 2: behind, or cut off" in told


def test_two_ranks_on_one_nic_while_another_idles(load: Load) -> None:
    nics = "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>"
    edge = "Channel 00/0 : {r}[0] -> {to}[0] [send] via NET/IB/0/GDRDMA"
    text = "".join(init(r, 4, nics=nics, edge=edge.format(r=r, to=(r + 2) % 4)) for r in range(4))
    tables = load(text)
    shared = nic_shared(tables["nccl_procs"].to_pylist(), tables["nccl_edges"])
    assert [s.text for s in shared] == [
        "h0: mlx5_0:1/IB carries rank 0, rank 1 while mlx5_1:1/IB idles",
        "h1: mlx5_0:1/IB carries rank 2, rank 3 while mlx5_1:1/IB idles",
    ]


def test_errors_come_with_their_meaning(load: Load, shared_dir: Path) -> None:
    text = (shared_dir / "traces/nccl/e26_double_timestamp_ib_completion_errors.log").read_text()
    tables = load(text)
    told = story(tables)
    assert any(t.startswith("Error (1x, h100-28:238)") and "not mapped for the NIC" in t for t in told)
    assert [n[:17] for n in notices(tables)] == ["NCCL log: Error (", "NCCL log: Error ("]


def test_a_topology_file_names_the_narrow_link() -> None:
    gpu = {"device": "gpu", "pcie_gts": 16.0, "rank": None}
    rows = [gpu | {"name": str(i), "pcie_width": 8 if i == 2 else 16} for i in range(4)]
    rows += [{"device": "nvlink", "name": str(i), "links": 12} for i in range(4)]
    rows += [{"device": "nic", "name": "mlx5_0", "gbs": 25.0}]
    tables = {t.name: t.empty(stored=True) for t in LOG_TABLES}
    tables["nccl_links"] = pa.Table.from_pylist(rows, schema=NCCL_LINKS.arrow(stored=True))
    assert story(tables) == [
        "Topology file: 4 GPUs with 12 NVLinks each; NICs: mlx5_0 25 GB/s",
        "Narrower PCIe link than the other GPUs: GPU 2 16 GT/s x8",
    ]


def test_an_empty_log_tells_nothing() -> None:
    assert story({t.name: t.empty(stored=True) for t in LOG_TABLES}) == []
