"""What a host interval means, by its name: the one table that all formats share (METHODS a.5)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from traceview.errors import TraceviewError

# A thread in one of these waits for input data; searched, case-insensitive. ReadOptions.data_names adds to them.
DATA_NAMES = (
    r"DataLoader.*__next__|_(Single|Multi)ProcessDataLoaderIter",  # torch
    r"\bDALI\w*.*(next|outputs|run)|\bnvidia\.dali\b|daliShareOutput",  # NVIDIA DALI
    r"\bray\.data\b|\biter_(torch_)?batches\b",  # Ray Data
    r"\bStreamingData(Loader|set)\b",  # MosaicML Streaming
    r"\btf\.data\b|\bIteratorGetNext\b",  # tf.data
    r"\bgrain\b.*next|\bDataLoaderIterator\b",  # grain
    r"^[#\s]*(data|data[_ ]?load(ing|er)?|(get|next|fetch|load)[_ ]?(next[_ ]?)?batch|wait_for_(training_)?batch"
    r"|batch[-_ ]generator)[#\s]*$",  # hand-made ranges, '## data ##'
)
# The calling thread waits in these until the GPU has done its work.
_BLOCKING = ("StreamSynchronize", "DeviceSynchronize", "EventSynchronize", "Memcpy", "Memcpy2D", "Memcpy3D")
SYNC_NAMES = frozenset(
    [
        *(f"{api}{call}" for api in ("cuda", "hip") for call in _BLOCKING),
        *("cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize", "cudaThreadSynchronize"),
        *(
            f"{api}Memcpy{way}"
            for api in ("cu", "hip")
            for way in ("DtoH", "DtoH_v2", "HtoD", "HtoD_v2", "WithStream")
        ),
        *("cudaMemcpyToSymbol", "cudaMemcpyFromSymbol", "aten::item", "aten::_local_scalar_dense"),
        *("aclrtSynchronizeStream", "aclrtSynchronizeDevice", "aclrtSynchronizeEvent"),
    ]
)
# A collective that runs on the host.
HOST_COMM = re.compile(r"^(gloo|mpi|ucc):(\w+)")
# Ranges that merely enclose work, also where the format does not tell them from ops (torch 1.8-1.9).
ANNOTATION = re.compile(
    r"^(ProfilerStep#|Optimizer\.|DistributedDataParallel\.forward|nccl:|hccl:|rccl:|FSDP::|##.*##$)"
)
ALLOCATION = re.compile(
    r"^(cuda|hip|cu|hsa_?)(Malloc|Free|Mem(Alloc|Free|Create|Map|Unmap|Release|AddressReserve)|Host(Alloc|Malloc|Free|Register))"
)
# Calls kept even inside an op: they say why the host was slow.
TELLING = re.compile(ALLOCATION.pattern + r"|^(cuda|hip|cu)(Module|Library|Graph(Instantiate|ExecUpdate))")

# Calls that cannot put work on a GPU.
_NO_LAUNCH = re.compile(
    r"Get|Query|Occupancy|IsCapturing|Event|Synchronize|Malloc|Free|Attribute|SetDevice|Create|Destroy"
)


def may_launch(name: str) -> bool:
    """Whether a runtime call of this name can launch GPU work.

    >>> may_launch("cudaLaunchKernel"), may_launch("cudaStreamIsCapturing")
    (True, False)
    """
    return not _NO_LAUNCH.search(name)


@dataclass(frozen=True)
class HostNames:
    """The tables with a user's additions. ``kind`` gives a value of ``HOST_KINDS``."""

    data: re.Pattern[str]

    @classmethod
    def of(cls, more: tuple[str, ...] = ()) -> HostNames:
        """With more data-range patterns; TraceviewError for one that is no regular expression."""
        for pattern in more:
            try:
                re.compile(pattern)
            except re.error as error:
                raise TraceviewError(f"data range pattern {pattern!r}: no regular expression ({error})") from error
        return cls(re.compile("|".join(f"(?:{p})" for p in (*DATA_NAMES, *more)), re.I))

    def kind(self, name: str, plain: str) -> str:
        """Kind of an interval that would be ``plain`` (op, runtime, annotation) if its name told nothing more."""
        if HOST_COMM.match(name):
            return "host_comm"
        if name in SYNC_NAMES:
            return "sync"
        if plain != "runtime" and self.data.search(name):
            return "data"
        return "annotation" if plain == "op" and ANNOTATION.match(name) else plain


# --- step marks, METHODS b.2


@dataclass(frozen=True)
class Mark:
    """A candidate step mark: source (``MARK_SOURCES``), series, and the number in the name if it has one."""

    source: str
    series: str
    step: int | None


_STEP = re.compile(r"^ProfilerStep#(\d+)")
_OPTIMIZER = re.compile(
    r"^Optimizer\.step#|^optimizer[ ._-]?step$"  # torch; hand-made ranges
    r"|\]\w+\.optimizer_step$"  # Lightning: [pl][profile][LightningModule]Model.optimizer_step
    r"|(?:^|\.)(?:DeepSpeedEngine|\w*Optimizer\w*)\.step$",  # DeepSpeed, Megatron
    re.I,
)
# Names of inference servers and hand-made ranges which mark a step without counting it.
_UNCOUNTED = (
    (re.compile(r"^execute_(?:new_)?(?:context|model)"), "execute_context"),  # vLLM
    (re.compile(r"^step\["), "step[...]"),  # SGLang
    (re.compile(r"^[#\s]*forward[#\s]*$", re.I), "## forward ##"),
    (re.compile(r"^TSL:XlaModule:#.*?hlo_module=\w*step\w*", re.I), "XlaModule step"),  # JAX
    (re.compile(r"\brun_training_batch$"), "run_training_batch"),  # Lightning
    (re.compile(r"(?:^|[.\]])(?:train(?:ing)?_(?:step|batch))$"), "training_step"),  # NeMo, DeepSpeed, Lightning
)
_COUNTED = re.compile(r"^(.*?(?:\b|_)(?:step(?:_?num)?|iter|iteration|batch|decode))[\s#_:=\[(-]*(\d+)\W*$", re.I)


def mark(name: str) -> Mark | None:
    """The step mark that a range of this name would be, or None.

    >>> mark("ProfilerStep#7"), mark("iteration 12")
    (Mark(source='profiler_step', series='ProfilerStep', step=7), Mark(source='range', series='iteration', step=12))
    """
    if found := _STEP.match(name):
        return Mark("profiler_step", "ProfilerStep", _count(found.group(1)))
    if _OPTIMIZER.search(name):
        return Mark("optimizer", name, None)
    for pattern, series in _UNCOUNTED:
        if pattern.search(name):
            return Mark("range", series, None)
    if found := _COUNTED.match(name):
        return Mark("range", found.group(1).strip(" #_:=[(-"), _count(found.group(2)))
    return None


def _count(digits: str) -> int | None:
    """The number in a step's name; None for one that no step counter reaches."""
    return int(digits) if len(digits) <= 18 else None
