"""``traceview gate``: PASS, FAIL or INCONCLUSIVE for CI."""

from __future__ import annotations

from typing import Any

import click

from traceview.cli import names, output, versus
from traceview.errors import EXIT_FAIL, EXIT_INCONCLUSIVE, EXIT_OK


@click.command(short_help="PASS, FAIL or INCONCLUSIVE: is a candidate slower than its baseline?")
@click.argument("baseline")
@click.argument("candidate", required=False)
@click.option("--junit", metavar="FILE", help="Write JUnit XML.")
@click.option("--allow-inconclusive", is_flag=True, help="Exit with 0 where nothing can be decided.")
@click.option(
    "--calibrate",
    metavar="FILE",
    help="Write how much the step time varies from run to run of BASELINE (a folder of results, or --also-baseline), "
    "for --run-noise.",
)
@versus.sides
def gate(baseline: str, candidate: str | None, **given: Any) -> int:
    """Judge the step time of CANDIDATE against BASELINE, with the change explained by cause.

    Each is the traces of one run, a result that `analyze --json` wrote, or a folder of such results: several runs.

    Exit status: 0 PASS, 1 FAIL, 2 nothing usable, 3 INCONCLUSIVE or not comparable.
    """
    if given["calibrate"]:
        return _calibrate(baseline, candidate, given)
    if candidate is None:
        raise click.UsageError("Missing argument 'CANDIDATE'.")
    changed, decision = versus.judge(baseline, candidate, given)
    versus.write(changed, decision, given)
    undecided = EXIT_OK if given["allow_inconclusive"] else EXIT_INCONCLUSIVE
    return {"PASS": EXIT_OK, "FAIL": EXIT_FAIL, "INCONCLUSIVE": undecided}[decision.outcome]


def _calibrate(baseline: str, candidate: str | None, given: dict[str, Any]) -> int:
    """Write the spread between runs of one program."""
    if any(given[name] for name in versus.OUTPUTS):
        raise click.UsageError("--calibrate judges nothing: leave the outputs of a verdict out.")
    names.ask(given)
    outputs = [given["calibrate"], given["redact_map"]]
    paths = (baseline, *([candidate] if candidate else []), *given["also_baseline"], *given["also_candidate"])
    output.refuse_existing(outputs, given["force"])
    output.refuse_sources(outputs, paths)
    import msgspec

    from traceview import gate
    from traceview.result.check import distinct

    runs = versus.read(paths, given)
    output.refuse_sources(outputs, [s.path for r in runs for s in r.run.sources])
    found = gate.calibrate(distinct(runs))
    output.write(given["calibrate"], msgspec.json.encode(found))
    if not given["quiet"]:
        output.say(f"run to run {found.run_noise * 100:.2g} % over {found.runs} runs\n")
        names.wrote(given["calibrate"])
    return EXIT_OK
