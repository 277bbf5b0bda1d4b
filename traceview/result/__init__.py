"""Result: what the analysis says of a run, as one value that goes to JSON and back (``traceview.result/1``).

Additions are allowed, renames are not. Times are integer nanoseconds, shares fractions, bandwidths decimal GB/s.
Rows are plain structs so that every report shows the same numbers.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa

from traceview.errors import TraceviewError
from traceview.result.check import flaw
from traceview.result.rows import (
    ArrivalRow,
    BlamePlaceRow,
    BlameRow,
    Clock,
    CollectiveRow,
    CopyRow,
    ExpertRank,
    ExpertRow,
    HiddenRow,
    HostClock,
    IdleRow,
    KernelRow,
    MatchRow,
    MemoryRow,
    PathRow,
    Quality,
    RangeRow,
    RankClock,
    RankRow,
    StepRow,
    StragglerRow,
)
from traceview.result.versus import Against
from traceview.schema import GROUPS, LEAVES
from traceview.schema.structs import table_of

__all__ = [
    "SCHEMA",
    "Against",
    "ArrivalRow",
    "BlamePlaceRow",
    "BlameRow",
    "Budget",
    "Clock",
    "CollectiveRow",
    "CopyRow",
    "Excluded",
    "ExpertRank",
    "ExpertRow",
    "Finding",
    "HiddenRow",
    "HostClock",
    "IdleRow",
    "KernelRow",
    "MatchRow",
    "MemoryRow",
    "Metric",
    "PathRow",
    "Quality",
    "QualityInfo",
    "RangeRow",
    "RankClock",
    "RankRow",
    "Result",
    "RunInfo",
    "Source",
    "StepRow",
    "Steps",
    "StragglerRow",
    "Unclassified",
    "Verdict",
    "Where",
    "Window",
    "group_ns",
]

SCHEMA = "traceview.result/1"


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

    @property
    def per(self) -> str:
        """What times and savings are of: without steps the record as a whole is the only one."""
        return "of the record" if self.source == "all" else "a step"


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
    gpu_ranks: list[int] = []
    """ranks with GPU records anywhere in their file, in a used step or not"""
    start_ns: int | None = None
    end_ns: int | None = None
    redacted: str = ""
    """names are pseudonyms; equal under one key. Empty = names as recorded"""


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
    replay_ns_per_step: int | None = None
    """the saving by a replay of the steps (METHODS h.2), beside the simple bound; None = no replay of it"""


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
    blame_by: list[BlamePlaceRow] = []
    blame_by_untold: dict[str, str] = {}
    """kind of place -> why there are no rows of it"""
    hidden: list[HiddenRow] = []
    """ranks that are late behind a straggler"""
    experts: list[ExpertRow] = []
    kernels: list[KernelRow] = []
    ranges: list[RangeRow] = []
    copies: list[CopyRow] = []
    idle: list[IdleRow] = []
    memory: list[MemoryRow] = []
    matching: list[MatchRow] = []
    arrivals: list[ArrivalRow] = []
    critical_path: list[PathRow] = []
    against: Against | None = None
    """the run beside a baseline, where one was given"""
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
        except (msgspec.MsgspecError, RecursionError) as error:
            raise TraceviewError(f"not a {SCHEMA} document: {error}") from error
        if result.schema != SCHEMA:
            raise TraceviewError(f"schema is {result.schema!r}, this version reads {SCHEMA}")
        return result

    @classmethod
    def load(cls, path: Path) -> Result:
        """Read a result file. TraceviewError if it is none, or if its numbers contradict each other."""
        again = "write it again with `traceview analyze --json`"
        try:
            result = cls.from_json(path.read_bytes())
        except OSError as error:
            raise TraceviewError(f"{path}: {error.strerror}") from error
        except TraceviewError as error:
            raise TraceviewError(f"{path}: {error}; {again}") from error
        if wrong := flaw(result):
            raise TraceviewError(f"{path}: was changed by hand or damaged: {wrong}; {again}")
        return result

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
