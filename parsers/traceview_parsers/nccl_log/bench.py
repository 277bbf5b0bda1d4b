"""Tables that nccl-tests and rccl-tests print: the measured bandwidth of this machine, the best reference."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TEST = re.compile(rb"# (?:Collective test starting: |nThread .*|.*?)\b(\w+_perf)\b")
_RANK = re.compile(rb"#\s+Rank\s+(\d+) (?:Group|Pid)\s")
_NUMBER = rb"\s+(\d+(?:\.\d+)?(?:e[+-]\d+)?|N/A)"
_HALF = _NUMBER * 4
ROW = re.compile(rb"\s*(\d+)\s+(\d+)\s+([a-z]\w+)(?:\s+(?:\w+))?(?:\s+-?\d+)?" + _HALF + _HALF + rb"\s*")


@dataclass(frozen=True)
class Row:
    """One half of a row. Times µs, bandwidths GB/s as printed."""

    test: str
    ranks: int | None
    size: int
    count: int
    dtype: str
    in_place: bool
    time_us: float
    algbw: float
    busbw: float
    wrong: int | None


class Bench:
    """Collects rows; the header lines say which test and how many ranks."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._test = "unknown"
        self._ranks: int | None = None

    def take(self, line: bytes) -> bool:
        """Take a header line or a whole row; False for any other line."""
        if line.startswith(b"#"):
            return self._header(line)
        found = ROW.fullmatch(line)
        if found is None:
            return False
        size, count, dtype = int(found[1]), int(found[2]), found[3].decode()
        for place in (0, 1):
            time, algbw, busbw, wrong = found.groups()[3 + 4 * place : 7 + 4 * place]
            if b"N/A" in (time, algbw, busbw):
                continue
            errors = None if wrong == b"N/A" else int(float(wrong))
            values = (float(time), float(algbw), float(busbw), errors)
            self.rows.append(Row(self._test, self._ranks, size, count, dtype, bool(place), *values))
        return True

    def _header(self, line: bytes) -> bool:
        found = _TEST.match(line)
        if found is not None:
            self._test = found[1].decode()
            if b"starting" in line:
                self._ranks = None
            return True
        found = _RANK.match(line)
        if found is not None:
            self._ranks = max(self._ranks or 0, int(found[1]) + 1)
        return found is not None
