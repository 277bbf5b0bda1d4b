"""The facts of real NCCL logs (../shared/traces/nccl) come out; damage is counted, never guessed away."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from traceview.run import Part
from traceview.schema import LOG_TABLES, TABLES
from traceview_parsers import nccl_log
from traceview_parsers.reader import ReadOptions


@pytest.fixture
def load(shared_dir: Path, tmp_path: Path) -> Any:
    def read(name: str) -> Part:
        (path,) = (shared_dir / "traces/nccl").glob(name + "*")
        assert nccl_log.sniff(path.read_bytes()[:65536], path)
        (part,) = nccl_log.read(path, tmp_path, ReadOptions(), None)
        for table in LOG_TABLES:
            table.validate(part.table(table))
        return part

    return read


def rows(part: Part, table: str) -> list[dict[str, Any]]:
    return part.table(TABLES[table]).to_pylist()


def edges(part: Part) -> Counter[tuple[Any, ...]]:
    return Counter((e["wire"], e["via"], e["gdr"], e["host_staged"]) for e in rows(part, "nccl_edges"))


def test_two_processes_in_one_torn_file(load: Any) -> None:
    part = load("01_torn")
    assert {p["proc"]: p["rank"] for p in rows(part, "nccl_procs")} == {"node0:803563": 0, "node0:803564": 1}
    assert {c["nranks"] for c in rows(part, "nccl_comms")} == {2}
    assert len({c["comm"] for c in rows(part, "nccl_comms")}) == 1
    assert edges(part) == {("shm", "SHM", None, True): 2}
    assert part.meta.source.quarantined >= 2


def test_v100_node_inside_the_output_of_a_benchmark(load: Any) -> None:
    part = load("35_2.7.8")
    comms = rows(part, "nccl_comms")
    assert sorted(c["rank"] for c in comms) == [0, 1, 2, 3]
    assert {(c["comm"], c["comm_basis"], c["channels"]) for c in comms} == {("n4#0", "assumed", 12)}
    assert edges(part) == {("p2p", "P2P/IPC", None, False): 100}
    assert {(p["version"], p["version_basis"]) for p in rows(part, "nccl_procs")} == {("2.7.8", "inferred")}


def test_two_hosts_interleaved_over_sockets(load: Any) -> None:
    part = load("10_polaris")
    procs = rows(part, "nccl_procs")
    assert sorted(p["rank"] for p in procs) == list(range(8))
    assert len({p["host"] for p in procs}) == 2
    assert edges(part) == {("p2p", "P2P/CUMEM", None, False): 56, ("net", "NET/Socket", False, True): 24}
    assert {(c["nodes"], c["local_ranks"], c["end"]) for c in rows(part, "nccl_comms")} == {(2, 4, "abort")}
    assert {e["instance_basis"] for e in rows(part, "nccl_edges")} == {"logged"}


def test_gpudirect_off_although_the_driver_could(load: Any) -> None:
    part = load("13_2node")
    procs = rows(part, "nccl_procs")
    assert edges(part) == {("net", "NET/IB", False, True): 8}
    assert {(p["gdr_hca"], p["gdr_reason"], p["nic_gbs"]) for p in procs} == {
        (True, "NIC 0: distance PHB > PXB", 25.0)
    }
    assert {p["env"] for p in procs} == {"NCCL_IB_HCA=mlx5_2;NCCL_SOCKET_IFNAME=ibp209s0f0"}
    bench = rows(part, "nccl_bench")
    assert len(bench) == 2 * 23 and {(b["test"], b["ranks"]) for b in bench} == {("all_reduce_perf", 2)}
    out = [b for b in bench if not b["in_place"]]
    assert max(b["busbw"] for b in out) == 13.28
    for b in bench:  # ours = theirs, to the digits they print
        assert b["bytes"] / b["time_us"] / 1e3 == pytest.approx(b["algbw"], abs=0.0051)
        assert b["busbw"] == b["algbw"]  # n = 2


def test_init_of_one_rank_of_two_nodes(load: Any) -> None:
    part = load("20_2.27.3_8rank_2node_rank0_subsys_INIT")
    (comm,) = rows(part, "nccl_comms")
    assert (comm["init_s"], comm["nodes"], comm["channels"], comm["end"]) == (2.34, 2, 8, "destroy")
    assert edges(part) == {
        ("p2p", "P2P/CUMEM", None, False): 12,
        ("net", "NET/IBext_v10", True, False): 4,
    }
    assert {e["instance_basis"] for e in rows(part, "nccl_edges")} == {"inferred"}  # connected after the init
    (proc,) = rows(part, "nccl_procs")
    assert proc["nics"].startswith("0=mlx5_0:1/RoCE;1=mlx5_2:1/IB/SHARP") and proc["network"] == "IBext_v10"


def test_the_latency_and_bandwidth_that_nccl_expects(load: Any) -> None:
    tuning = rows(load("20_2.27.3_8rank_2node_rank0_subsys_TUNING"), "nccl_tuning")
    model = {(t["function"], t["algorithm"], t["protocol"]): (t["latency_us"], t["gbs"]) for t in tuning}
    assert model["AllReduce", "Tree", "Simple"] == (60.4, 70.4)
    assert model["AllReduce", "Ring", "LL"] == (36.0, 12.9)
    assert model["AllGather", "Ring", "LL128"] == (30.0, 100.9)
    assert not any(algorithm == "PAT" for _, algorithm, _ in model)  # 0.0 = switched off
    (choice,) = (t for t in tuning if t["kind"] == "choice")
    assert (choice["function"], choice["bytes"], choice["algorithm"], choice["protocol"], choice["channels"]) == (
        *("AllReduce", 4, "Tree", "LL", 1),
    )


def test_a_call(load: Any) -> None:
    (call,) = rows(load("20_2.27.3_8rank_2node_rank0_subsys_COLL"), "nccl_calls")
    assert (call["function"], call["count"], call["dtype"], call["bytes"]) == ("AllReduce", 1, "i32", 4)


def test_mpirun_tags_name_the_rank_only_as_an_assumption(load: Any) -> None:
    part = load("e04")
    procs = {p["proc"]: (p["rank"], p["rank_basis"]) for p in rows(part, "nccl_procs")}
    assert procs["ip-172-32-36-209:8716"] == (26, "assumed")
    assert edges(part) == {("p2p", "P2P/IPC", None, False): 6, ("net", "NET/AWS Libfabric", False, True): 3}
    (message,) = rows(part, "nccl_messages")
    assert message["proc"] == "ip-172-32-45-165:72593" and "Couldn't open AV" in message["text"]


def test_a_log_service_that_prints_records_twice(load: Any) -> None:
    part = load("e06")
    (proc,) = rows(part, "nccl_procs")
    assert (proc["host"], proc["records"], proc["env"]) == ("ip-10-36-29-253", 4, "NCCL_SOCKET_IFNAME=eth0")
    assert part.meta.source.quarantined == 0


def test_ray_drops_records_and_that_is_said(load: Any) -> None:
    part = load("e21")
    (comm,) = rows(part, "nccl_comms")
    assert (comm["rank"], comm["nranks"], comm["comm"]) == (6, 8, "0xaab4a40f4078b738")
    assert rows(part, "nccl_edges") == []  # `Channel 00/0 : 6[` is cut
    assert any("87 records" in w for w in part.meta.source.warnings)


def test_colours_and_scoped_addresses(load: Any) -> None:
    part = load("e23")
    (proc,) = rows(part, "nccl_procs")
    assert proc["nics"] == "0=ens5:172.31.0.137<0>;1=veth75fa783:fe80::14ad:64ff:fe64:b31e%veth75fa783<0>"
    assert edges(part) == {("net", "NET/Socket", False, True): 1}


def test_infiniband_errors_have_a_meaning(load: Any) -> None:
    messages = {m["kind"]: m for m in rows(load("e26"), "nccl_messages")}
    assert messages["ib_completion_4"]["level"] == "error"
    assert "not mapped" in messages["ib_completion_4"]["meaning"]
    assert messages["ib_async"]["level"] == "error"
