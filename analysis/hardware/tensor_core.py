"""Whether Tensor Cores did the work of a kernel, judged by its name, and the evidence.

`RULES` is an ordered table: the first rule whose words occur in a name decides. A rule says
`yes` or `no` only on positive evidence: a Tensor Core instruction, or an operation or an
instruction of the CUDA cores. `likely` is for code whose dtype decides, such as Triton's
`tl.dot`; `tensor_core` resolves it. A name that no rule knows is `unknown`, never `no`.

"Tensor Core" stands for the matrix units of every vendor: AMD's MFMA and WMMA are meant too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pyprof2.analysis.categories import MATRIX_WORK
from pyprof2.analysis.hardware.kernel_names import TELLING, bounded, short_name

if TYPE_CHECKING:
    from collections.abc import Mapping

RULES_VERSION: Final = 2
"""Counts changes of `RULES` that can change a verdict.

1. the first table: libraries of NVIDIA from Volta to Blackwell, of AMD's CDNA, and Triton.
2. a library's name proves nothing; kernels that prepare a product have none; sparse products.
"""

Answer: TypeAlias = Literal["yes", "no", "likely", "unknown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer, the family of kernels that the rule is about, and what the answer rests on."""

    tensor_core: Answer
    family: str
    evidence: str


@dataclass(frozen=True, slots=True)
class NameRule:
    """Words that decide, and why.

    Attributes:
        tensor_core: the answer.
        family: the library or kind of kernels.
        pattern: the words, as a verbose regular expression.
        meaning: what the words mean; follows the word that was found.
        own: look only at the function's own name, not at its template arguments: a wrapper
            such as `cutlass::device_kernel` may carry anything there.
    """

    tensor_core: Answer
    family: str
    pattern: re.Pattern[str]
    meaning: str
    own: bool = False


def _rule(
    tensor_core: Answer, family: str, words: str, meaning: str, *, own: bool = False
) -> NameRule:
    return NameRule(tensor_core, family, bounded(rf"(?x){words}"), meaning, own)


_NEW_SM: Final = r"sm_?(?:9\d|1\d\d)"  # Hopper and later

RULES: Final = (
    # ------------------------------------------------------------------ not products at all
    _rule(
        "no", "helper",
        r"""(?i:(?<![a-z])(?:metadata|(?:pre|post)process|re_?pack|pre_?pack)(?![a-z]|\w*gemm)
        |cuda_?core) | _to_m\d+n\d+k\d+ | m\d+n\d+k\d+\w*_layout""",
        "prepares operands or tables, or says itself that it runs on CUDA cores",
        own=True,
    ),
    _rule(
        "no", "communication",
        r"""(?:^|[^A-Za-z])(?:nccl|rccl|mscclpp|msccl|nvshmem|rocshmem|deep_ep|multimem|symm_mem
        |cross_device_reduce|k?userbuffers)""",
        "moves data between devices; what it adds, it adds on CUDA cores",
        own=True,
    ),
    _rule(
        "no", "attention helper",
        r"""dot_do_o | DotDoO | SumOdO | OGradDotO | _bwd_odo | convert_d(?:q|k|v|kv)(?![a-z])
        | clear_dkvaccum | [bB]wd_?[pP](?:re|ost)process | Backward(?:Pre|Post)process
        | BwdConvert | dq_convert | prepare_varlen | MergeStates | merge_attn_states?
        | ^_?fwd_kernel(?:_\w+)?_stage2 | _?splitK_reduce
        | FmhaKernelBwd(?:Sum|Conv) | fmhaReductionKernel | FmhaMlaReduction
        | paged_attention_\w*reduce
        | (?i:(?:splitkv|split_kv|mla|fwd|forward|flash)\w*?_?combine)""",
        "a pass before or after the products of attention, without a product of its own",
    ),
    _rule(
        "yes", "ATen int4",
        r"tinygemm_m16n8k\d+",
        "the shape of a Tensor Core instruction in PyTorch's int4 product",
        own=True,
    ),
    _rule(
        "no", "ATen, CUB",
        r"""^(?:\(anonymous\ namespace\)::)?
        (?:at|at_cuda_detail|c10|cub|hipcub|thrust|rocprim|THC\w*)::""",
        "PyTorch's own kernels, CUB and Thrust hold no Tensor Core instruction",
        own=True,
    ),
    # ------------------------------------------------------------------ instructions, by name
    _rule(
        "no", "SIMT",
        r"""(?<![A-Za-z])simt(?![a-z]) | OpClassSimt | MmaSimt | UniversalFMA
        | (?<![A-Za-z])(?:ffma|hfma2?|dfma|dp4a)(?![a-z])""",
        "multiply-adds on CUDA cores (CUTLASS class SIMT, FFMA)",
    ),
    _rule(
        "yes", "nvjet",
        r"(?<![A-Za-z])nvjet_",
        "cuBLASLt's own code for Hopper and later; it has Tensor Core kernels only",
    ),
    _rule(
        "yes", "instruction in the name",
        r"""(?<![A-Za-z])(?:[hidqo]mma|[hiqbw]?gmma|qgmma|u(?:tc)?[hiqo]?mma|wmma|tcgen05|mma_sync
        |HMMA|IMMA|DMMA|QMMA|OMMA|[HIQBW]?GMMA|UTC[HIQO]?MMA|UMMA|WMMA)(?![a-z])
        | (?<![A-Z])(?:Hmma|Imma|Dmma|Gmma|Wgmma|Umma|Wmma)(?![a-z])
        | (?<![A-Za-z])mma\.sync""",
        "a Tensor Core instruction",
    ),
    _rule(
        "yes", "instruction in the name",
        r"""(?<![A-Za-z])(?:bs|sp)?tensorop(?![a-z]) | OpClass\w*TensorOp | Mma\w*TensorOp
        | Mma\w*Wmma | winograd\w*_tensor""",
        "CUTLASS's class of Tensor Core products",
    ),
    _rule(
        "yes", "instruction in the name",
        r"(?<![A-Za-z])(?:sp)?tensor\d+x\d+x\d+ | (?<![A-Za-z])m(?:8|16|32|64)n(?:\d+|X)k\d+",
        "M, N and K of a Tensor Core instruction",
    ),
    _rule(
        "yes", "instruction in the name",
        r"""(?<![A-Za-z0-9])(?:g?[shidczb]|bf)
        (?:884|1684|1688|8816|8832|88128|16816|16832|16864|168128|168256|161616|32816|83216)
        (?![0-9]) | (?<![A-Za-z])sm_?[789]\d_(?:16816|16832|16864|168128)(?![0-9])""",
        "accumulator type and shape (M, N, K in one number) of a Tensor Core instruction",
    ),
    _rule(
        "yes", "instruction in the name",
        r"""SM\d+(?:::GMMA::MMA)?_\d+x\d+x\d+_[A-Z0-9] | (?<![A-Za-z])MMA_\d+x\d+x\d+_
        | SM1\d\d_U?MMA_ | SM1\d\d_\w*_MMA_ | \bMMA_Traits<cute::SM
        | MMAAtom_ThrID\w*?_ShapeMNK(?!111_)""",
        "a CuTe atom that is one Tensor Core instruction",
    ),
    _rule(
        "no", "SIMT",
        r"GemmShape<(?:\(int\))?1,\ ?(?:\(int\))?1,\ ?(?:\(int\))?1> | _ShapeMNK111_",
        "an instruction of one multiply-add (CUTLASS on CUDA cores)",
    ),
    # ------------------------------------------------------------------ xmma: operand words
    _rule(
        "no", "xmma",
        r"sm_?[56]\d_xmma_",
        "code for Maxwell or Pascal, which have no Tensor Cores",
    ),
    _rule(
        "yes", "xmma",
        r"xmma_\w*?(?<![A-Za-z])(?:tf32f32|f32f32)_tf32f32",
        "float32 operands, multiplied as TF32: only Tensor Cores do that",
    ),
    _rule(
        "no", "xmma",
        r"xmma_\w*?(?<![a-z0-9])f32f32_f32f32_f32",
        "float32 operands multiplied as float32, with no Tensor Core instruction named",
    ),
    _rule(
        "yes", "xmma, CUTLASS 3",
        rf"""{_NEW_SM}_xmma_ | cutlass3x_{_NEW_SM} | Mainloop\w*Sm(?:90|1\d\d)
        | xmma_\w*warpgroupsize | ^kernel_cutlass_\w*?gemm\w*?[sS]m(?:90|1\d\d)""",
        "products for Hopper and later, made of warp-group or TCGEN05 instructions",
    ),
    _rule(
        "yes", "xmma",
        r"xmma_\w*?(?<![a-z0-9])(?:f16f16_f16f32|bf16bf16_bf16f32)_f",
        "16-bit operands added up in float32 without widening them: only Tensor Cores do that",
    ),
    _rule(
        "likely", "xmma",
        r"sm_?[78]\d_xmma_\w*?(?:f16f16|bf16bf16|i8i8|e4m3|e5m2|f64f64)_",
        "operand types that xmma gives to Tensor Cores; the name ends before the instruction",
    ),
    # ------------------------------------------------------------------ cuBLAS and cuDNN
    _rule(
        "no", "cuBLAS, cuDNN",
        r"""(?<![A-Za-z])(?:kepler|maxwell|pascal|volta|turing|ampere)_
        (?:(?:fp16|fp32|fp64|int8|bf16|int8x4)_)?(?:gc|gz|[sdchzi])(?:gemm|cudnn)
        | (?<![A-Za-z])(?:maxwell|pascal|volta|turing|ampere)_int8x4_
        | (?<![a-z])g?[cz]gemm_\d+x\d+ | _g[cz]gemm_""",
        "multiply-adds on CUDA cores, as the name has no Tensor Core instruction",
    ),
    _rule(
        "no", "cuBLAS",
        r"""(?<![a-z])[sdczh]gemm_(?:\d+x\d+x\d+_[NT]{2}|sm\d\d_|sm_heavy|largek)
        | (?<![a-z])gemm_kernel\dx\d_\w*core | (?<![a-z])gemm2_kernel
        | magma_(?:lds\d+_)?[sdcz]gemm | fermiPlus[SDCZ]gemm""",
        "an older cuBLAS or MAGMA product, of multiply-adds on CUDA cores",
    ),
    _rule(
        "no", "cuBLAS",
        r"""gemv | gemmSN_ | gemmk1_ | ^dotprod(?:_?kernel)?(?![A-Za-z_])
        | (?<![a-z])(?:dot|scal|axpy\w*|asum|nrm2|ger|rot\w?|swap|copy|iamax|iamin|trsv\w*)
          _kernel(?:_val)?<.*cublas
        | reduce_1Block_kernel""",
        "a product with a vector or of few columns, on multiply-adds of CUDA cores",
    ),
    _rule(
        "no", "cuBLAS helper",
        r"""(?i:split_?k_?reduc|reduce_?split_?k)|epilogue::impl::globalKernel|reduce_segments
        | _finalize_matmul | compute_gemm_pointers | prepare_grouped_gemm
        | get_group(?:ed)?_gemm_starts | computeStrides | stream_?k_?fixup
        | ^_(?:batched_)?gemm_a\w+_reduce_kernel""",
        "prepares a product or adds up its parts, without a product of its own",
    ),
    _rule(
        "no", "cuDNN",
        r"""(?i:winograd) | (?:im|ex)plicit_convolve_[sdh]gemm | precomputed_convolve_[sdh]gemm
        | (?<![a-z])dgrad_engine | [dw]grad_alg\d | [dw]grad2d_(?!c1_k1) | conv2d_grouped_direct
        | (?i:depthwise) | fft[123]d_[rc]2[rc] | flip_filter | calc_bias_diff | reduce_wgrad
        | causal_conv1d""",
        "a convolution on CUDA cores, or its transform",
    ),
    _rule(
        "no", "cuDNN helper",
        r"""compute\w*Offsets | kern_precompute_indices | nhwc(?:Add|Fold)\w*Padding
        | (?i:nchw_?(?:to|2)_?\w*nhwc|nhwc_?(?:to|2)_?\w*nchw|nchw2cnhw|cnhw2nchw)
        | (?i:im2(?:d2)?col|col2im) | cudnn::ops:: | (?<![a-z])bn_[fb]w | scalePackedTensor
        | cudnn_generated_fort_native_(?:layer|rms|batch|instance)_?norm
        | op_(?:generic_)?tensor_kernel | add_tensor_kernel | (?<![a-z])pooling_[fb]w
        | (?:activation|softmax|lrn)_[fb]w_ | (?:LSTM|GRU)_elementWise | elemWiseRNNcell""",
        "a change of layout, a table of offsets, a norm or a pointwise step of cuDNN",
    ),
    _rule(
        "likely", "cuDNN",
        r"""dgrad_1x1_stride_2x2 | first_layer_(?:wgrad|fwd)_kernel | _direct_group(?![a-z])
        | cudnn_generated_\w*?_(?:conv|matmul|gemm)""",
        "a special or fused convolution of cuDNN, made for Tensor Cores",
    ),
    _rule(
        "no", "cuFFT",
        r"(?<![a-z])(?:regular|vector|real|multi_bluestein|bluestein)(?:_\w+)?_fft",
        "a Fourier transform on CUDA cores",
    ),
    # ------------------------------------------------------------------ attention
    _rule(
        "yes", "attention",
        r"""fmha_cutlass[FB]_(?:f16|bf16)_\w*sm(?:[789]\d|1\d\d)
        | fmha_cutlass[FB]_f32_\w*sm(?:[89]\d|1\d\d)""",
        "memory-efficient attention: 16-bit from sm70 on, and float32 as TF32 from sm80 on",
    ),
    _rule(
        "no", "attention",
        r"fmha_cutlass[FB]_\w*sm\d+",
        "memory-efficient attention for a type that Tensor Cores of this architecture lack",
    ),
    _rule(
        "yes", "attention",
        r"""Attention(?:Backward)?Kernel<(?=[^<>]*(?:half_t|bfloat16_t))[^<>]*arch::Sm(?:[789]\d)
        | Attention(?:Backward)?Kernel<(?=[^<>]*float)[^<>]*arch::Sm[89]\d""",
        "memory-efficient attention: 16-bit from sm70 on, and float32 as TF32 from sm80 on",
    ),
    _rule(
        "no", "attention",
        r"""(?:Single|Batch)DecodeWith\w*KVCache(?!\w*(?:TensorCore|MLACute))
        | (?<!ll4mi_)paged_attention_v[12]_kernel""",
        "attention of one query at a time, with dot products on CUDA cores",
    ),
    _rule(
        "yes", "attention",
        r"""flash_(?:fwd|bwd) | FlashAttn(?:Fwd|Bwd) | FlashAttention(?:Forward|Backward)Sm\d+
        | (?i:fmhasm\d+) | Sm\d+Fmha | sdpa_sm\d+ | (?:Single|Batch|Ragged)PrefillWith
        | PrefillWithKVCache | BatchMLAPaged | PODWithKVCache | xqa_kernel | qk_int8?_sv_
        | flash_[fb]prop | fused_multihead_attention_(?:v2_)?(?:fp16|int8|bf16|flash)
        | (?<![A-Za-z])fmha_(?:fprop|dgrad|fwd|bwd|block|v2|mhca|mha|fp16|bf16|f16|fp8)
        | flash_attn\w*::hopper | (?<![a-z])fna_(?:forward|backward)\b.*sm_?(?:[89]\d|1\d\d)""",
        "fused attention for 16-bit and 8-bit types, made of Tensor Core instructions",
    ),
    # ------------------------------------------------------------------ Triton and XLA
    _rule(
        "no", "Triton",
        r"(?<![A-Za-z])triton_(?:poi|per|red|for|spl|unk)_",
        "Inductor's pointwise and reduction kernels hold no product, whatever ops they list",
    ),
    _rule(
        "likely", "Triton",
        r"(?<![A-Za-z])triton_(?:tem_|mm|bmm|addmm|convolution|flex_|scaled_|tem\b)",
        "Inductor's templates multiply with tl.dot",
    ),
    # ------------------------------------------------------------------ AMD
    _rule(
        "no", "hipBLASLt, Tensile",
        r"^Cijk_[A-Z][A-Z0-9]{0,3}(?:_GB)?_GA$",
        "sets or scales the result before a product adds to it",
        own=True,
    ),
    _rule(
        "yes", "hipBLASLt, Tensile",
        r"Cijk_\S*?_MI\d+x\d+x\d+",
        "M, N and K of a matrix instruction (MFMA, WMMA)",
    ),
    _rule(
        "yes", "MFMA",
        r"(?<![A-Za-z])(?:s?mfma|Mfma|MFMA|xdl|xdlops|swmmac)(?![a-z]) | Xdl | gtcx\d?_",
        "AMD's matrix instructions (MFMA, also called XDL)",
    ),
    _rule(
        "yes", "CK, AITER",
        r"""ck_tile\S*?(?:Fmha|Gemm|FlatMM|FlatmmKernel|FusedMoe)
        | (?<![a-z])fmoe_\w*(?:f16|fp8|i8)
        | (?<![A-Za-z])(?:f4|a8w8|a4w4|bf16|fp8|i8)_?gemm_\w*\d+x\d+""",
        "Composable Kernel and AITER build these on matrix instructions",
    ),
    _rule(
        "no", "CK",
        r"""ck_tile\S*?(?:Rmsnorm2d|Layernorm2d|TopkSoftmax|MoeSorting|[Ss]moothquant|Reduce
        |ElementWise|Transpose|Permute|AddRmsnorm)""",
        "a norm, a sort or a pointwise step of Composable Kernel, without a product",
    ),
    _rule(
        "no", "MIOpen",
        r"""Sp3AsmConv | MIOpen(?:BatchNorm|Im2|Col2|Pool|LRN|Softmax|Activ|Neuron|Drop)
        | (?<![a-z])batched_transpose_\d | SubTensorOpWith | Op\w*Tensor(?:Lite|Fwd|Generic)
        | naive_conv_ | [gG]cnAsm(?:Conv|BN) | (?<![A-Za-z])mlo(?:Pool|Neuron)""",
        "a MIOpen kernel of vector instructions: norm, layout, Winograd, direct convolution",
    ),
    # ------------------------------------------------------------------ low precision and MoE
    _rule(
        "no", "quantised helper",
        r"""transpose_(?:and_pack_)?fp32 | pack_fp32_into | clean_logits
        | marlin\w*::permute_cols | (?:gptq|awq)\w*_shuffle | kgemm_4bit\w*naive | kdequant_
        | gemm_half_q_half | mul_mat_vec | weight_only::kernel | moe_(?:align|sum|fused_gate)
        | count_and_sort_expert | topkGating | expandInputRows | finalizeMoe | moe::dev::
        | doActivation | Expert(?:PrefixSum|Maps) | (?i:moe_?routing)""",
        "prepares, routes or finishes a quantised or mixture-of-experts product on CUDA cores",
    ),
    _rule(
        "yes", "quantised, MoE",
        r"""(?:bmm|gemm\w*|moe)_(?:Mx|Nv|Dy)?(?:E4m3|E5m2|E2m1|E3m2|Bfloat16|Fp16|Int8)
        | deep_gemm(?:::|\d)\w*?(?:gemm|mqa_logits) | (?<![A-Za-z])fp8_(?:paged_)?mqa_logits
        | (?<![A-Za-z])Marlin(?:MoE[A-Za-z]*|_24)?(?![A-Za-z_]) | (?<=\dMarlin)I
        | (?<![A-Za-z])marlin\w*_(?:gemm|mma)(?![a-z])
        | (?i:(?<![a-z])fused_moe\w*?_(?:gemm|mma|sm_?(?:[89]\d|1\d\d))(?![a-z0-9]))
        | gemm_forward_4bit | ^fp8_(?:index|gemm)_kernel_kernel$""",
        "a product of fp8, fp4, int4 or bf16 operands, written for Tensor Cores",
    ),
    _rule(
        "yes", "sparse",
        r"(?<![a-z])gemm_sparse_row | Sparse(?:Gemm|Mma)(?![a-z])",
        "a product with a 2:4 sparse operand: an instruction of Tensor Cores only",
    ),
    _rule(
        "no", "sparse",
        r"""(?<![A-Za-z])k?spmm_(?!\w*(?:tensor|tc(?![a-z])|24|ell)) | SpMM(?:Csr|Coo)
        | (?<![A-Za-z])(?:csr|coo)m[mv]_""",
        "a product with a sparse matrix of single elements, on multiply-adds of CUDA cores",
    ),
    _rule(
        "no", "scan",
        r"""selective_scan_(?:fwd|bwd|update) | ^_?state_passing_(?:fwd|bwd)
        | (?<![a-z])fused_recurrent_""",
        "a recurrence that goes step by step through the sequence, without a product of matrices",
    ),
    _rule(
        "yes", "Triton",
        r"^\w*gemm\w*_tma(?:_\w+)?$ | ^\w*(?<![a-z])tma_\w*gemm(?![a-z])\w*$",
        "a product that loads by TMA: code for Hopper and later",
        own=True,
    ),
    _rule(
        "likely", "Triton",
        r"""^\w*(?:matmul|scaled_mm|_gemm_a(?:\d+|fp\d)_?w|lora_(?:shrink|expand))\w*$
        | ^\w*(?:unified|flex|prefix|context)_attention\w*$
        | ^_?(?:attn|flash_attn|attention)_(?:fwd|bwd)\w*$
        | ^_?bwd_(?:kernel_)?(?:dk_?dv|dq|fuse)(?:_kernel)?$ | ^_(?:fwd|bwd)_kernel$
        | ^_fwd_kernel_(?:alibi|splitK|flash_attn_v2)$
        | ^_?fwd_grouped_kernel_stage1 | ^_(?:bmm_chunk|chunk_scan|chunk_state)_\w+$
        | ^chunk_\w*(?:fwd_kernel_[oh]|bwd_kernel_d[a-z]+|dot_kkt_fwd)
        | ^(?:recompute_w_u|prepare_wy_repr)_(?:fwd|bwd)_kernel
        | ^_?(?:kernel_)?(?:fbgemm_)?grouped_gemm
          (?:_(?:fp8|bf16|ws|forward|fwd|d[XW])\w*)?(?:_kernel)?$
        | ^_?fused_moe_(?:lora_)?kernel(?:_gptq_awq)?$ | ^_?fused_moe_router_tensorcore
        | ^_?scatter2scatter(?:_lora)?$ | ^_groupXtY | ^_(?:sdd|dsd|dds)_kernel$
        | fused_linear_cross_entropy | ^_cce_(?:lse_forward|backward)_kernel | ^gemm_fusion_dot""",
        "a product in a kernel that Triton made: tl.dot",
        own=True,
    ),
    # ------------------------------------------------------------------ other known kernels
    _rule(
        "no", "FBGEMM",
        r"^fbgemm_gpu::(?!\w*gemm)(?!.*(?:::|_)gemm)",
        "FBGEMM's embedding, quantisation and index kernels hold no product",
        own=True,
    ),
    _rule(
        "no", "other operation",
        r"""(?<![A-Za-z])(?:compute_cuda_kernel<(?:int|long) | cunn_ | cuApply | cuCompute
        | multi_tensor_apply | act_and_mul | reshape_and_cache | store_kv_?cache
        | applyMLARope)""",
        "an operation without a product, so on CUDA cores",
    ),
)  # fmt: skip
"""The rules in order; the first whose words occur decides."""

_NO_PRODUCT: Final = frozenset({
    "softmax", "layernorm", "rmsnorm", "groupnorm", "batchnorm", "norm", "norms", "normalize",
    "elementwise", "pointwise", "rotary", "rope", "embedding", "embeddings", "embs",
    "dropout", "topk", "argmax", "argmin", "sort", "sorted", "radix", "histogram",
    "gather", "indexing", "indices", "linearize", "transpose", "permute",
    "permutation", "memset", "memcpy", "copy", "fill", "cast", "cvt", "quantize",
    "quantization", "quant", "dequantize", "dequant", "activation", "silu", "gelu", "swiglu",
    "relu", "sigmoid", "tanh", "sampling", "adam", "adamw", "adagrad", "sgd", "lamb",
    "optimizer", "kvcache", "cache", "pool", "pooling", "upsample", "interpolate", "bitonic",
    "reduce", "allreduce", "allgather", "alltoall", "lamport", "nll", "crossentropy",
    "routing", "cumsum", "im2col", "concat", "geglu", "swizzle", "amax", "absmax",
    "downcast", "upcast", "indexselect", "indexadd", "indexcopy", "indexfill", "scatteradd",
    "scatterreduce",
})  # fmt: skip
"""Words, and pairs of words, of operations whose instructions are those of CUDA cores.

`scatter` and `index` are not here: fused products scatter their rows, and indexers multiply.
"""

_PRODUCT: Final = frozenset({
    "gemm", "gemms", "bgemm", "sgemm", "hgemm", "igemm", "dgemm", "matmul", "matmuls", "mm",
    "bmm", "gmm", "spmm", "addmm", "mmq", "dot", "einsum", "attn", "attention", "mha", "mqa",
    "gqa", "mla", "fmha", "sdpa", "flash", "conv", "conv1d", "conv2d", "conv3d",
    "convolution", "deconv", "mlp", "moe", "expert", "experts", "ffn", "fc", "lora", "linear",
    "proj", "projection", "qkv", "product", "mma", "chunk", "ssm", "ssd", "syrk", "trsm",
    "potrf", "getrf", "solve", "winograd", "correlation", "indexer", "logits", "score",
    "scores", "prefill", "decode", "delta", "recurrent", "mamba", "rnn", "lstm", "gru",
    "cutlass", "xmma", "gla", "nsa", "kda", "hstu", "retention", "wkv", "sdd", "dsd", "dds",
})  # fmt: skip
"""Words of operations that may multiply matrices: they outweigh the words above."""

_PRODUCT_PART = re.compile(r"(?i)gemm|matmul|attention|attn|fmha")
"""Parts of words that mean a product, where a name runs its words together."""

_LIBRARY = re.compile(r"(?i)deep_?gemm|fbgemm|flashinfer|transformer_engine")
"""Names of libraries that contain words of operations: no evidence about a kernel."""

_QUOTED: Final = 60
"""Characters of a match that the evidence quotes: its last."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+(?:\dd)?|\d+")


@lru_cache(1 << 14)
def tensor_core_by_name(kernel: str) -> Verdict:
    """Return the verdict that the full demangled name of a kernel allows.

    A cut, mangled or suffixed (`.kd`) name is fine: it then says less.
    """
    name = kernel.strip().removesuffix(".kd")[:TELLING]
    short = short_name(kernel)[:TELLING]
    for rule in RULES:
        if word := rule.pattern.search(short if rule.own else name):
            evidence = f"'{word[0].strip()[-_QUOTED:]}': {rule.meaning}"
            return Verdict(rule.tensor_core, rule.family, evidence)
    # No rule: a name whose words are all of operations without a product is a `no`.
    words = _WORD.findall(_LIBRARY.sub("", short.removeprefix("kernel_cutlass_")))
    low = [word.lower() for word in words]
    pairs = [one + other for one, other in pairwise(low)]
    plain = [word for word in (*low, *pairs) if word in _NO_PRODUCT]
    if plain and not any(word in _PRODUCT or _PRODUCT_PART.search(word) for word in low):
        found = _spelled(plain[0]).search(short)
        word_found = found[0] if found else plain[0]
        meaning = "an operation without a product, so on CUDA cores"
        return Verdict("no", "other operation", f"'{word_found}': {meaning}")
    return Verdict("unknown", "unknown", "no rule knows a word of the name")


@lru_cache(1 << 10)
def _spelled(word: str) -> re.Pattern[str]:
    """Return the pattern of a word, or pair of words, as it stands in a name."""
    return re.compile("_*".join(word), re.IGNORECASE)


# --------------------------------------------------------------------------- with the dtype

_FIRST_WITH: Final = {
    "f16": (7, 0), "i8": (7, 2), "u8": (7, 2), "i4": (7, 5), "u4": (7, 5),
    "bf16": (8, 0), "f32": (8, 0), "c64": (8, 0), "f64": (8, 0), "c128": (8, 0),
    "f8": (8, 9), "f4": (10, 0),
}  # fmt: skip
"""dtype: the first compute capability of NVIDIA whose Tensor Cores multiply it.

f32 is multiplied as TF32, c64 as TF32 parts, c128 as f64 parts. Source: "CUDA C++ Programming
Guide", table of the Tensor Cores' input types by compute capability.
"""

_ONLY_ON: Final = {
    "f64": {(8, 0), (9, 0), (10, 0), (10, 3)},
    "c128": {(8, 0), (9, 0), (10, 0), (10, 3)},
    "i4": {(7, 5), (8, 0), (8, 6), (8, 7), (8, 9)},
    "u4": {(7, 5), (8, 0), (8, 6), (8, 7), (8, 9)},
}
"""dtype: the compute capabilities that multiply it, where later ones do not. Same source."""

_FIRST_TENSOR_CORES: Final = (7, 0)

_CDNA: Final = {(9, 4), (9, 5)}
"""gfx942 and gfx950. (9, 0) is gfx90a and gfx908, but gfx906 too, which has no matrix cores."""

_CDNA_DTYPES: Final = frozenset({"f16", "bf16", "f32", "f64", "i8", "f8"})

_ANSWERS: Final[dict[bool | None, Answer]] = {True: "yes", False: "no", None: "unknown"}


def _kind(dtype: str) -> str:
    """Return `f8` for every fp8 type, `f4` for fp4, `i8` and `u8` for the quantised ones."""
    for prefix in ("f8e4", "f8e5", "f4", "qi8", "qu8"):
        if dtype.startswith(prefix):
            return prefix.removeprefix("q")[:2]
    return dtype


def _capability(text: str | None) -> tuple[int, int] | None:
    """Parse `9.0`; None where it is absent or no such thing."""
    found = re.fullmatch(r"(\d{1,4})\.(\d{1,4})", text or "")
    return (int(found[1]), int(found[2])) if found else None


def tensor_core(
    kernel: str,
    dtype: str | None = None,
    compute_capability: str | None = None,
    tf32: bool | None = None,  # noqa: FBT001 -- one more fact that a caller has, like the dtype
    device_type: str | None = None,
) -> Verdict:
    """Return `yes`, `no` or `unknown` for a kernel of an op that computes in `dtype`.

    The verdict of the name alone holds, except on a device without Tensor Cores. Where it is
    `likely`, the dtype decides: 16-bit and 8-bit floats and int8 are multiplied by Tensor Cores
    wherever the device has them for that type; float32 only as TF32, so without a known `tf32`
    the verdict is unknown (AMD's CDNA 3 multiplies float32 as it is).

    Args:
        kernel: the full demangled name.
        dtype: in pyprof2's spelling; None: unknown.
        compute_capability: such as `9.0`; AMD: the gfx version's first two; None: unknown.
        tf32: whether float32 products may use TF32; None: unknown.
        device_type: `cuda` or `hip`; None: unknown.
    """
    capability = _capability(compute_capability)
    if capability and capability < _FIRST_TENSOR_CORES and device_type in {None, "cuda"}:
        evidence = f"compute capability {compute_capability} has no Tensor Cores"
        return Verdict("no", "device", evidence)
    verdict = tensor_core_by_name(kernel)
    if verdict.tensor_core != "likely":
        return verdict
    able, reason = _by_dtype(dtype, capability, device_type, tf32=tf32)
    return Verdict(_ANSWERS[able], verdict.family, f"{verdict.evidence}; {reason}")


def _by_dtype(
    dtype: str | None,
    capability: tuple[int, int] | None,
    device_type: str | None,
    *,
    tf32: bool | None,
) -> tuple[bool | None, str]:
    """Resolve `likely`: the code multiplies on Tensor Cores if they take the type."""
    if dtype is None:
        return None, "the dtype is not known"
    kind = _kind(dtype)
    if kind == "f64":
        return None, "compilers differ in how they multiply f64"
    if kind == "f32" and device_type != "hip" and capability not in _CDNA:
        return _by_tf32(capability, tf32=tf32)
    if capability is None and device_type != "hip" and kind in {"f16", "bf16", "f8", "f4"}:
        return True, f"{dtype}, and every device that runs such code has Tensor Cores"
    able = _multiplies(kind, capability, device_type)
    if not able and kind in {"f8", "f4"} and _multiplies("f16", capability, device_type):
        return True, f"{dtype}, widened to 16 bits on this device"
    return able, f"{dtype} on compute capability {capability or 'unknown'}"


def _by_tf32(capability: tuple[int, int] | None, *, tf32: bool | None) -> tuple[bool | None, str]:
    if capability and capability < _FIRST_WITH["f32"]:
        return False, "f32, and this device has no TF32"
    if tf32 is None:
        return None, "f32, and whether TF32 is allowed is not known"
    return tf32, "f32 as TF32" if tf32 else "f32 with TF32 off"


def _multiplies(
    kind: str, capability: tuple[int, int] | None, device_type: str | None
) -> bool | None:
    """Say whether the device's matrix units take the type; None where that is not known."""
    if capability in _CDNA:
        return kind in _CDNA_DTYPES or (kind == "f4" and capability == (9, 5))
    if kind not in _FIRST_WITH:
        return False
    if device_type == "hip" or capability is None:
        return None
    return capability >= _FIRST_WITH[kind] and capability in _ONLY_ON.get(kind, {capability})


# --------------------------------------------------------------------------- eligibility

_ALIGNMENT: Final = {"f8": 16, "f4": 32, "i8": 4, "u8": 4}
"""dtype: what K and N of a product must be multiples of.

For fp8, fp4 and int8 the library takes no other sizes (cuBLAS, "cublasLtMatmul()", tables of
what each type demands). All other types are always possible: since cuBLAS 11.0 and cuDNN 7.6.3
sizes that are not multiples of 16 bytes only cost speed (NVIDIA, "Matrix Multiplication
Background User's Guide", "Tensor Core Requirements").
"""


def eligible(
    category: str | None,
    dtype: str | None,
    dims: Mapping[str, int],
    compute_capability: str | None,
    device_type: str | None,
) -> bool | None:
    """Say whether Tensor Cores could do the work of an op, whatever did it.

    The rule is about what hardware and libraries can do, not about speed: a type that the Tensor
    Cores of the device take (float32 as TF32, even where TF32 is off), and sizes that the
    library takes (see `_ALIGNMENT`). A depthwise convolution, one channel in each group, is a
    stencil and no product of matrices.

    Args:
        category: of the op. Only matmul, conv, attention and rnn can be eligible.
        dtype: that it computes in.
        dims: `N` and `K` of a matmul; of a conv `C`, its input channels, and `groups`. Absent
            sizes are taken to be no hindrance.
        compute_capability: of the device.
        device_type: `cuda`, `hip`, `xpu` or `cpu`.

    Returns:
        None where the category, the dtype or what the device can do is not known.
    """
    if category is None:
        return None
    groups = dims.get("groups", 1)
    is_depthwise = category == "conv" and groups > 1 and groups == dims.get("C")
    if category not in MATRIX_WORK or device_type == "cpu" or is_depthwise:
        return False
    if dtype is None or device_type == "xpu":
        return None
    kind = _kind(dtype)
    step = _ALIGNMENT.get(kind, 1)
    if category == "matmul" and any(dims.get(size, 0) % step for size in ("N", "K")):
        return False
    return _multiplies(kind, _capability(compute_capability), device_type)
