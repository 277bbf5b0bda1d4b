"""What-if against the simulator: what it predicts is what the changed job does (METHODS h)."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

import traceview as tv
from simulator.job import (
    HostStaged,
    Job,
    LaunchBound,
    MissingRanks,
    PageableCopies,
    Routing,
    SlowLoader,
    SlowRank,
)
from simulator.kineto import write_kineto
from simulator.nccl_log import write_nccl_log
from simulator.network import Network
from simulator.simulate import simulate
from traceview import pipeline
from traceview.analysis.whatif.asked import Asked
from traceview.errors import TraceviewError
from traceview.pipeline import Question
from traceview.result.whatif import WhatIf

MS, US = 1_000_000, 1_000
NET = Network()
FAST = replace(NET, nvlink=2 * NET.nvlink, pcie=2 * NET.pcie, nic=2 * NET.nic)
DP = Job(ranks=4, steps=6)
WIDE = replace(DP, hosts=2, layer_bytes=200_000_000)
FSDP = Job("fsdp", ranks=4, hosts=2, steps=6, layer_bytes=500_000_000)
EP = Job("ep", ranks=4, hosts=2, steps=6)
PP = Job("pp", pp=2, ranks=2, steps=6, layers=4, kernels=2, activation_bytes=400_000_000)
ROUTED = Job("ep", ranks=4, steps=6, layers=4, kernels=2, faults=(Routing((1.0, 1.0, 1.0, 1.8)),))


def ask(job: Job, question: Question, *, log: bool = False) -> WhatIf:
    with tempfile.TemporaryDirectory() as folder:
        simulated = simulate(job)
        write_kineto(simulated, Path(folder), "D2")
        if log:
            write_nccl_log(simulated, Path(folder), "2.27", subsystems=("INIT", "GRAPH", "NET", "P2P", "TUNING"))
        return pipeline.ask(tv.open(folder, cache=False, workers=1), question, pipeline.StudyOptions())


def step(job: Job) -> float:
    return ask(job, Question(changes=Asked(data_wait=False))).step_ns


CASES = {
    "network, dp": (WIDE, replace(WIDE, net=FAST), Asked(network=(("all", 2.0),)), 0.005),
    "network, fsdp": (FSDP, replace(FSDP, net=FAST), Asked(network=(("inter", 2.0),)), 0.005),
    "network, experts": (EP, replace(EP, net=FAST), Asked(network=(("all", 2.0),)), 0.01),
    "network, pipeline": (PP, replace(PP, net=FAST), Asked(network=(("all", 2.0),)), 0.02),
    "one late loader": (
        replace(DP, faults=(SlowLoader(80 * MS, (1,)),)),
        replace(DP, loader_ns=0),
        Asked(data_wait=False),
        0.015,
    ),
    "launch bound": (replace(DP, faults=(LaunchBound(4 * MS),)), DP, Asked(launch_gaps=False), 0.03),
    "pageable copies": (
        replace(DP, faults=(PageableCopies(),), batch_bytes=200_000_000),
        replace(DP, batch_bytes=0),
        Asked(staging=False),
        0.005,
    ),
    "even tokens": (ROUTED, replace(ROUTED, faults=(Routing((1.0,) * 4),)), Asked(even_tokens=True), 0.03),
}


@pytest.mark.parametrize("case", CASES)
def test_the_replay_is_the_step_of_the_changed_job(case: str) -> None:
    job, other, asked, close = CASES[case]
    (row,) = ask(job, Question(changes=asked)).answers
    assert row.replay_ns == pytest.approx(step(other), rel=close), row
    assert sum(row.made_of_ns.values()) == pytest.approx(row.replay_ns, rel=0.05)  # mean, median


def test_two_changes_together() -> None:
    """The rank is replaced and the network twice as fast."""
    job = replace(WIDE, faults=(SlowRank(2, 1.3),))
    found = ask(job, Question(("2",), Asked(network=(("all", 2.0),))))
    assert found.answers[0].replay_ns == pytest.approx(step(replace(WIDE, net=FAST)), rel=0.005)
    assert found.answers[0].title == "rank 2 typical, network all x2"


def test_communication_through_host_memory_goes_at_the_bound_of_the_log() -> None:
    job = replace(WIDE, layer_bytes=96_000_000, faults=(HostStaged(),))
    (row,) = ask(job, Question(changes=Asked(staging=False)), log=True).answers
    truth = step(replace(job, faults=()))
    assert row.replay_ns == pytest.approx(truth, rel=0.03)  # it is taken to attain what is usual of its bound
    assert row.bound_ns is not None and row.bound_ns[0] >= truth


def test_a_run_without_options_is_asked_everything() -> None:
    job = replace(WIDE, faults=(SlowRank(2, 1.3),))
    found = ask(job, Question())
    assert found.answers[0].options == "--replace 2"
    assert {"--network inter-host=2", "--balance", "--overlap", "--free-communication"} < {
        r.options for r in found.answers
    }
    savings = [r.saving_ns or 0 for r in found.answers]
    assert savings == sorted(savings, reverse=True)


def test_missing_ranks_leave_lower_bounds() -> None:
    job = replace(WIDE, faults=(SlowRank(2, 1.3), MissingRanks((0,))))
    found = ask(job, Question(("2",)))
    (row,) = found.answers
    assert row.replay_ns is None and row.told.startswith("no replay: most communication is not fully observed")
    assert row.quality == "lower_bound" and row.bound_ns is not None
    assert any("ranks 0 were not given" in w for w in found.warnings)
    (row,) = ask(job, Question(changes=Asked(network=(("all", 2.0),)))).answers
    assert row.told == "cannot tell, because no transfer of all is fully observed: add the traces of ranks 0"


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (Question(("7",)), "--replace 7: the run has the ranks 0-3"),
        (Question(("x-1",)), "--replace x-1: the run has the ranks 0-3"),
        (Question(changes=Asked(network=(("rack", 2.0),))), "--network rack=2: the run has the tiers inter-host,"),
    ],
)
def test_what_the_run_does_not_have_is_named(question: Question, why: str) -> None:
    with pytest.raises(TraceviewError, match="^" + why.replace("-", "\\-")):
        ask(WIDE, question)


def test_in_python() -> None:
    sample = Path(__file__).parents[2] / "sample_traces" / "slow_rank"
    run = tv.open(sample, cache=False)
    found = tv.what_if(run, replace=["node-2"], network={"inter": 2.0}, staging=False)
    assert [r.options for r in found.answers] == ["--replace 4-7 --network inter=2 --no-staging"]
    assert found.answers[0].quality == "estimated"
