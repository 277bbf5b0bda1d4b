"""Names of GPU records -> class; names as they occur in public traces and issues."""

from __future__ import annotations

import pytest

from traceview_parsers import kernels

COMM = [
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "allreduce"),
    ("ncclDevKernel_SendRecv(ncclDevComm*, unsigned long, ncclWork*)", "sendrecv"),
    ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allgather"),
    ("ncclDevKernel_ReduceScatter_Sum_bf16_NVLS_SIMPLE(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter"),
    ("nccldevkernel_broadcast_ring_ll", "broadcast"),
    ("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce"),
    ("ncclSymDevKernel_AllReduce_AGxLLMC_R_sum_bf16(ncclSymDevArgs)", "allreduce"),
    ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", None),
    ("mscclKernel_Sum_half_LL", None),
    ("oneccl_reduce_base<float, 8>", "reduce"),
    ("hccl::allreduce_ring", "allreduce"),
    ("hcom_allReduce__751_0", "allreduce"),
    ("void multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)", "allreduce"),
    ("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)", "allreduce"),
    ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<0>(int)", "allreduce"),
    ("nvshmem_barrier_all", "barrier"),
    ("void deep_ep::internode_ll::dispatch<true, 7168>(void*)", "alltoallv"),
    ("void dpsk::ep::intranode::combine<__nv_bfloat16>(void*)", "alltoallv"),
    ("void tensorrt_llm::kernels::oneShotAllReduceKernel<half>(int)", "allreduce"),
]
COMPUTE = [
    "volta_sgemm_32x128_tn",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::AllReduceLike> >(int)",
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float>(float*)",
    "triton_poi_fused__to_copy_all_gather_into_tensor_wait_tensor_3",
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_nn",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>(int)",
]


@pytest.mark.parametrize(("name", "kind"), COMM)
def test_communication(name: str, kind: str | None) -> None:
    found = kernels.kernel(name)
    assert (found.cls, found.kind, found.fused_comm) == ("comm", kind, False)


@pytest.mark.parametrize("name", COMPUTE)
def test_compute(name: str) -> None:
    assert kernels.kernel(name) == kernels.GpuName("compute")
    assert not kernels.unclassified(name)


@pytest.mark.parametrize(
    "name", ["kernel_consumer_ag_gemm_persistent", "gemm_rs_kernel", "void cutlass::k<flux::AG<1>>()"]
)
def test_fused(name: str) -> None:
    assert kernels.kernel(name) == kernels.GpuName("compute", fused_comm=True)


@pytest.mark.parametrize(
    ("name", "cls", "mem"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "pcie_h2d", "pageable"),
        ("Memcpy DtoH (Device -> Pinned)", "pcie_d2h", "pinned"),
        ("Memcpy HtoD (Host -> Device)", "pcie_h2d", "unknown"),
        ("Memcpy DtoD (Device -> Device)", "gpu_d2d", None),
        ("Memcpy PtoP (Device -> Device)", "peer_copy", None),
        ("CopyDeviceToHost", "pcie_d2h", "unknown"),
        ("Memcpy HtoH (Pageable -> Pageable)", "gpu_other", None),
        ("Memcpy <unknown>", "gpu_other", None),
    ],
)
def test_copies(name: str, cls: str, mem: str | None) -> None:
    assert (kernels.copy(name).cls, kernels.copy(name).mem) == (cls, mem)


def test_smells_of_communication_but_no_rule_knows_it() -> None:
    assert kernels.unclassified("void mylib::ring_exchange(float*)")
    assert not kernels.unclassified("ncclDevKernel_SendRecv(x)")
