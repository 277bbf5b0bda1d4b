"""A process of its own that reads inputs into the cache: tasks on stdin, one line of JSON per finished input.

Run by ``traceview_parsers.ingest``; not by fork, which is unsafe once threads run, nor by multiprocessing, which
would run the caller's main module again.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import msgspec

from traceview_parsers.registry import ReadOptions


class Task(msgspec.Struct):
    """Inputs of one worker. ``keys``: their cache entries."""

    root: str
    options: ReadOptions
    paths: list[str]
    keys: list[str]


class Done(msgspec.Struct):
    """One input is in the cache, or ``error`` says why not."""

    key: str
    error: str | None = None


def main() -> None:
    """Read the task from stdin, work, report on stdout."""
    from traceview_parsers.cache import Store
    from traceview_parsers.ingest import read_input

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that half an entry is cleared away
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    store = Store.at(Path(task.root))
    for path, key in zip(task.paths, task.keys, strict=True):
        done = Done(key, read_input(store, Path(path), key, task.options, None))
        sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
