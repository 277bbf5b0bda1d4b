"""What is public: the words that stay. Everything else is replaced, so a word that is forgotten here never leaks.

Two rules. A compound name (`reduce_scatter_tensor`, `FlashAttention`) stays if each of its words is in the list of
technical words below (CUDA, PyTorch, NCCL, libraries of kernels) or if traceview's own code has it as a whole. A
single word also stays if it occurs in the texts of traceview: sentences must stay readable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pkgutil import iter_modules
from types import CodeType
from typing import NamedTuple

_PACKAGES = ("traceview", "traceview_parsers")  # what the reports say is said after names are replaced

# A name in one of these C++ and operator namespaces is the library's, not the user's.
NAMESPACES = (
    *("at", "aten", "prims", "c10", "c10d", "_c10d_functional", "c10d_functional", "caffe2", "torch", "autograd"),
    *("std", "cub", "thrust", "cuda", "cutlass", "cute", "cudnn", "cublas", "cublasLt", "cask_cudnn", "flash"),
    *("pytorch_flash", "fmha", "vllm", "nccl", "rocprim", "hipcub", "ck", "transformer_engine", "tensorrt_llm"),
    *("xla", "TSL", "profiler", "inductor", "torchvision", "quantized", "sglang", "flashinfer"),
)

# An identifier of one of these shapes is a library's as a whole: nodes of autograd, tilings of a GEMM.
SHAPES = (
    r"[A-Z][A-Za-z]*Backward\d",
    r"Cijk(_[A-Z][a-z]{3}){2}(_Bias|_UserArgs|_[A-Z\d]{1,10}n?\d*(x\d+)*)*",
    r"triton__(\d+(de?|c|e)?)+",
    r"(NCCL|RCCL|CUDA|CUBLAS|TORCH|PYTORCH|HIP|HSA|UCX|OMP|GLOO|FI)_[A-Z0-9_]+",  # settings
    r"µs|Δ|σ",
    r"nvjet(_sm\d+)?(_[a-z]{3,6})?(_\d+x\d+\w?|_[hv]|_bz|_coop[AB]|_[NT]{3}|_splitK|_2cta|_bias\w{0,2})*",
    r"0x[0-9a-fA-F]{1,16}|[0-9a-f]{2,3}000",  # addresses; bus ids as NCCL prints them
    r"(mlx\d_\d+|(eth|ib|hsn|hsi|bond)\d+|en[ops]\d+\w{0,6}|bnxt_re\d|rdmap\d+s\d+|lo)",  # interfaces of Linux
)

_WORDS = """
2d 3d abort aborted abs absolute acc access accumulate accumulation acos active adadelta adafactor adagrad adam
adamax adamw add addbmm addcdiv addcmul addmm address advise align alignc aligned all allgather allgatherv alloc
allreduce allreduced alltoall alltoallv alpha amd amp ampere annotation any aot apply arange arg argmax argmin args
argsstorage argument arguments arr array as asin async asynchronous aten atomic attach attention attn attribute
attributes autocast autograd autotune available avg avx awaitable aws backend backward baddbmm barrier base batch
batched batches batchnorm bcast before bernoulli beta bf bfloat bfloat16 bias binary bitwise blackwell blas block
blocks bmm bool bootstrap bounds broadcast broken bucket bucketing buckets buffer buffers build builtin bus busid
bwd by byte bz ca cache caching caffe calculator call can cannot capture cask cast cat caught cc ceil cgemm channel
channels char check checkpoint checkpointing chunk clamp clip clipping clone close closed cluster clusters cnhw
coalesced coalescing codegen coll collate collective combination combine comm commid comms compare compile compiled
complete completion complex computeoffsets concat config connected connection const constant container context
contig contiguous conv conv1d conv2d conv3d convolution convolve coop cooperative copy cos could couldn couldnt
count cp cpp cpu cq create created criterion cross cshuffle ctx cubin cublas cublaslt cuda cudadev cudagraph
cudagraphs cudnn cufft cumem cumsum cunn cupti curand current cusolver cusparse custom cutlass d2d d2h data
dataloader dataloaderiter dataset datasets ddp decltype decoder deepspeed default denied dense depthwise destroy
detach detected dev device devkernel dft dgemm dgrad dgx dgxs dict diff dim direct directory disable dispatch
distributed distribution div divider divisor dmabuf domain dot double down dp driver dropout dtod dtoh dtype dynamic
dynamo edition einsum elapsed elementwise embed embedding empty enable encode encoder encountered end endpoint
engine entropy entry enumerate ep epilogue epilogues epoch epochs epyc eq erf error ethernet eval evaluate event
events evoformer ex exc exception exchange exec execute exp expand expert experts explicit export external failed
fallback false fast fatal fbgemm fetch fetcher fft fi file fill filter finalize fini fixed flag flags flash flat
flatten float float16 float32 flush fmha fn for foreach fork forward fp fprop free fsdp fully fullysharded func
function functional functor fused fusion fwd ga gate gather gb ge geforce gelu gemm gemmk gemv generic generickernel
geqrf get getitem gh gib gid gkgs global gloo glu gpu gpudirect grad gradient gradients graph graphed graphics
graphs grid gridwise group grouped groupnorm groups gru gt gtcx h2d half handle handles hbm hca hcas hdr head header
heartbeat hf hgemm hip hipblas hipblaslt hook hooks hopper host hsh hss hstu htod huggingface hwcn hybrid ib ibext
ibvwrap id identity igemm im2col imad impl implicit import in index indexed indexing indices indirect inductor infer
infiniband info init initialization inner inplace input inputs instantiate instinct instrumentation int int32 int64
int8 integer intel inter interior interleave interleaved intra invalid inverse invert io ipc irecv is isend isfinite
isnan item iter iteration iterator jagged kernel kernels key kineto kjt kv lamb lambda lamda laptop large launch
launcher layer layernorm layers layout ld ldg ldmatrix le lengths lerp less lib libcudart libfabric libibverbs
libmlx libnccl library lid lightning lim limit linear link links lion list lists ll lm load loaded loader loaders
loading loadwithoutcast local localhost lock log logical logits logsoftmax long lookup loop loss lp lr lstm lt magic
magma main malloc managed management map mark mask masked math matmul matrix max maximum maxwell me mean medium
megatron mem memcpy memory memset memsetasync mesh message messages meta metadata method mh mha mi microbatch
microbatches microstep milliseconds min mini minimum miopen misc mish mla mlp mm mnnvl mode model models module
modules moe momentum monitor move mp mtu mul mult multi multihead multiply multiprocess multiprocessing
multiprocessor mx nadam nan narrow native nccl nccldevkernel nchw ne neg nemo nested nesterov net next nhwc nhwckrsc
nll nn no node nodes non none nonzero noop norm normalization normalize not nranks nt ntn nullary nullptr numelin
numelout nv nvfuser nvidia nvjet nvl nvlink nvls nvmldev nvrtc nvshmem nvtx object occupancy off offload offset
offsets ofi one onednn ones op opaque opcode open openib operation ops opt optim optimized optimizer optype or order
osrt out outer output outputs pack padded padding parallel param parameter parameters params partition pascal patch
pcie peer peermem per permission permute permuted persist persistent persistentworker pg philox pin pinmemory pinned
pinner pipe pipeline pixel plan please plugin poi point pointwise pool pooling pop port ports post potential potrf
pow pp pre precision precomputed prefetch prefetcher prefetching prefill prepare previous primary priority proc
process processing processor prod prof profile profiler profilerstep profiling program proj projection properties
property provider providers ptds ptr ptsz ptx push put python pytorch qkv qp quadro quantize query queue radeon rail
ran rand randn random randperm range ranges rank ranks raw ray rc rccl rcclgenerickernel rdm rdma read rebuild
receive recompute record recv red reduce reducer reducescatter reduction ref refused region register registered
release relu relufused remainder remote repeat replicate reset reshape reshard residual resize resolve resource
result ret retain retry return returned reuse ring rings rms rmsnorm rmsprop rnn roce roll rope rotary round router
row rows rowwise rsqrt rtx run runtime rxr sample sampler save scalar scale scaled scaler scan scatter schedule
scheduler scudnn sdpa search segment select self semaphore send seq seqnum sequence sequential server set setitem
sgd sgemm shape shard sharded share shareable sharp shm short sigmoid sign signal signed silu simple simt sin single
singleprocess sink size sizes slice sliced sliced1x2 slot small smem socket softmax softplus sort sp sparse sparsity
split splitk splitkreduce splits sqrt square squeeze sr src stack stage staged stages start state static stats
status step stop storage store storewithoutcast str stream stride strided strides struct style sub submesh substep
successfully such sum super superchip swap swiglu switch sxm symbol symm sync synchronize syrk sys system tanh
target task tensile tensor tensor16x8x8 tensorop tensors terminated tesla test text tf thread threads threshold
throughput ti tile tiled tilesize time timed timeout timing tls tma tn tnn to token tokens topk torchdynamo tp trace
train trainer training traits transfer transform transformer transformers transport transpose trees tri triangular
tril triton triu trivial trivially trmm trsm trunc tss tst tt tuple turing type typed ub ubatch uchar uint uint8 ul
ull ulysses unable unary unfold unhandled uniform unique unity unload unpack unpermute unreachable unregister unroll
unrolled unsafe unscale unshard unsigned unsqueeze unweighted up update updategradinput updateoutput upsample user
userargs ushort using usm utils val validate validation value values var vec vector vectorized vendor version view
violation virtual vocab void volta wait warmup warp warpgroup warpgroupsize warps warpsize watchdog weight weighted
weights wg wgmma wgrad what where while width windowed winograd with without wmma work worker workers workspace
workstation world wr wrap wrapped wrapper write wrw wrw3 ws xdl xdlops xeon xla xmma xpu xregs zero zero1 zero2
zero3 zero_grad zerograd zeros zip
"""

_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|.", re.S)
_SHAPED = re.compile("|".join(f"(?:{shape})" for shape in SHAPES))
_FAMILY = re.compile(r"(sm\d+|ampere|volta|turing|hopper|maxwell|cutlass|cudnn|igemm|gemm|wmma)_")
_CODE = re.compile(r"([a-z]{1,3}\d+(x\d+)*){1,4}")  # a tiling in the name of such a kernel: tf32f32, bt128x64x32
_SIMPLE = re.compile(r"\d*([A-Z]?[a-z]+|[A-Z]+s?)\d*")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)x(?=\d)")


class Public(NamedTuple):
    """``technical``: words of which compound names may be made. ``plain``: single words of any sentence, in small
    letters. ``whole``: compound names as they stand in traceview's own code."""

    technical: frozenset[str]
    plain: frozenset[str]
    whole: frozenset[str]


@lru_cache(maxsize=1)
def public() -> Public:
    """The public words; takes about 0.5 s."""
    technical = {part.lower() for word in _WORDS.split() for part in (word, *_HUMP.findall(word))}
    own = {word for text in _own() for word in re.findall(r"\w+", text)}
    plain = {part.lower() for word in own for part in re.findall(r"[A-Za-z]+", word)}
    return Public(frozenset(technical), frozenset(plain | technical), frozenset(own))


@lru_cache(maxsize=1 << 18)
def is_public(identifier: str) -> bool:
    """Whether an identifier stays.

    >>> is_public("reduce_scatter_tensor"), is_public("ampere_sgemm_128x64_tn"), is_public("m" + "y" * 7)
    (True, True, False)
    """
    words = public()
    if identifier in words.whole or _SHAPED.fullmatch(identifier):
        return True
    simple = _SIMPLE.fullmatch(identifier)
    if simple and simple.group(1).lower() in words.plain:
        return True
    kernel = _FAMILY.match(identifier)
    return all(
        _technical(segment, words.technical) or (kernel and _CODE.fullmatch(segment))
        for segment in identifier.split("_")
    )


def _technical(segment: str, words: frozenset[str]) -> bool:
    if segment.lower() in words:
        return True
    parts = _PART.findall(_BETWEEN_DIGITS.sub("0", segment))
    lone = [p for p in parts if len(p) == 1 and not p.isdigit()]
    if len(lone) > 2 or not segment.isascii():  # a random token is many letters between digits
        return False
    return all(p.isdigit() or len(p) == 1 or p.lower() in words for p in parts)


def _own() -> Iterator[str]:
    """Literals and names in the code of traceview; of a module whose code cannot be had, none."""
    for package in _PACKAGES:
        spec = find_spec(package)
        for module in _modules(spec) if spec else ():
            get_code = getattr(module.loader, "get_code", None)
            code = get_code(module.name) if get_code else None
            if code is not None:
                yield from _literals(code)


def _modules(spec: ModuleSpec) -> Iterator[ModuleSpec]:
    """A package and everything in it; nothing is imported."""
    yield spec
    for found in iter_modules(spec.submodule_search_locations, f"{spec.name}."):
        inner = found.module_finder.find_spec(found.name, None)
        if inner is not None:
            yield from _modules(inner) if found.ispkg else (inner,)


def _literals(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _literals(value)
        elif isinstance(value, str):
            yield value
        elif isinstance(value, tuple | frozenset):
            yield from (v for v in value if isinstance(v, str))
