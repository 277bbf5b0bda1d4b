"""The key of the pseudonyms: without it nobody can tell by trying names which one a pseudonym stands for."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from traceview.errors import TraceviewError

BYTES = 32


def location() -> Path:
    """Where the key of a user is kept (XDG)."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "traceview" / "redact.key"


def load(path: str | Path | None = None) -> bytes:
    """The key in a file, by default that of the user; made if there is none. TraceviewError if that fails."""
    given = path is not None
    file = Path(path) if path is not None else location()
    try:
        if not file.exists():
            if not given:
                file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _make(file)
        key = bytes.fromhex(file.read_text("ascii").strip())
    except (ValueError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no key: 64 hex digits"
        raise TraceviewError(f"{file}: {why}; name a new file with --redact-key, it is made") from error
    if len(key) != BYTES:
        raise TraceviewError(
            f"{file}: is no key: {BYTES * 2} hex digits; name a new file with --redact-key, it is made"
        )
    return key


def _make(file: Path) -> None:
    """A new key, readable by its owner only; another process may have been first, then its key holds."""
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(handle, "w", encoding="ascii") as out:
        out.write(secrets.token_hex(BYTES) + "\n")
