"""What-if questions to a run: names are resolved, then bound and replay answer (METHODS h)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from traceview import units
from traceview.analysis.replay.answer import Base, base_replay
from traceview.analysis.whatif.answer import Replayed, answer
from traceview.analysis.whatif.asked import WORDS, Asked
from traceview.analysis.whatif.choices import choices
from traceview.analysis.whatif.facts import Facts, chosen, moved
from traceview.config import Config
from traceview.errors import TraceviewError
from traceview.pipeline.study import stages
from traceview.pipeline.values import StudyOptions
from traceview.pipeline.whatif import MOST_CULPRITS, culprits, inputs_of
from traceview.result import Result
from traceview.result.whatif import WhatIf
from traceview.run import Run, parse_members


@dataclass(frozen=True)
class Question:
    """A scenario as it is typed; without any change every one that applies is asked on its own."""

    replace: tuple[str, ...] = ()
    """ranks ('3', '0-3,7') or hosts"""
    changes: Asked = field(default_factory=Asked)


def ask(run: Run, question: Question, how: StudyOptions) -> WhatIf:
    """Answer about an opened run. TraceviewError for ranks, hosts, tiers and groups that it does not have."""
    base, across, lanes, blamed, result = stages(run, how)
    if not result.metrics["step_time"].value:
        raise TraceviewError(f"{run.name}: no used step, so there is no step time; `traceview inspect` says why")
    c = across.columns
    f = Facts(
        result,
        moved(result, c, across.waits.phases, lanes.exposed_of_row, base.step_of_row, how.config),
        blamed.tokens,
    )
    wanted = _wanted(f, question)
    inputs = inputs_of(run, base, across)
    return answer(f, Replayed.of(_replayed(run, inputs, how.config), inputs), wanted, how.config)


def _replayed(run: Run, inputs: Any, config: Config) -> Base:
    if len(run.ranks) < 2 < 1 + (run.world_size or 1):
        return Base(refused="the other ranks were not given, and one alone waits for nobody that was seen")
    return base_replay(inputs, config)


def _wanted(f: Facts, question: Question) -> list[Asked]:
    asked = question.changes
    if question.replace:
        asked = replace(asked, replace=frozenset(r for text in question.replace for r in _ranks(f.result, text)))
    _check(f, asked)
    return [asked] if asked != Asked() else choices(f, culprits(f.result.straggler_rows)[:MOST_CULPRITS])


def _ranks(result: Result, text: str) -> list[int]:
    """Ranks of a list of them, or of a host."""
    if text in result.run.hosts:
        return result.run.hosts[text]
    try:
        ranks = parse_members(text)
    except ValueError:
        ranks = ()
    if not ranks or set(ranks) - set(result.run.ranks):
        hosts = ", ".join(h for h in result.run.hosts if not h.startswith("?"))
        there = f"the ranks {units.ranks(result.run.ranks)}" + (f" and the hosts {hosts}" if hosts else "")
        raise TraceviewError(f"--replace {text}: the run has {there}")
    return list(ranks)


def _check(f: Facts, asked: Asked) -> None:
    """TraceviewError for a network that the run does not use."""
    for name, factor in asked.network:
        if name != "all" and not chosen(f.moved, name).any():
            tiers = ", ".join([*dict.fromkeys(f.moved.tier), *WORDS, "all"])
            groups = ", ".join(dict.fromkeys(g for g in f.moved.group if g)) or "none"
            raise TraceviewError(
                f"--network {name}={factor:g}: the run has the tiers {tiers} and the groups {groups}"
            )
