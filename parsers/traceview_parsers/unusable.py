"""Files that are known but cannot be used: what each is, and what to do about it, in one line."""

from __future__ import annotations

import re
from pathlib import Path

_BY_CONTENT = (
    (rb"\A\Z", "is empty: the profiler wrote nothing; was the process stopped before the trace was exported?"),
    (rb"\Aversion https://git-lfs", "is a Git LFS pointer, not the file: run `git lfs pull`"),
    (
        rb"\ASQLite format 3\0.*rocpd_",
        "is a database of the ROCm profiler (rocpd): record with torch.profiler",
    ),
    (
        rb"\ASQLite format 3\0",
        "is an SQLite database of another program, no export of Nsight Systems: record with `nsys profile`",
    ),
    (rb"\A\x80[\x02-\x05]", "is a Python pickle (a flight recorder dump?): pass the profiler traces of the ranks"),
    (rb"\APK\x03\x04|\A.{257}ustar", "is an archive: unpack it and pass the folder"),
    (rb"\A\x28\xb5\x2f\xfd", "is packed with zstd: unpack it with `zstd -d`"),
    (rb"\A(?:\xef\xbb\xbf)?\s*[\[{]", "is JSON, but no trace: it has no traceEvents"),
)
_BY_SUFFIX = {
    ".nsys-rep": "is a raw Nsight Systems report: run `nsys export --type sqlite` on it and pass the .sqlite",
    ".qdrep": "is a raw Nsight Systems report: run `nsys export --type sqlite` on it and pass the .sqlite",
    ".qdstrm": "is an unfinished Nsight Systems capture: run QdstrmImporter on it, then `nsys export`",
    ".ncu-rep": "is an Nsight Compute report of single kernels: record a timeline with nsys or torch.profiler",
    ".nvvp": "is an nvprof report: record with nsys or torch.profiler",
}
_TRACE_NAME = re.compile(r"\.(json(\.gz)?|sqlite)$", re.I)
_TRACE_LIKE = re.compile(r"\.json(\.gz)?$|trace", re.I)


def reason(head: bytes, path: Path) -> str | None:
    """Why a file that no reader takes cannot be used; None if nothing is known of its kind."""
    if path.suffix in _BY_SUFFIX and head:
        return _BY_SUFFIX[path.suffix]
    for pattern, text in _BY_CONTENT:
        if re.match(pattern, head, re.S):
            return text
    if path.suffix == ".sqlite":
        return "is named .sqlite, but is no SQLite database: export the report again with `nsys export --type=sqlite`"
    return "is named like a trace, but is of no known format: damaged?" if _TRACE_NAME.search(path.name) else None


def worth_telling(path: Path) -> bool:
    """Whether an unusable file met in a folder may have been meant as a trace (READMEs and scripts are not)."""
    return path.suffix in _BY_SUFFIX or bool(_TRACE_LIKE.search(path.name))
