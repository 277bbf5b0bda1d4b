"""Which reader takes which first bytes."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from traceview.errors import TraceviewError
from traceview_parsers import registry


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b'{"schemaVersion": 1, "traceEvents": [', "kineto"),
        (b'\xef\xbb\xbf{"traceEvents":[]}', "kineto"),
        (b'[{"ph":"X","name":"a"}]', "kineto"),
        (b'[\n  {"name": "process_name", "args": {}}', "kineto"),
        (b"n0:7:7 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n", "nccl_log"),
        (b"[1,26]<stdout>:n0:7:9 [2] NCCL INFO Ring 00 : 26[2] -> 30[6] via P2P/IPC\n", "nccl_log"),
        (b'{"traceEvents": [{"name": "NCCL INFO x"}]}', "kineto"),
        (b'{"foo": 1}', None),
        (b"[1, 2, 3]", None),
        (b"", None),
    ],
)
def test_content_decides(head: bytes, name: str | None) -> None:
    reader = registry.find_reader(head, Path("any.suffix"))
    assert (reader and reader.name) == name


def test_head_is_unpacked_by_content(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(gzip.compress(b"[" * 100_000))
    assert registry.read_head(path) == b"[" * registry.HEAD_BYTES


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TraceviewError, match="cannot be read"):
        registry.read_head(tmp_path / "none.json")
