"""What a file is, by its content, and for what cannot be read: its name and the exact command to run."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from shlex import quote as shell

from traceview.errors import TraceviewError
from traceview_parsers.nsight.settle import beside
from traceview_parsers.nsight.sqlite import AGAIN, ERRORS, cut_short, read_only

SQLITE = b"SQLite format 3\x00"
RAW = b"NVIDIA Tegra Profiler Report"
LFS = b"version https://git-lfs"
SUFFIXES = (".sqlite", ".nsys-rep", ".qdrep", ".qdstrm")
_EVIDENCE = ("META_DATA_EXPORT", "EXPORT_META_DATA", "NVTX_EVENTS", "OSRT_API", "TARGET_INFO_SYSTEM_ENV")
_VERSION = re.compile(rb"(20\d\d)[.@](\d+)[.@](\d+)(?:[.@](\d+))?")
_VERSION_DEPTH = 1 << 20


def is_export(tables: set[str]) -> bool:
    """Whether these are the tables of an nsys export."""
    kinds = any(t.startswith("CUPTI_ACTIVITY_KIND_") for t in tables)
    told = not tables.isdisjoint(_EVIDENCE)
    return (kinds and told) or ("StringIds" in tables and (kinds or told))


def is_parquet_folder(path: Path) -> bool:
    """A ``parquetdir`` export: a folder with one Parquet file per table."""
    return path.is_dir() and is_export({p.stem for p in path.glob("*.parquet")})


def _tables(path: Path) -> set[str] | None:
    """Names of the tables and views of an SQLite file, None if it is damaged."""
    try:
        with closing(sqlite3.connect(read_only(path), uri=True)) as db:
            db.text_factory = lambda raw: raw.decode("utf-8", "replace")
            cut_short(db)
            listed = db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
            return {str(name) for (name,) in listed}
    except ERRORS:
        return None


def _other_database(tables: set[str]) -> str | None:
    if "StringTable" in tables and any(t.startswith("CUPTI_ACTIVITY_KIND_") for t in tables):
        return "an nvprof database"
    return "a DLProf database" if any(t.lower().startswith("dlprof") for t in tables) else None


def claims(head: bytes, path: Path) -> bool:
    """Whether the file is an export, or something of the Nsight family for which ``refuse`` has advice."""
    if not head:
        return is_parquet_folder(path) or (path.suffix in SUFFIXES and path.is_file())
    if head.startswith(SQLITE):
        tables = _tables(path)
        unmerged = not tables and beside(path, "-wal") is not None
        return tables is None or unmerged or is_export(tables) or _other_database(tables) is not None
    if RAW in head[:256]:
        return True
    return path.suffix in SUFFIXES and (head.startswith(LFS) or not head.strip(b"\0") or path.suffix == ".qdstrm")


def raw_version(path: Path) -> str:
    """The nsys version that wrote a raw report, 'unknown' if it is not told in its first megabyte."""
    with path.open("rb") as file:
        head = file.read(_VERSION_DEPTH)
    found = _VERSION.search(head)
    return ".".join(g.decode() for g in found.groups() if g) if found else "unknown"


def is_raw(path: Path) -> bool:
    """A raw report that ``nsys export`` can read."""
    with path.open("rb") as file:
        return RAW in file.read(256)


def refuse(path: Path) -> None:
    """Raise TraceviewError with what to do if ``path`` is of the family but not an export; return if it is one."""
    if path.is_dir():
        return
    with path.open("rb") as file:
        head = file.read(4096)
    if head.startswith(LFS):
        raise TraceviewError(f"{path}: a git-lfs pointer, not the file itself; run `git lfs pull` and try again")
    if not head.strip(b"\0"):
        why = "empty" if not head else "an interrupted export: its header is zeros"
        raise TraceviewError(f"{path}: {why}; {AGAIN}")
    if RAW in head[:256]:
        raise TraceviewError(_raw_advice(path))
    if not head.startswith(SQLITE):
        name = shell(str(path))
        raise TraceviewError(
            f"{path}: an unfinished capture (.qdstrm); run `QdstrmImporter -i {name}` of the same nsys version, then "
            "export the report with `nsys export --type=sqlite --include-blobs=true`"
        )
    tables = _tables(path)
    if tables is None:
        raise TraceviewError(f"{path}: the SQLite database is damaged or truncated; {AGAIN}")
    if other := _other_database(tables):
        raise TraceviewError(
            f"{path}: {other}, which holds no Nsight Systems export; record with "
            "`nsys profile -t cuda,nvtx,osrt` and export with `nsys export --type=sqlite`"
        )


def _raw_advice(path: Path) -> str:
    version = raw_version(path)
    written = "" if version == "unknown" else f" (written by nsys {version})"
    newer = "" if version == "unknown" else f" of version {version} or newer"
    target = shell(f"{path.with_suffix('')}.sqlite")
    return (
        f"{path}: a raw Nsight Systems report{written}; traceview reads exports. With nsys{newer} run "
        f"`nsys export --type=sqlite --include-blobs=true -o {target} {shell(str(path))}`, then give traceview "
        f"{target}; or use --convert where nsys is installed"
    )


def convert(path: Path, folder: Path) -> Path:
    """Export a raw report into ``folder`` with the ``nsys`` on PATH. TraceviewError if that is not possible."""
    nsys = shutil.which("nsys")
    if nsys is None:
        raise TraceviewError(f"{_raw_advice(path)} (it is not on PATH here)")
    written, have = raw_version(path), nsys_version(nsys)
    if written != "unknown" and have and _numbers(have) < _numbers(written):
        raise TraceviewError(
            f"{path}: written by nsys {written}, but the nsys on PATH is {have}, which cannot read newer reports; "
            "install that version or a newer one"
        )
    target = folder / f"{path.stem}.sqlite"
    options = ["--type=sqlite", "--include-blobs=true", "--force-overwrite=true", "-o", str(target), str(path)]
    done = subprocess.run([nsys, "export", *options], capture_output=True, text=True, check=False)
    if done.returncode or not target.is_file():
        said = " ".join((done.stderr or done.stdout).split())[-200:]
        raise TraceviewError(f"{path}: `nsys export` failed ({said or done.returncode}); run it by hand to see why")
    return target


def nsys_version(nsys: str) -> str:
    """Version of an nsys program, '' if it does not tell."""
    done = subprocess.run([nsys, "--version"], capture_output=True, check=False)
    found = _VERSION.search(done.stdout)
    return ".".join(g.decode() for g in found.groups() if g) if found else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in version.split(".")[:3])
