"""The answer to what-if questions: simple bound and replay together (METHODS h)."""

from __future__ import annotations

from dataclasses import dataclass

from traceview import __version__, units
from traceview.analysis.replay import equal
from traceview.analysis.replay.answer import Base, step_time, warm_up
from traceview.analysis.replay.chain import Inputs
from traceview.analysis.replay.made import made_of
from traceview.analysis.replay.play import Played, play
from traceview.analysis.whatif.asked import Asked
from traceview.analysis.whatif.bound import Bound, bound, transfer_floor
from traceview.analysis.whatif.edit import edited
from traceview.analysis.whatif.facts import Facts
from traceview.analysis.whatif.reasons import untold
from traceview.config import Config
from traceview.result import Quality
from traceview.result.whatif import SCHEMA, WhatIf, WhatIfRow

LIMITS = (
    "the same program with a faster part: no contention, schedule and host program as recorded, latency of "
    "communication not scaled, ranks that were not seen do not move, no change of power, clocks or memory"
)


@dataclass(frozen=True)
class Replayed:
    """The base replay with what every scenario needs of it."""

    base: Base
    inputs: Inputs
    roles: equal.Roles | None

    @staticmethod
    def of(base: Base, inputs: Inputs) -> Replayed:
        """With the roles of the ranks, if they communicate."""
        if base.graph is None or not len(base.graph.row):
            return Replayed(base, inputs, None)
        return Replayed(base, inputs, equal.roles(base.graph, inputs.met, inputs.step_of_row))


def answer(f: Facts, replayed: Replayed, asked: list[Asked], config: Config) -> WhatIf:
    """Every scenario on its own, largest saving first; those that cannot be told last."""
    result, base = f.result, replayed.base
    step = int(result.metrics["step_time"].value or 0)
    rows = [_row(f, replayed, one, step, config) for one in asked]
    rows.sort(key=lambda row: (row.saving_ns is None, -(row.saving_ns or 0), row.options))
    seen = made_of(base.graph, base.played) if base.graph is not None and base.played is not None else {}
    return WhatIf(
        schema=SCHEMA,
        tool_version=__version__,
        run=result.run.name,
        ranks=result.run.ranks,
        world_size=result.run.world_size,
        step_ns=step,
        steps_used=len(result.run.steps.used),
        steps_replayed=len(base.steps) - warm_up(len(base.steps)) if base.graph is not None else 0,
        replay_error=base.off if base.graph is not None else None,
        replay_refused=base.refused,
        answers=rows,
        made_of_ns={k: round(v) for k, v in seen.items()},
        limits=LIMITS,
        warnings=_warnings(f, base, config),
    )


def _warnings(f: Facts, base: Base, config: Config) -> list[str]:
    out = []
    if base.off > config.replay_warn:
        out.append(f"the base replay is off by {units.share(base.off)} of the step: take its numbers with care")
    if f.result.run.missing_ranks:
        missing = units.ranks(f.result.run.missing_ranks)
        out.append(f"ranks {missing} were not given: what waits for them stays, savings are lower bounds")
    if f.result.metrics["step_time"].quality == "estimated":
        out.append("fewer than three steps after the first: the step time is an estimate")
    return out


def _row(f: Facts, replayed: Replayed, asked: Asked, step: int, config: Config) -> WhatIfRow:
    why = untold(f.result, f.moved, asked)
    if why:
        return WhatIfRow(
            asked.title, asked.options, None, None, None, None, None, None, "unavailable", f"cannot tell, {why}"
        )
    simple = bound(f, asked)
    played, refused = _played(f, replayed, asked)
    base = replayed.base
    after: float | None = None
    if played is not None and base.played is not None:
        after = max(step - (step_time(base.played) - step_time(played)), 0.0)
        if asked.only_faster:  # less work never ends later; what a window gives to its neighbour is no loss
            after = min(after, float(step))
        if asked.overlap and asked.communication:  # nothing is moved faster than the links allow
            after = max(after, transfer_floor(f, asked))
    best = simple.high if after is None else after
    saving = round(step - best)
    made = made_of(base.graph, played) if played is not None and base.graph is not None and not asked.overlap else {}
    ranks = len(f.result.run.ranks)
    return WhatIfRow(
        title=asked.title,
        options=asked.options,
        bound_ns=[round(simple.low), round(simple.high)],
        replay_ns=None if after is None else round(after),
        step_ns=round(best),
        saving_ns=saving,
        saving_share=saving / step if step else None,
        gpu_hours_a_day=saving / step * ranks * 24 if step else None,
        quality=_quality(f, replayed, asked),
        told=f"no replay: {refused}" if refused else _differ(step, simple, after or 0.0, config),
        made_of_ns={k: round(v) for k, v in made.items()},
        next=_next(made),
    )


def _played(f: Facts, replayed: Replayed, asked: Asked) -> tuple[Played | None, str]:
    """(The scenario, played; why it cannot be)."""
    g, roles = replayed.base.graph, replayed.roles
    if g is None:
        return None, replayed.base.refused
    changed = set(g.ranks) if asked.balance else set(asked.replace)
    if changed and (roles is None or not equal.comparable(g, roles, changed)):
        return None, f"nobody makes the same communication calls as {units.named_ranks(sorted(changed))}"
    if asked.even_tokens and f.tokens is None:
        return None, "the tokens of the experts are not told"
    return play(g, edited(g, roles, f, asked)), ""


def _quality(f: Facts, replayed: Replayed, asked: Asked) -> Quality:
    """Missing members make it a lower bound; nobody gets rid of all of the host's or the network's time."""
    g = replayed.base.graph
    least = bool(f.result.run.missing_ranks) or (g is not None and not g.known.all())
    most = not (asked.communication and asked.launch_gaps)
    if least == most:
        return "estimated"
    return "lower_bound" if least else "upper_bound"


def _differ(step: int, simple: Bound, after: float, config: Config) -> str:
    """Why the replay says something else than the bound, where it does."""
    near = min(max(after, simple.low), simple.high)
    played, bounded = step - after, step - near
    if abs(played - bounded) <= config.replay_differs * max(abs(played), abs(bounded)):
        return ""
    if played > bounded:
        return "the replay saves more than the bound: work of other streams and ranks that waited moves as well"
    return "the replay saves less than the bound: another rank, stream or the host then holds the step"


def _next(made: dict[str, float]) -> str:
    """The largest group of a step."""
    total = sum(made.values())
    if total <= 0:
        return ""
    name = max(made, key=lambda k: made[k])
    return f"{name} {units.share(made[name] / total)} of it"
