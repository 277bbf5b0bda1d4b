"""Reads inputs into the cache; as a process of its own: tasks on stdin, one line of JSON per finished input.

That process is started by ``traceview_parsers.ingest``; not by fork, which is unsafe once threads run, nor by
multiprocessing, which would run the caller's main module again.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import msgspec

from traceview.errors import TraceviewError
from traceview_parsers.cache import Store
from traceview_parsers.reader import Progress, ReadOptions
from traceview_parsers.registry import find_reader, read_head

DEFECT = "a defect of traceview: it cannot be read"


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


def read_input(store: Store, path: Path, key: str, options: ReadOptions, progress: Progress | None) -> str | None:
    """Read one input into its cache entry; returns why it cannot be read, or None."""
    try:
        reader = find_reader(read_head(path), path)
        if reader is None:
            return f"{path}: changed while it was being read; run again"
        store.make(key, lambda work: reader.read(path, work, options, progress))
    except TraceviewError as error:
        return str(error)
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror or error})"
    except Exception as error:  # the files of the other ranks are still worth reading
        return f"{path}: {DEFECT} ({type(error).__name__}: {error}); please report it"
    return None


def main() -> None:
    """Read the task from stdin, work, report on stdout."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that half an entry is cleared away
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    store = Store.at(Path(task.root))
    for path, key in zip(task.paths, task.keys, strict=True):
        done = Done(key, read_input(store, Path(path), key, task.options, None))
        sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
