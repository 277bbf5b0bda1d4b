"""The command line: one file per verb."""

from __future__ import annotations


def entry(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code (see traceview.errors)."""
    from traceview.cli.main import run

    return run(argv)
