"""What passes between the stages of an analysis."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from traceview.analysis import blame, clock, launches, operators, stragglers, waits
from traceview.analysis.groups import Columns
from traceview.analysis.mfu import Work
from traceview.analysis.replay.answer import Answer
from traceview.analysis.types import Bools, Decomposition, Ints, Marks, Matches, Tokens, WaitPieces, Windows
from traceview.config import DEFAULT, Config
from traceview.pipeline import rows
from traceview.result import ExpertRow, MemoryRow, PathRow, Result, Window


@dataclass(frozen=True)
class StudyOptions:
    """What a user may choose about the analysis."""

    step_range: str | None = None
    """regular expression of host ranges that are the steps"""
    topology: str | None = None
    """CSV file: host, domain, rack, pod, site, rail"""
    peaks: str | None = None
    """JSON file of peaks that goes before the built-in ones"""
    work: Work = field(default_factory=Work)
    """what the model computes in a step, for MFU"""
    baseline: tuple[Result, ...] = ()
    """runs that the step time is compared with"""
    config: Config = DEFAULT


@dataclass(frozen=True)
class Frame:
    """Steps and windows of all ranks, and the collectives with their step."""

    marks: Marks
    windows: Windows
    axes: dict[int, launches.LaunchAxis]
    collectives: Any
    """all ranks, in rank order"""
    first_row: dict[int, int]
    """row of ``collectives`` where a rank begins"""
    step_of_row: Ints
    """step per collectives row, -1 outside the steps"""
    used_row: Bools


@dataclass
class Lanes:
    """What the decomposition of all ranks gives."""

    lanes: list[Decomposition] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    pieces: list[WaitPieces] = field(default_factory=list)
    kernels: list[pl.DataFrame] = field(default_factory=list)
    flops: float = 0.0
    """FLOPs that recorded shapes tell, used windows"""
    flops_ns: int = 0
    """time of the compute kernels that ran them"""
    launchers: operators.Launchers = field(default_factory=operators.Launchers)
    memory: list[MemoryRow] = field(default_factory=list)
    companions: dict[str, int] = field(default_factory=dict)
    exposed_of_row: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """exposed ns per collectives row, used windows"""
    copies: rows.Copies = field(default_factory=lambda: rows.Copies(DEFAULT))

    def all_pieces(self) -> WaitPieces:
        """The exposed waiting of all ranks, used steps."""
        none = np.empty(0, np.int32)
        names = WaitPieces.__dataclass_fields__
        return WaitPieces(*(np.concatenate([none, *(getattr(p, name) for p in self.pieces)]) for name in names))


@dataclass(frozen=True)
class Across:
    """Matched instances, the common time axis, and who waited until when."""

    columns: Columns
    matches: Matches
    alignment: clock.Alignment
    waits: waits.Waits


@dataclass(frozen=True)
class Blamed:
    """The ledger of the exposed waiting, the culprits, the critical path, and the replay."""

    ledger: blame.Ledger
    found: stragglers.Stragglers
    path: list[PathRow]
    experts: list[ExpertRow]
    even_tokens: float | None
    """ns that even tokens would take off a step"""
    tokens: Tokens | None
    replay: Answer
