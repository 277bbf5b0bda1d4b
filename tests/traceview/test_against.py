"""A result beside its baseline: what slows all ranks alike shows in no other way."""

from __future__ import annotations

from traceview.config import DEFAULT
from traceview.pipeline.against import against
from traceview.result import CollectiveRow, Finding, KernelRow, Metric, Result

from .results import MS, result, window


def job(compute_ms: float, wait_ms: float = 0.0, each_ms: float = 1.0) -> Result:
    """Six steps of two ranks."""
    made = result([window(r, k, compute=compute_ms, comm_wait__nxn=wait_ms) for r in (0, 1) for k in range(1, 7)])
    made.kernels = [KernelRow("gemm", "compute", 120, int(120 * each_ms * MS), int(each_ms * MS), 1, 2)]
    return made


def test_a_uniform_slowdown_is_a_finding():
    slow = job(110, each_ms=1.1)
    words = against(slow, [job(100)], DEFAULT)
    assert words == "10.0 % over the baseline job (100 ms)"
    (finding,) = slow.findings
    assert finding.saving_ns_per_step == 10 * MS and finding.owner == "hardware"
    assert any("gemm: +1.00 ms by taking longer, 0 by running more often" in e for e in finding.evidence)


def test_a_known_cause_is_not_told_twice():
    slow = job(100, wait_ms=20)
    slow.findings = [Finding("straggler", "rank 1 is late", 18 * MS, "", "proved", [], "")]
    assert "over the baseline" in against(slow, [job(100)], DEFAULT)
    assert [f.id for f in slow.findings] == ["straggler"]


def test_the_larger_finding_comes_first():
    slow = job(150)
    slow.findings = [Finding("host", "host", 9 * MS, "", "likely", [], "")]
    against(slow, [job(100)], DEFAULT)
    assert [f.id for f in slow.findings] == ["baseline", "host"]


def test_equal_and_faster_runs_have_no_finding():
    for ms, words in ((100, "as fast as the baseline job (100 ms)"), (80, "20.0 % under the baseline job (100 ms)")):
        got = job(ms)
        assert against(got, [job(100)], DEFAULT) == words
        assert got.findings == []


def test_another_kind_of_run_is_a_warning():
    got = job(110)
    got.run.world_size = 64
    assert against(got, [job(100)], DEFAULT) == ""
    assert "world size" in got.quality.warnings[0] and got.findings == []
    assert got.against is not None and "world size" in got.against.refused and got.against.comparison is None


def test_the_result_keeps_what_the_page_shows():
    base, slow = job(100), job(110)
    for made, goodput, busbw in ((base, 0.9, 200.0), (slow, 0.8, 150.0)):
        made.metrics = {
            "goodput": Metric(goodput, "fraction", 1, "", "proved"),
            "mfu": Metric(None if made is base else 0.4, "fraction", 1, "", "proved"),
        }
        row = CollectiveRow("dp", "allreduce", "1-2 MiB", 3, 3, 0, 6 * MS, 0, busbw=busbw)
        made.collective_rows = [row, CollectiveRow("dp", "broadcast", "1 KiB", 3, 3, 0, MS, 0)]
    against(slow, [base], DEFAULT)
    got = Result.from_json(slow.to_json()).against
    assert got is not None and got == slow.against and got.decision is not None and got.comparison is not None
    assert got.metrics == {"goodput": 0.9} and got.busbw == {"allreduce of dp, 1-2 MiB": 200.0}
    assert sum(g.delta_ns for g in got.comparison.groups) == 10 * MS
    assert got.decision.candidate.step_ns == [[110 * MS] * 6] and got.decision.outcome == "FAIL"
