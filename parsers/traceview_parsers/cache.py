"""What was read once is not read again: parts on disk, by content of the input, version of the reader, and options.

An entry is written under a temporary name and renamed when whole, so that two processes may make the same one: the
later discards its own. An entry that is not whole is made again.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from isal import isal_zlib

from traceview.errors import TraceviewError
from traceview.run import Part
from traceview.schema import TABLES
from traceview_parsers.discover import Input
from traceview_parsers.reader import ReadOptions

ENVIRONMENT = "TRACEVIEW_CACHE"
MAX_BYTES = 20_000_000_000
_ENDS = 1 << 16
_BLOCK = 4 << 20
_LOGS = ("-wal", "-journal")  # what an interrupted writer of a database left beside it is part of it
_ARROW = b"ARROW1"


class Entry(msgspec.Struct):
    """``entry.json``: the part folders and the size of every file in them."""

    parts: list[str]
    sizes: dict[str, int]


def location() -> Path:
    """``TRACEVIEW_CACHE``, else the cache folder of the user (XDG)."""
    if told := os.environ.get(ENVIRONMENT):
        return Path(told)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "traceview"


def key(item: Input, options: ReadOptions) -> str:
    """Name of the entry of an input.

    The content counts by size, SHA-256 of both ends, and CRC-32 with Adler-32 of everything between; the file's name
    counts too, because hosts are read out of it, and so do the declared tables.
    """
    declared = [[(c.name, str(c.type), c.values) for c in t.columns] for t in TABLES.values()]
    digest = hashlib.sha256(repr((declared, item.reader.name, item.reader.version, options)).encode())
    files = sorted(p for p in item.path.rglob("*") if p.is_file()) if item.path.is_dir() else [item.path]
    files += [log for end in _LOGS if (log := item.path.with_name(item.path.name + end)).is_file()]
    for path in files:
        digest.update(repr((path.name, *_content(path))).encode())
    return digest.hexdigest()[:40]


def _content(path: Path) -> tuple[int, bytes, int, int]:
    ends, crc, adler = hashlib.sha256(), 0, 1
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        ends.update(file.read(_ENDS))
        file.seek(max(0, size - _ENDS))
        ends.update(file.read(_ENDS))
        file.seek(0)
        while block := file.read(_BLOCK):
            crc, adler = isal_zlib.crc32(block, crc), isal_zlib.adler32(block, adler)
    return size, ends.digest(), crc, adler


def _is_arrow(path: Path) -> bool:
    """Whether both ends are those of an Arrow file; after a power failure a file may hold zeros."""
    with path.open("rb") as file:
        head = file.read(len(_ARROW))
        file.seek(-len(_ARROW), os.SEEK_END)
        return head == file.read() == _ARROW


class Store:
    """A folder of entries. ``kept`` False: a temporary one that goes when the process ends."""

    def __init__(self, kept: bool = True) -> None:
        self.problem: str | None = None
        self.root = (self._kept() if kept else None) or self._temporary()

    @classmethod
    def at(cls, root: Path) -> Store:
        """The store in an existing folder."""
        store = cls.__new__(cls)
        store.root, store.problem = root, None
        return store

    @staticmethod
    def _temporary() -> Path:
        root = Path(tempfile.mkdtemp(prefix="traceview-"))
        atexit.register(shutil.rmtree, root, ignore_errors=True)
        return root

    def _kept(self) -> Path | None:
        root = location()
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=root):
                return root
        except OSError as error:
            self.problem = (
                f"{root}: no cache can be kept there ({error.strerror}); set {ENVIRONMENT} to a writable folder"
            )
            return None

    def get(self, name: str) -> list[Part] | None:
        """The parts of an entry; None if there is none or it is not whole (then it is removed)."""
        folder = self.root / name
        if not folder.exists():
            return None
        try:
            entry = msgspec.json.decode((folder / "entry.json").read_bytes(), type=Entry)
            if any((folder / f).stat().st_size != size for f, size in entry.sizes.items()):
                raise OSError("sizes differ")
            if not all(_is_arrow(folder / f) for f in entry.sizes if f.endswith(".arrow")):
                raise OSError("not written to the end")
            parts = [Part.load(folder / p) for p in entry.parts]
        except (OSError, msgspec.MsgspecError, TraceviewError):
            shutil.rmtree(folder, ignore_errors=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(folder)
        return parts

    def make(self, name: str, read: Callable[[Path], list[Part]]) -> list[Part]:
        """Make an entry: ``read`` writes part folders into the folder it is given."""
        work = Path(tempfile.mkdtemp(prefix=".making-", dir=self.root))
        try:
            parts = read(work)
            sizes = {str(p.relative_to(work)): p.stat().st_size for p in work.rglob("*") if p.is_file()}
            names = [str(p.folder.relative_to(work)) for p in parts]
            (work / "entry.json").write_bytes(msgspec.json.encode(Entry(names, sizes)))
            with contextlib.suppress(OSError):  # another process was first
                work.rename(self.root / name)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        made = self.get(name)
        if made is None:
            raise TraceviewError(f"{self.root / name}: the cache entry vanished while it was made; run again")
        return made

    def trim(self, limit: int = MAX_BYTES) -> None:
        """Remove the entries that were not used for longest until the store is at most ``limit`` bytes."""
        entries = []
        for folder in self.root.iterdir():
            with contextlib.suppress(OSError):
                size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
                entries.append((folder.stat().st_mtime, size, folder))
        total = sum(size for _, size, _ in entries)
        for _, size, folder in sorted(entries):
            if total <= limit:
                return
            shutil.rmtree(folder, ignore_errors=True)
            total -= size
