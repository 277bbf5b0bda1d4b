"""What ``compare`` and ``gate`` share: two sides are read, compared, judged and written."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click

from traceview.cli import names, options, output
from traceview.cli.progress import progress_of
from traceview.errors import NotComparableError, TraceviewError

OUTPUTS = ("html", "json_", "markdown", "junit")


def sides(function: Callable[..., Any]) -> Callable[..., Any]:
    """Two sides, more runs of each, and how they are compared."""
    function = options.files(function)
    for option in reversed(  # decorators apply from the last to the first
        (
            click.option(
                "--also-baseline", multiple=True, metavar="PATH", help="Another run of the baseline. Repeatable."
            ),
            click.option(
                "--also-candidate", multiple=True, metavar="PATH", help="Another run of the candidate. Repeatable."
            ),
            click.option(
                "--threshold", "minimum", callback=_share, metavar="PERCENT", help="A smaller change passes [3%]."
            ),
            click.option(
                "--run-noise",
                callback=_noise,
                metavar="PERCENT|FILE",
                help="Spread of the step time from run to run, or the file of a calibration [1%].",
            ),
            click.option("--allow-different", is_flag=True, help="Compare runs that differ in kind."),
            click.option("-o", "--output", "html", metavar="FILE", help="Write it as a page (HTML)."),
            click.option("--json", "json_", metavar="FILE", help="Write it as JSON; '-' prints only JSON on stdout."),
            click.option("--markdown", metavar="FILE", help="Write it as Markdown; '-' prints it."),
            click.option("--step-range", metavar="REGEX", help="Host ranges that match are the steps."),
            click.option("--force", is_flag=True, help="Overwrite outputs that exist."),
            click.option("-v", "--verbose", is_flag=True, help="All tables in the terminal."),
        )
    ):
        function = option(function)
    return function


def _share(context: Any, param: Any, value: str | None) -> float | None:
    """'3%' or '0.03' as a fraction."""
    if value is None:
        return None
    text = value.strip()
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise click.BadParameter(f"{text!r} is no share: write 3% or 0.03", context, param)
    return share


def _noise(context: Any, param: Any, value: str | None) -> float | None:
    """A share, or the file of a calibration."""
    try:
        float((value or "").strip().rstrip("%"))
    except ValueError:
        return None if value is None else read_calibration(value)
    return _share(context, param, value)


def read_calibration(path: str) -> float:
    """The spread that ``gate --calibrate`` wrote."""
    import msgspec

    from traceview.gate import Calibration

    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Calibration).run_noise
    except OSError as error:
        raise TraceviewError(f"{path}: {error.strerror}; write 1% or a file of `gate --calibrate`") from error
    except msgspec.MsgspecError as error:
        raise TraceviewError(f"{path}: no calibration ({error}); `gate --calibrate` writes one") from error


def read(paths: tuple[str, ...], given: dict[str, Any]) -> list[Any]:
    """The results of one side."""
    from traceview import pipeline

    with progress_of(quiet=given["quiet"] or given.get("json_") == "-") as progress:
        return pipeline.load(
            paths,
            options.read_options(**given),
            pipeline.StudyOptions(step_range=given["step_range"]),
            cache=not given["no_cache"],
            workers=given["workers"],
            progress=progress,
        )


def judge(baseline: str, candidate: str, given: dict[str, Any]) -> tuple[Any, Any]:
    """(what changed, what the gate says) of two sides.

    Outputs that cannot be written are refused before any work; that there is no verdict is told in them too.
    """
    _refuse(baseline, candidate, given)
    try:
        return _judge(baseline, candidate, given)
    except TraceviewError as error:
        _tell(error, baseline, candidate, given)
        raise


def _judge(baseline: str, candidate: str, given: dict[str, Any]) -> tuple[Any, Any]:
    from traceview import compare, gate, units
    from traceview.result.check import distinct

    old = read((baseline, *given["also_baseline"]), given)
    new = read((candidate, *given["also_candidate"]), given)
    sources = [s.path for r in (*old, *new) for s in r.run.sources]
    output.refuse_sources(_outputs(given), sources)
    twice = len(old) + len(new)
    old, new = distinct(old), distinct(new)
    twice -= len(old) + len(new)
    redactor = names.current().redactor
    if redactor:
        old, new = ([redactor.result(r) for r in side] for side in (old, new))
    changed = compare.compare(old, new, allow_different=given["allow_different"])
    if twice:
        changed.notes.append(f"{units.count(twice, 'run')} given more than once, counted once")
    if redactor:
        changed.notes.append("names are pseudonyms (--redact)")
    return changed, gate.decide(old, new, minimum=given["minimum"], run_noise=given["run_noise"])


def _outputs(given: dict[str, Any]) -> list[str | None]:
    return [given.get(name) for name in (*OUTPUTS, "redact_map")]


def _refuse(baseline: str, candidate: str, given: dict[str, Any]) -> None:
    """TraceviewError, before any work, if an output cannot be written or is an input."""
    names.ask(given)
    outputs = _outputs(given)
    output.refuse_existing(outputs, given["force"])
    output.refuse_sources(outputs, [baseline, candidate, *given["also_baseline"], *given["also_candidate"]])


def _tell(error: TraceviewError, baseline: str, candidate: str, given: dict[str, Any]) -> None:
    """No verdict is told in the outputs for people too: what an earlier run wrote must not stand for this one."""
    from traceview_reports import junit
    from traceview_reports.html import versus as page

    shown = names.current().shown
    sides = tuple(shown(os.path.basename(os.path.abspath(path))) for path in (baseline, candidate))
    word = "NOT COMPARABLE" if isinstance(error, NotComparableError) else "NO VERDICT"
    forms: tuple[tuple[str, Callable[[str], bool], Callable[[], bytes]], ...] = (
        ("junit", junit.is_ours, lambda: junit.failed(shown(str(error)))),
        ("html", page.is_ours, lambda: page.refused(sides, word, shown(str(error))).encode()),
    )
    for name, is_ours, form in forms:
        path = given.get(name)
        if path and (path == "-" or not os.path.isfile(path) or is_ours(path)):  # what else it is may be an input
            output.write(path, form())


def write(changed: Any, decision: Any, given: dict[str, Any], words: dict[str, str] | None = None) -> None:
    """Terminal, page, JSON, Markdown and JUnit XML, as asked for."""
    import msgspec

    from traceview_reports import junit, versus

    def junit_xml() -> bytes:
        return junit.render(changed, decision, allow_inconclusive=given["allow_inconclusive"])

    names.write(
        given,
        lambda: versus.render(changed, decision, words=words, color=sys.stdout.isatty(), verbose=given["verbose"]),
        {
            "html": lambda path: output.write(path, _page(changed, decision, words)),
            "json_": lambda path: output.write(
                path, msgspec.json.encode({"decision": decision, "comparison": changed})
            ),
            "markdown": lambda path: output.write(path, versus.to_markdown(changed, decision, words).encode()),
            "junit": lambda path: output.write(path, junit_xml()),
        },
    )


def _page(changed: Any, decision: Any, words: dict[str, str] | None) -> bytes:
    from traceview_reports.html import versus as page

    return page.render(changed, decision, words).encode()
