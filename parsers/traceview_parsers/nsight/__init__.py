"""Nsight Systems: SQLite and ``parquetdir`` exports of nsys 2020 to 2026.

Raw reports (``.nsys-rep``, ``.qdrep``) are a closed format: they are named, with the export command to run, or
exported by the ``nsys`` on PATH if the user allows it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from traceview.errors import TraceviewError
from traceview.run import Part
from traceview_parsers.nsight.recognise import claims, convert, is_raw, refuse
from traceview_parsers.reader import Progress, ReadOptions

name = "nsight"
version = 7
is_log = False


def sniff(head: bytes, path: Path) -> bool:
    """An export, a raw report, or a broken or foreign file of the same family (which ``read`` then explains)."""
    return claims(head, path)


def read(path: Path, out: Path, options: ReadOptions, progress: Progress | None) -> list[Part]:
    """See ``traceview_parsers.reader.Reader.read``. One part per process that did GPU work."""
    from traceview_parsers.nsight.reader import ReportReader
    from traceview_parsers.nsight.settle import settled
    from traceview_parsers.nsight.source import open_source

    try:
        with tempfile.TemporaryDirectory(prefix="traceview-nsys-") as folder:
            raw = options.convert and path.is_file() and is_raw(path)
            export = convert(path, Path(folder)) if raw else path
            refuse(export)
            told: list[str] = []
            if export.is_file():
                export, told = settled(export, Path(folder))
            source = open_source(export)
            try:
                return ReportReader(path, source, out, options, told).read(progress)
            finally:
                source.close()
    except OSError as error:
        raise TraceviewError(f"{path}: cannot be read ({error.strerror or error})") from error
