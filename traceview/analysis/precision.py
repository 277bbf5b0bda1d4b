"""Which precision the matmuls of a run have, from the names of their kernels (METHODS g)."""

from __future__ import annotations

import re
from functools import cache

import polars as pl

from traceview.schema import GPU_CLASSES

PRECISIONS = ("fp4", "fp8", "bf16", "fp16", "tf32", "fp32")

# Matrix products, convolutions and attention of cuBLAS, cuDNN, CUTLASS, Tensile, Composable Kernel, MIOpen, Triton.
_MATMUL = re.compile(
    r"(?<!fb)gemm|gemv|cijk_|nvjet|xmma|(?<![a-z])tensorop_|convolve|winograd|implicit_conv|(?<!compute)wgrad|dgrad|fprop"
    r"|flash_?(attn|fwd|bwd)|flash::|fmha|sdpa|attn_(fwd|bwd)|cublas\w*matmul|cutlass.*wgmma"
)
# The inputs decide: an FP8 product with BF16 output names both, so the smaller one is looked for first. nvjet has a
# letter per operand (q = e4m3, t = bf16, h = fp16), Tensile after the indices (B = bf16, H = half, S = single);
# s1688 of CUTLASS without another type multiplies TF32; CK's bf16 is an unsigned short, 't' in a mangled name.
_PRECISION = (
    ("fp4", re.compile(r"fp4|e2m1")),
    ("fp8", re.compile(r"fp8|e4m3|e5m2|float8|nvjet_(sm\d+_)?q|cijk_[a-z]+_[a-z]+_f8")),
    ("bf16", re.compile(r"bf16|bfloat16|bhalf|_zn2ck\w*ttft|nvjet_(sm\d+_)?t|cijk_[a-z]+_[a-z]+_b[bs]")),
    ("tf32", re.compile(r"tf32|tfloat32|xf32|tensorop_s1688")),
    (
        "fp16",
        re.compile(
            r"fp16|f16|half|_h(884|1688|16816|161616)?gemm|s884gemm|nvjet_(sm\d+_)?h|cijk_[a-z]+_[a-z]+_h[hs]"
        ),
    ),
    ("fp32", re.compile(r"sgemm|simt|scudnn|f32f32_f32|fp32|<float[,>]|gemv.*\bfloat\b|cijk_[a-z]+_[a-z]+_sb?_")),
)


@cache
def precision_of(name: str) -> str | None:
    """Precision of a matmul kernel: one of ``PRECISIONS``, '' = its name does not tell, None = no matmul.

    >>> precision_of("ampere_bf16_s16816gemm_bf16_128x64_ldg8"), precision_of("volta_sgemm_64x64_nt")
    ('bf16', 'fp32')
    """
    text = name.lower()
    if not _MATMUL.search(text):
        return None
    return next((precision for precision, pattern in _PRECISION if pattern.search(text)), "")


def matmul_ns(frames: list[pl.DataFrame]) -> dict[str, int]:
    """GPU time of matmuls by precision ('' = not told), ns, over ``kernels.sums`` of all ranks; most first."""
    if not frames:
        return {}
    compute = GPU_CLASSES.index("compute")
    sums = pl.concat(frames).filter(pl.col("cls") == compute).group_by("name").agg(pl.col("ns").sum())
    found: dict[str, int] = {}
    for name, ns in sums.iter_rows():
        precision = precision_of(name)
        if precision is not None and ns:
            found[precision] = found.get(precision, 0) + ns
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
