"""simulate(job) -> Sim: every record of every rank with its true time, and the instances that ranks met in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from simulator.engine import Graph
from simulator.job import EPOCH, ClockDrift, ClockOffset, Job
from simulator.network import Cluster
from simulator.program import Group, Instance, RankProgram
from simulator.training import Exchange, Trainer, groups_of


@dataclass
class Sim:
    """A job that has run. Times of the records are true ns since ``EPOCH``."""

    job: Job
    programs: list[RankProgram]
    instances: list[Instance]
    groups: list[dict[str, Group]]

    @cached_property
    def clocks(self) -> list[tuple[int, int]]:
        """(offset ns, drift ppb) of each host's clock against true time."""
        job = self.job
        return [
            (
                sum(f.ns for f in job.find(ClockOffset) if f.host == h),
                sum(f.ppb for f in job.find(ClockDrift) if f.host == h),
            )
            for h in range(job.hosts)
        ]

    def step_of(self, instance: Instance) -> int:
        """The step in which an instance was launched (on its first rank)."""
        rank, op = next(iter(instance.ops.items()))
        launched = self.programs[rank].host[op.call].start
        return max(step for step, mark in self.programs[rank].marks if mark.start <= launched)

    def local(self, rank: int, true: int) -> int:
        """What the clock of a rank's host shows at a true time (ns since EPOCH), as absolute ns."""
        offset, ppb = self.clocks[self.job.host_of(rank)]
        return EPOCH + offset + (true * 1_000_000_000 // (1_000_000_000 + ppb) if ppb else true)


def simulate(job: Job) -> Sim:
    """Run the job. Same job, same result: everything is integer and seeded."""
    cluster: Cluster = job.cluster()
    graph = Graph(cluster.capacities(), job.tick)
    exchange = Exchange(job, cluster)
    groups = [groups_of(job, rank) for rank in range(job.ranks)]
    trainers = [Trainer(job, rank, graph, exchange, groups[rank]) for rank in range(job.ranks)]
    for trainer in trainers:
        for step in range(1, job.steps + 1):
            trainer.run_step(step)
        trainer.p.sync("cudaDeviceSynchronize", [g for g in trainer.p.gpu if g.node in trainer.p.tails.values()])
    exchange.lossy()
    graph.run()
    for trainer in trainers:
        trainer.p.finish()
    return Sim(job, [t.p for t in trainers], list(exchange.found.values()), groups)
