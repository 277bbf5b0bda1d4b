"""Outputs: whole or not at all, never over an input, never in the place of a device."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from traceview.errors import TraceviewError


def is_special(path: Path) -> bool:
    """A device or pipe (/dev/stdout, /dev/null): written to as it is, never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A binary file that takes the name ``path`` when it is whole; a link stays a link.

    Raises TraceviewError if it cannot be written; what stood there before is then untouched.
    """
    try:
        if is_special(path):
            with path.open("wb") as sink:
                yield sink
            return
        target = Path(os.path.realpath(path))
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as sink:
                yield sink
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(temporary, 0o666 & ~mask)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise TraceviewError(f"{path}: cannot be written ({error.strerror or error})") from error
