"""Speed and memory of the Kineto reader against a process that only does ``json.load``, in one run.

    python benchmarks/ingest.py [--sizes 10,100,1000] [--source TRACE] [--repeat 3] [--folder DIR]

Files of the asked sizes (MB of JSON) are made of one small trace: its events repeated with later times and other
correlation ids, its layout kept. Prints CPU seconds and peak memory of whole processes and their ratios; targets:
ingest <= 0.65 x json.load at 100 MB, peak memory <= 200 MB at 1 GB, .gz <= 1.15 x .json, and the ingest stage of a
second run, out of the cache, <= 0.2 x the first.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (
    "../shared/traces/torch/a100_rank0of2_nccl_metadata.json.gz",
    "../../shared/traces/torch/a100_rank0of2_nccl_metadata.json.gz",
    "sample_traces/healthy/*.json.gz",
)
JSON_LOAD = "import json, sys\njson.load(open(sys.argv[1]))"
INGEST = """
import sys, time
from traceview_parsers import open_run
begin = time.process_time()
open_run([sys.argv[1]], cache=len(sys.argv) > 2)
print(time.process_time() - begin)
"""
_SHIFTED = re.compile(rb'("ts"\s*:\s*)([\d.]+)|("(?:correlation|External id|id)"\s*:\s*)(\d+)|(ProfilerStep#)(\d+)')
_TIME, _ID, _STEP = 2, 4, 6


class Cost(NamedTuple):
    """Of a process: CPU seconds of all of it, peak MB, CPU seconds of its ingest stage."""

    cpu: float
    peak_mb: float
    stage: float


class Repeater:
    """The text of a trace, again and again, each time later."""

    def __init__(self, text: bytes) -> None:
        begin = text.index(b"[", text.find(b'"traceEvents"')) + 1
        end = begin - 1 + json.JSONDecoder().raw_decode(text[begin - 1 :].decode())[1] - 1
        self.head, body, self.foot = text[:begin], text[begin:end], text[end:]
        self.fixed: list[bytes] = []
        self.moving: list[tuple[int, int]] = []
        at = 0
        for found in _SHIFTED.finditer(body):
            group = found.lastindex or 0
            self.fixed.append(body[at : found.start(group)])
            self.moving.append((group, _ns(found[group]) if group == _TIME else int(found[group])))
            at = found.end()
        self.tail = body[at:]
        self.decimals = b"." in b"".join(found[2] or b"" for found in _SHIFTED.finditer(body[:100_000]))
        times = [v for g, v in self.moving if g == _TIME and v]
        self.span = (max(times) - min(times)) // 1000 * 1000 + 1_000_000
        self.ids = max((v for g, v in self.moving if g == _ID), default=0) + 1
        self.steps = len({v for g, v in self.moving if g == _STEP})

    def copy(self, number: int) -> bytes:
        """The events, ``number`` spans later."""
        out = []
        for fixed, (group, value) in zip(self.fixed, self.moving, strict=True):
            out.append(fixed)
            if group == _TIME:
                us, ns = divmod(value + self.span * number, 1000)
                out.append(b"%d.%03d" % (us, ns) if self.decimals else b"%d" % us)
            else:
                out.append(b"%d" % (value + number * (self.ids if group == _ID else self.steps)))
        return b"".join(out) + self.tail

    def text(self, size: int) -> Iterator[bytes]:
        """A trace of about ``size`` bytes."""
        yield self.head
        written, number = len(self.head), 0
        while written < size:
            piece = self.copy(number)
            yield piece if number == 0 else b"," + piece
            written, number = written + len(piece), number + 1
        yield self.foot


def _ns(text: bytes) -> int:
    us, _, fraction = text.partition(b".")
    return int(us) * 1000 + int(fraction[:3].ljust(3, b"0"))


def cost(code: str, *arguments: str, **environment: str) -> Cost:
    """Run a program in a process of its own."""
    paths = [str(ROOT), str(ROOT / "parsers"), str(ROOT / "reports")]
    values = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], env=values, stdout=subprocess.PIPE)
    assert process.stdout
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    if process.returncode:
        sys.exit(f"a measured process ended with {process.returncode}")
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, float(said or 0))


def measure(path: Path, repeat: int, cache: Path) -> None:
    """One line per ratio for one file and its packed twin."""
    packed = path.with_suffix(".json.gz")
    with gzip.open(packed, "wb", 1) as out, path.open("rb") as source:
        while block := source.read(1 << 24):
            out.write(block)
    runs: dict[str, list[Cost]] = {"json.load": [], "ingest": [], "gz": [], "first": [], "second": []}
    for i in range(repeat):
        runs["json.load"].append(cost(JSON_LOAD, str(path)))
        runs["ingest"].append(cost(INGEST, str(path)))
        runs["gz"].append(cost(INGEST, str(packed)))
        own = {"TRACEVIEW_CACHE": str(cache / f"{path.stem}{i}")}
        runs["first"].append(cost(INGEST, str(path), "cache", **own))
        runs["second"].append(cost(INGEST, str(path), "cache", **own))
    cpu = {name: statistics.median(c.cpu for c in found) for name, found in runs.items()}
    stage = {name: statistics.median(c.stage for c in found) for name, found in runs.items()}
    peak = {name: max(c.peak_mb for c in found) for name, found in runs.items()}
    size = path.stat().st_size / 1e6
    print(f"{size:,.0f} MB of JSON, {packed.stat().st_size / 1e6:,.1f} MB packed, median of {repeat}")
    for name in ("json.load", "ingest", "gz"):
        print(f"  {name:<10} {cpu[name]:7.2f} CPU-s  {size / cpu[name]:5.0f} MB/CPU-s  peak {peak[name]:5.0f} MB")
    print(f"  ingest / json.load  {cpu['ingest'] / cpu['json.load']:.2f}   (target at 100 MB <= 0.65)")
    print(f"  .gz / .json         {cpu['gz'] / cpu['ingest']:.2f}   (target <= 1.15)")
    print(f"  second / first      {stage['second'] / stage['first']:.2f}   (ingest stage; target <= 0.20)")


def main() -> None:
    """Make the files, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10,100", help="MB of JSON, comma between")
    parser.add_argument("--source", type=Path, help="a small trace to make the files of")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to make the files (default: a temporary folder)")
    options = parser.parse_args()
    source = options.source or next(p for pattern in SOURCES for p in sorted(ROOT.glob(pattern)))
    text = source.read_bytes()
    repeater = Repeater(gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        print(f"made of {source.name}")
        for size in options.sizes.split(","):
            path = Path(folder) / f"{size}mb.json"
            with path.open("wb") as out:
                out.writelines(repeater.text(int(float(size) * 1e6)))
            measure(path, options.repeat, Path(folder))
            path.unlink()


if __name__ == "__main__":
    main()
