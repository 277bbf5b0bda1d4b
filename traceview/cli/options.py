"""Option bundles that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from traceview.cli import names


def reading(function: Callable[..., Any]) -> Callable[..., Any]:
    """The files of one run, and how they are read."""
    return click.argument("paths", nargs=-1, required=True, metavar="PATH...")(files(function))


def files(function: Callable[..., Any]) -> Callable[..., Any]:
    """How files are read, and whether names are shown."""
    function = names.heeded(function)
    for option in reversed(  # decorators apply from the last to the first
        (
            click.option("--rank-regex", metavar="REGEX", help="Take the rank from the path: first group of REGEX."),
            click.option(
                "--data-range",
                "data_names",
                multiple=True,
                metavar="REGEX",
                help="A host range whose name matches is data loading. Repeatable.",
            ),
            click.option(
                "--with-python", is_flag=True, help="Keep python_function events (with_stack traces grow a lot)."
            ),
            click.option(
                "--convert", is_flag=True, help="Run `nsys export` on raw .nsys-rep files, if nsys is installed."
            ),
            click.option("--redact", is_flag=True, help="Show hosts, users, paths and model names as pseudonyms."),
            click.option(
                "--redact-key",
                metavar="FILE",
                help="Key of the pseudonyms, made if there is no such file [default: one of your own].",
            ),
            click.option("--redact-map", metavar="FILE", help="Write what the pseudonyms stand for: keep it."),
            click.option("--no-cache", is_flag=True, help="Neither use nor fill the ingest cache."),
            click.option(
                "--workers", type=click.IntRange(1), help="Processes that read files [default: by size and cores]."
            ),
            click.option(
                "-q", "--quiet", is_flag=True, help="No progress, no verdict: only errors and the files asked for."
            ),
            click.option("--debug", is_flag=True, help="Show a traceback on errors."),
        )
    ):
        function = option(function)
    return function


def read_options(**given: Any) -> Any:
    """``ReadOptions`` of the shared options."""
    from traceview_parsers import ReadOptions

    return ReadOptions(
        rank_regex=given["rank_regex"],
        data_names=tuple(given["data_names"]),
        with_python=given["with_python"],
        convert=given["convert"],
    )
