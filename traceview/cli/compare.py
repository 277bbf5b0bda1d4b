"""``traceview compare``: what changed between two runs."""

from __future__ import annotations

from typing import Any

import click

from traceview.cli import versus


@click.command(short_help="What changed between two runs, and whether it is more than chance.")
@click.argument("baseline")
@click.argument("candidate")
@versus.sides
def compare(baseline: str, candidate: str, **given: Any) -> int:
    """Compare the steps of CANDIDATE with those of BASELINE.

    Each is the traces of one run, a result that `analyze --json` wrote, or a folder of such results: several runs.

    Exit status: 0 compared, 2 nothing usable, 3 not comparable.
    """
    changed, decision = versus.judge(baseline, candidate, given)
    versus.write(changed, decision, given, {"PASS": "SAME", "FAIL": "SLOWER", "INCONCLUSIVE": "UNSURE"})
    return 0
