"""One bad input among good ones costs that input; what is left of it is read."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from traceview.errors import InternalError, TraceviewError
from traceview_parsers import nccl_log, open_run, registry
from traceview_parsers.cache import Store

Write = Callable[..., Path]
LOG = b"".join(
    b"node-1:%d:%d [0] NCCL INFO Bootstrap : Using eth0:10.0.0.%d<0>\n" % (10 + i, 20 + i, i) for i in range(200)
)


@pytest.mark.parametrize("cut", [1, 9, 100])
def test_a_cut_log_is_read_up_to_the_cut(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "nccl.log.gz"
    path.write_bytes(gzip.compress(LOG)[:-cut])
    (part,) = open_run([path], cache=False).logs
    assert part.meta.source.events >= (200 if cut <= 8 else 1)
    assert any(re.search("gzip (data|checksum)", w) for w in part.meta.source.warnings)


def test_numbers_that_nccl_never_writes_are_refused_in_one_line(tmp_path: Path, write: Write) -> None:
    path = tmp_path / "nccl.log"
    path.write_bytes(LOG.replace(b":1", b":" + b"9" * 30))
    with pytest.raises(TraceviewError, match=r"nccl.log: damaged: it holds numbers that NCCL never writes"):
        open_run([path], cache=False)
    write("rank0.json", 0, 1)
    assert open_run([tmp_path], cache=False).unread[0].path == str(path)


def test_a_defect_of_a_reader_costs_one_file_and_is_loud(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise KeyError("dur")

    known = registry.readers()
    odd = SimpleNamespace(name="odd", version=1, is_log=False, sniff=lambda head, _: head == b"odd", read=read)
    monkeypatch.setattr(registry, "readers", lambda: (odd, *known))
    (tmp_path / "b.bin").write_bytes(b"odd")
    with pytest.raises(InternalError, match=r"b.bin: a defect of traceview: it cannot be read \(KeyError: 'dur'\)"):
        open_run([tmp_path], cache=False)
    write("rank0.json", 0, 1)
    run = open_run([tmp_path], cache=False)
    assert run.ranks == [0] and "a defect of traceview" in run.unread[0].warnings[0]


@pytest.mark.parametrize("damage", [lambda b: bytes(len(b)), lambda b: b[:-4] + b"zero", lambda b: b[:-1]])
def test_a_damaged_entry_is_made_again(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setenv("TRACEVIEW_CACHE", str(tmp_path / "cache"))
    path = write("rank0.json", 0, 1)
    first = open_run([path])
    (entry,) = (tmp_path / "cache").iterdir()
    file = next(entry.rglob("gpu_ops.arrow"))
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert Store().get(entry.name) is None
    again = open_run([path])
    assert next(entry.rglob("gpu_ops.arrow")).read_bytes() == whole and again.ranks == first.ranks


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_log, "_BLOCK", 1 << 10)
    monkeypatch.setattr(nccl_log, "_LONGEST_LINE", 1 << 12)
    path = tmp_path / "nccl.log"
    path.write_bytes(LOG + b"x" * 100_000 + b"\n" + LOG)
    (part,) = open_run([path], cache=False).logs
    assert part.meta.source.events == 400
