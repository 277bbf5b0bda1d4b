"""The few environment variables that traceview reads from a report, and nothing else of the environment.

A report stores the whole environment of the profiled program, with every secret in it. Only names of this list are
taken, only with values of a harmless shape, and they go to ``SourceMeta.facts`` as ``env.NAME``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from traceview_parsers.nsight.source import Source

NAMES = frozenset(
    [
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "SLURM_PROCID",
        "OMPI_COMM_WORLD_RANK",
        "PMI_RANK",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_MODULE_LOADING",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
        "UCX_NET_DEVICES",
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
    ]
)
PREFIXES = ("NCCL_", "TORCH_NCCL_", "RCCL_", "HSA_", "NVTE_", "FI_")
_VALUE = re.compile(r"[A-Za-z0-9_.,:=^+-]{0,120}")
_NOT_A_KNOB = re.compile(r"SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL|_KEY$")
RANK_NAMES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
# Programs that start the ranks: their own RANK, if set, is not a rank of the job.
_LAUNCHERS = re.compile(
    r"(?:^|/)(torchrun|torch\.distributed\.(run|launch)|accelerate|deepspeed|mpirun|mpiexec|srun|horovodrun|ray)$"
)


def allowed(name: str, value: str) -> bool:
    """Whether a variable may be kept."""
    wanted = name in NAMES or (name.startswith(PREFIXES) and not _NOT_A_KNOB.search(name))
    return wanted and bool(_VALUE.fullmatch(value))


def pick(assignments: Iterable[str]) -> dict[str, str]:
    """The allowed ones among texts ``NAME=value`` or ``NAME="value"``.

    >>> pick(['RANK="3"', "NCCL_ALGO=Ring", "AWS_SECRET_ACCESS_KEY=x", 'NCCL_DEBUG_FILE="/home/me/x"'])
    {'RANK': '3', 'NCCL_ALGO': 'Ring'}
    """
    out = {}
    for text in assignments:
        name, _, value = text.strip().partition("=")
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        if allowed(name, value):
            out[name] = value
    return out


def read_environment(source: Source) -> dict[str, str]:
    """Allowed variables of the launched program, from the capture settings or, in older files, the target's."""
    told = [
        str(value)
        for name, value in source.rows("META_DATA_CAPTURE", ("name", "value"))
        if str(name).endswith(":ENVIRONMENT_VARIABLE")
    ]
    if not told:
        for name, value in source.rows("TARGET_INFO_SYSTEM_ENV", ("name", "value")):
            if name == "DeviceEnvironment":
                told += str(value).splitlines()
    return pick(told)


def is_launcher(command: list[str]) -> bool:
    """Whether a command line starts the ranks itself (``torchrun ...``, ``python -m torch.distributed.run ...``)."""
    return any(_LAUNCHERS.search(word) for word in command[:4])
