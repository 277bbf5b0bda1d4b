"""A result beside its baseline: what slows all ranks alike shows in no other way."""

from __future__ import annotations

from traceview.config import DEFAULT
from traceview.pipeline.against import against
from traceview.result import Finding, KernelRow, Result

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
