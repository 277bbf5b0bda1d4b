"""Rows of the tables in a result: what reports list, one struct per table."""

from __future__ import annotations

from typing import Literal

import msgspec

Quality = Literal["proved", "estimated", "lower_bound", "upper_bound", "unavailable"]


class CollectiveRow(msgspec.Struct):
    """One class of collectives: (group, kind, size class)."""

    group: str
    kind: str
    size_class: str
    n: int
    matched: int
    wait_ns: int
    transfer_ns: int
    exposed_ns: int
    algbw: float | None = None
    busbw: float | None = None
    tier: str = "unknown"
    peak: float | None = None
    efficiency: float | None = None
    group_size: int | None = None
    bytes: int | None = None
    verdict: str = ""
    """healthy | degraded | suspect, or why no verdict"""
    transport: str = ""
    algorithm: str = ""
    facts: dict[str, str] = {}
    host_staged: bool | None = None
    """the NCCL log says that the data passes host memory; None = no log"""
    unstaged_peak: float | None = None
    """the bound if it did not"""
    members: str = ""
    """ranks of the group as ranges, empty if they are not told"""
    peers_ratio: float | None = None
    """busbw over the median of the other groups of the same class; None with fewer than three groups"""
    pcie: float | None = None
    """what PCIe allows a staged path, GB/s; half of a slot if GPU and NIC share the uplink"""


class StragglerRow(msgspec.Struct):
    """A culprit. Blame in ns of other ranks' time, summed over the used steps (METHODS e.3-e.7)."""

    rank: int
    host: str
    blame_ns: int
    origin_blame_ns: int
    blame_inclusive_ns: int
    late_steps: int
    steps: int
    kind: str
    """persistent | intermittent | transient | too_few_steps"""
    cause: str
    """compute_slower | compute_more_work | data | host | copies | communication | unknown"""
    cause_terms_ns: dict[str, int]
    place: str = "gpu"
    """gpu | node | stage | replica | rail"""
    quality: Quality = "estimated"
    last_ns: int = 0
    marginal_ns: int = 0
    last_count: int = 0
    collectives: int = 0
    names: list[str] = []
    """Kernels or ranges that differ from the reference rank, the largest first."""
    reference_rank: int | None = None
    slowdown: float | None = None
    """the same kernels take this many times as long as on the reference rank; only for compute_slower"""
    explanation: str = ""
    tokens: str = ""
    """what the tokens of its experts explain: '' = nothing | uneven = most of it | untold = the trace has no sizes"""
    load: float | None = None
    """tokens that its experts received over the mean of the group, where it was late"""
    replay_step_ns: int | None = None
    """METHODS h.2: step time if this rank, or its whole slow node, were typical; None = the replay cannot tell"""


class HiddenRow(msgspec.Struct):
    """A rank that is late in most steps and costs nothing, as a named straggler is later: the next limit."""

    rank: int
    host: str
    behind: int
    """the straggler that hides it"""
    late_ns: int
    """its lateness after the median member in a step, median over the steps in which it is late"""
    late_steps: int
    steps: int
    """used steps in which it is seen"""
    cause: str
    """as of a straggler"""
    explanation: str


class ExpertRank(msgspec.Struct):
    """A rank that was the most loaded one, or as loaded, of a dispatch/combine pair that gains from even tokens."""

    rank: int
    load: float
    """received over the mean of the group, mean over these pairs"""
    pairs: int
    steps: int
    gain_ns: int
    """its part of the gain: ranks that are as loaded share it"""
    pace: float
    """its time per token over that of a typical rank"""


class ExpertRow(msgspec.Struct):
    """The dispatch/combine all-to-all pairs of one expert-parallel group, used steps (METHODS e.6)."""

    group: str
    members: str
    """ranks that were seen, as ranges"""
    group_size: int
    steps: int
    pairs: int
    told: bool
    """the trace tells how many elements every rank received; without them the pairs are assumed from the order"""
    imbalance: float | None
    """received elements, largest over mean of the ranks: mean over the pairs; None if not told"""
    imbalance_max: float | None
    token_share: float | None
    """share of the compute between dispatch and combine that follows the received elements"""
    gain_ns: int
    """sum over the pairs: how much earlier the last would arrive with even tokens, as far as others wait for it"""
    wait_ns: int
    """sum over the pairs: mean exposed wait of a rank at the combine"""
    transfer_ns: int
    """exposed transfer that even sizes would save at most; it is part of the exposed communication"""
    loaded_last: int
    """pairs in which the most loaded rank arrives last at the combine"""
    correlation: float | None
    """rank correlation of received elements and arrival at the combine, within the pairs"""
    correlation_n: int
    moves: str
    """whether the most loaded rank changes: '' | step | layer"""
    ranks: list[ExpertRank] = []


class BlameRow(msgspec.Struct):
    """The whole ledger, a row for every rank that somebody waited for: sums to the straggler wait of the budget."""

    rank: int
    host: str
    blame_ns: int
    origin_blame_ns: int
    blame_inclusive_ns: int
    last_ns: int
    marginal_ns: int
    waited_ns: int
    """what this rank itself lost waiting (exposed, nxn)"""
    by_schedule_ns: int = 0
    """part of ``origin_blame_ns`` that sends handed on from a meeting of stages: the schedule of their pipeline"""


class BlamePlaceRow(msgspec.Struct):
    """The ledger by place; for each ``by``, ``blame_ns`` sums to that of ``blame``. Blame is GPU time of others."""

    by: str
    """host | stage | replica | rail | collective"""
    name: str
    """'(not told)' for the ranks without a label; group, description and kind for a class of collectives"""
    ranks: str
    """as ranges"""
    blame_ns: int
    origin_blame_ns: int | None
    """None for a class of collectives: where a delay began is a property of ranks"""
    inclusive_ns: int
    waited_ns: int
    """what these ranks lost waiting; in a class, all waiting in it"""
    at_least_ns: int
    """owed on top of it at least, in collectives of which members are missing"""
    quality: Quality
    basis: str
    """what tells the names; begins with 'assumed' where no file does"""


class HostClock(msgspec.Struct):
    """Fit of one host's clock: true = local + offset + drift*(local - t_ref).

    ``component``: hosts linked by common collectives. ``basis``: what the offset rests on. ``join_bound_ns``: proved
    error of the place of the whole component among others, where only sends and receives tell it; it is contained in
    ``sigma_ns`` and ``bound_ns``.
    """

    host: str
    offset_ns: int
    drift_ppm: float
    sigma_ns: float | None
    bound_ns: int | None
    grade: str
    violations: int
    component: int
    instances: int = 0
    basis: str = ""
    join_bound_ns: int | None = None


class RankClock(msgspec.Struct):
    """What was done to one rank's clock."""

    rank: int
    eta_ns: int
    host_axis_shift_ns: int


class Clock(msgspec.Struct):
    """Clocks of the run. ``clock_free_gap_ns``: median |aligned wait - clock-free wait| per group.

    ``apart``: hosts that share only sends and receives, and why these do not prove where their clocks stand.
    ``neighbours_ns``: of those that these do align, the largest proved error between two that exchange messages.
    """

    t_ref_ns: int
    hosts: list[HostClock]
    ranks: list[RankClock]
    grade: str = "A"
    clock_free_gap_ns: dict[str, int] = {}
    apart: list[str] = []
    neighbours_ns: int | None = None


class MatchRow(msgspec.Struct):
    """How the collectives of one group were matched."""

    group: str
    members: str
    level: str
    """K1 | K2 | K3 | K4"""
    instances: int
    matched: int
    partial: int
    unmatched: int
    ambiguous: int
    note: str = ""


class ArrivalRow(msgspec.Struct):
    """Arrivals of a rank in a class of collectives, used steps: mean lateness after the median member, times last."""

    group: str
    kind: str
    rank: int
    n: int
    mean_late_ns: int
    last: int


class PathRow(msgspec.Struct):
    """Cross-rank critical path of one step (METHODS e.8): leaves sum to ``wall_ns``, never comm_wait."""

    step: int
    wall_ns: int
    leaves_ns: dict[str, int]
    hops: list[int]
    ranks_ns: dict[str, int] = {}


class StepRow(msgspec.Struct):
    """One used step over all ranks: T_k is the median window, leaves are summed over ranks."""

    step: int
    wall_ns: int
    min_ns: int
    max_ns: int
    leaves_ns: dict[str, int]
    slowest_rank: int
    sub_ns: dict[str, int] = {}
    outlier: bool = False


class RankRow(msgspec.Struct):
    """One rank over the used steps."""

    rank: int
    host: str
    device: int
    device_name: str
    wall_ns: int
    leaves_ns: dict[str, int]
    sub_ns: dict[str, int]
    late_ns: int = 0
    """sum of the lateness of its steps, as in the windows"""
    truncated: bool = False


class KernelRow(msgspec.Struct):
    """One kernel name over all ranks, used steps."""

    name: str
    cls: str
    count: int
    total_ns: int
    mean_ns: int
    max_ns: int
    ranks: int
    op: str = ""
    """the operator that launched most of it"""


class RangeRow(msgspec.Struct):
    """GPU time launched inside host ranges of one name, used steps (what nsys calls projection)."""

    name: str
    kind: str
    """annotation | op"""
    count: int
    """ranges in the record"""
    ops: int
    """GPU operations launched inside"""
    gpu_ns: int
    """their summed durations; nested ranges of one name count once"""
    self_ns: int
    """the part that no inner range of the kind owns"""
    ranks: int


class CopyRow(msgspec.Struct):
    """Copies of one direction and memory kind. ``rate`` only over copies of at least 1 MB (METHODS f.4)."""

    direction: str
    mem: str
    count: int
    bytes: int
    total_ns: int
    exposed_ns: int
    rate: float | None
    rate_n: int


class IdleRow(msgspec.Struct):
    """Idle time by cause and tag (alloc, module load, GC, queued, ...)."""

    cause: str
    tag: str
    ns: int
    names: list[str] = []


class MemoryRow(msgspec.Struct):
    """Device memory of a rank: peaks over the record."""

    rank: int
    device: int
    peak_allocated: int | None
    peak_reserved: int | None
    allocator_calls: int
