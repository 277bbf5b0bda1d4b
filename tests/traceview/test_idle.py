"""Why the GPU was idle (METHODS a.5), and what launches tell of the clocks. Times are microseconds here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tiny import MAIN, gpu, host
from traceview.analysis.decompose import RankRecord, decompose
from traceview.analysis.launches import LaunchAxis, launch_axis
from traceview.analysis.ops import NONE, Ops
from traceview.analysis.types import Decomposition, OpPhases, Windows
from traceview.config import DEFAULT
from traceview.schema import LEAVES

US = 1_000
OTHER = 2


@dataclass
class Gap:
    """One idle gap [100, ``until``) between two kernels, the second launched at ``ls`` by ``thread``."""

    until: int
    ls: int | None
    thread: int = MAIN
    cls: str = "compute"
    more: tuple[dict[str, Any], ...] = ()

    def run(self, *ranges: tuple[Any, ...], holes: tuple[tuple[int, int], ...] = ()) -> Decomposition:
        ops = [
            {"cls": "compute", "s": 0, "e": 100, "ls": -5},
            {"cls": self.cls, "s": self.until, "e": self.until + 1, "ls": self.ls, "thread": self.thread},
            *self.more,
        ]
        ops = [{k: v * US if k in ("s", "e", "ls") and v is not None else v for k, v in o.items()} for o in ops]
        n = len(ops)
        phases = OpPhases(np.full(n, -1), np.full(n, NONE), np.ones(n, np.int8), np.zeros(n, np.int8))
        table = host(*((k, s * US, e * US, *rest) for k, s, e, *rest in ranges))
        end = max(self.until + 1, *(o["e"] // US for o in ops))
        zero = np.zeros(1, np.int64)
        window = Windows(zero, zero, zero, zero, zero + end * US, zero == 0)
        lost = [(s * US, e * US) for s, e in holes]
        (one,), _ = decompose(RankRecord(0, gpu(*ops), table, phases, (0, end * US), lost), window)
        return one


def idle(one: Decomposition) -> dict[str, float]:
    """Idle leaves and comm_host of the window in µs, with tags."""
    tagged = {f"{c.leaf}:{c.tag}" if c.tag else c.leaf: int(c.ns[0]) / US for c in one.idle}
    other = {leaf: int(one.leaves[0, LEAVES.index(leaf)]) / US for leaf in ("comm_host", "uncovered")}
    return tagged | {leaf: us for leaf, us in other.items() if us}


BUSY = ("op", 90, 500)


def test_gap_is_host_time_until_the_launch_and_latency_after_it() -> None:
    assert idle(Gap(150, 144).run(BUSY)) == {"idle_host": 44, "idle_launch": 6}


def test_latency_above_tau_is_queued() -> None:
    one = Gap(260, 160, more=({"cls": "compute", "s": 300, "e": 301, "ls": 299},)).run(BUSY)
    assert one.tau_ns == 50 * US  # twice the median of 100 and 1 is 101
    assert idle(one) == {"idle_host": 60 + 38, "idle_launch": 50 + 1, "idle_unknown:queued": 50}


def test_tau_follows_the_rank() -> None:
    assert Gap(150, 144).run(BUSY).tau_ns == 12 * US
    assert Gap(150, 149).run(BUSY).tau_ns == 10 * US


@pytest.mark.parametrize(("until", "want"), [(110, {"idle_launch": 10}), (111, {"idle_unknown:queued": 11})])
def test_work_that_was_queued_before_a_short_or_a_long_gap(until: int, want: dict[str, float]) -> None:
    assert idle(Gap(until, 60).run(BUSY)) == want


def test_queued_peer_copy_may_be_a_copy_engine_collective() -> None:
    assert idle(Gap(180, 60, cls="peer_copy").run(BUSY)) == {"idle_unknown:queued:comm?": 80}


def test_unknown_launch_is_unknown_idle() -> None:
    assert idle(Gap(150, None).run(BUSY)) == {"idle_unknown": 50}


def test_latest_launch_decides_among_operations_that_start_together() -> None:
    early = {"cls": "compute", "s": 150, "e": 151, "ls": 50}
    assert idle(Gap(150, 144, more=(early,)).run(BUSY)) == {"idle_host": 44, "idle_launch": 6}


def test_zero_length_operation_never_ends_a_gap() -> None:
    marker = {"cls": "compute", "s": 120, "e": 120, "ls": 110}
    assert idle(Gap(150, 144, more=(marker,)).run(BUSY)) == {"idle_host": 44, "idle_launch": 6}


def test_order_of_causes_on_the_launching_thread() -> None:
    one = Gap(200, 195).run(BUSY, ("data", 110, 120), ("host_comm", 115, 130), ("sync", 125, 140))
    # 140: the blocking call returns; the refill lasts until the launch
    assert idle(one) == {
        "idle_host": 10,
        "idle_data": 10,
        "comm_host": 10,
        "idle_sync": 10,
        "idle_sync:refill": 55,
        "idle_launch": 5,
    }


def test_host_collective_on_any_thread_counts_also_in_launch_latency() -> None:
    one = Gap(150, 144).run(BUSY, ("host_comm", 120, 148, OTHER))
    assert idle(one) == {"idle_host": 20, "comm_host": 28, "idle_launch": 2}


@pytest.mark.parametrize(
    ("stop", "refill"),
    [
        ([], 500 - 105),  # nothing stops it before the launch
        ([("data", 130, 140)], 25),
        ([("host_comm", 130, 140, OTHER)], 25),
        ([("data", 104, 108)], 0),  # loading when the call returns
    ],
)
def test_refill_ends_with_the_first_of_launch_data_and_host_collective(
    stop: list[tuple[Any, ...]], refill: int
) -> None:
    one = Gap(505, 500).run(("sync", 90, 105), ("op", 90, 600), *stop)
    assert idle(one).get("idle_sync:refill", 0) == refill


def test_refill_ends_with_another_launch() -> None:
    side = {"cls": "compute", "s": 110, "e": 110, "ls": 108}
    one = Gap(205, 200, more=(side,)).run(("sync", 90, 105), ("op", 90, 600))
    assert idle(one) == {"idle_sync": 5, "idle_sync:refill": 3, "idle_host": 92, "idle_launch": 5}


def test_refill_lasts_a_millisecond_at_most() -> None:
    one = Gap(3005, 3000).run(("sync", 90, 105), ("op", 90, 4000))
    assert idle(one) == {"idle_sync": 5, "idle_sync:refill": 1000, "idle_host": 1895, "idle_launch": 5}


def test_call_that_returned_before_the_gap_refills_nothing() -> None:
    assert "idle_sync:refill" not in idle(Gap(150, 144).run(("sync", 20, 99), BUSY))


def test_other_launching_threads_speak_where_the_launching_thread_is_silent() -> None:
    autograd = {"cls": "compute", "s": 400, "e": 401, "ls": 399, "thread": OTHER}
    one = Gap(399, 390, more=(autograd,)).run(("op", 90, 150), ("op", 140, 300, OTHER), ("op", 90, 400, 77))
    assert idle(one) == {"idle_host": 200, "idle_unknown": 90, "idle_launch": 9}


def test_annotations_and_profiler_overhead_are_no_host_activity() -> None:
    one = Gap(150, 144).run(("annotation", 0, 200), ("overhead", 0, 200))
    assert idle(one) == {"idle_unknown": 44, "idle_launch": 6}


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("cudaMalloc", "alloc"),
        ("hipFree", "alloc"),
        ("cudaHostAlloc", "alloc"),
        ("cuModuleLoadData", "module_load"),
        ("cuLibraryLoadData", "module_load"),
        ("Python GC: gc generation 2", "gc"),
        ("compile_fx_inner", "compile"),
        ("aten::mm", ""),
        ("Torch-Compiled Region: 0/1", ""),
    ],
)
def test_host_time_with_a_name_of_its_own(name: str, tag: str) -> None:
    one = Gap(150, 144).run(("op", 90, 150, MAIN, "step"), ("runtime", 110, 120, MAIN, name))
    want = {"idle_host": 34, f"idle_host:{tag}": 10} if tag else {"idle_host": 44}
    assert idle(one) == want | {"idle_launch": 6}
    if tag:
        assert next(c.names for c in one.idle if c.tag == tag) == [name]


def test_names_of_a_cause_are_those_that_cover_most_of_it() -> None:
    one = Gap(200, 195).run(
        ("op", 100, 190, MAIN, "long"), ("op", 190, 195, MAIN, "short"), ("op", 0, 90, MAIN, "before")
    )
    assert next(c.names for c in one.idle if c.leaf == "idle_host") == ["long", "short"]


def test_what_was_not_recorded_is_uncovered_and_no_data_loading() -> None:
    one = Gap(200, 195).run(BUSY, ("data", 110, 150), holes=((130, 170),))
    assert idle(one) == {"idle_host": 10 + 25, "idle_data": 20, "uncovered": 40, "idle_launch": 5}


# --- launches against executions


def axis_of(*latencies: int) -> LaunchAxis:
    ops = gpu(
        *({"cls": "compute", "s": 100 * i, "e": 100 * i + 9, "ls": 100 * i - n} for i, n in enumerate(latencies))
    )
    return launch_axis(Ops.of(ops), DEFAULT)


def test_one_negative_launch_in_a_hundred_is_only_counted() -> None:
    assert axis_of(-3, *[7] * 99) == LaunchAxis(launches=100, unmatched=0, negative=1, host_shift=0)


def test_many_negative_launches_move_the_host_axis_by_the_first_percentile() -> None:
    found = axis_of(*range(-25, 175))
    assert found.negative == 25
    assert found.host_shift == -24  # 200 latencies: the second smallest, so 1 in 200 stays negative


def test_records_without_launch_are_counted() -> None:
    ops = gpu({"cls": "compute", "s": 0, "e": 1}, {"cls": "compute", "s": 2, "e": 3, "ls": 0})
    assert launch_axis(Ops.of(ops), DEFAULT) == LaunchAxis(1, 1, 0, 0)


def test_shifted_host_axis_moves_host_ranges_with_the_launches() -> None:
    # every launch is stamped 25 µs late, and so is the data loading
    ops = [{"cls": "compute", "s": t * US, "e": (t + 40) * US, "ls": (t - 5 + 25) * US} for t in (0, 100, 200)]
    n = len(ops)
    phases = OpPhases(np.full(n, -1), np.full(n, NONE), np.ones(n, np.int8), np.zeros(n, np.int8))
    zero = np.zeros(1, np.int64)
    window = Windows(zero, zero, zero, zero, zero + 240 * US, zero == 0)
    ranges = host(("data", 75 * US, 125 * US))
    (one,), axis = decompose(RankRecord(0, gpu(*ops), ranges, phases, (0, 240 * US)), window)
    assert (axis.negative, axis.host_shift) == (3, -20 * US)
    assert idle(one) == {"idle_data": 45, "idle_unknown": 60 + 15}
