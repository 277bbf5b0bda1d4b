"""Speed and memory of the Nsight Systems reader, and of attributing GPU time to NVTX ranges.

    python benchmarks/nsight.py [kernels] [nvtx ranges]        (default 6,000,000 and 10,000,000)

Makes an export of two processes with every kernel's launch call, and reads it: first only its kernel table through
the SQLite driver (the floor), then all of it into tables without and with the launches. Each measurement is a
process of its own. Targets: 0.7 M kernel rows per CPU second and 300 MB; 10 M ranges within 2 GB.
"""

from __future__ import annotations

import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KERNEL_COLUMNS = [
    "start",
    "end",
    "deviceId",
    "contextId",
    "greenContextId",
    "streamId",
    "correlationId",
    "globalPid",
    "demangledName",
    "shortName",
    "mangledName",
    "launchType",
    "cacheConfig",
    "registersPerThread",
    "gridX",
    "gridY",
    "gridZ",
    "blockX",
    "blockY",
    "blockZ",
    "staticSharedMemory",
    "dynamicSharedMemory",
    "localMemoryPerThread",
    "localMemoryTotal",
    "gridId",
    "sharedMemoryExecuted",
    "graphNodeId",
    "sharedMemoryLimitConfig",
    "qmdBulkReleaseDone",
    "qmdPreexitDone",
    "qmdLastCtaDone",
    "graphId",
    "clusterX",
    "clusterY",
    "clusterZ",
    "clusterSchedulingPolicy",
    "maxPotentialClusterSize",
    "maxActiveClusters",
    "sharedMemoryRequestedPercentage",
]
NAMES = (
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
    "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64>>(Flash_fwd_params)",
    *(f"void at::native::vectorized_elementwise_kernel<(int)4, Functor{i}>(int, T2, T3)" for i in range(200)),
)
PIDS = (1001, 1002)


def make(path: Path, kernels: int, launches: bool) -> None:
    """An export of two processes: ``kernels`` kernel rows, every 50th a collective, and their launch calls."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA synchronous=OFF")
    db.execute("PRAGMA journal_mode=OFF")
    db.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(1000 + 7 * i, n) for i, n in enumerate(NAMES)])
    db.execute("INSERT INTO StringIds VALUES (5, 'cudaLaunchKernel_v7000')")
    db.execute("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)")
    db.executemany(
        "INSERT INTO META_DATA_EXPORT VALUES (?, ?)",
        [("EXPORT_PRODUCT_VERSION", "2026.2.1.210"), ("EXPORT_SCHEMA_VERSION", "3.25.0")],
    )
    db.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT)")
    db.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1779782330176752435, '', '')")
    columns = ", ".join(f'"{c}" INTEGER' for c in KERNEL_COLUMNS)
    db.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns})")
    pid = f"(({PIDS[0]} + n % 2) << 24) + (1 << 48)"
    name = f"1000 + 7 * CASE WHEN n % 50 < 2 THEN 0 ELSE n % {len(NAMES)} END"
    value = {
        "start": "n * 5000",
        "end": "n * 5000 + 4000 + n % 3000",
        "deviceId": "n % 2",
        "contextId": "1",
        "streamId": "7 + CASE WHEN n % 50 < 2 THEN 9 ELSE 0 END",
        "correlationId": "n / 2 * 3",
        "globalPid": pid,
        "demangledName": name,
        "shortName": name,
        "gridX": "n % 512 + 1",
        "graphNodeId": "NULL",
    }
    row = ", ".join(value.get(c, "1") for c in KERNEL_COLUMNS)
    series = f"WITH RECURSIVE s(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < {kernels} - 1)"
    db.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL {series} SELECT {row} FROM s")
    if launches:
        db.execute(
            'CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, "end" INTEGER, eventClass INTEGER, '
            "globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER)"
        )
        call = f"n * 5000 - 20000, n * 5000 - 17000, 0, {pid} + {PIDS[0]} + n % 2, n / 2 * 3, 5, 0, NULL"
        db.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME {series} SELECT {call} FROM s")
    db.commit()
    db.close()


def floor(path: Path, _: Path) -> int:
    """Rows of the kernel table, read with the columns that the reader wants and thrown away."""
    from traceview_parsers.nsight.gpu import KERNEL, KERNEL_WANTED
    from traceview_parsers.nsight.source import open_source

    return sum(len(columns["start"]) for columns in open_source(path).batches(KERNEL, KERNEL_WANTED))


def read(path: Path, folder: Path) -> int:
    """Kernel rows, after the whole file was read into parts."""
    from traceview_parsers import nsight
    from traceview_parsers.reader import ReadOptions

    return sum(part.meta.rows["gpu_ops"] for part in nsight.read(path, folder, ReadOptions(), None))


def attribute(path: Path, _: Path) -> int:
    """Ranges (their number is the file's name), nested two deep, half as many launches."""
    import numpy as np

    from traceview.analysis.nvtx import LaunchedOps, Ranges, project

    count, rng = int(path.name), np.random.default_rng(1)
    outer = np.arange(count // 10) * 1000
    start = np.concatenate([outer, *(outer + 10 + 100 * i for i in range(9))])
    end = np.concatenate([outer + 990, *(outer + 90 + 100 * i for i in range(9))])
    launch = np.sort(rng.integers(0, outer[-1], count // 2))
    ops = LaunchedOps(np.ones(count // 2, np.int64), launch, launch + 5000, launch + 5700)
    ranges = Ranges(np.ones(len(start), np.int64), start, end, rng.integers(0, 500, len(start)), 500)
    found = project(ranges, ops)
    assert found.self_ns.sum() <= 700 * len(launch)
    return count


TASKS = {f.__name__: f for f in (floor, read, attribute)}


def measure(task: str, path: Path) -> dict[str, float]:
    """Run a task in a process of its own."""
    done = subprocess.run([sys.executable, __file__, task, str(path)], capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def child(task: str, path: Path) -> None:
    """Inside that process: print rows, CPU seconds (imports included) and peak MB."""
    with tempfile.TemporaryDirectory(dir=path.parent if path.exists() else None) as folder:
        rows = TASKS[task](path, Path(folder))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"rows": rows, "cpu": usage.ru_utime + usage.ru_stime, "mb": usage.ru_maxrss / 1024}))


def show(what: str, got: dict[str, float]) -> None:
    """One line."""
    rate = got["rows"] / got["cpu"] / 1e6
    print(f"{what:34} {got['cpu']:6.2f} CPU-s  {rate:5.2f} M rows/CPU-s  {got['mb']:6.0f} MB peak")


def main(kernels: int, ranges: int) -> None:
    """All measurements."""
    with tempfile.TemporaryDirectory() as folder:
        for launches in (False, True):
            path = Path(folder) / f"{launches}.sqlite"
            begin = time.perf_counter()
            make(path, kernels, launches)
            print(f"made {path.stat().st_size / 1e9:.2f} GB in {time.perf_counter() - begin:.0f} s")
            if not launches:
                show("floor: kernel table only, no tables", measure("floor", path))
            show(f"{kernels:,} kernels" + (", as many launches" if launches else ""), measure("read", path))
            path.unlink()
    show(f"{ranges:,} NVTX ranges attributed", measure("attribute", Path(str(ranges))))


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] in TASKS:
        child(sys.argv[1], Path(sys.argv[2]))
    else:
        main(*(int(a) for a in (*sys.argv[1:], "6000000", "10000000")[:2]))
