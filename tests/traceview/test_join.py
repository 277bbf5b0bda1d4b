"""A log joined with a trace: ranks, groups, wires, choices; what is ambiguous stays so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from traceview.analysis.join import Joined, Members, Trace, join, logged
from traceview.run import Run
from traceview_parsers import nccl_log
from traceview_parsers.reader import ReadOptions

Join = Callable[[Sequence[str], Trace], Joined | None]


@pytest.fixture
def joined(tmp_path: Path) -> Join:
    def run(lines: Sequence[str], trace: Trace) -> Joined | None:
        path = tmp_path / "nccl.log"
        path.write_text("\n".join(lines) + "\n")
        out = tmp_path / "out"
        out.mkdir()
        return join(Run("job", {}, nccl_log.read(path, out, ReadOptions(), None)), trace)

    return run


def trace(ranks: int, *groups: Members, per_host: int = 2, **more: object) -> Trace:
    hosts = {r: f"h{r // per_host}" for r in range(ranks)}
    return Trace(hosts, {r: 100 + r for r in range(ranks)}, ranks, groups, **more)  # type: ignore[arg-type]


def comm(rank: int, name: str, members: Members, *edges: str, per_host: int = 2) -> list[str]:
    """Records of one rank in one communicator; ``{me}`` and ``{next}`` in an edge are ranks in it."""
    front = f"h{rank // per_host}:{100 + rank}:{100 + rank} [{rank % per_host}] NCCL INFO "
    me, n = members.index(rank), len(members)
    where = f"comm 0x{name} rank {me} nranks {n} cudaDev {rank % per_host} busId {rank + 1}000 commId 0x{name}"
    return [
        f"{front}{where} - Init START",
        *(front + e.format(me=me, next=(me + 1) % n) for e in edges),
        f"{front}{where} - Init COMPLETE",
    ]


P2P = "Channel 00/0 : {me}[0] -> {next}[0] via P2P/CUMEM"
NET = "Channel 00/0 : {me}[0] -> {next}[0] [send] via NET/IB/0"
GDR = NET + "/GDRDMA"
WORLD = (0, 1, 2, 3)


def test_groups_get_the_wires_of_their_communicator(joined: Join) -> None:
    lines = [line for r in WORLD for line in comm(r, "a", WORLD, P2P if r % 2 == 0 else NET)]
    lines += [line for r in (0, 1) for line in comm(r, "b", (0, 1), P2P)]
    lines += [line for r in (0, 2) for line in comm(r, "c", (0, 2), GDR)]
    result = joined(lines, trace(4, WORLD, (0, 1), (0, 2), (1, 3)))
    assert result is not None
    assert {i.split(":")[1]: r for i, r in result.rank_of.items()} == {"100": 0, "101": 1, "102": 2, "103": 3}
    said = logged(result)
    assert set(said) == {WORLD, (0, 1), (0, 2)}
    assert (said[WORLD].transport, said[WORLD].staged, said[WORLD].gdr) == ("NET/IB + P2P/CUMEM", True, False)
    assert said[WORLD].facts["staged_edges"] == "1->2 NET/IB, 3->0 NET/IB"
    assert (said[0, 1].transport, said[0, 1].staged, said[0, 1].gdr) == ("P2P/CUMEM", False, None)
    assert (said[0, 2].transport, said[0, 2].staged, said[0, 2].gdr) == ("NET/IB/GDRDMA", False, True)
    assert "staged_edges" not in said[0, 2].facts


def test_two_communicators_of_one_rank_set_are_both_kept(joined: Join) -> None:
    lines = [line for name, edge in (("a", P2P), ("b", GDR)) for r in (0, 1) for line in comm(r, name, (0, 1), edge)]
    result = joined(lines, trace(2, (0, 1)))
    assert result is not None and [c.name for c in result.groups[0, 1]] == ["0xa", "0xb"]
    assert "ambiguous" in logged(result)[0, 1].facts


def test_the_trace_may_name_the_communicator(joined: Join) -> None:
    lines = [line for name, edge in (("a", P2P), ("b", GDR)) for r in (0, 1) for line in comm(r, name, (0, 1), edge)]
    result = joined(lines, trace(2, (0, 1), comm_ids={(0, 1): frozenset({"0xb"})}))
    assert result is not None and logged(result)[0, 1].transport == "NET/IB/GDRDMA"


def test_calls_tell_two_communicators_of_one_rank_set_apart(joined: Join) -> None:
    lines = [line for name, edge in (("a", P2P), ("b", GDR)) for r in (0, 1) for line in comm(r, name, (0, 1), edge)]
    call = "h0:100:100 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x1 count {n} datatype 7 op 0 root 0"
    call += " comm 0x{name} [nranks=2] stream 0x1"
    lines += [call.format(name="a", n=n) for n in range(1, 40)]
    lines += [call.format(name="b", n=1000 + n) for n in range(1, 40)]
    seen = [("allreduce", 4 * (1000 + n)) for n in range(5, 30)]
    result = joined(lines, trace(2, (0, 1), calls=lambda members, rank: seen))
    assert result is not None and [c.name for c in result.groups[0, 1]] == ["0xb"]
    assert logged(result)[0, 1].transport == "NET/IB/GDRDMA"


def test_a_log_of_one_rank_still_finds_its_groups(joined: Join) -> None:
    lines = [*comm(2, "a", WORLD, NET), *comm(2, "b", (2, 3), P2P)]
    result = joined(lines, trace(4, WORLD, (0, 1), (2, 3)))
    assert result is not None
    assert {m: s.transport for m, s in logged(result).items()} == {WORLD: "NET/IB", (2, 3): "P2P/CUMEM"}


def test_a_log_without_the_world_joins_by_host_and_pid(joined: Join) -> None:
    lines = [line for r in (2, 3) for line in comm(r, "b", (2, 3), P2P)]
    result = joined(lines, trace(4, WORLD, (0, 1), (2, 3)))
    assert result is not None and set(logged(result)) == {(2, 3)}


def test_a_log_of_other_hosts_is_not_used(joined: Join) -> None:
    lines = [line.replace("h0:", "x0:").replace("h1:", "x1:") for r in WORLD for line in comm(r, "a", WORLD, P2P)]
    result = joined(lines, trace(4, WORLD))
    assert result is not None and logged(result) == {}
    assert result.notes == ["the NCCL log is of other hosts than the traces: it is not used"]


def test_one_process_with_several_gpus(joined: Join) -> None:
    lines = []
    for r in (0, 1):
        lines += [line.replace(f"h0:{100 + r}:", "h0:100:") for line in comm(r, f"a{r}", (0, 1), P2P)]
    lines = [line.replace("commId 0xa1", "commId 0xa0") for line in lines]
    result = joined(lines, Trace({0: "h0", 1: "h0"}, {}, 2, ((0, 1),)))
    assert result is not None and sorted(result.rank_of.values()) == [0, 1]
    assert logged(result)[0, 1].transport == "P2P/CUMEM"


def test_choices_have_whole_message_sizes(joined: Join) -> None:
    front = "h0:100:100 [0] NCCL INFO "
    lines = [
        f"{front}NCCL version 2.27.3+cuda12.9",
        *comm(0, "a", (0, 1), P2P),
        f"{front}AllGather: 1000 Bytes -> Algo RING proto LL128 channel{{Lo..Hi}}={{0..3}}",
        *[f"{front}AllReduce: 4096 Bytes -> Algo TREE proto LL channel{{Lo..Hi}}={{0..0}}"] * 2,
        f"{front}AllReduce: 4096 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..0}}",
    ]
    result = joined(lines, trace(2, (0, 1)))
    assert result is not None
    assert dict(logged(result)[0, 1].choices) == {
        ("allgather", 2000): ("Ring", "LL128", 4),
        ("allreduce", 4096): ("Tree", "LL", 1),
    }


def test_why_edges_are_staged(joined: Join, shared_dir: Path) -> None:
    lines = (shared_dir / "traces/nccl/13_2node_gdr_off_all_reduce.txt").read_text().splitlines()
    result = joined(lines, Trace({0: "n014", 1: "n013"}, {}, 2, ((0, 1),)))
    assert result is not None
    facts = logged(result)[0, 1].facts
    assert facts["staged_edges"] == "0->1 NET/IB, 1->0 NET/IB"
    assert facts["staged_why"] == "GPUDirect RDMA is off (NIC 0: distance PHB > PXB)"


def test_what_several_files_say_of_one_process_is_put_together(tmp_path: Path) -> None:
    front = "h0:100:100 [0] NCCL INFO "
    call = (
        "AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x1 count 8 datatype 7 op 0 root 0 comm 0xa [nranks=2] stream 0x1"
    )
    choice = "AllReduce: 32 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}"
    texts = ["\n".join(comm(0, "a", (0, 1), P2P)), f"{front}{call}\n{front}{choice}"]
    logs = []
    for i, text in enumerate(texts):
        path, out = tmp_path / f"{i}.log", tmp_path / f"{i}.out"
        path.write_text(text + "\n")
        out.mkdir()
        logs += nccl_log.read(path, out, ReadOptions(), None)
    for order in (logs, logs[::-1]):
        result = join(Run("job", {}, order), trace(2, (0, 1)))
        assert result is not None
        said = logged(result)[0, 1]
        assert said.transport == "P2P/CUMEM"
        assert said.choices == {("allreduce", 32): ("Tree", "LL", 1)}


def test_no_log() -> None:
    assert join(Run("job", {}), trace(2, (0, 1))) is None
