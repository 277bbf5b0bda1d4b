"""Result: what the analysis says of a run, as one value that goes to JSON and back (``traceview.result/1``).

Additions are allowed, renames are not. Times are integer nanoseconds, shares fractions, bandwidths decimal GB/s.
Rows are plain structs so that every report shows the same numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa

from traceview.errors import TraceviewError
from traceview.schema import GROUPS, LEAVES
from traceview.schema.structs import table_of

SCHEMA = "traceview.result/1"
Quality = Literal["proved", "estimated", "lower_bound", "upper_bound", "unavailable"]


class Metric(msgspec.Struct):
    """A number with its meaning. ``value`` None = unavailable, ``basis`` says from what it was computed."""

    value: float | None
    unit: str
    n: int
    basis: str
    quality: Quality


class Verdict(msgspec.Struct):
    """The first screen. Lines that are not known are empty, never invented."""

    headline: str
    confidence: str
    """proved | likely | possible | cannot tell"""
    status: str = "healthy"
    """healthy | slow | cannot_tell"""
    slow: str = ""
    coverage: str = ""
    cause: str = ""
    cost: str = ""
    do: str = ""
    owner: str = ""
    rule_outs: str = ""
    next: str = ""
    ticket: str = ""


class Excluded(msgspec.Struct):
    """A step that is not in the statistics, and why."""

    step: int
    reason: str


class Steps(msgspec.Struct):
    """Which steps were found, by what, and which are used."""

    source: str
    used: list[int]
    excluded: list[Excluded] = []


class Source(msgspec.Struct):
    """One input file."""

    path: str
    format: str
    schema_class: str
    rank: int | None
    bytes: int
    events: int
    repaired: int
    quarantined: int
    dropped: int
    truncated: bool
    warnings: list[str] = []
    facts: dict[str, str] = {}


class RunInfo(msgspec.Struct):
    """The run: who was there."""

    name: str
    world_size: int | None
    ranks: list[int]
    missing_ranks: list[int]
    hosts: dict[str, list[int]]
    """host -> ranks; hosts that the files do not name start with '?'"""
    sources: list[Source]
    steps: Steps
    device_names: list[str] = []
    start_ns: int | None = None
    end_ns: int | None = None


class Budget(msgspec.Struct):
    """Sum over the used windows of all ranks; ``leaves_ns`` sum to ``wall_ns`` exactly."""

    wall_ns: int
    leaves_ns: dict[str, int]
    sub_ns: dict[str, int]
    shares: dict[str, float]


class Window(msgspec.Struct):
    """One used window on the rank's local axis; ``leaves_ns`` sum to ``end_ns - start_ns`` exactly."""

    rank: int
    device: int
    step: int
    start_ns: int
    end_ns: int
    leaves_ns: dict[str, int]
    sub_ns: dict[str, int] = {}
    coactivity_ns: dict[str, int] = {}
    """METHODS a.1: 'compute+comm_transfer' -> ns; '' = nothing active. Sums to the window."""
    late_ns: int | None = None
    """METHODS e.7: sum over the step's n x n instances of (arrival - median arrival)+; None = unknown"""


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


class HostClock(msgspec.Struct):
    """Fit of one host's clock: true = local + offset + drift*(local - t_ref)."""

    host: str
    offset_ns: int
    drift_ppm: float
    sigma_ns: float | None
    bound_ns: int | None
    grade: str
    violations: int
    component: int
    instances: int = 0


class RankClock(msgspec.Struct):
    """What was done to one rank's clock."""

    rank: int
    eta_ns: int
    host_axis_shift_ns: int


class Clock(msgspec.Struct):
    """Clocks of the run. ``clock_free_gap_ns``: median |aligned wait - clock-free wait| per group."""

    t_ref_ns: int
    hosts: list[HostClock]
    ranks: list[RankClock]
    grade: str = "A"
    clock_free_gap_ns: dict[str, int] = {}


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


class Where(msgspec.Struct):
    """The window that shows a finding."""

    rank: int | None = None
    step: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None


class Finding(msgspec.Struct):
    """A claim with its evidence; findings are ordered by saving and never add up."""

    id: str
    title: str
    saving_ns_per_step: int | None
    basis: str
    confidence: str
    """proved | likely | possible"""
    evidence: list[str]
    advice: str
    where: Where = msgspec.field(default_factory=Where)
    owner: str = ""
    """hardware | network | model code | input pipeline | launch configuration | capture"""
    section: str = ""


class Unclassified(msgspec.Struct):
    """A heavy kernel that no rule of the table names."""

    name: str
    ns: int


class QualityInfo(msgspec.Struct):
    """What was repaired, dropped, guessed or is unknown."""

    repaired: int = 0
    quarantined: int = 0
    dropped: int = 0
    unmatched_kernels: int = 0
    negative_launches: int = 0
    unclassified: list[Unclassified] = []
    warnings: list[str] = []
    clipped_overflows: int = 0
    violations: int = 0
    assumptions: list[str] = []


class Result(msgspec.Struct):
    """Everything the reports show. ``to_json`` and ``from_json`` are inverse."""

    verdict: Verdict
    run: RunInfo
    budget: Budget
    window_rows: list[Window] = msgspec.field(name="windows")
    metrics: dict[str, Metric]
    collective_rows: list[CollectiveRow] = msgspec.field(name="collectives")
    straggler_rows: list[StragglerRow] = msgspec.field(name="stragglers")
    clock: Clock
    findings: list[Finding]
    quality: QualityInfo
    step_rows: list[StepRow] = msgspec.field(name="steps", default_factory=list)
    rank_rows: list[RankRow] = msgspec.field(name="ranks", default_factory=list)
    blame: list[BlameRow] = []
    kernels: list[KernelRow] = []
    ranges: list[RangeRow] = []
    copies: list[CopyRow] = []
    idle: list[IdleRow] = []
    memory: list[MemoryRow] = []
    matching: list[MatchRow] = []
    arrivals: list[ArrivalRow] = []
    critical_path: list[PathRow] = []
    thresholds: dict[str, float] = {}
    schema: str = SCHEMA
    tool_version: str = ""

    def to_json(self) -> bytes:
        """UTF-8 JSON; the keys are described in docs/result.md."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes) -> Result:
        """Read a result back; TraceviewError if it is not one of this schema."""
        try:
            result = msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise TraceviewError(f"not a {SCHEMA} document: {error}") from error
        if result.schema != SCHEMA:
            raise TraceviewError(f"schema is {result.schema!r}, this version reads {SCHEMA}")
        return result

    @classmethod
    def load(cls, path: Path) -> Result:
        """Read a result file."""
        try:
            return cls.from_json(path.read_bytes())
        except OSError as error:
            raise TraceviewError(f"{path}: {error.strerror}") from error

    def windows(self) -> pa.Table:
        """One row per used window: rank, device, step, start_ns, end_ns, and int64 ``<leaf>_ns`` per leaf."""
        base = {
            k: [getattr(w, k) for w in self.window_rows] for k in ("rank", "device", "step", "start_ns", "end_ns")
        }
        leaves = {f"{leaf}_ns": [w.leaves_ns.get(leaf, 0) for w in self.window_rows] for leaf in LEAVES}
        return pa.table({k: pa.array(v, pa.int64()) for k, v in (base | leaves).items()})

    def stragglers(self) -> pa.Table:
        """One row per culprit, by origin blame."""
        return table_of(self.straggler_rows, StragglerRow)

    def collectives(self) -> pa.Table:
        """One row per class of collectives."""
        return table_of(self.collective_rows, CollectiveRow)

    def steps(self) -> pa.Table:
        """One row per used step, with int64 ``<leaf>_ns`` summed over ranks."""
        base = {k: [getattr(s, k) for s in self.step_rows] for k in ("step", "wall_ns", "min_ns", "max_ns")}
        leaves = {f"{leaf}_ns": [s.leaves_ns.get(leaf, 0) for s in self.step_rows] for leaf in LEAVES}
        return pa.table({k: pa.array(v, pa.int64()) for k, v in (base | leaves).items()})


def group_ns(leaves_ns: dict[str, int], sub_ns: dict[str, int]) -> dict[str, int]:
    """Leaves rolled up to the groups of ``schema.GROUPS`` (comm_wait is split by its sub-leaves)."""
    both = leaves_ns | sub_ns
    return {group: sum(both.get(leaf, 0) for leaf in leaves) for group, leaves in GROUPS.items()}
