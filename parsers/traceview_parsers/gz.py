"""Gzip that keeps what can be kept: a truncated file or a wrong checksum costs nothing of what came before."""

from __future__ import annotations

import re
import struct
from collections.abc import Generator, Iterator
from typing import Any, BinaryIO

from isal import isal_zlib

MAGIC = b"\x1f\x8b"
BLOCK = 1 << 20
_INPUT = 1 << 16
_HEADER = re.compile(rb"\x1f\x8b\x08(.).{6}", re.S)
_EXTRA, _NAME, _COMMENT, _CRC = 4, 8, 16, 2


class Unpacked:
    """Iterate to get the content in blocks of at most ``block`` bytes; ``problem`` then says what was wrong."""

    def __init__(self, file: BinaryIO, block: int = BLOCK) -> None:
        self._file = file
        self._block = block
        self.problem: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        data = self._file.read(_INPUT)
        while data[:2] == MAGIC and self.problem is None:
            header = _header_length(data)
            if header is None:
                self.problem = "the gzip header is damaged"
                return
            data = yield from self._member(data[header:])
            data = data.lstrip(b"\0") or self._file.read(_INPUT)

    def _member(self, data: bytes) -> Generator[bytes, None, bytes]:
        """One gzip member; the value of ``yield from`` is what follows it."""
        engine: Any = isal_zlib.decompressobj(-15)
        check, length = 0, 0
        while not engine.eof:
            data = data or self._file.read(_INPUT)
            if not data:
                self.problem = "the gzip data ends early: the writer was stopped"
                return b""
            try:
                block = engine.decompress(data, self._block)
            except isal_zlib.error as error:  # type: ignore[misc]
                self.problem = f"the gzip data is damaged ({error})"
                return b""
            data = engine.unconsumed_tail
            check = isal_zlib.crc32(block, check)
            length += len(block)
            if block:
                yield block
        rest = engine.unused_data
        while len(rest) < 8 and (more := self._file.read(_INPUT)):
            rest += more
        if rest[:8] != struct.pack("<II", check, length & 0xFFFFFFFF):
            self.problem = "the gzip checksum is missing or differs"
        return bytes(rest[8:])


def _header_length(data: bytes) -> int | None:
    """Bytes of a member's header; None if it is none."""
    found = _HEADER.match(data)
    if not found:
        return None
    flags, at = found.group(1)[0], 10
    if flags & _EXTRA:
        at += 2 + int.from_bytes(data[at : at + 2], "little")
    for flag in (_NAME, _COMMENT):
        if flags & flag:
            at = data.find(b"\0", at) + 1
            if not at:
                return None
    return at + 2 if flags & _CRC else at
