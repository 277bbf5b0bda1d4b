"""The three formats of one run tell the same calls: operation, communicator, bytes, in the order of each rank."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

import pytest

from simulator import ClockOffset, Job, Sim, simulate, write_kineto, write_nccl_log, write_nsight
from simulator.comms import comm_hash

Call = tuple[str, str, int]  # operation, communicator or members, count of elements
CALL = re.compile(r":(\d+):\d+ \[\d+\] NCCL INFO (\w+): opCount .* count (\d+) .* comm (\w+) ")
INIT = re.compile(r":(\d+):\d+ \[\d+\] NCCL INFO .*comm (\w+) rank \d+ nranks .* commId (\w+) - Init COMPLETE")
NAMES = {
    "allreduce": "AllReduce", "_allgather_base": "AllGather", "_reduce_scatter_base": "ReduceScatter",
    "all_to_all": "AlltoAll", "send": "Send", "recv": "Recv",
}  # fmt: skip
JOBS = [
    Job(layout="fsdp", ranks=4, hosts=2, steps=1, layers=2, faults=(ClockOffset(1, 5_000_000),)),
    Job(layout="tp", tp=2, ranks=4, steps=1, layers=2),
    Job(layout="pp", pp=2, ranks=4, steps=1, layers=2),
    Job(layout="ep", ranks=4, steps=1, layers=2),
]


def kineto_calls(sim: Sim, folder: Path) -> dict[int, list[Call]]:
    """Per rank: calls from the CPU records; groups by name and members are mapped to communicators."""
    comms = {(g.name, str(list(g.members))): f"0x{comm_hash(g):x}" for gs in sim.groups for g in gs.values()}
    out: dict[int, list[Call]] = {}
    for rank, path in enumerate(write_kineto(sim, folder)):
        events = [e for e in json.loads(path.read_text())["traceEvents"] if e["name"] == "record_param_comms"]
        for args in (e["args"] for e in sorted(events, key=lambda e: e["ts"])):
            per_rank = min(args["In msg nelems"], args["Out msg nelems"])
            name = NAMES[args["Collective name"]]
            elements = per_rank // args["Group size"] if name == "AlltoAll" else per_rank
            comm = comms[args["Process Group Name"], args["Process Group Ranks"]]
            out.setdefault(rank, []).append((name, comm, elements))
    return out


def nsight_calls(sim: Sim, folder: Path) -> dict[int, list[Call]]:
    """Per rank: calls from the NCCL domain's payloads."""
    query = (
        "select n.globalTid, s.value, n.jsonText from NVTX_EVENTS n join StringIds s on s.id = n.textId"
        " where n.domainId = 1 and s.value != 'ncclCommInitRank' order by n.start"
    )
    out: dict[int, list[Call]] = {}
    for path in write_nsight(sim, folder, payload="json"):
        db = sqlite3.connect(path)
        for tid, name, text in db.execute(query):
            values = json.loads(text)
            call = (name.removeprefix("nccl"), f"0x{values['NCCL communicator ID']:x}")
            out.setdefault(((tid >> 24) & 0xFFFFFF) - 1234, []).append((*call, values["Message size [bytes]"] // 2))
        db.close()
    return out


def log_calls(sim: Sim, folder: Path) -> dict[int, list[Call]]:
    """Per rank: calls from the log, communicator pointers resolved by the Init lines."""
    write_nccl_log(sim, folder, "2.30")
    text = (folder / "nccl.log").read_text()
    comms = {(pid, pointer): comm for pid, pointer, comm in INIT.findall(text)}
    out: dict[int, list[Call]] = {}
    for pid, name, count, pointer in CALL.findall(text):
        out.setdefault(int(pid) - 1234, []).append((name, comms[pid, pointer], int(count)))
    return out


@pytest.mark.parametrize("job", JOBS, ids=lambda j: j.layout)
def test_the_formats_agree(job: Job, tmp_path: Path) -> None:
    sim = simulate(job)
    by_kineto = kineto_calls(sim, tmp_path / "k")
    assert sum(len(c) for c in by_kineto.values()) == sum(len(i.ops) for i in sim.instances)
    assert nsight_calls(sim, tmp_path / "n") == by_kineto
    assert log_calls(sim, tmp_path / "l") == by_kineto
