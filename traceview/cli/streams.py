"""Output to terminals that cannot show every character: near ones instead, never an error."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
from typing import IO, Any

_NEAR = str.maketrans("█▏·−–→µ×…≤≥≈", "#|.-->ux.<>~")


def reopen() -> None:
    """A closed stdout or stderr (``>&-``) swallows what is written."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for the whole process


def give_up(stream: IO[str]) -> None:
    """Let what cannot be written any more go nowhere, so that the end of the process does not try it again."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def tolerant(*streams: IO[str]) -> None:
    """Let text streams replace what their encoding does not hold. Streams that cannot be told are left alone."""
    codecs.register_error("traceview", _replace)
    for stream in streams:
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="traceview")


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    near = error.object[error.start : error.end].translate(_NEAR)
    return "".join(c if c.isascii() else "?" for c in near), error.end
