"""NCCL and RCCL debug logs, also inside the output of a job or of nccl-tests (format ``nccl_log``).

The log is streamed: memory grows with processes, communicators and edges, not with the length of the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

from traceview.errors import TraceviewError
from traceview.run import Part, PartMeta, SourceMeta, write_part
from traceview.schema.nccl import NCCL_CALLS
from traceview_parsers.gz import Unpacked
from traceview_parsers.nccl_log.scan import Scanner
from traceview_parsers.nccl_log.tables import settle, tables
from traceview_parsers.reader import Progress, ReadOptions

name = "nccl_log"
version = 2
is_log = True

_BLOCK = 4 << 20
_LONGEST_LINE = 16 << 20
_MARK = re.compile(
    rb"NCCL (?:INFO|WARN|TRACE|CALL) |(?:NCCL|RCCL) version ?:? ?\d|out-of-place +in-place|# nThread \d+ nGpus"
)

_JSON = re.compile(rb"\s*(\{|\[\s*[{\]])")


def sniff(head: bytes, path: Path) -> bool:
    """A text with NCCL records, a version line, or the head of an nccl-tests table."""
    return b"\0" not in head and not _JSON.match(head) and _MARK.search(head) is not None


def read(path: Path, out: Path, options: ReadOptions, progress: Progress | None) -> list[Part]:
    """Read a log into one part with the nccl_* tables; TraceviewError if it holds no record at all."""
    size = path.stat().st_size
    scanner = Scanner(out / "calls.spill")
    with ExitStack() as stack:
        stack.callback(scanner.calls.close)
        raw = stack.enter_context(path.open("rb"))
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        blocks = Unpacked(raw, _BLOCK) if packed else iter(lambda: raw.read(_BLOCK), b"")
        _feed(scanner, blocks, lambda: progress(min(raw.tell(), size), size) if progress else None)
        problem = blocks.problem if isinstance(blocks, Unpacked) else None
        try:
            return [_part(scanner, path, out / "log", size, problem)]
        except (OverflowError, pa.ArrowInvalid) as error:
            raise TraceviewError(f"{path}: damaged: it holds numbers that NCCL never writes ({error})") from error


def _part(scanner: Scanner, path: Path, folder: Path, size: int, problem: str | None) -> Part:
    state = scanner.finish()
    settle(state)
    if not state.records and not scanner.bench.rows and state.version is None:
        raise TraceviewError(f"{path}: no NCCL record in it; set NCCL_DEBUG=INFO and record again")
    folder.mkdir()
    scanner.calls.finish()
    meta = PartMeta(_source(path, size, scanner))
    if problem:
        meta.source.warnings.append(problem)
        meta.source.truncated = "checksum" not in problem
    _write_calls(scanner, folder, meta)
    return write_part(folder, meta, tables(state, scanner.bench.rows))


def _feed(scanner: Scanner, blocks: Iterable[bytes], tick: Any) -> None:
    rest = b""
    for block in blocks:
        tick()
        cut = block.rfind(b"\n")
        if cut < 0:
            rest = (rest + block)[-_LONGEST_LINE:]
            continue
        scanner.feed(rest + block[:cut])
        rest = block[cut + 1 :]
    if rest:
        scanner.feed_cut(rest)


def _write_calls(scanner: Scanner, folder: Path, meta: PartMeta) -> None:
    """The calls, batch by batch, so that a log of any length fits."""
    meta.rows[NCCL_CALLS.name] = scanner.calls.count
    batches = scanner.calls.batches()
    if not scanner.calls.count:
        next(batches, None)
        return
    with (
        pa.OSFile(str(folder / f"{NCCL_CALLS.name}.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, NCCL_CALLS.arrow(stored=True)) as writer,
    ):
        for batch in batches:
            writer.write_table(batch)


def _source(path: Path, size: int, scanner: Scanner) -> SourceMeta:
    state = scanner.state
    warnings = []
    if state.torn:
        warnings.append(f"{state.torn} torn records (several processes wrote to one file): they are not used")
    if state.repeated:
        warnings.append(
            f"{state.repeated} records of other processes were dropped by Ray before they reached the log"
        )
    if scanner.calls.count:
        warnings.append("the log has a line per call (COLL): writing it slows a run down")
    versions = sorted({p.version for p in state.procs.values() if p.version} or {state.version or "unknown"})
    return SourceMeta(
        str(path),
        name,
        schema_class=f"{state.vendor} {', '.join(versions)}",
        bytes=size,
        events=state.records,
        quarantined=state.torn,
        warnings=warnings,
        facts={"nccl_version": ", ".join(versions), "lines": str(state.lines), "unknown_records": str(state.unknown)},
    )
