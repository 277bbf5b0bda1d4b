"""One job in six grammars, whole or damaged: the same communicators, edges and calls, and nothing invented."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator import HostStaged, Job, simulate
from simulator.nccl_log import VERSIONS, WRAPPERS, LogTruth, write_nccl_log
from traceview.schema import TABLES
from traceview_parsers import nccl_log
from traceview_parsers.reader import ReadOptions

PIECES = (
    *(b"NCCL INFO ", b"NCCL WARN ", b"h:1:2 [0] ", b"\n", b"comm 0x1 rank ", b"Channel 00 : ", b"1[", b"] -> "),
    *(b" via NET/", b": opCount ", b"|", b" Bytes -> ", b"\x00\xff", b"0", b"NCCL version ", b"# "),
)
Tables = dict[str, list[dict[str, Any]]]


@cache
def job(staged: bool = False) -> Any:
    return simulate(Job(ranks=4, hosts=2, steps=2, faults=(HostStaged(),) if staged else ()))


def parse(text: bytes) -> Tables:
    with TemporaryDirectory() as name:
        path = Path(name, "nccl.log")
        path.write_bytes(text)
        out = Path(name, "out")
        out.mkdir()
        (part,) = nccl_log.read(path, out, ReadOptions(), None)
        names = ("nccl_procs", "nccl_comms", "nccl_edges", "nccl_calls", "nccl_tuning", "nccl_messages")
        return {n: part.table(TABLES[n]).to_pylist() for n in names} | {
            "source": [{"torn": part.meta.source.quarantined}]
        }


@cache
def log(version: str, staged: bool = False, **how: Any) -> tuple[bytes, LogTruth]:
    with TemporaryDirectory() as name:
        truth = write_nccl_log(job(staged), Path(name), version, **how)
        return Path(name, "nccl.log").read_bytes(), truth


@cache
def parsed(version: str, staged: bool = False) -> Tables:
    """The tables of the undamaged log that ``damaged`` damages."""
    return parse(log(version, staged, subsystems=("INIT", "NET", "P2P"))[0])


def ranks(tables: Tables) -> dict[str, int]:
    return {p["proc"]: p["rank"] for p in tables["nccl_procs"]}


def edges(tables: Tables) -> Counter[tuple[int, int, str]]:
    """(global rank from, to, wire), one per record: ranks of a communicator are made global through its processes."""
    own = {c["instance"]: (c["comm"], c["proc"], c["rank"]) for c in tables["nccl_comms"]}
    proc_rank = ranks(tables)
    members = {(comm, rank): proc_rank[proc] for comm, proc, rank in own.values()}
    out: Counter[tuple[int, int, str]] = Counter()
    for e in tables["nccl_edges"]:
        comm = own[e["instance"]][0]
        out[members[comm, e["src"]], members[comm, e["dst"]], e["wire"]] += 1
    return out


def truth_edges(truth: LogTruth) -> Counter[tuple[int, int, str]]:
    def wire(text: str) -> str:
        if text.startswith("NET"):
            return "net"
        return "mnnvl" if "MNNVL" in text else ("p2p" if text.startswith("P2P") else "shm")

    return Counter((a, b, wire(t)) for a, b, t in truth.edges)


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_generation_gives_the_same_tables(version: str, staged: bool) -> None:
    text, truth = log(version, staged)
    tables = parse(text)
    assert tables["source"] == [{"torn": 0}]
    assert ranks(tables) == {f"node-{r // 2 + 1}:{1234 + r}": r for r in range(4)}
    assert edges(tables) == truth_edges(truth)
    net = {(e["gdr"], e["host_staged"]) for e in tables["nccl_edges"] if e["wire"] == "net"}
    assert net == {(not staged, staged)}
    assert len(tables["nccl_calls"]) == truth.calls
    assert {c["nranks"] for c in tables["nccl_comms"]} == {4}
    assert {(c["channels"], c["complete"]) for c in tables["nccl_comms"]} == {(2, True)}
    assert {p["version"] for p in tables["nccl_procs"]} == {VERSIONS[version].split("+")[0]}
    assert all(p["unknown"] == 0 for p in tables["nccl_procs"])
    if truth.communicators:
        assert {int(c["comm"], 16) for c in tables["nccl_comms"]} == set(truth.communicators)


def test_calls_of_all_generations_are_equal() -> None:
    def calls(version: str) -> Counter[tuple[Any, ...]]:
        return Counter((c["function"], c["count"], c["bytes"]) for c in parse(log(version)[0])["nccl_calls"])

    first = calls("2.7")
    assert all(calls(version) == first for version in VERSIONS)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrappers_change_nothing(wrapper: str) -> None:
    plain, wrapped = parse(log("2.27")[0]), parse(log("2.27", wrapper=wrapper)[0])
    for name in ("nccl_procs", "nccl_comms", "nccl_edges", "nccl_calls"):
        assert wrapped[name] == plain[name]


def test_time_stamps_change_nothing() -> None:
    assert parse(log("2.27", stamps=True)[0])["nccl_calls"] == parse(log("2.27")[0])["nccl_calls"]


@pytest.mark.parametrize("damage", [3, 7, 20])
@pytest.mark.parametrize("version", VERSIONS)
def test_torn_records_are_counted_and_give_nothing(version: str, damage: int) -> None:
    tables = parse(log(version, damage=damage)[0])
    whole = parse(log(version)[0])
    invents_nothing(tables, whole)
    assert tables["source"][0]["torn"] > 0


def invents_nothing(tables: Tables, whole: Tables) -> None:
    """Every process, rank and edge of a damaged log is one of the whole log."""
    known = ranks(whole)
    for proc, rank in ranks(tables).items():
        assert proc in known and rank in (None, known[proc])
    comms = {(c["proc"], c["comm"], c["rank"], c["nranks"]) for c in whole["nccl_comms"]}
    for c in tables["nccl_comms"]:
        if c["rank"] is not None and c["comm_basis"] == "logged":
            assert (c["proc"], c["comm"], c["rank"], c["nranks"]) in comms
    pairs = {(e["proc"], e["src"], e["dst"], e["wire"], e["gdr"]) for e in whole["nccl_edges"]}
    assert {(e["proc"], e["src"], e["dst"], e["wire"], e["gdr"]) for e in tables["nccl_edges"]} <= pairs


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """A log whose processes wrote through buffers: cut anywhere, interleaved, wrapped, with the end missing."""
    version = draw(st.sampled_from(sorted(VERSIONS)))
    text = log(version, draw(st.booleans()), subsystems=("INIT", "NET", "P2P"))[0]
    by_proc: dict[bytes, list[bytes]] = {}
    for line in text.splitlines(keepends=True):
        by_proc.setdefault(line.split(b" ")[0], []).append(line)
    buffer = draw(st.integers(200, 5000))
    chunks = []
    for lines in by_proc.values():
        stream = b"".join(lines)
        chunks.append([stream[i : i + buffer] for i in range(0, len(stream), buffer)])
    mixed = b"".join(c for group in itertools.zip_longest(*chunks, fillvalue=b"") for c in group)
    mixed = mixed[: draw(st.integers(0, len(mixed)))] if draw(st.booleans()) else mixed
    front = draw(
        st.sampled_from([b"", b"0: ", b"[1,3]<stdout>:", b"\x1b[0m ", b"2025-01-01T00:00:00Z ", b"worker-0: "])
    )
    return version, b"".join(front + line for line in mixed.splitlines(keepends=True)) + b"\nNCCL version 2.1.1\n"


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(damaged())
def test_no_damage_invents_a_rank_or_an_edge(case: tuple[str, bytes]) -> None:
    version, text = case
    tables = parse(text)
    known = {p["proc"]: p["rank"] for p in parsed(version)["nccl_procs"]}
    for proc in tables["nccl_procs"]:
        if proc["rank_basis"] == "logged":
            assert known[proc["proc"]] == proc["rank"]
    allowed = {
        (e["src"], e["dst"], e["wire"], e["gdr"])
        for staged in (False, True)
        for e in parsed(version, staged)["nccl_edges"]
    }
    assert {(e["src"], e["dst"], e["wire"], e["gdr"]) for e in tables["nccl_edges"]} <= allowed
    names = [c["instance"] for c in tables["nccl_comms"]]
    assert len(set(names)) == len(names)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_any_text_is_survived(pieces: list[bytes]) -> None:
    tables = parse(b"NCCL version 2.20.5\n" + b"".join(pieces))
    assert tables["nccl_edges"] == []
