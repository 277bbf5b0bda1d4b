"""Files in, a ``Run`` out: discover, read (or take from the cache), decide which part is which rank."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from traceview.errors import InternalError, TraceviewError
from traceview.run import Part, Run, SourceMeta
from traceview_parsers.assemble import assemble
from traceview_parsers.cache import Store
from traceview_parsers.cache import key as cache_key
from traceview_parsers.discover import Found, Input, discover
from traceview_parsers.reader import Progress, ReadOptions
from traceview_parsers.worker import DEFECT, Done, Task, read_input

# Below this much JSON a second process costs more than it gains.
POOL_BYTES = 100_000_000
WORKER_BYTES = 200_000_000  # of memory
_UNPACKED = 12  # JSON per byte of gzip


def open_run(
    paths: Sequence[str | Path],
    options: ReadOptions | None = None,
    *,
    cache: bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Run:
    """Open the traces of one job.

    paths: files, folders (searched recursively) and globs. cache: keep what was read for the next time.
    workers: processes to read with; by default as many as the machine and the amount suggest. progress: called with
    (bytes done, bytes in all).

    Raises TraceviewError if nothing can be read, if a path does not exist, or if the files are of more than one job.
    An unreadable file among good ones goes to ``run.unread``.
    """
    options = options or ReadOptions()
    _check(options)
    found = discover(paths)
    store = Store(cache)
    parts: list[Part] = []
    logs: list[Part] = []
    for item, made in zip(found.inputs, _read_all(found, store, options, workers, progress), strict=True):
        for part in made:
            part.meta.source.path = str(item.path)
        (logs if item.reader.is_log else parts).extend(made)
    if not parts and not logs:
        why = _nothing(paths, found)
        raise InternalError(why) if DEFECT in why else TraceviewError(why)
    run = assemble(_name(paths), parts, logs, options.rank_regex)
    run.unread = found.unread
    if store.problem:
        run.problems.append(store.problem)
    if found.skipped:
        names = ", ".join(p.name for p in found.skipped[:3])
        count = f"{len(found.skipped)} other file{'s were' if len(found.skipped) > 1 else ' was'}"
        run.problems.append(f"{count} not looked at: {names}")
    return run


def _check(options: ReadOptions) -> None:
    for pattern in options.data_names:
        try:
            re.compile(pattern)
        except re.error as error:
            raise TraceviewError(f"--data-range {pattern!r}: no regular expression ({error})") from error


def _nothing(paths: Sequence[str | Path], found: Found) -> str:
    where = ", ".join(str(p) for p in paths)
    if not found.unread:
        return (
            f"{where}: no traces inside; pass PyTorch profiler traces (.json, .json.gz), Nsight exports or NCCL logs"
        )
    first = found.unread[0].warnings[0]
    more = len(found.unread) - 1
    return first if not more else f"{where}: nothing can be read; {first} ({more} more like it)"


def _name(paths: Sequence[str | Path]) -> str:
    path = Path(paths[0])
    name = os.path.basename(os.path.realpath(path))
    return name if path.is_dir() else re.sub(r"(\.(gz|json|trace|pt|sqlite|txt|log))+$", "", name, flags=re.I)


def _read_all(
    found: Found, store: Store, options: ReadOptions, workers: int | None, progress: Progress | None
) -> list[list[Part]]:
    """Parts per input, in order; inputs that cannot be read give none and are added to ``found.unread``."""
    total = sum(i.bytes for i in found.inputs)
    keys, errors = [], {}
    for item in found.inputs:
        try:
            keys.append(cache_key(item, options))
        except OSError as error:
            keys.append("")
            errors[item.path] = f"{item.path}: cannot be read ({error.strerror or error})"
    made = {key: parts for key in keys if key and (parts := store.get(key)) is not None}
    todo = {key: i for i, key in zip(found.inputs, keys, strict=True) if key and key not in made}
    done = total - sum(i.bytes for i in todo.values())
    failed = _read(todo, store, options, _workers(list(todo.values()), workers), _Meter(progress, done, total))
    errors |= {todo[key].path: why for key, why in failed.items()}
    for path, why in errors.items():
        found.unread.append(SourceMeta(path=str(path), format="", warnings=[why]))
    if todo:
        store.trim()
    for key in todo:
        made[key] = store.get(key) or []
    return [_own(made.get(key, [])) for key in keys]


def _own(parts: list[Part]) -> list[Part]:
    """Parts whose metadata may be changed: the same content may be in the run under two paths."""
    return [Part.load(p.folder) for p in parts]


class _Meter:
    """Sums the progress of several inputs."""

    def __init__(self, progress: Progress | None, done: int, total: int) -> None:
        self._progress, self._done, self._total = progress, done, total

    def file(self, read: int, size: int) -> None:
        """Within one input."""
        if self._progress:
            self._progress(min(self._done + read, self._total), self._total)

    def finish(self, size: int) -> None:
        """One input is done."""
        self._done += size
        self.file(0, 0)


def _workers(todo: list[Input], asked: int | None) -> int:
    amount = sum(i.bytes * (_UNPACKED if _is_gzip(i.path) else 1) for i in todo)
    if asked is None and amount < POOL_BYTES:
        return 1
    most = min(asked or os.cpu_count() or 1, len(todo))
    with contextlib.suppress(ValueError, OSError, AttributeError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
        most = min(most, max(1, memory // WORKER_BYTES)) if asked is None else most
    return most


def _is_gzip(path: Path) -> bool:
    if path.is_dir():
        return False
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _read(todo: dict[str, Input], store: Store, options: ReadOptions, workers: int, meter: _Meter) -> dict[str, str]:
    """Read inputs into the store; returns the reason by key for those that cannot be read."""
    if workers > 1:
        return _read_in_workers(todo, store, options, workers, meter)
    errors = {}
    for key, item in todo.items():
        error = read_input(store, item.path, key, options, meter.file)
        if error:
            errors[key] = error
        meter.finish(item.bytes)
    return errors


def _read_in_workers(
    todo: dict[str, Input], store: Store, options: ReadOptions, workers: int, meter: _Meter
) -> dict[str, str]:
    """Batches of about equal size, one per worker: starting a process costs as much as 40 MB of JSON."""
    batches: list[list[str]] = [[] for _ in range(min(len(todo), workers))]
    loads = [0] * len(batches)
    for key in sorted(todo, key=lambda k: -todo[k].bytes):
        least = loads.index(min(loads))
        batches[least].append(key)
        loads[least] += todo[key].bytes
    errors: dict[str, str] = {}
    running: set[subprocess.Popen[bytes]] = set()

    def work(batch: list[str]) -> None:
        task = Task(str(store.root), options, [str(todo[k].path) for k in batch], batch)
        for done in _run_worker(task, running):
            if done.error:
                errors[done.key] = done.error
            meter.finish(todo[done.key].bytes)

    with ThreadPoolExecutor(workers) as pool:
        try:
            list(pool.map(work, batches))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                process.terminate()
            raise
    return errors


def _run_worker(task: Task, running: set[subprocess.Popen[bytes]]) -> Iterator[Done]:
    """Run one worker, telling what it has done; inputs it did not get to (it was killed) count as unreadable."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", "traceview_parsers.worker"]
    left = dict(zip(task.keys, task.paths, strict=True))
    with tempfile.TemporaryFile() as said:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": said}
        with subprocess.Popen(command, env=environment, **pipes) as process:
            running.add(process)
            try:
                with contextlib.suppress(BrokenPipeError), process.stdin as stdin:  # type: ignore[union-attr]
                    stdin.write(msgspec.json.encode(task))
                for line in process.stdout or ():
                    done = msgspec.json.decode(line, type=Done)
                    left.pop(done.key)
                    yield done
            finally:
                running.discard(process)
        said.seek(0)
        lines = said.read().decode(errors="replace").strip().splitlines()
    why = lines[-1] if lines else f"exit status {process.returncode}"
    for key, path in left.items():
        yield Done(key, f"{path}: the process that read it ended early ({why})")
