"""Precision of matmuls by the names of their kernels."""

from __future__ import annotations

import polars as pl
import pytest

from traceview.analysis.precision import matmul_ns, precision_of
from traceview.schema import GPU_CLASSES


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_execute_segment_k_off_kernel__5x_cublas", "bf16"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>", "bf16"),
        (
            "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, cutlass::bfloat16_t>>",
            "bf16",
        ),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "bf16"),
        ("nvjet_sm100_tst_mma_256x256_64x4_2x1_v_TNT", "bf16"),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8", "bf16"),
        ("Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64", "bf16"),
        ("void precomputed_convolve_sgemm<__nv_bfloat16, 1024, 5, 5, 4, 3>", "bf16"),
        (
            "_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47GridwiseGemmILi64EttftLNS_25",
            "bf16",
        ),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_TNN", "fp16"),
        ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nn", "fp16"),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "fp16"),
        ("ampere_h16816gemm_256x128_ldg8_stages_32x3_tn", "fp16"),
        ("Cijk_Alik_Bljk_HHS_BH_MT128x128x32", "fp16"),
        ("fmha_cutlassF_f16_aligned_64x64_rf_sm80", "fp16"),
        ("nvjet_qqtst_128x256_128x6_2x1_2cta_v_bz_TNT", "fp8"),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128", "fp8"),
        ("void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 128u>", "fp8"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>", "tf32"),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16", "tf32"),
        ("volta_sgemm_64x64_nt", "fp32"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8", "fp32"),
        ("Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32", "fp32"),
        ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16>", "fp32"),
        ("triton_tem_fused_mm_0_gemm", ""),
        ("_attn_fwd", ""),
        ("void fbgemm_gpu::permute_2D_lengths_kernel<int>", None),
        ("void at::native::vectorized_elementwise_kernel<4, c10::BFloat16>", None),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>", None),
        ("reshape_and_cache_flash_kernel", None),
        ("SubTensorOpWithScalar1d", None),
        ("cask_cudnn::computeWgradSplitKOffsetsKernel(cask_cudnn::ComputeSplitKOffsetsParams)", None),
    ],
)
def test_names(name: str, precision: str | None) -> None:
    assert precision_of(name) == precision


def test_time_of_matmuls_alone_counts_most_first() -> None:
    compute, comm = GPU_CLASSES.index("compute"), GPU_CLASSES.index("comm")
    rows = [("volta_sgemm_64x64_nt", 5, compute), ("nvjet_tst_1", 7, compute), ("gemm", 1, compute)]
    rows += [("add", 99, compute), ("gemm_bf16_fused", 50, comm)]
    frame = pl.DataFrame({"name": [r[0] for r in rows], "ns": [r[1] for r in rows], "cls": [r[2] for r in rows]})
    assert list(matmul_ns([frame, frame]).items()) == [("bf16", 14), ("fp32", 10), ("", 2)]
    assert matmul_ns([]) == {}
