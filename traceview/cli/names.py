"""``--redact``: whether names are shown as pseudonyms, for one command line."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from traceview.cli import output
from traceview.errors import InternalError, TraceviewError
from traceview.units import one_line


class Names:
    """The pseudonyms of one command line; ``redactor`` is None as long as names are shown as they are."""

    def __init__(self, argv: list[str] | None) -> None:
        self.redactor: Any = None
        self._asked = any(word.startswith("--redact") for word in (sys.argv if argv is None else argv))
        self._map: str | None = None

    def ask(self, given: dict[str, Any]) -> Any:
        """The redactor that the options ask for, or None."""
        if given["redact"] or given["redact_key"] or given["redact_map"]:
            from traceview.redact import Redactor, key

            self._map = given["redact_map"]
            if self._map == "-":
                raise TraceviewError("--redact-map -: name a file; what is printed is for others")
            self.redactor = Redactor(key.load(given["redact_key"]))
        return self.redactor

    def shown(self, text: str) -> str:
        """A text as it may be shown. Wrong usage is told before there is a key: then names have one for this once."""
        if not self._asked:
            return text
        from traceview.redact import Redactor

        redactor = self.redactor or Redactor(secrets.token_bytes())
        return str(redactor.text(text))

    def write_map(self) -> None:
        """Write what the pseudonyms stand for, for the eyes of the owner only."""
        if not self._map:
            return
        import msgspec

        output.write(self._map, msgspec.json.encode(self.redactor.originals, order="sorted"))
        try:
            os.chmod(self._map, 0o600)
        except OSError as error:
            raise TraceviewError(f"{self._map}: its rights cannot be set ({error.strerror}); name another") from error


def current() -> Names:
    """Those of the command that runs."""
    names: Names = click.get_current_context().obj
    return names


def ask(given: dict[str, Any]) -> Any:
    """The redactor that the options of the running command ask for, or None."""
    return current().ask(given)


def heeded(verb: Callable[..., Any]) -> Callable[..., Any]:
    """A verb that takes ``--redact`` and ignores it ends loudly: what it wrote must not be sent."""

    @wraps(verb)
    def checked(*words: Any, **given: Any) -> Any:
        code = verb(*words, **given)
        if given["redact"] and current().redactor is None:
            raise InternalError("this verb does not know --redact: what it wrote holds names")
        return code

    return checked


def write(given: dict[str, Any], text: Callable[[], str], forms: dict[str, Callable[[str], None]]) -> None:
    """The terminal text, unless it is unwanted or stdout holds an output, then each output that is asked for.

    ``forms``: option -> what writes it to its path, in the order in which they are told.
    """
    asked = {name: given[name] for name in forms if given.get(name)}
    silent = given["quiet"] or "-" in asked.values()
    if not silent:
        output.say(text())
    for name, path in asked.items():
        forms[name](path)
        if not silent:
            wrote(path)


def wrote(path: str, more: str = "") -> None:
    """Say that a file was written."""
    output.say(f"wrote {one_line(current().shown(path))}{more}\n")
