"""Writing outputs: never over an existing file without --force, never half a file."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from traceview.errors import TraceviewError


def refuse_existing(paths: list[str | None], force: bool) -> None:
    """TraceviewError if one of the outputs exists (checked before the work, not after it)."""
    for path in paths:
        if path and path != "-" and Path(path).exists() and not force:
            raise TraceviewError(f"{path}: exists; use --force to overwrite it")
        if path and path != "-" and not Path(path).absolute().parent.is_dir():
            raise TraceviewError(f"{path}: its folder does not exist; make it first")


def write(path: str, data: bytes) -> None:
    """Write to a temporary name beside the file, then rename; '-' is stdout."""
    if path == "-":
        sys.stdout.buffer.write(data + (b"" if data.endswith(b"\n") else b"\n"))
        sys.stdout.buffer.flush()
        return
    target = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.absolute().parent)
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except OSError as error:
        raise TraceviewError(f"{path}: cannot be written ({error.strerror})") from error
