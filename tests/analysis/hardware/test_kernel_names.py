"""Short names, kinds of work and helpers, told from the names of kernels."""

from __future__ import annotations

import csv
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.hardware import kernel_names
from pyprof2.analysis.hardware.kernel_names import (
    category_by_name,
    element_of,
    is_helper,
    only_moves,
    short_name,
)

if TYPE_CHECKING:
    from pathlib import Path

CATEGORIES = {
    "matmul", "conv", "attention", "norm", "softmax", "elementwise", "reduce", "pool",
    "embedding", "index", "copy", "cat", "optimizer", "loss", "random", "sort", "rnn", "fft",
    "comm", "memcpy", "memset", "other",
}  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "short"),
    [
        pytest.param(
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>,"
            " at::detail::Array<char*, 3> >(int, at::native::AddFunctor<float>)",
            "at::native::vectorized_elementwise_kernel",
            id="template arguments and arguments",
        ),
        pytest.param(
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, 2>(float*)",
            "at::native::(anonymous namespace)::CatArrayBatchedCopy",
            id="unnamed namespace",
        ),
        pytest.param(
            "void <unnamed>::softmax_warp_forward<float, (int)6, (bool)0>(T2 *, const T1 *)",
            "(anonymous namespace)::softmax_warp_forward",
            id="unnamed namespace as nsys writes it",
        ),
        pytest.param("unsigned int ns::g<A<B<int>>>(int)", "ns::g", id="nested, two words"),
        pytest.param(
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(P<int>)",
            "internal::gemvx::kernel",
            id="return type with template arguments",
        ),
        pytest.param(
            "void f<(a > b), (1 >> 2), decltype(p->x), (x < y)>(int)",
            "f",
            id="arrows, shifts, comparisons",
        ),
        pytest.param("void f<auto (int) -> bool, g<3>>(int)", "f", id="arrow outside parentheses"),
        pytest.param(
            "void par<build(int)::[lambda(int) (instance 1)]>(Range, T1)",
            "par",
            id="lambda as template argument",
        ),
        pytest.param(
            "at::native::f(int)::{lambda(float)#1}::operator()(float) const",
            "at::native::f::{lambda(float)#1}::operator()",
            id="lambda as kernel",
        ),
        pytest.param(
            "at::native::f(int)::[lambda() (instance 1)]::operator ()(int) const",
            "at::native::f::[lambda() (instance 1)]::operator()",
            id="lambda as nsys writes it",
        ),
        pytest.param("void ns::Foo<int>::operator()<3>(int)", "ns::Foo::operator()", id="call"),
        pytest.param("bool ns::operator< <int>(A, B)", "ns::operator<", id="less-than operator"),
        pytest.param("void my_operator<int>(A)", "my_operator", id="no operator"),
        pytest.param("decltype(auto) ns::f<int>(int)", "ns::f", id="decltype"),
        pytest.param("attn_fwd.kd", "attn_fwd", id=".kd suffix"),
        pytest.param("foo(int) [clone .kd]", "foo", id="clone suffix"),
        pytest.param("void cutlass::Kernel2<cutl", "cutlass::Kernel2", id="cut in template"),
        pytest.param("void at::native::(anonymous namespace)::Cat", "at::native::(anonymous"
                     " namespace)::Cat", id="cut in name"),
        pytest.param("void foo(Bar<i", "foo", id="cut in arguments"),
        pytest.param("void foo", "foo", id="cut before any bracket"),
        pytest.param("volta_sgemm_64x64_nt", "volta_sgemm_64x64_nt", id="bare"),
        pytest.param("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD", id="copy"),
        pytest.param("Memset (Device)", "Memset", id="memset"),
        pytest.param(
            "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bLi64EEEvPT0_",
            "aiter::add_rmsnorm_quant_kernel",
            id="mangled",
        ),
        pytest.param(
            "_ZN2ck6device12_GLOBAL__N_16kernelIiEEvv",
            "ck::device::(anonymous namespace)::kernel",
            id="mangled, unnamed namespace",
        ),
        pytest.param("_Z3fooi.kd", "foo", id="mangled, no namespace"),
        pytest.param("_ZTV3foo", "_ZTV3foo", id="mangled, not understood"),
        pytest.param("_ZN99999999999999999999x", "_ZN99999999999999999999x", id="too long a part"),
        pytest.param("_ZN" + "9" * 5000, "_ZN" + "9" * 5000, id="5,000 digits"),
        pytest.param("_Z\N{SUPERSCRIPT TWO}x", "_Z\N{SUPERSCRIPT TWO}x", id="no digit of ASCII"),
        pytest.param(
            "autograd::engine::evaluate_function: MmBackward0",
            "autograd::engine::evaluate_function: MmBackward0",
            id="op on the CPU",
        ),
        pytest.param("", "", id="empty"),
    ],
)  # fmt: skip
def test_short_name_is_the_qualified_name_alone(kernel: str, short: str) -> None:
    assert short_name(kernel) == short


@given(st.text(alphabet="ab:<>()[]{}-*& ,0_ZN1operator", max_size=60))
def test_any_text_has_a_short_name_that_is_not_empty(text: str) -> None:
    assert bool(short_name(text)) == bool(text.strip())
    category_by_name(text)
    is_helper(text)
    only_moves(text)


@pytest.mark.parametrize("unit", ["<", "(<", "a<", "flash", "x ", "operator", "_Z1a"])
def test_hostile_names_take_no_time(unit: str) -> None:
    name = unit * (100_000 // len(unit))
    start = time.process_time()

    short_name(name)
    category_by_name(name)
    is_helper(name)
    only_moves(name)

    assert time.process_time() - start < 5


NAMES = {
    "comm": """
        ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)
        void deep_ep::internode_ll::dispatch<true, 7168>(int)
        void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(int)
        void tensorrt_llm::kernels::twoshotAllreduceKernel<8>(int)
    """,
    "matmul": """
        nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN
        volta_sgemm_64x64_nt
        void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4>(P)
        Cijk_Alik_Bljk_BBS_BH_Bias_MT256x192x64_MI16x16x1_SN
        void gemv2T_kernel_val<int, int, float>(P)
        void splitKreduce_kernel<32, 16, int, float>(P)
        void marlin::Marlin<__nv_bfloat16, 1l>(int4 const*)
        triton_tem_fused_mm_0
    """,
    "conv": """
        volta_scudnn_128x64_relu_interior_nn_v1
        sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize
        void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized>(P)
        igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x64x8
        void cudnn::ops::nchwToNhwcKernel<float, float>(P)
        void at::native::vol2col_kernel<float>(P)
    """,
    "attention": """
        void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>(P)
        fmha_cutlassF_f16_aligned_64x64_rf_sm80(P)
        cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7
        void flashinfer::BatchDecodeWithPagedKVCacheKernel<2u>(P)
        kernel_unified_attention_2d
        void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<T>>>(P)
    """,
    "norm": """
        void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>(P)
        void cudnn::bn_fw_tr_1C11_singleread<float, 512>(P)
        void at::native::elementwise_kernel_manual_unroll<4, GroupNormKernelImplInternal<T>>(P)
        _ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipeline
    """,
    "softmax": """
        void (anonymous namespace)::softmax_warp_backward<float, float>(float*)
        void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>(float*)
    """,
    "reduce": """
        void at::native::reduce_kernel<512, 1, ReduceOp<float, NormTwoOps<float>>>(P)
        triton_red_fused_add_mean_mul_pow_rsqrt_0
        void cub::DeviceScanKernel<int>(int*)
    """,
    "elementwise": """
        void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>(int)
        triton_poi_fused_add_cos_sin_0
        void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)
    """,
    "copy": """
        void at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda(I&)::{lambda()#3}>(P)
        void vllm::reshape_and_cache_flash_kernel<unsigned short>(P)
    """,
    "cat": """
        void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, 2>(float*)
    """,
    "index": """
        void at::native::index_elementwise_kernel<128, 4, F>(int)
        void at::native::vectorized_gather_kernel<16, long>(char*)
    """,
    "embedding": """
        void split_embedding_codegen_forward_unweighted_kernel<float>(P)
    """,
    "optimizer": """
        void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>>(P)
    """,
    "sort": """
        void at::native::sbtopk::gatherTopK<c10::BFloat16>(P)
        void cub::DeviceRadixSortOnesweepKernel<int>(int*)
    """,
    "random": """
        void at::native::distribution_elementwise_grid_stride_kernel<float, 4>(P)
    """,
    "pool": """
        void at::native::(anonymous namespace)::max_pool_forward_nchw<float>(P)
    """,
    "loss": """
        void at::native::vectorized_elementwise_kernel<4, mse_kernel_cuda(P)>(P)
    """,
    "fft": """
        void regular_fft<1024u, float>(P)
    """,
    "rnn": """
        void LSTM_elementWise_fp<__half, __half, float>(P)
    """,
    "memcpy": """
        Memcpy DtoD (Device -> Device)
    """,
    "memset": """
        Memset (Device)
    """,
    None: """
        void my_kernel(float*)
        Kernel2
        lgamma_kernel
    """,
}


@pytest.mark.parametrize(
    ("kernel", "category"),
    [
        pytest.param(name.strip(), category, id=name.strip()[:60])
        for category, names in NAMES.items()
        for name in names.strip().splitlines()
    ],
)
def test_category_is_the_kind_of_work_in_the_name(kernel: str, category: str | None) -> None:
    assert category_by_name(kernel) == category


def test_categories_are_those_of_the_column() -> None:
    assert set(NAMES) <= CATEGORIES | {None}
    assert {category for category, _ in kernel_names._RULES} <= CATEGORIES


@pytest.mark.parametrize(
    "kernel",
    [
        "void splitKreduce_kernel<32, 16, int, float>(P)",
        "void epilogue::impl::globalKernel<float, float, float, true, true>(int)",
        "Cijk_SB_BiasSB_HAS_ScaleAlphaVec_PostGSU16_VW4",
        "void nchwToNhwcKernel<float, float, float, true, false>(int)",
        "transpose_NCHW2CNHW_V2_2D_WG_off64",
        "batched_transpose_32x16_half",
        "cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(P)",
        "void mul_mat_q_stream_k_fixup<(ggml_type)8, 64, false>(P)",
        "void flash::flash_fwd_splitkv_combine_kernel<T, 4>(P)",
        "void flash::flash_bwd_dot_do_o_kernel<true, T>(P)",
        "void flash::flash_bwd_convert_dkv_kernel<T>(P)",
        "void cudnn::fusion::convert_dq_to_16bits<true, __half, 128>(P)",
        "void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<T>>(P)",
        "void flashinfer::PersistentVariableLengthMergeStatesKernel<8u>(P)",
        "fmhaReductionKernel_Bfloat16",
    ],
)
def test_passes_that_only_prepare_or_finish_are_helpers(kernel: str) -> None:
    assert is_helper(kernel)


@pytest.mark.parametrize(
    "kernel",
    [
        "volta_sgemm_64x64_nt",
        "nvjet_tst_128x96_64x7_4x1_v_bz_splitK_bias_TNT",
        "void flash::flash_fwd_splitkv_kernel<T, true>(P)",
        "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<T>(P)",
        "void cutlass::device_kernel<flash::FlashAttnFwdSm90<T>>(P)",
        "void deep_ep::intranode::combine<__nv_bfloat16, 8>(P)",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_ffma_execute_split_k_kernel",
        "void at::native::reduce_kernel<512, 1, T>(P)",
    ],
)
def test_kernels_that_do_the_work_are_no_helpers(kernel: str) -> None:
    assert not is_helper(kernel)


@pytest.mark.parametrize(
    "kernel",
    [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<T>>(int)",
        "void at::native::elementwise_kernel_manual_unroll<128, 4, direct_copy_kernel_cuda>(int)",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(R)",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, 2>(float*)",
        "void cub::DeviceReduceSingleTileKernel<P>(T)",
        "void cudnn::ops::nhwcAddPaddingKernel<float, float>(P)",
        "void op_tensor_kernel_alpha2_zero<2, float, float, float, 512>(P)",
        "Op1dTensorGeneric",
        "MIOpenConvBwdB",
        "triton_poi_fused_addmm_gelu_4",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ],
)
def test_pointwise_kernels_sums_and_copies_multiply_no_matrices(kernel: str) -> None:
    assert only_moves(kernel)


def test_no_real_kernel_that_used_tensor_cores_only_moves(shared: Path) -> None:
    with (shared / "truth" / "kernel_tensor_core.csv").open(encoding="utf-8") as file:
        used = [row["kernel"] for row in csv.DictReader(file) if row["tensor_core"] == "yes"]

    assert len(used) > 100
    assert not [kernel for kernel in used if only_moves(kernel)]


@pytest.mark.parametrize(
    "kernel",
    [
        "triton_tem_fused_addmm_gelu_4",
        "dot_kernel",
        "void gemv2T_kernel_val<int, int, float>(P)",
        "void conv_depthwise2d_forward_kernel<float>(P)",
        "void LSTM_elementWise_fp<float, float, float>(int)",
    ],
)
def test_kernels_that_may_multiply_do_not_only_move(kernel: str) -> None:
    assert not only_moves(kernel)


@pytest.mark.parametrize(
    ("kernel", "category"),
    [
        ("triton_poi_fused_addmm_gelu_4", "elementwise"),
        ("triton_poi_fused_convolution_relu_0", "elementwise"),
        ("triton_poi_fused__scaled_dot_product_flash_attention_0", "elementwise"),
        ("triton_per_fused_addmm_sum_1", "reduce"),
        ("triton_red_fused_convolution_native_batch_norm_backward_2", "norm"),
        ("triton_poi_fused_all_gather_into_tensor_1", "index"),
        ("triton_tem_fused_addmm_gelu_4", "matmul"),
    ],
)
def test_inductors_pointwise_kernels_and_reductions_are_no_products(
    kernel: str, category: str
) -> None:
    assert category_by_name(kernel) == category


def test_short_names_of_real_kernels_have_no_brackets(shared: Path) -> None:
    with (shared / "truth" / "kernel_tensor_core.csv").open(encoding="utf-8") as file:
        names = [row["kernel"] for row in csv.DictReader(file)]
    shorts = [short_name(name).replace("(anonymous namespace)", "") for name in names]

    assert len(names) > 700
    assert not [short for short in shorts if set(short) & set("<>() ")]


@pytest.mark.parametrize(
    ("kernel", "category"),
    [
        ("sm80_xmma_pooling_fw_4d_f16f16_nhwc", "pool"), ("cutlass_pooling_kernel", "pool"),
        ("void cudnn::pooling_fw_4d_kernel<float>(float*)", "pool"),
        ("sm80_xmma_gemm_f16f16_f16f32", "matmul"),
    ],
)  # fmt: skip
def test_pooling_is_no_product_whoever_made_it(kernel: str, category: str) -> None:
    assert category_by_name(kernel) == category


ADD = (
    "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<{}>, Array<char*, 3> >(int)"
)


@pytest.mark.parametrize(
    ("kernel", "element"),
    [
        ("volta_sgemm_128x64_nn", "f32"),
        ("void cutlass::Kernel<cutlass_80_simt_sgemm_64x64_8x5_nt_align1>(P)", "f32"),
        ("maxwell_scudnn_128x32_relu_small_nn", "f32"),
        ("void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, true>(int)", "f32"),
        ("volta_dgemm_64x64_nn", "f64"),
        ("volta_h884gemm_256x64_ldg8_tn", "f16"),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x5_nn", "f16"),
        ("volta_fp16_scudnn_fp16_128x64_relu_interior_nn_v1", "f16"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64>(P)", "bf16"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>(P)", "f32"),
        ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x64x64", "f16"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw", "f32"),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "bf16"),
        (ADD.format("float"), "f32"),
        (ADD.format("c10::BFloat16"), "bf16"),
        ("void softmax_warp_forward<c10::Half, c10::Half, float, 7>(P)", "f16"),
        ("void f(G)::{lambda()#2}::operator()() const::{lambda(c10::Half)#1}", "f16"),
        ("void vectorized_layer_norm_kernel<c10::BFloat16, float>(int)", "bf16"),
    ],
)  # fmt: skip
def test_the_name_says_the_one_type_of_all_tensors(kernel: str, element: str) -> None:
    assert element_of(kernel) == element


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param("cutlass_80_tensorop_s16816gemm_bf16_64x64", id="operands alone"),
        pytest.param("turing_s884gemm_64x64", id="result alone"),
        pytest.param("sm80_xmma_gemm_bf16bf16_f32f32_f32_tn_n", id="a wider result"),
        pytest.param("nvjet_tss_128x256_64x4", id="a wider result, another family"),
        pytest.param("softmax_warp_forward<c10::Half, float, float, 7>(P)", id="half to float"),
        pytest.param(
            "void dot_kernel<float, 128, 0, P<V<__nv_bfloat16 const>, V<float> > >(P)", id="a sum"
        ),
        pytest.param(
            "unrolled_elementwise_kernel<CUDAFunctor_add<float>, memory::LoadWithCast<2>>",
            id="tensors that it casts",
        ),
        pytest.param(
            "elementwise_kernel<128, 4, at::native::gpu_kernel_impl<CUDAFunctor_add<float> >",
            id="tensors that it may cast",
        ),
        pytest.param("void f(float*, float)", id="arguments"),
        pytest.param(
            "void implicit_convolve_sgemm<__half, __half, 1024, 5>(int)", id="a sum in f32"
        ),
        pytest.param("bn_fw_tr_1C11_kernel_NCHW<__half2, float, 512, true, 1>(P)", id="f32 beside"),
        pytest.param("f<InvStd, c10::Half, float, float, int>(P)", id="no type twice"),
        pytest.param("dequantize_kernel<float>(P)", id="packed weights"),
        pytest.param("", id="nothing"),
    ],
)  # fmt: skip
def test_a_name_that_says_less_says_no_type(kernel: str) -> None:
    assert element_of(kernel) is None
