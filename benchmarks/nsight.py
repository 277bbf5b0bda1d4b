"""Speed and memory of the Nsight Systems reader on a file of many kernels, made on the spot.

    python benchmarks/nsight.py [--kernels 6000000] [--keep FILE]

Prints CPU seconds, rows per CPU second and peak memory of a process of its own that reads the file into tables.
Targets: >= 0.7 M kernel rows per CPU second without launches, <= 300 MB peak.
"""

from __future__ import annotations

import sqlite3
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
