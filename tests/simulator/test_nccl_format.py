"""The simulator's NCCL logs speak the grammar of real logs of the same version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulator import HostStaged, Job, Network, simulate
from simulator.nccl_log import VERSIONS, write_nccl_log

REAL = {
    "2.7": ("35_2.7.8_v100_4ranks_1node_bench.txt",),
    "2.16": ("13_2node_gdr_off_all_reduce.txt",),
    "2.20": ("10_polaris_8ranks_2025jun_without.log",),
    "2.27": tuple(f"20_2.27.3_8rank_2node_rank0_subsys_{s}.log" for s in ("INIT", "COLL", "TUNING")),
}
PREFIX = re.compile(r"^\S+?:\d+:\d+ \[\d+\] NCCL INFO ")
# Lines that every version prints and whose form decides whether a parser understands the log.
CORE = re.compile(r"Init (START|COMPLETE)|^Channel|^Trees|coll channels|opCount|Bytes ->|nNodes|Connected all trees")
KNOWN_CELLS = re.compile(r"P2P/\S+|NET/\w+/\S+|SHM/\S+")


def templates(text: str) -> set[str]:
    """Line forms: numbers, addresses, lists and transports made equal."""
    out = set()
    for line in text.splitlines():
        if not PREFIX.match(line):
            continue
        line = PREFIX.sub("", line)
        if not CORE.search(line):
            continue
        line = re.sub(r"busId \w+", "busId #", KNOWN_CELLS.sub("TRANSPORT", line))
        line = re.sub(r"0x[0-9a-f]+|\(nil\)", "PTR", re.sub(r"\[\w+\] -> \d+\[\w+\]", "[#] -> #[#]", line))
        line = re.sub(r"Algo [A-Z]+ proto [A-Z0-9]+", "Algo A proto P", line)
        line = re.sub(r"-?\d+", "#", line)
        line = re.sub(r"(\[#\] #/#/#->#->#(?:\|#->#->#/#/#)?\s?)+", "TREES", line)
        out.add(re.sub(r"(\s+#)+$", " LIST", line).rstrip())
    return out


@pytest.mark.parametrize("version", sorted(REAL))
def test_line_forms_are_those_of_real_logs(version: str, shared_dir: Path, tmp_path: Path) -> None:
    hosts = 1 if version == "2.7" else 2
    faults = (HostStaged(),) if version == "2.16" else ()
    sim = simulate(Job(ranks=2 if version == "2.16" else 4, hosts=hosts, steps=1, faults=faults))
    write_nccl_log(sim, tmp_path, version)
    ours = templates((tmp_path / "nccl.log").read_text())
    theirs = set.union(
        *(templates((shared_dir / "traces/nccl" / name).read_text(errors="replace")) for name in REAL[version])
    )
    calls = {t for t in ours if "opCount" in t or "Bytes ->" in t}
    if not any("opCount" in t for t in theirs):
        ours -= calls
    assert len(ours) >= 5
    assert ours <= theirs, sorted(ours - theirs)


@pytest.mark.parametrize("version", sorted(VERSIONS))
def test_every_call_of_every_rank_is_logged(version: str, tmp_path: Path) -> None:
    sim = simulate(Job(layout="fsdp", ranks=4, hosts=2, steps=1, layers=2))
    truth = write_nccl_log(sim, tmp_path, version, subsystems=("COLL",))
    text = (tmp_path / "nccl.log").read_text()
    assert truth.calls == text.count(" opCount ") == 4 * len(sim.instances)


def test_host_staging_shows_in_every_edge(tmp_path: Path) -> None:
    staged = simulate(Job(ranks=4, hosts=2, steps=1, faults=(HostStaged(),)))
    truth = write_nccl_log(staged, tmp_path, "2.27")
    assert {t for _, _, t in truth.edges} == {"SHM/direct/direct", "NET/IB/0", "NET/IB/1"}
    direct = write_nccl_log(simulate(Job(ranks=4, hosts=2, steps=1)), tmp_path, "2.27")
    assert {t for _, _, t in direct.edges} == {"P2P/CUMEM", "NET/IB/0/GDRDMA", "NET/IB/1/GDRDMA"}


def test_a_domain_over_hosts_has_no_network_edge(tmp_path: Path) -> None:
    sim = simulate(Job(ranks=4, hosts=2, steps=1, net=Network(domain=4)))
    truth = write_nccl_log(sim, tmp_path, "2.27")
    assert {t for _, _, t in truth.edges} == {"P2P/CUMEM", "P2P/MNNVL"}


def test_torn_records_keep_every_byte(tmp_path: Path) -> None:
    sim = simulate(Job(steps=1))
    write_nccl_log(sim, tmp_path / "whole")
    truth = write_nccl_log(sim, tmp_path / "torn", damage=7)
    whole, torn = (sorted((tmp_path / d / "nccl.log").read_text().replace("\n", "")) for d in ("whole", "torn"))
    assert truth.torn > 3
    assert whole == torn


def test_wrappers_stamps_and_one_file_a_process(tmp_path: Path) -> None:
    sim = simulate(Job(steps=1))
    write_nccl_log(sim, tmp_path, wrapper="srun", stamps=True, per="process")
    files = sorted(p.name for p in tmp_path.iterdir())
    assert files == [f"nccl.node-1.{1234 + r}.log" for r in range(4)]
    assert (tmp_path / files[2]).read_text().startswith("2: [2023-11-14 22:13:1")
