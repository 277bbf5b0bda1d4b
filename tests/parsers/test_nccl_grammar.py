"""One line in, the cells of the table out: forms that differ between versions and libraries."""

# ruff: noqa: E501 - log lines are as long as they are
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traceview.schema import TABLES
from traceview_parsers import nccl_log
from traceview_parsers.nccl_log.grammar import path_type
from traceview_parsers.reader import ReadOptions

Rows = Callable[..., list[dict[str, Any]]]
FRONT = "h0:7:8 [0] NCCL INFO "


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    def read(table: str, *lines: str, front: str = FRONT) -> list[dict[str, Any]]:
        path = tmp_path / "nccl.log"
        path.write_text("".join(f"{front}{line}\n" for line in lines))
        out = tmp_path / "out"
        out.mkdir()
        (part,) = nccl_log.read(path, out, ReadOptions(), None)
        found: list[dict[str, Any]] = part.table(TABLES[table]).to_pylist()
        return found

    return read


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        ("Ring 00 : 7 -> 8 [send] via NET/AWS Libfabric/0", "7 8 send net NET/AWS_Libfabric 0 False True"),
        ("Ring 00 : 26[2] -> 30[6] via P2P/direct pointer", "26 30 send p2p P2P/direct_pointer None None False"),
        ("Channel 03 : 1[1e0] -> 0[1e0] [receive] via NET/Socket/0", "1 0 receive net NET/Socket 0 False True"),
        ("Channel 01 : 0[1a000] -> 3[8a000] via direct shared memory", "0 3 send shm SHM None None True"),
        ("Channel 01 : 0[0] -> 3[3] via SHM/CE/direct", "0 3 send shm SHM None None True"),
        ("Channel 01 : 0[0] -> 3[3] via SHM/direct", "0 3 send shm SHM None None True"),
        ("Channel 02/0 : 0[0] -> 3[3] via P2P/CUMEM/read/CE", "0 3 send p2p P2P/CUMEM None None False"),
        ("Channel 02/0 : 0[0] -> 3[3] via P2P/MNNVL", "0 3 send mnnvl P2P/MNNVL None None False"),
        ("Channel 02/0 : 0[0] -> 3[3] via P2P/indirect/1[1]", "0 3 send indirect P2P None None False"),
        (
            "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IBext_v8/2(3)/GDRDMA(PCI)/Shared",
            "0 8 send net NET/IBext_v8 2 True False",
        ),
        ("CollNet 00/0 : 0 [send] via COLLNET/SHARP/1/GDRDMA", "0 -1 send collnet COLLNET/SHARP 1 True False"),
        ("Coll 00 : 4 [receive] via COLLNET/SHARP/0", "-1 4 receive collnet COLLNET/SHARP 0 False True"),
        (
            "Channel 00/0 : 0[c1000] -> 1[c6000] via P2P/IPC comm 0x55f nRanks 08",
            "0 1 send p2p P2P/IPC None None False",
        ),
    ],
)
def test_edges(rows: Rows, line: str, cells: str) -> None:
    (edge,) = rows("nccl_edges", line)
    names = ("src", "dst", "side", "wire", "via", "nic", "gdr", "host_staged")
    assert " ".join(str(edge[n]).replace(" ", "_") for n in names) == cells


def test_pxn_and_connection(rows: Rows) -> None:
    (edge,) = rows("nccl_edges", "Channel 05/1 : 0[0] -> 8[0] [send] via NET/IB/2(3)/GDRDMA/Shared")
    assert (edge["channel"], edge["conn"], edge["pxn"]) == (5, 1, 3)


@pytest.mark.parametrize(
    "line",
    [
        "Channel 00 : 3[4] -> 0[1] via SHM/direct/dirston",
        "Channel 00/0 : 6[",
        "Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/",
        "Channel 00/0 : 1[1] -> 1[1] via P2P/IPC",
        "Channel 00/0 : 1[1] -> 2[0] via NET/IB/0",
        "Channel 00/0 : 1[1] -> 12[0] via P2P/IPC comm 0x55f nRanks 08",
    ],
)
def test_cut_edges_are_torn(rows: Rows, line: str) -> None:
    (proc,) = rows("nccl_procs", line, "Using network IB", "Using network IB")
    assert proc["torn"] == 1


@pytest.mark.parametrize(
    "line",
    [
        "Channel 00/24 :    0   1   2   3",
        "Channel 00/08 : 0 1 2 3 ...",
        "Channel 00/02 :    0   1 comm 0x55f nRanks 02 busId c1000",
        "Trees [0] 1/-1/-1->0->-1|-1->0->1/-1/-1",
        "Ring 00 : 3 -> 0 -> 1",
        "Tree 0 : -1 -> 0 -> 1/-1/-1",
        "Pattern 1, crossNic 0, nChannels 1, bw 24.000000/24.000000, type LOC/PHB, sameChannels 1",
        "New proxy send connection 4 from local rank 0, transport 2",
        "[Proxy Service UDS] Device 0 CPU core 20",
        "GPU/81000 :GPU/81000 (0/5000.000000/LOC) CPU/1 (1/24.000000/PHB) NET/0 (3/24.000000/PHB)",
        "RAS client listening socket at ::1<28028>",
        "init.cc:1765 -> 2",
        "MNNVL busId 0xca000 fabric UUID 0.0 cliqueId 0x0 state 3 healthMask 0x0",
    ],
)
def test_known_lines_are_neither_torn_nor_unknown(rows: Rows, line: str) -> None:
    (proc,) = rows("nccl_procs", line)
    assert (proc["torn"], proc["unknown"]) == (0, 0)


def test_unknown_lines_are_counted(rows: Rows) -> None:
    (proc,) = rows("nccl_procs", "A sentence of a version to come", "Using network IB")
    assert (proc["unknown"], proc["records"]) == (1, 2)


INIT = [
    ("comm 0x7f0 rank 3 nranks 8 cudaDev 3 nvmlDev 3 - Init COMPLETE", "2.4"),
    ("comm 0x7f0 rank 3 nranks 8 cudaDev 3 busId 8a000 - Init COMPLETE", "2.5"),
    ("comm 0x7f0 rank 3 nranks 8 cudaDev 3 busId 8a000 commId 0xabc - Init COMPLETE", "2.16"),
    ("ncclCommInitRank comm 0x7f0 rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 8a000 commId 0xabc - Init COMPLETE", "2.21"),
    ("[Rank 3] ncclCommInitAll comm 0x7f0 rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 8a000 commId 0xabc - Init START", "2.29"),
    ("comm 0x7f0 rank 3 nranks 8 cudaDev 3 busId 8a000 commId 0xabc localSize 320 used 1024 bytes on core 5 - Init COMPLETE", "RCCL"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "version"), INIT, ids=[v for _, v in INIT])
def test_init(rows: Rows, line: str, version: str) -> None:
    (comm,) = rows("nccl_comms", line)
    assert (comm["rank"], comm["nranks"], comm["cuda_dev"]) == (3, 8, 3)
    assert comm["comm"] == ("0xabc" if "commId" in line else "n8#0")


def test_split_communicators_get_one_id_on_all_ranks(rows: Rows) -> None:
    where = "rank {r} nranks {n} cudaDev 0 nvmlDev 0 busId 1000"
    lines = [
        f"ncclCommInitRank comm 0xa {where.format(r=0, n=4)} commId 0xabc - Init COMPLETE",
        f"ncclCommSplit comm 0xb {where.format(r=0, n=2)} parent 0xa splitCount 1 color 7 key 0- Init START",
        f"ncclCommSplit comm 0xb {where.format(r=0, n=2)} parent 0xa splitCount 1 color 7 key 0 - Init COMPLETE",
        f"ncclCommSplit comm 0xc {where.format(r=0, n=2)} parent 0xa childCount 2 color 9 key 0 - Init COMPLETE",
    ]
    found = rows("nccl_comms", *lines)
    assert [(c["comm"], c["comm_basis"], c["parent"]) for c in found] == [
        ("0xabc", "logged", None),
        ("0xabc/split1.7", "inferred", "0xabc"),
        ("0xabc/split2.9", "inferred", "0xabc"),
    ]


def test_a_pointer_used_again_is_another_communicator(rows: Rows) -> None:
    line = "comm 0xa rank 0 nranks {n} cudaDev 0 busId 1000 commId 0x{id} - {what}"
    found = rows(
        *("nccl_comms", line.format(n=2, id="1", what="Init COMPLETE")),
        "comm 0xa rank 0 nranks 2 cudaDev 0 busId 1000 - Destroy COMPLETE",
        line.format(n=4, id="2", what="Init COMPLETE"),
    )
    assert [(c["instance"], c["comm"], c["end"]) for c in found] == [
        ("h0:7:0xa#0", "0x1", "destroy"),
        ("h0:7:0xa#1", "0x2", None),
    ]


CALL = "opCount 1f sendbuff (nil) recvbuff 0x7f count 1000 datatype 9 op 0 root 3 comm 0x55 [nranks=8] stream 0x1"


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        (f"AllReduce: {CALL}", ("AllReduce", 2000)),
        (f"AllGather: {CALL}", ("AllGather", 16000)),
        (f"ReduceScatter: {CALL}", ("ReduceScatter", 16000)),
        (f"Send: {CALL}", ("Send", 2000)),
        (f"AlltoAll: {CALL}", ("AlltoAll", 16000)),
        (f"AllToAll: {CALL} task 1 globalrank 3", ("AlltoAll", 16000)),
        (f"mscclFuncAllReduce: {CALL}", ("other", None)),
    ],
)
def test_calls(rows: Rows, line: str, cells: tuple[str, int | None]) -> None:
    (call,) = rows("nccl_calls", line)
    assert (call["function"], call["bytes"]) == cells
    assert (call["opcount"], call["peer"], call["dtype"], call["count"]) == (31, 3, "bf16", 1000)


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        ("4096 Bytes -> Algo 0 proto 1 time 12.5", (None, 4096, "Tree", "LL128", None)),
        ("AllReduce: 4096 Bytes -> Algo 4 proto 2 time 12.5", ("AllReduce", 4096, "NVLS", "Simple", None)),
        (
            "ReduceScatter: 64 Bytes -> Algo COLLNET_DIRECT proto SIMPLE channel{Lo..Hi}={0..7}",
            ("ReduceScatter", 64, "CollNetDirect", "Simple", 8),
        ),
        (
            "AllReduce [Symmetric]: 64 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512 nWorks 1",
            ("AllReduce", 64, "AllReduce_AGxLL_R", None, 4),
        ),
        ("AllGather [Copy Engine]: 64 Bytes -> cudaMemcpy", ("AllGather", 64, "cudaMemcpy", None, None)),
    ],
)
def test_choices(rows: Rows, line: str, cells: tuple[Any, ...]) -> None:
    (choice,) = rows("nccl_tuning", line)
    names = ("function", "bytes", "algorithm", "protocol", "channels")
    assert tuple(choice[n] for n in names) == cells and choice["kind"] == "choice"


def test_a_choice_without_a_function_is_of_the_call_before(rows: Rows) -> None:
    (choice,) = rows("nccl_tuning", f"AllGather: {CALL}", "16000 Bytes -> Algo 1 proto 2 time 12.5")
    assert (choice["function"], choice["bytes"], choice["instance"]) == ("AllGather", 16000, "h0:7:0x55#0")


def test_the_wide_table_of_old_versions(rows: Rows) -> None:
    found = rows(
        "nccl_tuning",
        "Latency/AlgBw | Tree/    LL | Tree/ LL128 | Ring/Simple |",
        "    AllReduce |    4.4/ 3.0 |   0.0/  0.0 |   8.4/ 12.0 |",
    )
    assert [(t["algorithm"], t["protocol"], t["latency_us"], t["gbs"]) for t in found] == [
        ("Tree", "LL", 4.4, 3.0),
        ("Ring", "Simple", 8.4, 12.0),
    ]


def test_rccl(rows: Rows) -> None:
    front = "h0:7:8 [0] NCCL INFO "
    found = rows(
        *("nccl_procs", "RCCL version : 2.22.3-HEAD:7d8d67c+", "HIP version  : 6.4", "Hostname     : h0"),
        f"{front}Channel 00/0 : 0[c1000] -> 1[c6000] via P2P/IPC comm 0x55f nRanks 08",
        front="",
    )
    assert [(p["vendor"], p["version"], p["version_basis"]) for p in found] == [
        ("rccl", "2.22.3-HEAD:7d8d67c", "inferred")
    ]


@pytest.mark.parametrize(
    ("version", "number", "name"),
    [("2.16.5", 6, "PHB"), ("2.27.3", 8, "PHB"), ("2.28.3", 7, "PXN"), ("2.4.8", 4, "SYS"), (None, 6, "6"), ("2.20.5", 99, "99")],
)  # fmt: skip
def test_path_types_are_numbered_by_version(version: str | None, number: int, name: str) -> None:
    assert path_type(number, version) == name


@pytest.mark.parametrize(
    ("line", "kind", "level"),
    [
        ("h0:7:8 [0] transport/net_ib.cc:9 NCCL WARN NET/IB : Got completion from peer 1.2.3.4<1> with status=12 opcode=0 len=0 vendor err 129 (Send)", "ib_completion_12", "error"),
        ("h0:7:8 [0] a.cc:9 (f) NCCL WARN NET/IB: Got completion with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0)", "ib_completion_12", "error"),
        ("h0:7:8 [0] a.cc:9 NCCL WARN NET/IB : Got completion with error 13, opcode 0, len 0, vendor err 0", "ib_completion_13", "error"),
        (f"{FRONT}NET/IB : mlx5_0:1 speed change detected: 400000 -> 200000 Mbps", "ib_speed", "warning"),
        (f"{FRONT}Call to connect returned Connection refused, retrying", "socket", "error"),
        ('h0:7:8 [0] a.cc:9 NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!', "iommu", "warning"),
        ("h0:7:8 [0] a.cc:9 NCCL WARN Cuda failure 'out of memory'", "cuda", "error"),
        ("h0:7:8 [0] a.cc:9 NCCL WARN Something new", "warning", "warning"),
    ],
)  # fmt: skip
def test_messages(rows: Rows, line: str, kind: str, level: str) -> None:
    (message,) = rows("nccl_messages", line, front="")
    assert (message["kind"], message["level"], message["proc"]) == (kind, level, "h0:7")


def test_the_watchdog_of_pytorch_names_its_rank(rows: Rows) -> None:
    text = (
        "[rank118]:[E603 17:48:01.005271823 ProcessGroupNCCL.cpp:632] [Rank 118] Watchdog caught collective operation"
    )
    text += (
        " timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600011 ms"
    )
    (message,) = rows("nccl_messages", text, f"{FRONT}Using network IB", front="")
    assert (message["kind"], message["rank"], message["level"]) == ("watchdog_timeout", 118, "error")


def test_equal_messages_are_one_row(rows: Rows) -> None:
    line = "h0:7:8 [0] a.cc:9 NCCL WARN NET/IB : Got completion with error {e}, opcode 0, len {e}, vendor err 0"
    (message,) = rows("nccl_messages", *[line.format(e=12)] * 5, front="")
    assert message["count"] == 5


def test_rows_of_nccl_tests_cut_by_a_record(rows: Rows) -> None:
    text = [
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20",
        "   268435456      67108864     float     sum      -1" + FRONT.strip() + " Using network IB",
        "   268435456      67108864     float     sum      -1   1000.0  268.44  469.76      0   1001.0  268.17  469.30    N/A",
        "        1024           256     float                     10.0    0.10    0.18  0e+00     10.0    0.10    0.18  0e+00",
    ]
    found = rows("nccl_bench", *text, front="")
    assert [(r["bytes"], r["in_place"], r["busbw"], r["wrong"]) for r in found] == [
        (268435456, False, 469.76, 0),
        (268435456, True, 469.30, None),
        (1024, False, 0.18, 0),
        (1024, True, 0.18, 0),
    ]
