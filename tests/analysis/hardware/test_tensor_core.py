r"""Verdicts from kernel names, what resolves them, and what Tensor Cores could do.

The names are the libraries' own spellings, template arguments shortened. A backslash at the end
of a line joins it to the next.
"""

from __future__ import annotations

import csv
import re
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.hardware.kernel_names import short_name
from pyprof2.analysis.hardware.tensor_core import (
    RULES,
    eligible,
    tensor_core,
    tensor_core_by_name,
)

if TYPE_CHECKING:
    from pathlib import Path

# By family and answer; each heading says why the answer is right.
NAMES = {
    ("yes", "cuBLAS, cuDNN: h/s/i + 884, 1688, 8816, 16816, 16832 is an mma of that shape"): r"""
        volta_h884gemm_128x128_ldg8_nn
        volta_s884gemm_fp16_64x128_ldg8_f2f_tn
        volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn
        volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc2nchw_tn_v1
        volta_s884cudnn_fp16_128x128_ldg8_wgrad_exp_interior_nhwc_nt_v1
        volta_h884cudnn_winograd_fp16_128x128_ldg8_relu_tile148t_nt
        turing_h1688cudnn_256x64_sliced1x2_ldg8_relu_exp_small_nhwc_tn_v1
        turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_stages_32x1_tn
        turing_int8_i8816cudnn_int8_256x128_ldg16_relu_medium_nt_v1
        ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_tn
        ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn
        ampere_bf16_s1688gemm_bf16_128x128_ldg8_f2f_stages_32x1_nn
        ampere_h16816gemm_256x128_ldg8_stages_32x3_tn
        ampere_i16832gemm_int8_128x128_ldg16_stages_64x4_tn
        ampere_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1
        trt_ampere_h16816gemm_128x64_ldg8_nn_v1
        Volta_hmma_implicit_gemm_fprop_fp32_nhwc_128x128x64x1_1x3x3x0x1
        RNN_blockPersist_fp_LSTM_HMMA
    """,
    ("no", "cuBLAS, cuDNN: the same families without an instruction are FFMA, HFMA, DP4A"): r"""
        volta_sgemm_128x64_nn
        volta_dgemm_128x64_nn
        volta_hgemm_128x128_nn
        volta_cgemm_64x32_tn
        volta_zgemm_64x64_nt
        volta_fp16_sgemm_fp16_128x64_tn
        volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1
        cudnn_ampere_scudnn_128x32_relu_interior_nn_v1
        maxwell_sgemm_128x64_nn
        maxwell_fp16_sgemm_fp16_128x128_tn
        maxwell_icudnn_int8x4_128x128_relu_small_nt
        turing_fp16_scudnn_fp16_128x64_relu_small_nn_v1
        ampere_sgemm_32x32_sliced1x4_tn
        ampere_gcgemm_64x64_nt
        ampere_igemm_int8_128x128_ldg4_nt
        sgemm_128x128x8_NT_vec
        dgemm_sm35_ldg_nn_64x8x128x8x16
        fermiPlusCgemmLDS128_batched<true, false>(P)
        void sgemm_largek_lds64<true, true, 6, 3, 4, 5, 2, 66>(float*)
        void gemm_kernel2x2_core<float, 128, 16>(P)
        void magma_lds128_sgemm_kernel<false, true, 5, 5, 3, 3, 3>(P)
    """,
    ("no", "cuBLAS: products with vectors, and the passes around a product"): r"""
        void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16>(P)
        std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(P)
        void gemmSN_NN_kernel<__half, 256>(P)
        void gemmk1_kernel<float, 256, 5, false>(P)
        void dot_kernel<double, 128, 0, cublasDotParams<double const>>(P)
        void axpy_kernel_val<double, double>(cublasAxpyParamsVal<double, double, double>)
        void cublasLt::splitKreduce_kernel<32, 16, int, __half>(cublasSplitKParams<float>)
        void epilogue::impl::globalKernel<float, float, float, true, true>(int)
        void tensorrt_llm::kernels::cuda_core_gemm::cudaCoreGemm<float>(P)
    """,
    ("yes", "nvjet: Hopper and Blackwell, always wgmma or tcgen05"): r"""
        nvjet_hsh_256x128_64x4_2x1_v_bz_coopA_TNN
        nvjet_tst_128x96_64x7_4x1_v_bz_biast_relu_TNT
        nvjet_sm100_tst_mma_128x208x64_5_48x208x64_cg2_2_tmastore_bz_bias_TNT
        nvjet_qqtst_128x256_128x4_2x1_v_bz_coopA_TNT
        nvjet_sss_64x64_32x8_1x1_h_bz_TNT
        nvjet_ootst_Avec16UE4M3_Bvec16UE4M3_256x192_256x5_2x1_v_bz_cooperative_TNT
    """,
    ("yes", "xmma: tensorMxNxK, TF32 operands, or code for Hopper and later"): r"""
        sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_tensor16x8x16_kernel
        sm80_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize128x128x16_tensor8x8x4_execute_kernel
        sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x12
        sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tensor16x8x8
        sm80_xmma_fprop_implicit_gemm_indexed_wo_smem_f16f16_f16f32_f32_tensor16x8x16t1r7s7
        sm75_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_tensor8x8x16_t1r3s3_kernel
        sm70_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_g1_tensor8x8x4_execute
        sm80_xmma_sparse_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_sptensor16x8x32_kernel
        sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute
        sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128_warpgroupsize1x1x1
        sm100_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize256x128x64
        void xmma_cudnn_infer::implicit_gemm::fprop_indexed::kernel<Ampere_hmma_fp32_traits>(P)
    """,
    (
        "no",
        "xmma: float32 operands with ffma, or cut before it, and code without Tensor Cores",
    ): r"""
        sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_w
        sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_g1_ffma_simple_t1r1s1
        sm80_xmma_wgrad_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nhwc_g1_ffma_strided_execute
        sm50_xmma_conv_fprop_fused_conv_act_fp32_NCHW_fp32_NCHW_KCRS
    """,
    ("yes", "xmma: 16-bit operands summed in float32, which no other unit does"): r"""
        sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_ti
        sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x
    """,
    ("likely", "xmma: 8-bit operands, the name cut before the instruction"): r"""
        sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_nchw_vect_c_32kcrs
    """,
    (
        "yes",
        "CUTLASS: class TensorOp, an instruction's shape, or a mainloop for sm90 and later",
    ): r"""
        cutlass_80_tensorop_d884gemm_128x64_16x3_nn_align1
        void cutlass::Kernel<cutlass_80_tensorop_c1688gemm_64x64_16x4_nn_align1>(P)
        void cutlass::Kernel2<cutlass_80_tensorop_gz884gemm_64x64_8x3_nt_align1>(P)
        void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_64x1>(P)
        void cutlass_cudnn_infer::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16>(P)
        void cutlass_cudnn_train::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_256x128>(P)
        cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_bf16_bf16_128x128x64_2x1x1_0_tnn
        cutlass3x_sm100_tensorop_s128x64x8tf32gemm_f32_f32_f32_f32_f32_128x64x32_0_tnn_align4
        cutlass3x_sm120_bstensorop_s16864gemm_block_scaled_ue4m3xf4
        void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int>, \
            cutlass::gemm::collective::CollectiveMma<MainloopSm90TmaGmmaWarpSpecialized<4>>>>(P)
        void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<\
            GemmUniversal<CollectiveMma<MainloopSm90TmaGmmaWarpSpecializedFP8<5>>>>>(P)
        void cutlass::device_kernel<GemmUniversal<MainloopSm100ArrayTmaUmmaWarpSpecialized<3>>>(P)
        _ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEE\
            NS1_10collective13CollectiveMmaINS1_34MainloopSm90TmaGmmaWarpSpecialized
        void cutlass::device_kernel<Gemm<cute::MMA_Atom<cute::SM80_16x8x16_F32BF16BF16F32_TN>>>(P)
        void cutlass::device_kernel<G<cute::MMA_Atom<cute::SM100_MMA_F16BF16_2x1SM_SS<T>>>>(P)
        void cutlass::device_kernel<G<cute::SM90::GMMA::MMA_64x128x16_F32BF16BF16_SS<T>>>(P)
        void cutlass::Kernel<Gemm<MmaMultistage<cutlass::gemm::warp::MmaTensorOp<\
            cutlass::gemm::GemmShape<64, 64, 32>, cutlass::half_t>>>>(P)
        void cutlass::Kernel<DefaultGemm<float, cutlass::arch::OpClassTensorOp, \
            cutlass::gemm::GemmShape<64, 64, 32>, cutlass::gemm::GemmShape<1, 1, 1>>>(P)
        kernel_cutlass_kernel___main__HopperWgmmaGemmKernel_object_at__CopyAtom_0
        kernel_cutlass_kernel___main__DenseGemm_object_at__MMAAtom_ThrID10_ShapeMNK1281288_0
        kernel_cutlass_kernel_flashinfergemmkernelsdense_blockscaled_gemm_sm100Sm100BlockScaled
        wmma_gemm_kernel(__half*, __half*, float*)
    """,
    ("no", "CUTLASS: class SIMT, or an instruction of 1x1x1"): r"""
        cutlass_80_simt_sgemm_128x128_8x4_nn_align1
        void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>(P)
        cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_128x64x16_1x1x1_3_tnn_align1_bias_f32_relu
        void cutlass::Kernel<Gemm<MmaPipelined<cutlass::gemm::warp::MmaSimt<float>>>>(P)
        void cutlass::Kernel<Gemm<float, GemmShape<128, 128, 8>, GemmShape<1, 1, 1>>>(P)
        void cutlass::Kernel<Gemm<float, GemmShape<(int)1, (int)1, (int)1>>>(P)
        void cutlass::device_kernel<G<cute::MMA_Atom<cute::UniversalFMA<float, float>>>>(P)
        kernel_cutlass_kernel___main__SGemm_object_at__TiledMMA_MMAAtom_ThrID10_ShapeMNK111_TV
    """,
    (
        "yes",
        "attention: the libraries' fused kernels are mma, for 16-bit and 8-bit types only",
    ): r"""
        void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, cutlass::half_t>, false>(P)
        void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>, true>(P)
        void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128>>(P)
        void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<T>>>(P)
        void cutlass::device_kernel<flash::FlashAttnBwdSm90<CollectiveMainloopBwdSm90<2>>>(P)
        kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at
        void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576>, true>(P)
        cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1
        cudnn_generated_oss_sdpa_sm100_flash_fprop_f16_knob_7_128x128x64_4x1x1_cga1x1x1_kernel0_0
        fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP64VarSeqQ128Kv128
        FmhaSm100aKernel_QE4m3KvE2m1OE4m3H128PagedKvCausalP32VarSeqQ128Kv128PersistentContext
        void cutlass::device_kernel<cutlass::fmha::kernel::Sm100FmhaFwdKernelTmaWarpspecialized>(P)
        void flashinfer::BatchPrefillWithPagedKVCacheKernel<KernelTraits<(MaskMode)1, 128>>(P)
        void flashinfer::SinglePrefillWithKVCacheKernel<KernelTraits<(MaskMode)1>>(P)
        void flashinfer::mla::BatchMLAPagedAttentionKernel<KernelTraits<true>>(P)
        fmha_v2_flash_attention_fp16_S_128_128_causal_sm80_kernel_nl
        fmha_mhca_fp16_128_64_sm86_kernel
        fused_multihead_attention_v2_fp16_S_64_sm80_kernel
        void fmha_fwd_loop_kernel<FMHA_kernel_traits<256, 64, 16, 1, 4, 8u, __half>>(P)
        void qk_int_sv_f16_attn_kernel<128u, 64u, 32u, 64u, 128u>(signed char*)
    """,
    ("yes", "memory-efficient attention: 16-bit from sm70, float32 from sm80 as three TF32"): r"""
        fmha_cutlassF_f16_aligned_64x64_rf_sm80(AttentionKernel<cutlass::half_t>::Params)
        fmha_cutlassF_bf16_aligned_64x128_rf_sm80(P)
        fmha_cutlassF_f16_notaligned_64x64_rf_sm70(P)
        fmha_cutlassB_f16_aligned_128x64_k64_sm75(P)
        fmha_cutlassF_f32_aligned_64x64_rf_sm80(P)
        fmha_cutlassB_f32_aligned_64x64_k32_dropout_sm80
        void attention_kernel_batched_impl<AttentionKernel<cutlass::half_t, cutlass::arch::Sm80>>(P)
    """,
    ("no", "memory-efficient attention: float32 below sm80, anything below sm70"): r"""
        fmha_cutlassF_f32_aligned_64x64_rf_sm75(P)
        fmha_cutlassB_f32_notaligned_64x64_k64_sm70(P)
        fmha_cutlassF_f16_notaligned_64x64_rf_sm50(P)
    """,
    ("no", "attention: passes before and after the products, and dot products for one query"): r"""
        void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>, 4>(P)
        void flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64>>(P)
        void flash::flash_bwd_convert_dq_kernel<Flash_bwd_kernel_traits<64>>(P, int)
        void flash::flash_bwd_convert_dkv_kernel<Flash_bwd_kernel_traits<64>>(P)
        void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>>>>(P)
        void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<int>>>(P)
        void cutlass::device_kernel<flash::FlashAttnBwdPostprocessConvertdQ<\
            cute::TiledMMA<cute::MMA_Atom<cute::SM90_64x64x16_F32F16F16_SS<T>>>>>(P)
        kernel_cutlass_kernel_flash_attncuteflash_bwd_preprocessFlashAttentionBackwardPreprocess_0
        void flash::prepare_varlen_num_blocks_kernel<1, true>(int)
        void cudnn::fusion::compute_dot_do_o_specialized<true, __half, 128>(P)
        void cudnn::fusion::convert_dq_to_16bits<true, __half, 128>(P)
        fmhaReductionKernel_Bfloat16
        flash_attn_combine_results<128>(P)
        void flashinfer::BatchDecodeWithPagedKVCacheKernel<(PosEncodingMode)0, 2u, 4u, 8u>(P)
        void flashinfer::SingleDecodeWithKVCacheKernel<T>(P)
        void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u>(P)
        void vllm::paged_attention_v1_kernel<unsigned short, unsigned short, 128, 16, 128>(P)
        void vllm::paged_attention_v2_reduce_kernel<unsigned short, 128, 128, 512>(P)
        void vllm::merge_attn_states_kernel<float, 8>(float*)
        _fwd_kernel_stage2
        _attn_bwd_preprocess
    """,
    ("yes", "fp8, fp4, int4 and MoE products"): r"""
        void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 2112u, 7168u>(float*)
        void deep_gemm::fp8_gemm_kernel<7168u, 4096u, 128u>(__nv_bfloat16*)
        bmm_E4m3_E4m3E4m3_Fp32_BtokBfloat16_t128x64x256_s5_et128x64_m256x64x32_c2x1x1_rM_TN
        bmm_MxE4m3_MxE2m1MxE4m3_Fp32_bA32_bB32_bC32_t128x64x256
        gemm_Bfloat16_E2m1E2m1_Fp32_t128x128x512_s3_et128x64
        void marlin::Marlin<__nv_bfloat16, 1125899907892224l, 256, 4, 8, 8>(int4 const*)
        void marlin_moe_wna16::Marlin<__nv_bfloat16, 256, 1, 8, 8>(int4 const*)
        void Marlin<256, 1, 8, 8, 4, 8>(int4 const*, int4 const*, int4*)
        _ZN6marlin6MarlinI13__nv_bfloat16Li256ELi1EEvPK4int4
        void MarlinMoESingle<256, 1>(int4 const*)
        void deep_gemm::sm90_fp8_paged_mqa_logits<32u, 64u, 128u>(float*)
        _ZN9deep_gemm23sm90_fp8_gemm_1d2d_implILj0ELj2112EEvv
        _ZN12tensorrt_llm7kernels28fused_moe_sm90
        fp8_index_kernel_kernel
        void vllm::awq::gemm_forward_4bit_cuda_m16nXk32<128>(int, int, __half*)
        void at::native::(anonymous namespace)::tinygemm_m16n8k16_chunk_kernel<ALayout_RM>(P)
    """,
    ("no", "around such products: packing, routing, quantising; and products on CUDA cores"): r"""
        void deep_gemm::transpose_and_pack_fp32_into_ue8m0<512u, 64u, 128u>(float const*)
        void gptq_marlin_repack_kernel<256, 4, false>(P)
        void marlin::permute_cols_kernel(int4 const*, int const*, int4*, int, int, int)
        void vllm::moe::moe_align_block_size_kernel<int>(P)
        void vllm::moe::topkGatingSoftmax<8, 64, 4, 16>(P)
        void moe::dev::finalize::finalizeKernelVecLoad<KernelParams<cutlass::bfloat16_t>>(P)
        void tensorrt_llm::kernels::quantize_with_block_size<(Type)2, __nv_bfloat16>(P)
        computeStridesTmaWarpSpecializedKernel<T>(P)
        void expandInputRowsKernel<__nv_bfloat16>(P)
        void vllm::gptq::gemm_half_q_half_gptq_4bit_kernel<true, 4>(P)
        void kgemm_4bit_inference_naive<__nv_bfloat16, 128, 16>(P)
        mul_mat_vec_f<__half, float, 1, 256, true, false>(P)
        void mul_mat_q_stream_k_fixup<(ggml_type)8, 64, false>(P)
        void kDequantizeBlockwise<__half, 512, 64, 8, 2>(P)
        void kdequant_mm_int32_fp16<4, 512>(P)
        void deep_gemm::smxx_paged_mqa_logits_metadata<32u, 64u>(unsigned int)
        _ZN9deep_gemm30smxx_paged_mqa_logits_metadataILj32EEvj
        _silu_mul_fp8_quant_deep_gemm
        marlin_int4_fp8_preprocess_kernel_awq
        void marlin::marlin_int4_fp8_preprocess_kernel_without_zp(int const*)
        fused_moe_router_cudacore_kernel
        void tensorrt_llm::kernels::customMoeRoutingKernel<float>(P)
        void tensorrt_llm::kernels::globalExpertPrefixSumKernel(P)
        _gemm_afp4wfp4_reduce_kernel
        _finalize_matmul_scatter_bf16
        convert_weight_to_m16n8k16_kernel
    """,
    ("yes", "2:4 sparse products, which only Tensor Cores have"): r"""
        void cutlass::Kernel<cutlass::gemm::kernel::SparseGemmRowBroadcast<T>>(P)
        void cutlass::gemm_sparse_row_broadcast(P)
        cusparseLt::sm80_16832
    """,
    ("no", "products with single nonzero elements"): r"""
        void spmm_kernel<float, 32, true>(P)
        void cusparse::csrmm_alg2_kernel<float>(P)
        void kspmm_coo_very_sparse_naive<__half, 8, 16>(P)
    """,
    ("no", "recurrences, step by step"): r"""
        void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128, 16, 1>>(P)
        void selective_scan_bwd_kernel<Selective_Scan_bwd_kernel_traits<128, 16>>(P)
        _state_passing_fwd_kernel
        fused_recurrent_gated_delta_rule_fwd_kernel
    """,
    ("yes", "products in Triton that load by TMA, so on Hopper and later"): r"""
        _grouped_gemm_kernel_tma
        grouped_gemm_tma_kernel
    """,
    ("no", "Inductor's pointwise and reduction kernels, whatever they list"): r"""
        triton_poi_fused_addmm_relu_3
        triton_red_fused_native_layer_norm_addmm_1
        triton_per_fused_convolution_mean_5
        triton_for_fused_12
    """,
    ("likely", "products by tl.dot; cuDNN's generated ones"): r"""
        triton_tem_fused_mm_0
        triton_tem_fused_flex_attention_3
        triton_mm
        triton_bmm_2
        attn_fwd.kd
        _attn_bwd_dkdv
        _w8a8_block_fp8_matmul
        matmul_kernel
        kernel_unified_attention_3d
        _matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1
        _chunk_scan_fwd_kernel
        _fwd_grouped_kernel_stage1
        _lora_shrink_kernel
        gemm_fusion_dot_12
        _fwd_kernel
        _bwd_kernel
        _bwd_dq_kernel
        fused_moe_kernel
        fused_moe_kernel_gptq_awq
        _fused_moe_lora_kernel
        fused_moe_router_tensorcore_kernel
        _scatter2scatter
        _groupXtY
        _kernel_grouped_gemm
        _fbgemm_grouped_gemm_fp8_rowwise
        _gemm_afp4wfp4_kernel
        chunk_gated_delta_rule_fwd_kernel_h_blockdim64
        chunk_bwd_kernel_dqkwg
        recompute_w_u_fwd_kernel
        liger_fused_linear_cross_entropy
        cudnn_generated_fort_native_sm80_convFwd_pointwise_pointwise_pointwise
    """,
    ("no", "communication"): r"""
        ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)
        _Z40ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE
        void symm_mem::multimem_all_reduce_kernel<c10::BFloat16, 16>(P)
        void deep_ep::internode_ll::dispatch<true, 7168>(P)
        void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(P)
        void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<T>(P)
        void (anonymous namespace)::all_reduce_one_shot_push_kernel<T>(P)
    """,
    ("no", "PyTorch's own kernels and CUB"): r"""
        void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)
        void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, c10::Half>(P)
        void at::native::(anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16>(P)
        _ZN2at6native29vectorized_elementwise_kernelILi4EEEvi
        void cub::CUB_200200_900_NS::DeviceReduceKernel<T>(P)
        void thrust::cuda_cub::core::_kernel_agent<T>(P)
        void (anonymous namespace)::softmax_warp_forward<float, float, float, 10>(float*)
    """,
    ("no", "cuDNN: convolutions on CUDA cores, layouts, norms, pointwise steps"): r"""
        void cudnn::winograd_nonfused::winogradForwardData4x4<__half, float>(P)
        void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1>(int)
        void cudnn::detail::wgrad_alg0_engine<__half, 128>(P)
        void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, __half>(P)
        void fft2d_c2r_32x32<float, false, false, 0u, false, false>(float*)
        void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4>>(ConvParamsBase)
        void cudnn::bn_fw_inf_1C11_kernel_NHWC<__half2, float>(P)
        void cudnn::ops::nchwToNhwcKernel<__half, __half, float, true, false>(P)
        cask_plugin_cudnn::computeOffsetsKernel(P)
        void op_tensor_kernel_alpha2_zero<2, float, float, float, 256, 1, 1>(P)
        void LSTM_elementWise_fp<__half, __half, float>(P)
        void cudnn::detail::lrn_fw_Nd_kernel<__half, float, (bool)1, (bool)0>(P)
        void regular_fft<1024u, EPT<4u>, float>(P)
    """,
    ("yes", "AMD: an MI shape in a Tensile name, XDL and MFMA, AITER's assembly"): r"""
        Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1
        Custom_Cijk_Alik_Bljk_F8BS_BH_MT256x256x128_MI16x16x1_CMS
        igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x64x8_wt64x16x4_ws1x1
        void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<T>>(P)
        void ck::kernel_gemm_multiple_d<ck::BlockwiseGemmXdlops_pipeline_v3<T>>(P)
        _ZN7ck_tile6kentryILi2ENS_13FmhaFwdKernelINS_24BlockFmhaPipelineQRKSVSEEE
        void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16>(P)
        _ZN5aiter59fmoe_stage1_bf16_pertokenFp8_blockscale_g1u1_32x128_3tg_pf3E
        _ZN5aiter32fmha_fwd_hd192_hd128_bf16_causalE
        _ZN5aiter33f4gemm_bf16_per1x32Fp4_tn_256x256E
    """,
    ("no", "AMD: vector instructions"): r"""
        miopenSp3AsmConv_v30_3_1_gfx94_fp16_fp32acc_f2x3_ostride1
        MIOpenBatchNormFwdTrainSpatial
        batched_transpose_64x64_pack_4x4_ediv_4x4_half
        SubTensorOpWithScalar1d
        naive_conv_ab_packed_fwd_nchw_half_double_half
        _ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipeline
        _ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64EEEv
        void paged_attention_ll4mi_reduce_kernel<__hip_bfloat16, 128, 128, 256, 3>(P)
        Cijk_S_GA
        sm80_xmma_pooling_fw_4d_f16f16_nhwc
        Cijk_SB_BiasSB_HAS_ScaleAlphaVec_PostGSU16_VW4
    """,
    ("no", "operations without a product, by their words"): r"""
        void flashinfer::norm::RMSNormKernel<8u, __half>(T2 *, T2 *, T2 *, unsigned int)
        kernel_cutlass_kernel_flashinfernormkernelsrmsnormRMSNormKernel_object_at__tensorptr
        void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheHeadParallelismKernel<false>(P)
        void vllm::act_and_mul_kernel<c10::BFloat16, silu, true>(P)
        void vllm::reshape_and_cache_flash_kernel<unsigned short>(P)
        void vllm::dynamic_per_token_scaled_fp8_quant_kernel<c10::BFloat16>(P)
        void multi_tensor_apply_kernel<TensorListMetadata<4>, LAMBStage1Functor<float>>(P)
        void cuApplyLayerNorm<float, float, c10::Half>(P)
        void transformer_engine::cast_transpose_kernel<T>(P)
        void fbgemm_gpu::permute_2D_sparse_data_kernel<true, int, int, float>(P)
        void fbgemm_gpu::_offsets_range_cuda_kernel<int>(long)
        void split_embedding_nobag_codegen_forward_unweighted_small_kernel<float>(P)
        void compute_cuda_kernel<long>(long*, long*, long*, long, long)
        TopPSamplingFromProbKernel<1024u>(P)
        generatedNativePointwise
        liger_cross_entropy_kernel
        index_select_kernel
        scatter_add_kernel
        void transformer_engine::swizzle_row_scaling_kernel<int>(P)
        void nhwcAddPaddingKernel
    """,
    ("unknown", "nothing in the name decides"): r"""
        Kernel2
        kernel
        void cutlass::device_kernel
        void cutlass::Kernel2<cutlass_8
        _ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEENS1_10colle
        my_custom_kernel(float*, int)
        lgamma_kernel(float*)
        summary_stats(float*)
        diffmap_kernel(float*)
        immutable_state(float*)
        void clover::par_ranged2d_kernel<PdV_kernel(bool, int)::[lambda(int) (instance 1)]>(R)
        Cijk_Alik_Bljk_SB_MT64x64x16_SE_1LDSB0_APM1_ABV0_TT4_4_TLDS0
        fused_moe
        void marlin::helper(int)
        void deep_gemm::some_kernel<1>(int)
        index_kernel
        scatter_kernel
        scatter_add_gemm
        tokens_metadata_gemm
        _fbgemm_grouped_gemm_scatter_add
        router_gemm_kernel_float_output
        parallel_nsa_kernel_topk
        groupedgemm_quant
        block_sparse_kernel
        _gqa_sparse_decode_kernel
        _decode_index_score
        kernel_paged_attention_2d
        _chunk_cumsum_fwd_kernel
        void gather_gemm_scatter<float>(P)
        fused_rope_attention_kernel(float*)
        persistent_mlp_silu_kernel(P)
        mul_mat_q<(ggml_type)8, 64, false>(P)
        conv2d_c1_k1_nhwc_specialized
        fast_hadamard_transform_kernel(P)
    """,
}
CASES = [
    pytest.param(name, answer, id=name[:60])
    for (answer, _), block in NAMES.items()
    for name in re.sub(r"\\\n\s*|^\s+|\s+$", "", block, flags=re.MULTILINE).split("\n")
]


@pytest.mark.parametrize(("kernel", "answer"), CASES)
def test_verdict_rests_on_the_words_of_the_name(kernel: str, answer: str) -> None:
    assert tensor_core_by_name(kernel).tensor_core == answer


@pytest.mark.parametrize(("kernel", "answer"), CASES)
def test_evidence_quotes_the_name_and_says_what_it_means(kernel: str, answer: str) -> None:
    verdict = tensor_core_by_name(kernel)
    if answer == "unknown":
        assert verdict.evidence == "no rule knows a word of the name"
    else:
        word, meaning = verdict.evidence.split("': ", 1)
        assert word.removeprefix("'") in f"{kernel} {short_name(kernel)}"
        assert len(meaning) > len("a Tensor Core")


def test_every_rule_decides_some_name() -> None:
    evidence = [tensor_core_by_name(str(case.values[0])).evidence for case in CASES]

    assert [rule for rule in RULES if not any(rule.meaning in text for text in evidence)] == []


def test_real_names_have_the_verdict_of_the_study(shared: Path) -> None:
    with (shared / "truth" / "kernel_tensor_core.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    wrong = [
        (row["kernel"], row["tensor_core"], verdict)
        for row in rows
        if (verdict := tensor_core_by_name(row["kernel"])).tensor_core != row["tensor_core"]
    ]

    assert len(rows) == 767
    assert wrong == []


@pytest.mark.parametrize("cut", [64, 128, 256])
def test_cutting_a_real_name_never_turns_its_verdict_around(shared: Path, cut: int) -> None:
    with (shared / "truth" / "kernel_tensor_core.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    opposite = {"yes": "no", "no": "yes"}
    turned = [
        row["kernel"][:cut]
        for row in rows
        if tensor_core_by_name(row["kernel"][:cut]).tensor_core == opposite.get(row["tensor_core"])
    ]

    assert turned == []


@given(st.text(max_size=80))
def test_any_text_has_a_verdict(text: str) -> None:
    assert tensor_core_by_name(text).tensor_core in {"yes", "no", "likely", "unknown"}


@pytest.mark.parametrize("unit", ["xmma_", "ck_tile", "kernel_cutlass_gemm", "<(", "flash", "_"])
def test_hostile_names_take_no_time(unit: str) -> None:
    start = time.process_time()

    tensor_core_by_name(unit * (100_000 // len(unit)))

    assert time.process_time() - start < 5


# --------------------------------------------------------------------------- with the dtype

TRITON = "triton_tem_fused_mm_0"


@pytest.mark.parametrize(
    ("dtype", "capability", "tf32", "answer"),
    [
        pytest.param("f16", "7.0", None, "yes", id="f16 from Volta on"),
        pytest.param("bf16", "8.0", None, "yes", id="bf16 from Ampere on"),
        pytest.param("bf16", "7.5", None, "no", id="bf16 not on Turing"),
        pytest.param("i8", "7.5", None, "yes", id="int8 from Turing on"),
        pytest.param("i8", "7.0", None, "no", id="int8 not on Volta"),
        pytest.param("f8e4m3", "8.9", None, "yes", id="fp8 from Ada on"),
        pytest.param("f8e4m3", "8.0", None, "yes", id="fp8 widened on Ampere"),
        pytest.param("f4e2m1", "10.0", None, "yes", id="fp4 on Blackwell"),
        pytest.param("i4", "9.0", None, "no", id="no int4 on Hopper"),
        pytest.param("f32", "9.0", True, "yes", id="f32 as TF32"),
        pytest.param("f32", "9.0", False, "no", id="f32 with TF32 off"),
        pytest.param("f32", "9.0", None, "unknown", id="f32, TF32 not known"),
        pytest.param("f32", "7.0", None, "no", id="no TF32 on Volta"),
        pytest.param("f32", "9.4", False, "yes", id="CDNA 3 multiplies f32 as it is"),
        pytest.param("f64", "8.0", None, "unknown", id="f64: compilers differ"),
        pytest.param("i64", "8.0", None, "no", id="no i64 anywhere"),
        pytest.param("f16", None, None, "yes", id="f16, device not known"),
        pytest.param("i8", None, None, "unknown", id="int8, device not known"),
        pytest.param("f32", None, None, "unknown", id="f32, device not known"),
        pytest.param(None, "9.0", True, "unknown", id="dtype not known"),
        pytest.param("f16", "nonsense", None, "yes", id="capability that is no such thing"),
    ],
)
def test_dtype_resolves_what_is_likely(
    dtype: str | None,
    capability: str | None,
    tf32: bool | None,  # noqa: FBT001 -- pytest passes it by name
    answer: str,
) -> None:
    verdict = tensor_core(TRITON, dtype, capability, tf32=tf32)

    assert verdict.tensor_core == answer
    assert verdict.evidence.startswith("'triton_tem_'")


def test_amd_of_unknown_generation_stays_unknown() -> None:
    assert tensor_core(TRITON, "f16", "9.0", device_type="hip").tensor_core == "unknown"
    assert tensor_core(TRITON, "f32", tf32=True, device_type="hip").tensor_core == "unknown"


@pytest.mark.parametrize("dtype", [None, "f32", "bf16"])
def test_what_the_name_says_holds_for_every_dtype(dtype: str | None) -> None:
    assert tensor_core("nvjet_tst_64x8_64x16_1x4_h_bz_TNT", dtype).tensor_core == "yes"
    assert tensor_core("volta_sgemm_64x64_nt", dtype, "9.0", tf32=True).tensor_core == "no"
    assert tensor_core("Kernel2", dtype, "9.0", tf32=True).tensor_core == "unknown"


def test_device_without_tensor_cores_used_none() -> None:
    verdict = tensor_core("Kernel2", "f16", "6.0")

    assert (verdict.tensor_core, verdict.family) == ("no", "device")
    assert "6.0" in verdict.evidence


# --------------------------------------------------------------------------- eligibility


@pytest.mark.parametrize(
    ("category", "dtype", "dims", "capability", "device", "answer"),
    [
        pytest.param("matmul", "f16", {}, "7.0", "cuda", True, id="f16 on Volta"),
        pytest.param("matmul", "bf16", {}, "7.0", "cuda", False, id="no bf16 on Volta"),
        pytest.param("matmul", "f32", {}, "8.0", "cuda", True, id="f32 could be TF32"),
        pytest.param("matmul", "f32", {}, "7.5", "cuda", False, id="no TF32 on Turing"),
        pytest.param("matmul", "f64", {}, "8.0", "cuda", True, id="f64 on A100"),
        pytest.param("matmul", "f64", {}, "8.6", "cuda", False, id="no f64 on GA10x"),
        pytest.param("matmul", "c64", {}, "9.0", "cuda", True, id="c64 in TF32 parts"),
        pytest.param("matmul", "i64", {}, "9.0", "cuda", False, id="no i64"),
        pytest.param("matmul", "bf16", {"N": 7, "K": 13}, "8.0", "cuda", True, id="misaligned"),
        pytest.param("matmul", "f8e4m3", {"N": 32, "K": 48}, "9.0", "cuda", True, id="fp8"),
        pytest.param("matmul", "f8e4m3", {"N": 32, "K": 8}, "9.0", "cuda", False, id="fp8 K=8"),
        pytest.param("matmul", "i8", {"N": 6, "K": 8}, "8.0", "cuda", False, id="int8 N=6"),
        pytest.param("conv", "f16", {"C": 64, "groups": 1}, "7.0", "cuda", True, id="conv"),
        pytest.param("conv", "f16", {"C": 64, "groups": 64}, "7.0", "cuda", False, id="depthwise"),
        pytest.param("conv", "f16", {"C": 1, "groups": 1}, "7.0", "cuda", True, id="one channel"),
        pytest.param("attention", "bf16", {}, "9.0", "cuda", True, id="attention"),
        pytest.param("rnn", "f16", {}, "7.0", "cuda", True, id="rnn"),
        pytest.param("softmax", "f16", {}, "9.0", "cuda", False, id="no product"),
        pytest.param("matmul", "f32", {}, "9.4", "hip", True, id="f32 on CDNA 3"),
        pytest.param("matmul", "bf16", {}, "9.0", "hip", None, id="gfx906 or gfx90a"),
        pytest.param("matmul", "f16", {}, None, "cuda", None, id="device not known"),
        pytest.param("matmul", None, {}, "9.0", "cuda", None, id="dtype not known"),
        pytest.param(None, "f16", {}, "9.0", "cuda", None, id="category not known"),
        pytest.param("matmul", "f16", {}, None, "xpu", None, id="another vendor"),
        pytest.param("matmul", "f32", {}, None, "cpu", False, id="CPU"),
    ],
)
def test_eligible_is_what_the_hardware_can_do(
    category: str | None,
    dtype: str | None,
    dims: dict[str, int],
    capability: str | None,
    device: str,
    answer: bool | None,  # noqa: FBT001 -- pytest passes it by name
) -> None:
    assert eligible(category, dtype, dims, capability, device) is answer


@pytest.mark.parametrize(
    ("kernel", "family"),
    [
        ("matmul_k(float*, float*, float*, int)", "unknown"),
        ("void my_matmul<float, 16>(float const*, float*)", "unknown"),
        ("matmul_kernel", "Triton"), ("matmul_kernel.kd", "Triton"),
        ("_attn_fwd", "Triton"), ("_attn_fwd(float*)", "unknown"),
    ],
)  # fmt: skip
def test_a_function_with_parameters_is_not_made_by_triton(kernel: str, family: str) -> None:
    assert tensor_core_by_name(kernel).family == family


@pytest.mark.parametrize(
    "kernel",
    ["Cijk_Ailk_Bljk_SB_MT64x64x8_SE_PostGSU", "Cijk_S_PostGSU4",
     "sm80_xmma_pooling_fw_4d_f16f16_nhwc"],
)  # fmt: skip
def test_sums_of_parts_and_pooling_hold_no_product(kernel: str) -> None:
    assert tensor_core_by_name(kernel).tensor_core == "no"
    assert tensor_core_by_name("Cijk_Ailk_Bljk_SB_MT64x64x8_MI32x32x8").tensor_core == "yes"
