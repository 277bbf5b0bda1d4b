"""Impossible times cost their rows, not the file: left out or cut by the rules of the Kineto reader, and counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import traceview as tv
from builders.nsight_files import PID, SESSION, TID, UTC, call, kernel, strings, write_sqlite
from traceview.errors import TraceviewError
from traceview.run import Part
from traceview.schema import COUNTERS, GPU_OPS, HOST_RANGES
from traceview_parsers import nsight
from traceview_parsers.nsight import spill as spill_module
from traceview_parsers.nsight.times import FAR, FINE, LOST, NEGATIVE, OPEN, OVER, Counts, Times, learn
from traceview_parsers.reader import ReadOptions

DAY = 86_400 * 10**9
SECOND = 10**9
NAMES = strings("k", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "cudaLaunchKernel_v7000") | SESSION


def read(folder: Path, kernels: list[dict[str, Any]], **tables: Any) -> Part:
    path = write_sqlite(folder / "x.sqlite", NAMES | {"CUPTI_ACTIVITY_KIND_KERNEL": kernels} | tables)
    (part,) = nsight.read(path, folder / "out", ReadOptions(), None)
    return part


def spans(part: Part, table: Any = GPU_OPS) -> list[tuple[int, int]]:
    return [(r["start"] - UTC, r["end"] - UTC) for r in part.table(table).to_pylist()]


def cut(ns: int) -> dict[str, str]:
    return {"clipped_overflows": "1", "clipped_overflow_ns": str(ns)}


GOOD = [kernel(1000 * i, 1000 * i + 900, 10, i) for i in range(1, 6)]


@pytest.mark.parametrize(
    ("odd", "left", "counts"),
    [
        (kernel(400 * DAY, 400 * DAY + 5, 10, 9), None, {"events_far_away": "1"}),
        (kernel(2500, 400 * DAY, 10, 9, streamId=8), None, {"events_far_away": "1"}),
        (kernel(-400 * DAY, 2500, 10, 9), None, {"events_far_away": "1"}),
        (kernel(2**61, 2**61 + 1, 10, 9), None, {"events_without_time": "1"}),
        (kernel(0, 0, 10, 9), None, {"empty_gpu_records": "1"}),
        (kernel(2950, 2900, 10, 9), (2950, 2950), {"negative_durations": "1"}),
        (kernel(2950, 3 * DAY, 10, 9), (2950, 3000), cut(3 * DAY - 3000)),
        (kernel(2950, 3900, 10, 9), (2950, 3900), {}),  # an overlap below 1 us is the clock's
        (kernel(2950, 3 * DAY, 10, 3), (2950, 4000), cut(3 * DAY - 4000)),  # of one launch with the next row
        (kernel(2950, None, 10, 9), (2950, 2950), {"events_without_end": "1"}),
    ],
)  # fmt: skip
def test_one_absurd_kernel_costs_only_itself(
    odd: dict[str, Any], left: tuple[int, int] | None, counts: dict[str, str], tmp_path: Path
) -> None:
    part = read(tmp_path, [*GOOD, odd])
    good = [(k["start"], k["end"]) for k in GOOD]
    assert spans(part) == sorted([*good, left] if left else good)
    source = part.meta.source
    known = {n: v for n, v in source.facts.items() if n.split("_")[0] in ("events", "empty", "negative", "clipped")}
    assert known == counts
    dropped = sum(int(v) for n, v in counts.items() if n.startswith(("events_far", "events_without_time", "empty")))
    assert (source.events, source.dropped, source.repaired) == (6, dropped, 1 if left and counts else 0)
    assert part.meta.cover_start == UTC + 1000 and part.meta.cover_end == UTC + 5900
    assert any("far from the others" in w for w in source.warnings) == ("events_far_away" in counts)


def test_kernels_of_one_graph_launch_may_overlap(tmp_path: Path) -> None:
    graph = [kernel(1000, 90_000, 10, 7), kernel(2000, 50_000, 10, 7), kernel(60_000, 95_000, 10, 7)]
    part = read(tmp_path, graph)
    assert spans(part) == [(1000, 90_000), (2000, 50_000), (60_000, 95_000)] and part.meta.source.repaired == 0


def test_the_next_record_on_the_stream_may_be_far_down_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill_module, "OUT", 3)
    monkeypatch.setattr(spill_module, "BLOCK", 1)
    other = [kernel(1000 * i, 1000 * i + 900, 10, i, streamId=9) for i in range(1, 9)]
    part = read(tmp_path, [kernel(500, DAY, 10, 50), *other, kernel(20_000, 20_500, 10, 51)])
    assert spans(part)[0] == (500, 20_000) and part.meta.source.facts["clipped_overflows"] == "1"
    assert part.meta.cover_end == UTC + 20_500


@pytest.mark.parametrize("out", [1, 2, 3, 100])
def test_cuts_do_not_depend_on_the_batches(out: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill_module, "OUT", out)
    monkeypatch.setattr(spill_module, "BLOCK", 1)
    rows = [(0, 9000, 5), (100, 30_000, 5), (200, 300, 5), (8000, 8100, 6), (8500, 20_000, 0), (12_000, 13_000, 0)]
    part = read(tmp_path, [kernel(s, e, 10, c) for s, e, c in rows])
    assert spans(part) == [(0, 9000), (100, 8000), (200, 300), (8000, 8100), (8500, 12_000), (12_000, 13_000)]
    assert part.meta.source.facts["clipped_overflow_ns"] == "30000" and part.meta.cover_end == UTC + 13_000


def test_cut_rows_stay_in_order(tmp_path: Path) -> None:
    rows = [kernel(10, 50, 10, 1, streamId=8), kernel(10, 20_000, 10, 2), kernel(10, 30_000, 10, 3)]
    assert spans(read(tmp_path, [*rows, kernel(40_000, 40_001, 10, 4)])) == [
        (10, 10), (10, 50), (10, 30_000), (40_000, 40_001)
    ]  # fmt: skip


def capture(duration: int) -> dict[str, Any]:
    return {"ANALYSIS_DETAILS": [{"duration": duration}]}


def test_rows_beyond_the_end_of_the_capture(tmp_path: Path) -> None:
    late = [kernel(7000, 9 * SECOND, 10, 8), kernel(5 * SECOND, 5 * SECOND + 1, 10, 9, streamId=8)]
    part = read(tmp_path, [*GOOD, *late], **capture(10_000))
    assert spans(part) == [(k["start"], k["end"]) for k in GOOD] + [(7000, 10_000)]
    source = part.meta.source
    assert (source.dropped, source.repaired, source.facts["events_far_away"]) == (1, 1, "1")
    assert source.facts["clipped_overflow_ns"] == str(9 * SECOND - 10_000)


def test_an_end_of_the_capture_that_the_rows_belie_is_not_used(tmp_path: Path) -> None:
    rows = [kernel(SECOND * i, SECOND * i + 900, 10, i) for i in range(1, 40)]
    part = read(tmp_path, rows, **capture(10))
    assert len(spans(part)) == 39 and part.meta.source.dropped == part.meta.source.repaired == 0
    assert any("that end is not used" in w for w in part.meta.source.warnings)


def test_two_clocks_in_one_file_are_refused(tmp_path: Path) -> None:
    far = [kernel(400 * DAY + i, 400 * DAY + i + 1, 10, 90 + i) for i in range(11)]
    near = [kernel(1000 * i, 1000 * i + 900, 10, i) for i in range(1, 30)]
    with pytest.raises(TraceviewError, match=r"x.sqlite: 11 of 40 rows lie far from the others, so its times mix"):
        read(tmp_path, [*near, *far])


def test_a_report_of_many_processes(tmp_path: Path) -> None:
    """200 processes, each with its own absurd kernel: none costs another anything."""
    rows = []
    for number in range(200):
        own = {"globalPid": PID + (number << 24), "deviceId": number % 8}
        rows += [kernel(1000 * i, 1000 * i + 900, 10, i, **own) for i in range(1, 4)]
        rows.append(
            kernel(400 * DAY, 400 * DAY + 1, 10, 9, **own) if number < 8 else kernel(5000, 4000, 10, 9, **own)
        )
    path = write_sqlite(tmp_path / "x.sqlite", NAMES | {"CUPTI_ACTIVITY_KIND_KERNEL": rows})
    run = tv.open(path, cache=False)
    assert run.ranks == list(range(200))
    assert [run.parts[r].meta.source.dropped for r in run.ranks] == [1] * 8 + [0] * 192
    assert [run.parts[r].meta.source.repaired for r in run.ranks] == [0] * 8 + [1] * 192
    assert {run.parts[r].meta.devices[0] for r in run.ranks} == set(range(8))


def test_ranks_that_do_not_communicate_are_analysed(tmp_path: Path) -> None:
    """Replicas of an inference server: nothing to match, to wait for or to replay."""
    rows = [k | {"globalPid": PID + (r << 24)} for r in range(2) for k in GOOD]
    path = write_sqlite(tmp_path / "x.sqlite", NAMES | {"CUPTI_ACTIVITY_KIND_KERNEL": rows})
    result = tv.analyze(tv.open(path, cache=False))
    assert result.budget.leaves_ns["compute"] == 2 * 5 * 900


def test_host_calls_ranges_and_samples_too(tmp_path: Path) -> None:
    calls = [call(900, 950, 16, 1), call(400 * DAY, 400 * DAY + 9, 16, 2), call(2900, 2800, 16, 3)]
    ranges = [
        {"start": 100, "end": 800, "eventType": 59, "text": "step 1", "globalTid": TID},
        {"start": 400 * DAY, "end": 401 * DAY, "eventType": 59, "text": "step 2", "globalTid": TID},
    ]
    metrics = {
        "TARGET_INFO_GPU_METRICS": [{"typeId": 1, "metricId": 2, "metricName": "SMs Active [Throughput %]"}],
        "GPU_METRICS": [{"timestamp": t, "typeId": 1, "metricId": 2, "value": 3} for t in (5, 400 * DAY)],
    }
    part = read(tmp_path, GOOD, CUPTI_ACTIVITY_KIND_RUNTIME=calls, NVTX_EVENTS=ranges, **metrics)
    assert spans(part, HOST_RANGES) == [(100, 800), (900, 950), (2900, 2900)]
    launches = [r["launch_start"] for r in part.table(GPU_OPS).to_pylist()]
    assert launches == [UTC + 900, None, UTC + 2900, None, None]
    assert part.table(COUNTERS).num_rows == 1
    source = part.meta.source
    assert (source.facts["events_far_away"], source.facts["counter_samples_left_out"]) == ("2", "1")
    assert (source.facts["negative_durations"], source.dropped) == ("1", 3)
    assert [m["series"] for m in part.table(tv.schema.STEP_MARKS).to_pylist()] == ["step"]


def test_the_counts_reach_the_verdict(tmp_path: Path) -> None:
    kernels = [kernel(1000 * i, 1000 * i + 900, 10, i) for i in range(1, 60)]
    odd = [kernel(2**62 - 1, 5, 10, 9), kernel(2950, 3 * DAY, 10, 9), kernel(4950, 4000, 10, 9)]
    path = write_sqlite(tmp_path / "x.sqlite", NAMES | {"CUPTI_ACTIVITY_KIND_KERNEL": [*kernels, *odd]})
    quality = tv.analyze(tv.open(path, cache=False)).quality
    assert (quality.dropped, quality.repaired, quality.clipped_overflows) == (1, 2, 1)


def test_judge() -> None:
    import numpy as np

    times = Times(-100, 10_000_000_000, 1000)
    start = np.array([0, 5, 5, 5, 3_000_000_000, 5, 2**61], np.int64)
    end = np.array([9, 4, -(2**62), 2_000_000_000, 3_000_000_001, 2**61, 2**61], np.int64)
    stop, verdict, cut = times.judge(start, end)
    assert verdict.tolist() == [FINE, NEGATIVE, OPEN, OVER, FAR, FAR, LOST]
    assert stop.tolist()[:4] == [9, 5, 5, 1000]
    counts = Counts()
    counts.take(verdict, cut)
    assert (counts.events, counts.repaired, counts.dropped, counts.cut_ns) == (7, 3, 3, 2_000_000_000 - 1000)


def test_nothing_to_learn_from() -> None:
    class Empty:
        def ends(self, table: str, wanted: object, rows: int) -> list[tuple[object, ...]]:
            return []

    assert learn(Empty(), [("T",)], 5) == (Times(), [])  # type: ignore[arg-type]
