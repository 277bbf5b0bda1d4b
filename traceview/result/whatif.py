"""WhatIf: what the step would take if parts of it were faster, as one value that goes to JSON (METHODS h)."""

from __future__ import annotations

import msgspec

from traceview.result.rows import Quality

SCHEMA = "traceview.whatif/1"


class WhatIfRow(msgspec.Struct):
    """One scenario. Times in ns a step; a number that cannot be told is None, and ``told`` says why."""

    title: str
    options: str
    """as it is typed"""
    bound_ns: list[int] | None
    """step time by the simple bound, from the least to the most (METHODS h.1)"""
    replay_ns: int | None
    """step time by the replay (METHODS h.2)"""
    step_ns: int | None
    """the one that counts: the replay's, else the cautious end of the bound"""
    saving_ns: int | None
    saving_share: float | None
    gpu_hours_a_day: float | None
    """of the ranks seen, if the job ran all day"""
    quality: Quality
    told: str = ""
    """why there is no number or only a bound, and why bound and replay differ where they do by more than a fifth"""
    made_of_ns: dict[str, int] = {}
    """what the replayed step is made of along its critical path, by group; empty without a replay"""
    next: str = ""
    """the largest of these: the next limit"""


class WhatIf(msgspec.Struct):
    """The answers for one run, largest saving first. Scenarios do not add up: ask for them together."""

    schema: str
    tool_version: str
    run: str
    ranks: list[int]
    world_size: int | None
    step_ns: int
    """step time as recorded (METHODS b.1)"""
    steps_used: int
    steps_replayed: int
    """those that the replay measures; 0 where it is refused"""
    replay_error: float | None
    """the base replay against the record"""
    replay_refused: str
    """why there is no replay"""
    answers: list[WhatIfRow]
    made_of_ns: dict[str, int]
    """what the recorded step is made of along its critical path, by group; empty without a replay"""
    limits: str
    warnings: list[str] = []

    def to_json(self) -> bytes:
        """UTF-8 JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)
