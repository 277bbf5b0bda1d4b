"""The recorded environment: settings that cost time, settings that differ, advice in the words of the tool."""

from __future__ import annotations

import pytest

from traceview.analysis.findings import settings
from traceview.analysis.findings.common import record_again
from traceview.config import DEFAULT
from traceview.result import Finding, Result, Source

from .results import result, window


def with_environments(*environments: dict[str, str], fmt: str = "nsight") -> Result:
    value = result([window(r, 0, compute=10) for r in range(len(environments))])
    value.run.sources = [
        Source(f"r{r}", fmt, "", r, 1, 1, 0, 0, 0, False, facts={f"env.{k}": v for k, v in e.items()} | {"nsys": "x"})
        for r, e in enumerate(environments)
    ]
    return value


def found(*environments: dict[str, str]) -> list[Finding]:
    return settings.find(with_environments(*environments), DEFAULT)


@pytest.mark.parametrize(
    ("name", "value", "slow"),
    [
        ("CUDA_LAUNCH_BLOCKING", "1", True),
        ("CUDA_LAUNCH_BLOCKING", "0", False),
        ("NCCL_P2P_DISABLE", "1", True),
        ("NCCL_MAX_NCHANNELS", "2", True),
        ("NCCL_MAX_NCHANNELS", "16", False),
        ("NCCL_DEBUG", "INFO", False),
        ("NCCL_DEBUG_SUBSYS", "INIT,COLL", True),
        ("NCCL_ALGO", "Ring", True),
        ("OMP_NUM_THREADS", "8", False),
    ],
)
def test_slow_values(name: str, value: str, slow: bool) -> None:
    said = found({name: value})
    assert [f.id for f in said] == (["slow-settings"] if slow else [])
    assert not slow or said[0].evidence[0].startswith(f"{name}={value}: ")


def test_what_differs_is_said_with_its_ranks_but_not_what_must_differ() -> None:
    said = found({"RANK": "0", "NCCL_NTHREADS": "256"}, {"RANK": "1"}, {"RANK": "2"})
    assert [f.id for f in said] == ["settings-differ"]
    assert said[0].evidence == ["NCCL_NTHREADS: 256 on rank 0, unset on ranks 1-2"]


def test_a_slow_value_on_some_ranks_names_them() -> None:
    said = found({"CUDA_LAUNCH_BLOCKING": "1", "RANK": "0"}, {"RANK": "1"})
    assert said[0].evidence[0].startswith("CUDA_LAUNCH_BLOCKING=1 (rank 0): ")


def test_no_environment_no_finding() -> None:
    assert found({}, {}) == []


def test_advice_names_the_tool_that_recorded() -> None:
    assert record_again(with_environments({})) == "nsys profile -t cuda,nvtx,osrt"
    assert record_again(with_environments({}, fmt="kineto")) == "activities=[CPU, CUDA]"
