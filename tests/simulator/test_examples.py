"""The model reproduces the worked examples of METHODS section j when given their parameters (times in us)."""

from __future__ import annotations

from simulator import Job, Sim
from simulator.capture import Capture, capture
from simulator.engine import Graph, Transfer
from simulator.program import COMM, COMPUTE, GRADS, Group, Instance, RankProgram
from simulator.truth import IdleCauses, Truth, exclusive, phases, truth, window_bounds

US = 1_000


class Example:
    """A hand-made run of ``ranks`` ranks: compute and collectives at given times."""

    def __init__(self, ranks: int) -> None:
        self.graph = Graph()
        self.ranks = [RankProgram(self.graph, r, launch_ns=0, latency_ns=0) for r in range(ranks)]
        self.instances: list[Instance] = []

    def collective(self, members: tuple[int, ...], us: int) -> Instance:
        """An all-reduce that moves data for ``us``."""
        group = Group(str(members), "", members)
        self.instances.append(Instance(group, "allreduce", 1, 1_500_000, Transfer(fixed=us * US)))
        return self.instances[-1]

    def run(self) -> Sim:
        """All times computed."""
        self.graph.run()
        for program in self.ranks:
            program.finish()
        return Sim(Job(ranks=len(self.ranks)), self.ranks, self.instances, [{} for _ in self.ranks])


def leaves(sim: Sim, cap: Capture, begin: int, end: int) -> dict[str, int]:
    """Leaves in us of a window given in us."""
    base = sim.local(0, 0)
    recorded = {id(g.row) for c in capture(sim) for g in c.gpu}
    out = exclusive(phases(sim, cap, recorded), base + begin * US, base + end * US, IdleCauses(cap))
    return {k: v // US for k, v in out.items()}


def blind(sim: Sim) -> list[Capture]:
    """Captures whose launches are not known, as in the examples."""
    out = capture(sim)
    for cap in out:
        cap.calls = {}
    return out


def direct_blame(known: Truth) -> dict[int, float]:
    """Airport blame over all instances, us."""
    out: dict[int, float] = {}
    for met in known.met:
        for rank, ns in met.airport().items():
            out[rank] = out.get(rank, 0) + ns / US
    return {r: b for r, b in out.items() if b}


def test_s02_straggler() -> None:
    ex = Example(2)
    a = ex.collective((0, 1), 15)
    for p, us in zip(ex.ranks, (40, 55), strict=True):
        p.communicate(COMM, a, "nccl", (p.launch(COMPUTE, "compute", "c", us * US),))
    sim = ex.run()
    r0, r1 = blind(sim)
    assert leaves(sim, r0, 0, 70) == {"compute": 40, "comm_wait": 15, "comm_transfer": 15}
    assert leaves(sim, r1, 0, 70) == {"compute": 55, "comm_transfer": 15}
    (met,) = truth(sim).met
    assert (met.last, met.transfer) == (55 * US, 15 * US)
    assert direct_blame(truth(sim)) == {1: 15}


def test_s03_overlap() -> None:
    ex = Example(2)
    a = ex.collective((0, 1), 30)
    for p, compute, arrival in zip(ex.ranks, (30, 20), (10, 20), strict=True):
        p.launch(COMPUTE, "compute", "c", compute * US)
        p.communicate(COMM, a, "nccl", not_before=arrival * US)
    sim = ex.run()
    r0, r1 = blind(sim)
    assert leaves(sim, r0, 0, 50) == {"compute": 30, "comm_transfer": 20}
    assert leaves(sim, r1, 0, 50) == {"compute": 20, "comm_transfer": 30}


def test_s04_transfer_beats_wait() -> None:
    ex = Example(3)
    a, b = ex.collective((0, 1), 5), ex.collective((0, 2), 25)
    r0, r1, r2 = ex.ranks
    first = r0.launch(COMPUTE, "compute", "c", 10 * US)
    r0.communicate(COMM, a, "nccl", (first,))
    r0.communicate(GRADS, b, "nccl", not_before=15 * US)
    r1.communicate(COMM, a, "nccl", (r1.launch(COMPUTE, "compute", "c", 25 * US),))
    r2.communicate(GRADS, b, "nccl", (r2.launch(COMPUTE, "compute", "c", 15 * US),))
    sim = ex.run()
    caps = blind(sim)
    assert leaves(sim, caps[0], 0, 40) == {"compute": 10, "comm_wait": 5, "comm_transfer": 25}
    assert leaves(sim, caps[1], 0, 40) == {"compute": 25, "comm_transfer": 5, "idle_unknown": 10}
    assert leaves(sim, caps[2], 0, 40) == {"compute": 15, "comm_transfer": 25}


def test_s05_step_boundary() -> None:
    ex = Example(2)
    a = ex.collective((0, 1), 30)
    for p, arrival, c1, c2 in zip(ex.ranks, (100, 110), (100, 90), (70, 60), strict=True):
        p.latency_ns = 10 * US
        with p.range("annotation", "ProfilerStep#1") as mark, p.range("op", "op"):
            p.busy(10 * US)
            p.launch(COMPUTE, "compute", "c", c1 * US)
            p.busy(50 * US)
            comm = p.communicate(COMM, a, "nccl", not_before=arrival * US)
            p.busy(40 * US)
        p.marks.append((1, mark))
        with p.range("annotation", "ProfilerStep#2") as mark, p.range("op", "op"):
            p.busy(5 * US)
            p.launch(COMPUTE, "compute", "c", c2 * US, (comm,) if p.rank else ())
            p.busy(95 * US)
        p.marks.append((2, mark))
    sim = ex.run()
    known = truth(sim)
    base = sim.local(0, 0)
    got = {(w.rank, w.step): ((w.start - base) // US, (w.end - base) // US) for w in known.windows}
    assert got == {(0, 1): (0, 120), (0, 2): (120, 200), (1, 1): (0, 140), (1, 2): (140, 200)}
    us = {k: {leaf: ns // US for leaf, ns in known.leaves(*k).items()} for k in got}
    assert us[0, 1] == {"idle_host": 10, "idle_launch": 10, "compute": 100}
    assert us[0, 2] == {"compute": 70, "idle_unknown": 10}
    assert us[1, 1] == {"idle_host": 10, "idle_launch": 10, "compute": 90, "comm_transfer": 30}
    assert us[1, 2] == {"compute": 60}
    assert known.met[0].waits == {0: 10 * US, 1: 0}
    assert window_bounds(known.captures[0])[0] == (1, base, base + 120 * US)


def test_s09_tensor_parallel_in_the_compute_stream() -> None:
    ex = Example(2)
    a = ex.collective((0, 1), 3)
    for p, before, after in zip(ex.ranks, (10, 13), (14, 14), strict=True):
        p.launch(COMPUTE, "compute", "c", before * US)
        p.communicate(COMPUTE, a, "nccl")
        p.launch(COMPUTE, "compute", "c", after * US)
    sim = ex.run()
    r0, r1 = blind(sim)
    assert leaves(sim, r0, 0, 30) == {"compute": 24, "comm_wait": 3, "comm_transfer": 3}
    assert leaves(sim, r1, 0, 30) == {"compute": 27, "comm_transfer": 3}


def test_s14_transitive_blame() -> None:
    ex = Example(4)
    tp = {r: g for g in (ex.collective((0, 1), 5), ex.collective((2, 3), 5)) for r in g.group.members}
    dp = {r: g for g in (ex.collective((0, 2), 10), ex.collective((1, 3), 10)) for r in g.group.members}
    for p in ex.ranks:
        compute = p.launch(COMPUTE, "compute", "c", (30 if p.rank == 3 else 20) * US)
        p.communicate(COMM, dp[p.rank], "nccl", (p.communicate(COMM, tp[p.rank], "nccl", (compute,)),))
    sim = ex.run()
    for rank, cap in enumerate(blind(sim)):
        want = {"compute": 20, "comm_wait": 10, "comm_transfer": 15}
        assert leaves(sim, cap, 0, 45) == (want if rank < 3 else {"compute": 30, "comm_transfer": 15})
    assert direct_blame(truth(sim)) == {3: 20, 2: 10}
