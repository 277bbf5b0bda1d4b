"""Two sides side by side: parts that sum to the change, and what must not be compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.compare import compare
from traceview.errors import NotComparableError, TraceviewError
from traceview.result import CollectiveRow, Finding, KernelRow, Result, Source
from traceview.schema import LEAVES

from .results import MS, result, window


def job(ranks: int = 2, **leaves_ms: float) -> Result:
    """Three steps of the same windows."""
    return result([window(r, k, **leaves_ms) for r in range(ranks) for k in (1, 2, 3)])


def kernel(name: str, count: int, total_ms: float) -> KernelRow:
    ns = int(total_ms * MS)
    return KernelRow(name, "compute", count, ns, ns // count, ns // count, 2)


def test_the_parts_sum_to_the_change():
    got = compare([job(compute=70, comm_wait__nxn=10)], [job(compute=75, comm_wait__nxn=30, idle_data=1)])
    by_name = {g.name: g.delta_ns for g in got.groups}
    assert by_name["compute"] == 5 * MS and by_name["straggler wait"] == 20 * MS and by_name["idle"] == MS
    assert [g.name for g in got.groups[:3]] == ["straggler wait", "compute", "idle"]
    assert sum(x.delta_ns for x in got.leaves) == got.candidate_mean_ns - got.baseline_mean_ns == 26 * MS
    assert (got.baseline_step_ns, got.candidate_step_ns) == (80 * MS, 106 * MS)


windows = st.lists(
    st.builds(
        lambda rank, step, a, b, c: window(rank, step, compute=a, comm_wait__nxn=b, comm_wait__p2p=c),
        st.integers(0, 3), st.integers(0, 5), *[st.floats(0.001, 90)] * 3,
    ),
    min_size=1, max_size=7, unique_by=lambda w: (w.rank, w.step),
)  # fmt: skip


@given(windows, windows)
def test_sums_are_exact(base, other):
    """Means are rounded so that leaves and groups both sum to the change of the mean step, to the nanosecond."""
    got = compare([result(base)], [result(other)], allow_different=True)
    total = got.candidate_mean_ns - got.baseline_mean_ns
    for parts in (got.leaves, got.groups):
        assert sum(p.delta_ns for p in parts) == total
        assert all(p.candidate_ns - p.baseline_ns == p.delta_ns for p in parts)
    assert {p.name for p in got.leaves} == set(LEAVES)
    back = compare([result(other)], [result(base)], allow_different=True)
    assert {p.name: -p.delta_ns for p in back.leaves} == {p.name: p.delta_ns for p in got.leaves}


def test_a_mean_between_two_nanoseconds_is_rounded_once():
    """Sums of floats, over leaves and over groups, fell on either side of a half."""
    stretches = [(2.0, 43.0, 2.0), (1.0, 0.328125, 80.84375), (1.0, 32.34375, 51.515625)]
    stretches += [(1.5, 1.0736516794994877, 14.00390625), (1.7102228461604128, 1.001, 83.79263000335138)]
    stretches += [(1.0, 44.515625, 58.955078125)]
    other = [window(0, i, compute=a, comm_wait__nxn=b, comm_wait__p2p=c) for i, (a, b, c) in enumerate(stretches)]
    got = compare([job(compute=1)], [result(other)], allow_different=True)
    total = got.candidate_mean_ns - got.baseline_mean_ns
    assert sum(p.delta_ns for p in got.leaves) == sum(p.delta_ns for p in got.groups) == total


def test_kernels_tell_more_work_from_longer_work():
    base, other = job(compute=10), job(compute=12)
    base.kernels = [kernel("same", 6, 6), kernel("longer", 6, 6), kernel("more", 6, 6), kernel("gone", 6, 3)]
    other.kernels = [kernel("same", 6, 6), kernel("longer", 6, 12), kernel("more", 18, 18), kernel("new", 6, 60)]
    got = {k.name: (k.delta_ns, k.more_ns, k.longer_ns) for k in compare([base], [other]).kernels}
    assert got == {
        "new": (10 * MS, 10 * MS, 0),
        "more": (2 * MS, 2 * MS, 0),
        "longer": (MS, 0, MS),
        "gone": (-MS // 2, -MS // 2, 0),
    }


def test_communication_is_compared_without_its_waits():
    base, other = job(compute=10), job(compute=10)
    for side, transfer in ((base, 6), (other, 12)):
        row = CollectiveRow("dp", "allreduce", "1-2 MiB", 3, 3, 99 * MS, transfer * MS, 0, group_size=2)
        side.collective_rows = [row]
        side.kernels = [KernelRow("ncclKernel", "comm", 6, 500 * MS, 1, 1, 2)]
    got = compare([base], [other])
    assert got.kernels == []
    assert [(c.name, c.delta_ns, c.longer_ns) for c in got.collectives] == [("allreduce of dp, 1-2 MiB", MS, MS)]


def test_findings_that_are_new_or_gone():
    base, other = job(compute=10), job(compute=10)
    base.findings = [Finding("a", "A", 1, "", "", [], ""), Finding("b", "B", 1, "", "", [], "")]
    other.findings = [Finding("b", "B, worse", 2, "", "", [], ""), Finding("c", "C", 1, "", "", [], "")]
    got = compare([base], [other])
    assert (got.found, got.gone) == (["C"], ["A"])


def test_several_runs_of_a_side_are_averaged():
    got = compare([job(compute=10), job(compute=20)], [job(compute=15)])
    assert got.baseline_mean_ns == got.candidate_mean_ns == 15 * MS
    assert got.baseline == "job and 1 more"


@pytest.mark.parametrize("what", ["world size", "GPU", "with_stack", "trace format"])
def test_what_differs_in_kind_is_not_compared(what: str):
    base, other = job(compute=10), job(compute=10)
    source = {"path": "x", "schema_class": "D2", "rank": 0, "bytes": 1, "events": 1, "repaired": 0}
    source |= {"quarantined": 0, "dropped": 0, "truncated": False}
    base.run.sources = [Source(format="kineto", **source)]
    other.run.sources = [Source(format="kineto", facts={"with_stack": "1"} if what == "with_stack" else {}, **source)]
    if what == "world size":
        other.run.world_size = 4
    elif what == "GPU":
        other.run.device_names = ["NVIDIA B200"]
    elif what == "trace format":
        other.run.sources[0].format = "nsight"
    with pytest.raises(NotComparableError, match=what) as error:
        compare([base], [other])
    assert error.value.exit_code == 3 and "--allow-different" in str(error.value)
    assert any(what in d for d in compare([base], [other], allow_different=True).different)


def test_missing_and_cut_ranks_are_told():
    base, other = job(compute=10), job(compute=11)
    other.run.missing_ranks = [7]
    assert compare([base], [other]).notes == ["job: rank 7 is missing"]
    other.run.missing_ranks = [6, 7]
    assert compare([base], [other]).notes == ["job: ranks 6-7 are missing"]


def test_a_side_without_steps_is_refused():
    with pytest.raises(TraceviewError, match="no step could be measured"):
        compare([result([])], [job(compute=1)], allow_different=True)
