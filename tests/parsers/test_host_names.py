"""Names of host intervals -> kind and step marks."""

from __future__ import annotations

import pytest

from traceview.errors import TraceviewError
from traceview_parsers.host_names import HostNames, Mark, mark


@pytest.mark.parametrize(
    ("name", "plain", "kind"),
    [
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "annotation", "data"),
        ("## wait_for_training_batch ##", "annotation", "data"),
        ("## data ##", "annotation", "data"),
        ("DALIGenericIterator.__next__", "annotation", "data"),
        ("metadata", "annotation", "annotation"),
        ("my_loader", "annotation", "data"),
        ("aten::item", "op", "sync"),
        ("aten::mm", "op", "op"),
        ("cudaStreamSynchronize", "runtime", "sync"),
        ("hipMemcpyWithStream", "runtime", "sync"),
        ("cudaMemcpyAsync", "runtime", "runtime"),
        ("gloo:all_reduce", "annotation", "host_comm"),
        ("nccl:all_reduce", "annotation", "annotation"),
        ("ProfilerStep#5", "op", "annotation"),
    ],
)
def test_kind(name: str, plain: str, kind: str) -> None:
    assert HostNames.of(("^my_loader$",)).kind(name, plain) == kind


def test_a_pattern_that_is_none() -> None:
    with pytest.raises(TraceviewError, match="no regular expression"):
        HostNames.of(("(",))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ProfilerStep#12", Mark("profiler_step", "ProfilerStep", 12)),
        ("Optimizer.step#SGD.step", Mark("optimizer", "Optimizer.step#SGD.step", None)),
        ("execute_context_1(888_788544)_generation_0(0)", Mark("range", "execute_context", None)),
        ("step[EXTEND bs=1 toks=4]", Mark("range", "step[...]", None)),
        ("## forward ##", Mark("range", "## forward ##", None)),
        ("train step 7", Mark("range", "train step", 7)),
        ("iteration_12", Mark("range", "iteration", 12)),
        ("train#step_num=31#", Mark("range", "train#step_num", 31)),
        (
            "TSL:XlaModule:#prefix=jit(train_step)/x,hlo_module=jit_train_step,program_id=4#",
            Mark("range", "XlaModule step", None),
        ),
        ("[pl][profile]run_training_batch", Mark("range", "run_training_batch", None)),
        ("MegatronGPTModel.training_step", Mark("range", "training_step", None)),
        ("PipelineEngine.train_batch", Mark("range", "training_step", None)),
        ("optimizer_step", Mark("optimizer", "optimizer_step", None)),
        ("DeepSpeedEngine.step", Mark("optimizer", "DeepSpeedEngine.step", None)),
        (
            "[pl][profile][LightningModule]Lit.optimizer_step",
            Mark("optimizer", "[pl][profile][LightningModule]Lit.optimizer_step", None),
        ),
        ("ChainedOptimizer.step", Mark("optimizer", "ChainedOptimizer.step", None)),
        ("Optimizer.zero_grad#SGD.zero_grad", None),
        ("## backward ##", None),
        ("layer 3", None),
        ("ProfilerStep#" + "9" * 5000, Mark("profiler_step", "ProfilerStep", None)),
        ("iteration " + "9" * 19, Mark("range", "iteration", None)),
    ],
)
def test_mark(name: str, expected: Mark | None) -> None:
    assert mark(name) == expected
