"""The exclusive decomposition: its invariants (METHODS a.1, a.3, a.5, j) and an instant-by-instant reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brute import Brute
from tiny import EMPTY_HOST, MAIN, gpu, host
from traceview.analysis.decompose import RankRecord, decompose
from traceview.analysis.ops import HOST_DEVICE, NONE
from traceview.analysis.phases import ACTIVE, CODE, LEAF_OF, PHASES, coactivity_name
from traceview.analysis.types import NXN, P2P, TRANSFER, UNRESOLVED, Decomposition, OpPhases, Windows
from traceview.config import DEFAULT
from traceview.errors import TraceviewError
from traceview.schema import LEAVES, SUB_LEAVES

SMALL = replace(
    DEFAULT, launch_tau_min_ns=10, launch_tau_max_ns=50, sync_refill_max_ns=100, negative_launch_share=1.0
)
END = 300
CLASSES = ["compute", "gpu_opaque", "comm", "pcie_d2h", "pcie_h2d", "gpu_d2d", "gpu_memset", "gpu_other", "peer_copy"]
Op = dict[str, Any]


def phases_of(ops: list[Op]) -> OpPhases:
    """Phases by row of ``gpu(*ops)``: the collectives row of an operation is its own number."""
    rows = sorted(ops, key=lambda o: (o.get("device", 0), o["s"], o["e"]))
    comm = [o["cls"] == "comm" and "L" in o for o in rows]
    return OpPhases(
        row=np.array([i if c else -1 for i, c in enumerate(comm)], np.int64),
        wait_end=np.array([o["L"] if c else NONE for o, c in zip(rows, comm, strict=True)], np.int64),
        second=np.array([TRANSFER if o.get("second") == "transfer" else UNRESOLVED for o in rows], np.int8),
        sub=np.array([o.get("sub", NXN) for o in rows], np.int8),
    )


def windows(*bounds: int, device: int = 0, used: list[bool] | None = None) -> Windows:
    n = len(bounds) - 1
    zeros = np.zeros(n, np.int64)
    step = np.arange(n)
    chosen = np.array(used, np.bool_) if used else np.ones(n, np.bool_)
    return Windows(zeros, zeros + device, step, np.array(bounds[:-1]), np.array(bounds[1:]), chosen)


def run(
    ops: list[Op], ranges: Any = EMPTY_HOST, w: Windows | None = None, config: Any = SMALL, **more: Any
) -> Decomposition:
    record = RankRecord(0, gpu(*ops), ranges, phases_of(ops), **({"cover": (0, END)} | more))
    (one,), _ = decompose(record, windows(0, END) if w is None else w, config)
    return one


def leaves(one: Decomposition, i: int = 0) -> dict[str, int]:
    return {leaf: int(ns) for leaf, ns in zip(LEAVES, one.leaves[i], strict=True) if ns}


# --- strategies


@st.composite
def operation(draw: Any) -> Op:
    start = draw(st.integers(0, END - 5))
    end = min(start + draw(st.integers(0, 60)), END)
    op: Op = {"cls": draw(st.sampled_from(CLASSES)), "s": start, "e": end, "thread": draw(st.sampled_from([MAIN, 2]))}
    op["ls"] = draw(st.none() | st.integers(-20, end))
    if op["cls"] == "comm" and draw(st.booleans()):
        op |= {"L": draw(st.integers(start, end)), "second": draw(st.sampled_from(["transfer", "unresolved"]))}
        op["sub"] = draw(st.sampled_from([NXN, P2P]))
    if op["cls"].startswith("pcie"):
        op["mem"] = draw(st.sampled_from(["pageable", "pinned", "unknown", None]))
    return op


@st.composite
def host_range(draw: Any) -> tuple[Any, ...]:
    start = draw(st.integers(-10, END))
    kind = draw(st.sampled_from(["data", "sync", "host_comm", "runtime", "op", "annotation", "overhead", "python"]))
    return kind, start, start + draw(st.integers(0, 80)), draw(st.sampled_from([MAIN, 2, 3])), kind


ops_strategy = st.lists(operation(), min_size=1, max_size=12)
host_strategy = st.lists(host_range(), max_size=8)
cuts = st.lists(st.integers(0, END), max_size=3).map(sorted)


# --- against the reference


@settings(max_examples=100, deadline=None)
@given(ops_strategy, host_strategy, st.lists(st.tuples(st.integers(0, END), st.integers(1, 40)), max_size=2))
def test_equals_the_instant_by_instant_reference(
    ops: list[Op], ranges: list[tuple[Any, ...]], lost: list[tuple[int, int]]
) -> None:
    holes = [(s, min(s + n, END)) for s, n in lost]
    reference = [o if "L" in o or o["cls"] != "comm" else o | {"L": o["s"], "second": "unresolved"} for o in ops]
    brute = Brute(reference, ranges, 0, END, holes)
    want: dict[str, int] = {}
    for t in range(END):
        want[brute.leaf(t)] = want.get(brute.leaf(t), 0) + 1
    assert leaves(run(ops, host(*ranges), holes=holes)) == want


# --- invariants


@settings(max_examples=50, deadline=None)
@given(ops_strategy, host_strategy, cuts)
def test_everything_sums_exactly(ops: list[Op], ranges: list[tuple[Any, ...]], inner: list[int]) -> None:
    w = windows(0, *inner, END)
    one = run(ops, host(*ranges), w)
    length = w.end[one.window] - w.start[one.window]
    assert np.array_equal(one.leaves.sum(axis=1), length)
    assert np.array_equal(one.coactivity.sum(axis=1), length)
    for leaf in {s.partition(".")[0] for s in SUB_LEAVES}:
        subs = [i for i, s in enumerate(SUB_LEAVES) if s.partition(".")[0] == leaf]
        assert np.array_equal(one.sub[:, subs].sum(axis=1), one.leaves[:, LEAVES.index(leaf)])
    for cause in ("idle_data", "idle_sync", "idle_host", "idle_launch", "idle_unknown"):
        total = sum((c.ns for c in one.idle if c.leaf == cause), np.zeros(len(length), np.int64))
        assert np.array_equal(total, one.leaves[:, LEAVES.index(cause)])
    shown = ["comm_transfer", "comm_unresolved", "pcie_d2h", "pcie_h2d"]
    assert one.exposed.sum() == one.leaves[:, [LEAVES.index(x) for x in shown]].sum()
    assert (one.waits.end - one.waits.start).sum() == one.leaves[:, LEAVES.index("comm_wait")].sum()


@settings(max_examples=50, deadline=None)
@given(ops_strategy, host_strategy, cuts)
def test_priority_is_a_lookup_in_the_coactivity_table(
    ops: list[Op], ranges: list[tuple[Any, ...]], inner: list[int]
) -> None:
    one = run(ops, host(*ranges), windows(0, *inner, END))
    compute = (one.masks & (1 << CODE["compute.plain"])) != 0
    assert np.array_equal(one.coactivity[:, compute].sum(axis=1), one.companions["compute_busy"])
    assert np.array_equal(one.leaves[:, LEAVES.index("compute")], one.companions["compute_busy"])
    assert (one.masks & ~ACTIVE == 0).all()


@settings(max_examples=50, deadline=None)
@given(ops_strategy, host_strategy, st.integers(-(10**18), 10**18))
def test_a_shift_of_all_times_changes_nothing(ops: list[Op], ranges: list[tuple[Any, ...]], by: int) -> None:
    moved = [{k: v + by if k in ("s", "e", "ls", "L") and v is not None else v for k, v in o.items()} for o in ops]
    later = [(k, s + by, e + by, *rest) for k, s, e, *rest in ranges]
    shifted = run(moved, host(*later), windows(by, END + by), cover=(by, END + by))
    assert leaves(shifted) == leaves(run(ops, host(*ranges)))


@settings(max_examples=50, deadline=None)
@given(ops_strategy, host_strategy, st.randoms())
def test_order_of_rows_and_numbers_of_streams_change_nothing(
    ops: list[Op], ranges: list[tuple[Any, ...]], random: Any
) -> None:
    base = run(ops, host(*ranges))
    table, phases = gpu(*ops), phases_of(ops)
    order = list(range(len(ops)))
    random.shuffle(order)
    rows = np.array(order)
    streams = table.set_column(
        table.schema.get_field_index("stream"), table.schema.field("stream"), [[random.randrange(99) for _ in ops]]
    )
    shuffled = OpPhases(phases.row[rows], phases.wait_end[rows], phases.second[rows], phases.sub[rows])
    record = RankRecord(0, streams.take(rows), host(*ranges), shuffled, cover=(0, END))
    (one,), _ = decompose(record, windows(0, END), SMALL)
    assert np.array_equal(one.leaves, base.leaves)
    assert np.array_equal(one.sub, base.sub)


@settings(max_examples=50, deadline=None)
@given(ops_strategy, host_strategy, st.data())
def test_splitting_an_operation_changes_nothing(ops: list[Op], ranges: list[tuple[Any, ...]], data: Any) -> None:
    i = data.draw(st.integers(0, len(ops) - 1))
    op = ops[i]
    at = data.draw(st.integers(op["s"], op["e"]))
    first, second = op | {"e": at}, op | {"s": at}
    if "L" in op:
        first, second = first | {"L": min(op["L"], at)}, second | {"L": max(op["L"], at)}
    split = [*ops[:i], first, second, *ops[i + 1 :]]
    assert leaves(run(split, host(*ranges))) == leaves(run(ops, host(*ranges)))


@settings(max_examples=50, deadline=None)
@given(ops_strategy, host_strategy, st.data())
def test_lengthening_a_compute_kernel_never_raises_idle(
    ops: list[Op], ranges: list[tuple[Any, ...]], data: Any
) -> None:
    ops = [{"cls": "compute", "s": 50, "e": 60, "ls": 40, "thread": MAIN}, *ops]
    longer = [ops[0] | {"e": data.draw(st.integers(60, END))}, *ops[1:]]
    # a merged gap may see more data loading: data comes before a host collective, so look without those
    ranges = [r for r in ranges if r[0] != "host_comm"]
    idle = [i for i, leaf in enumerate(LEAVES) if leaf.startswith("idle_")]
    assert run(longer, host(*ranges)).leaves[:, idle].sum() <= run(ops, host(*ranges)).leaves[:, idle].sum()


@settings(max_examples=50, deadline=None)
@given(ops_strategy, host_strategy, cuts)
def test_windows_only_cut(ops: list[Op], ranges: list[tuple[Any, ...]], inner: list[int]) -> None:
    whole, cut = run(ops, host(*ranges)), run(ops, host(*ranges), windows(0, *inner, END))
    assert np.array_equal(cut.leaves.sum(axis=0), whole.leaves[0])


@settings(max_examples=50, deadline=None)
@given(ops_strategy)
def test_a_wait_piece_belongs_to_the_waiting_operation_with_the_latest_end_of_waiting(ops: list[Op]) -> None:
    one = run(ops)
    rows = sorted(ops, key=lambda o: (o["s"], o["e"]))
    for s, e, row in zip(one.waits.start.tolist(), one.waits.end.tolist(), one.waits.row.tolist(), strict=True):
        assert rows[row]["s"] <= s < e <= rows[row]["L"]
        rivals = [o["L"] for o in rows if "L" in o and o["sub"] == rows[row]["sub"] and o["s"] <= s < o["L"]]
        assert rows[row]["L"] == max(rivals)


# --- single facts


def test_segments_are_the_leaves_in_time_order() -> None:
    ops = [{"cls": "compute", "s": 10, "e": 50, "ls": None}, {"cls": "gpu_memset", "s": 40, "e": 70, "ls": None}]
    one = run(ops)
    assert one.segments.bounds.tolist() == [0, 10, 50, 70, END]
    names = [LEAVES[LEAF_OF[p]] for p in one.segments.phase]
    assert names == ["idle_unknown", "compute", "gpu_memset", "idle_unknown"]


def test_coactivity_names_leaves_once_in_priority_order() -> None:
    both = 1 << CODE["comm_transfer.nxn"] | 1 << CODE["comm_transfer.p2p"] | 1 << CODE["compute.plain"]
    assert coactivity_name(both) == "compute+comm_transfer"
    assert coactivity_name(0) == ""


def test_fused_kernels_and_memory_kinds_are_sub_leaves() -> None:
    ops = [
        {"cls": "compute", "s": 0, "e": 10, "ls": None, "fused": True},
        {"cls": "pcie_d2h", "s": 10, "e": 30, "ls": None, "mem": "pageable"},
        {"cls": "pcie_d2h", "s": 20, "e": 40, "ls": None, "mem": "pinned"},
        {"cls": "pcie_h2d", "s": 40, "e": END, "ls": None},
    ]
    sub = {s: int(ns) for s, ns in zip(SUB_LEAVES, run(ops).sub[0], strict=True) if ns}
    assert sub == {
        "compute.fused_comm": 10,
        "pcie_d2h.pageable": 20,
        "pcie_d2h.pinned": 10,
        "pcie_h2d.unknown": END - 40,
    }


def test_peer_copy_is_transfer_and_shares_its_exposure_with_kernels() -> None:
    ops = [
        {"cls": "comm", "s": 0, "e": 200, "ls": None, "L": 0, "second": "transfer", "sub": P2P},
        {"cls": "peer_copy", "s": 100, "e": END, "ls": None},
    ]
    one = run(ops)
    assert leaves(one) == {"comm_transfer": END}
    assert one.exposed.tolist() == [100, 200]


def test_exposed_time_counts_used_windows_only() -> None:
    ops = [{"cls": "pcie_h2d", "s": 0, "e": END, "ls": None}]
    assert run(ops, w=windows(0, 100, END, used=[False, True])).exposed.tolist() == [200]


def test_two_devices_are_decomposed_on_their_own() -> None:
    ops = [
        {"cls": "compute", "s": 0, "e": 100, "ls": None},
        {"cls": "compute", "s": 0, "e": END, "ls": None, "device": 1},
    ]
    zeros = np.zeros(2, np.int64)
    w = Windows(zeros, np.array([0, 1]), zeros, zeros, zeros + END, zeros == 0)
    record = RankRecord(0, gpu(*ops), EMPTY_HOST, phases_of(ops), cover=(0, END))
    first, second = decompose(record, w, SMALL)[0]
    assert (first.device, second.device) == (0, 1)
    assert leaves(first) == {"compute": 100, "idle_unknown": 200}
    assert leaves(second) == {"compute": END}


def test_rank_without_gpu_is_one_gap_that_its_step_thread_explains() -> None:
    ranges = host(("data", 0, 50), ("op", 40, 120), ("host_comm", 100, 160, 9), ("op", 200, 250, 5))
    record = RankRecord(0, gpu(), ranges, phases_of([]), cover=(0, END), thread=MAIN)
    (one,), axis = decompose(record, windows(0, 150, END, device=HOST_DEVICE), SMALL)
    assert leaves(one, 0) == {"idle_data": 50, "idle_host": 50, "comm_host": 50}
    assert leaves(one, 1) == {"comm_host": 10, "idle_unknown": 140}
    assert (axis.launches, axis.negative) == (0, 0)
    assert {c.leaf: c.names for c in one.idle}["idle_data"] == ["data"]


def test_mixed_clocks_in_one_file_are_an_error() -> None:
    ops = [
        {"cls": "compute", "s": 0, "e": 1, "ls": None},
        {"cls": "compute", "s": 10**18, "e": 10**18 + 1, "ls": None},
    ]
    with pytest.raises(TraceviewError, match="mixes two clocks"):
        run(ops)


def test_every_phase_has_a_leaf_in_the_order_of_the_leaves_where_gpu_work_decides() -> None:
    order = [LEAVES[leaf] for leaf in LEAF_OF]
    assert set(order) == set(LEAVES)
    gpu_leaves = [leaf for leaf in dict.fromkeys(order) if not leaf.startswith("idle_")]
    assert gpu_leaves == [leaf for leaf in LEAVES if not leaf.startswith("idle_")]
    assert len(PHASES) <= 62
