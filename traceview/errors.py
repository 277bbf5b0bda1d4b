"""Every error that traceview raises on purpose, and the exit codes of the command line.

TraceviewError            2   unusable input or usage: the message names the thing, the reason, the next step
├── NotComparableError    3   two runs that cannot be compared
└── InternalError        70   a broken invariant: a defect of traceview itself
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAIL = 1
EXIT_UNUSABLE = 2
EXIT_INCONCLUSIVE = 3
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130


class TraceviewError(Exception):
    """Base of every error raised on purpose. ``str(error)`` is one line fit for stderr."""

    exit_code = EXIT_UNUSABLE


class NotComparableError(TraceviewError):
    """Two runs differ in what makes them comparable (world size, GPU, trace options)."""

    exit_code = EXIT_INCONCLUSIVE


class InternalError(TraceviewError):
    """An invariant does not hold (for example leaves that do not sum to their window)."""

    exit_code = EXIT_INTERNAL
