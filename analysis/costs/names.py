"""Ops by name, with or without a formula: their category, and whether they do work themselves."""

from __future__ import annotations

from pyprof2.analysis.costs.registry import (
    mark_composites,
    mark_data_dependent,
    mark_views,
    set_category,
)

mark_views("""
    aten::view aten::_unsafe_view aten::reshape_as aten::view_as aten::_reshape_alias
    aten::t aten::t_ aten::numpy_T aten::mT aten::mH aten::adjoint aten::matrix_H
    aten::transpose aten::transpose_ aten::swapaxes aten::swapaxes_ aten::swapdims
    aten::swapdims_ aten::permute aten::movedim aten::moveaxis aten::expand aten::expand_as
    aten::broadcast_to aten::broadcast_tensors aten::slice aten::select aten::narrow aten::split
    aten::split_with_sizes aten::tensor_split aten::hsplit aten::vsplit aten::dsplit
    aten::chunk aten::unsafe_chunk aten::unsafe_split aten::unsafe_split_with_sizes aten::unbind
    aten::unfold aten::diagonal aten::linalg_diagonal aten::squeeze aten::squeeze_
    aten::unsqueeze aten::unsqueeze_ aten::unflatten aten::as_strided aten::as_strided_
    aten::alias aten::detach aten::detach_ aten::lift_fresh aten::conj aten::_conj
    aten::real aten::imag aten::view_as_real aten::view_as_complex aten::_neg_view
    aten::atleast_1d aten::atleast_2d aten::atleast_3d aten::unflatten_dense_tensors
    aten::data aten::set_ aten::set_data aten::requires_grad_ aten::retain_grad aten::is_leaf
    aten::output_nr aten::_version aten::result_type aten::can_cast aten::promote_types
    aten::size aten::stride aten::sym_size aten::sym_stride aten::sym_numel
    aten::sym_storage_offset aten::numel aten::dim aten::is_contiguous aten::is_nonzero
    aten::is_pinned aten::is_same_size aten::is_set_to aten::is_complex
    aten::is_floating_point aten::is_signed aten::is_conj aten::is_neg aten::is_inference
    aten::empty aten::empty_like aten::empty_strided aten::empty_permuted aten::new_empty
    aten::new_empty_strided aten::empty_quantized aten::_efficientzerotensor
    aten::resize_ aten::resize_as_ aten::resize aten::_resize_output_ aten::record_stream
    aten::meshgrid aten::_nested_view_from_buffer aten::_nested_view_from_jagged
    aten::_nested_get_values aten::values aten::indices aten::_values aten::_indices
    aten::crow_indices aten::col_indices aten::_fused_sdp_choice
    aten::_has_compatible_shallow_copy_type aten::_debug_has_internal_overlap
    aten::_assert_async aten::_assert_tensor_metadata aten::_functional_assert_async
    aten::cudnn_is_acceptable aten::_use_cudnn_ctc_loss aten::_cufft_get_plan_cache_size
    aten::_backward aten::_is_zerotensor aten::_unpack_dual aten::_make_dual aten::_fw_primal
    detach detach_ c10d::barrier _c10d_functional::wait_tensor prim::device prim::dtype
    _C::weak_ref_tensor sgl_kernel::weak_ref_tensor inductor::_reinterpret_tensor
    inductor::_alloc_from_pool aten::swap_
""")

mark_composites("""
    aten::linear aten::linear_backward aten::matmul aten::linalg_matmul aten::__matmul__
    aten::matmul_backward aten::tensordot aten::einsum aten::inner aten::kron aten::outer
    aten::ger aten::chain_matmul aten::linalg_multi_dot aten::matrix_power
    aten::linalg_matrix_power aten::bilinear aten::_trilinear aten::cdist aten::_euclidean_dist
    aten::linalg_vecdot aten::linalg_inv aten::inverse aten::linalg_det aten::linalg_cholesky
    aten::linalg_lu_factor aten::linalg_solve aten::linalg_svd aten::linalg_qr aten::linalg_norm
    aten::linalg_svdvals aten::svd aten::linalg_eigh aten::linalg_eigvalsh aten::linalg_eigvals
    aten::linalg_lu aten::lu_solve aten::linalg_ldl_factor aten::det aten::linalg_slogdet
    aten::slogdet aten::logdet aten::qr aten::linalg_pinv aten::pinverse aten::linalg_matrix_rank
    aten::linalg_cond aten::linalg_tensorsolve aten::linalg_tensorinv aten::linalg_solve_ex
    aten::cholesky_solve aten::orgqr aten::_linalg_check_errors
    aten::linalg_matrix_norm aten::frobenius_norm aten::nuclear_norm
    aten::conv1d aten::conv2d aten::conv3d aten::conv_transpose1d aten::conv_transpose2d
    aten::conv_transpose3d aten::convolution aten::_convolution aten::_convolution_mode
    aten::convolution_overrideable aten::thnn_conv2d aten::slow_conv3d
    aten::cudnn_convolution_backward aten::cudnn_convolution_transpose_backward
    aten::miopen_convolution_backward aten::miopen_depthwise_convolution_backward
    aten::mkldnn_convolution_backward aten::convolution_backward_overrideable
    aten::_convolution_double_backward
    aten::scaled_dot_product_attention aten::_scaled_dot_product_attention_math
    aten::_scaled_dot_product_flash_attention aten::_scaled_dot_product_efficient_attention
    aten::_scaled_dot_product_cudnn_attention
    aten::_scaled_dot_product_flash_attention_backward
    aten::_scaled_dot_product_efficient_attention_backward
    aten::_scaled_dot_product_cudnn_attention_backward
    aten::_native_multi_head_attention aten::_transformer_encoder_layer_fwd
    aten::batch_norm aten::_batch_norm_impl_index aten::_batch_norm_impl_index_backward
    aten::instance_norm aten::layer_norm aten::group_norm aten::rms_norm aten::local_response_norm
    aten::softmax aten::log_softmax aten::special_softmax aten::special_log_softmax
    aten::_safe_softmax aten::cross_entropy_loss aten::nll_loss aten::nll_loss2d
    aten::nll_loss_nd aten::binary_cross_entropy_with_logits aten::kl_div aten::l1_loss
    aten::ctc_loss aten::hinge_embedding_loss aten::margin_ranking_loss
    aten::triplet_margin_loss aten::cosine_embedding_loss aten::poisson_nll_loss
    aten::cosine_similarity aten::pairwise_distance
    aten::index_put aten::index_put_ aten::_unsafe_index_put
    aten::to aten::type_as aten::contiguous aten::reshape aten::flatten aten::ravel
    aten::clone aten::_to_copy aten::cpu aten::cuda aten::pin_memory aten::_pin_memory
    aten::lift aten::resolve_conj aten::resolve_neg aten::flatten_dense_tensors aten::concat
    aten::concatenate aten::hstack aten::vstack aten::stack aten::_chunk_cat aten::repeat
    aten::tile aten::repeat_interleave aten::pad aten::one_hot aten::zeros aten::ones aten::full
    aten::zeros_like aten::ones_like aten::full_like aten::new_zeros aten::new_ones
    aten::new_full aten::zero_ aten::scalar_tensor aten::item
    aten::embedding_backward aten::embedding_bag aten::_embedding_bag_backward
    aten::index_put aten::index_put_ aten::take_along_dim aten::gather_backward
    aten::index_select_backward aten::value_selecting_reduction_backward aten::slice_backward
    aten::select_backward aten::masked_fill aten::argwhere
    aten::dropout aten::dropout_ aten::alpha_dropout aten::feature_dropout aten::relu6
    aten::selu aten::prelu aten::gelu_ aten::rrelu aten::log_sigmoid
    aten::divide aten::divide_ aten::multiply aten::multiply_ aten::subtract aten::subtract_
    aten::true_divide aten::negative aten::absolute aten::square aten::float_power
    aten::greater aten::less aten::not_equal aten::clip aten::clip_ aten::special_expit
    aten::max_pool1d aten::max_pool2d aten::max_pool3d aten::avg_pool1d
    aten::adaptive_avg_pool1d aten::adaptive_avg_pool2d aten::adaptive_avg_pool3d
    aten::adaptive_max_pool1d aten::grid_sampler aten::norm aten::std_mean aten::nanmean
    aten::argsort aten::msort aten::rand aten::randn aten::randint aten::rand_like
    aten::lstm aten::gru aten::rnn_tanh aten::rnn_relu aten::lstm_cell aten::gru_cell
    aten::rnn_tanh_cell aten::rnn_relu_cell aten::stft aten::istft
    aten::fft_fft aten::fft_ifft aten::fft_rfft aten::fft_irfft aten::fft_fft2 aten::fft_ifft2
    aten::fft_fftn aten::fft_ifftn aten::fft_rfft2 aten::fft_rfftn aten::fft_irfft2
    aten::fft_irfftn aten::fft_hfft aten::fft_ihfft
    c10d::allreduce_ c10d::allreduce_coalesced_ c10d::broadcast_ c10d::reduce_
    c10d::_allgather_base_ c10d::_reduce_scatter_base_ c10d::allgather_
    c10d::allgather_into_tensor_coalesced_ c10d::reduce_scatter_
    c10d::reduce_scatter_tensor_coalesced_ c10d::alltoall_base_ c10d::alltoall_ c10d::gather_
    c10d::scatter_ c10d::send c10d::recv_ c10d::recv_any_source_
    _c10d_functional::all_reduce _c10d_functional::all_reduce_
    _c10d_functional::all_gather_into_tensor _c10d_functional::reduce_scatter_tensor
    _c10d_functional::all_to_all_single _c10d_functional::broadcast
    torch.distributed.ddp.reducer::copy_bucket_to_grad torch::distributed::reducer::mul_out
    torch::autograd::AccumulateGrad vllm::moe_forward vllm::unified_attention
    vllm::unified_attention_with_output vllm::rocm_unquantized_gemm _grad_sum_to_size
""")

_DATA: str = "the work depends on the data"
mark_data_dependent(
    """
    aten::unique aten::unique2 aten::_unique aten::_unique2 aten::unique_dim
    aten::unique_consecutive aten::unique_dim_consecutive aten::bincount aten::histc
    aten::histogram aten::isin aten::_sparse_sum
    aten::sspaddmm aten::coalesce aten::_coalesce aten::_to_sparse
    aten::to_sparse aten::to_dense aten::_to_dense aten::_embedding_bag_sparse_backward
    aten::embedding_sparse_backward
    """,
    _DATA,
)
mark_data_dependent(
    """
    vllm::moe_forward vllm::moe_forward_shared
    """,
    "the experts' weights, and how many a token has, are not among the inputs: prof --by kind "
    "--model CONFIG",
)
mark_data_dependent(
    """
    vllm::unified_attention vllm::unified_attention_with_output
    sglang::unified_attention_with_output vllm::unified_mla_attention
    vllm::unified_mla_attention_with_output
    sglang_profiler::attention_* aiter::paged_attention_ragged* aiter::pa_decode* aiter::mla_decode*
    sgl_kernel::decode_attention* sgl_kernel::cutlass_mla_decode* flashinfer::batch_decode*
    flashinfer::batch_prefill* flashinfer::paged_run*
    """,
    "the lengths of the cached sequences are not among the inputs, and the cache has room for "
    "more: prof --by kind --model CONFIG takes them from the names of batches",
)
mark_data_dependent(
    """
    deep_gemm::fp8_m_grouped_gemm_nt_masked deep_gemm::m_grouped_fp8_gemm_nt_masked
    deep_gemm::m_grouped_bf16_gemm_nt_masked deep_gemm::k_grouped*
    """,
    "the rows of each group are not among the inputs",
)
mark_data_dependent(
    "CompiledFunction* Torch-Compiled*",
    "compiled: which of its inputs each Triton kernel works on is not recorded; newer PyTorch "
    "records a call for each",
)

set_category(
    """
    aten::inner aten::kron aten::chain_matmul aten::linalg_multi_dot aten::bilinear
    aten::_trilinear aten::_euclidean_dist aten::sspaddmm aten::_dyn_quant_matmul_4bit
    aten::_weight_int4pack_mm_for_cpu aten::matmul_backward aten::matrix_power
    aten::matrix_exp aten::linalg_matrix_exp aten::_scaled_grouped_mm_v2 aten::_foreach_mm
    quantized::linear* quantized::matmul onednn::qlinear* _quantized::linear*
    mkl::_mkl_linear fbgemm::f8* fbgemm::bf16* fbgemm::i8* aiter::gemm*
    aiter::ck_moe* aiter::asm_moe* deep_gemm::* vllm::moe_forward*
    vllm::fused_marlin_moe
    _moe_C::moe_wna16* _moe_C::marlin_gemm* sgl_kernel::cutlass* sgl_kernel::moe_wna16*
    bitsandbytes::*mm* bitsandbytes::*gemm* trtllm::cublas_scaled_mm
    torchao::* symm_mem::_async_input_mm symm_mem::fused_* aten::linalg_pinv
    aten::pinverse aten::linalg_matrix_rank
    aten::linalg_cond aten::linalg_tensorsolve aten::linalg_tensorinv aten::fbgemm_linear*
    aten::mkldnn_linear* aten::_sparse_mm* aten::_spsolve
    aten::_sparse_semi_structured* aten::_cslt_*
    aten::_weight_int4pack_mm_with_scales_and_zeros aten::linalg_matrix_power
""",
    "matmul",
)
set_category(
    """
    aten::_convolution_double_backward quantized::conv* onednn::qconv* _quantized::conv*
    mkldnn::_convolution* mkldnn_prepacked::* aten::_nnpack_spatial_convolution
    ConvBias* DaoAILab::_causal_conv1d*
""",
    "conv",
)
set_category(
    """
    aten::_native_multi_head_attention aten::_transformer_encoder_layer_fwd
    aten::_triton_multi_head_attention aten::_transform_bias_rescale_qkv
    vllm::unified_attention* vllm::unified_mla* sglang::unified_attention*
    flash_attn::* flash_attn_2_cuda::* flash_attn_3::* FlashAttn* FusedAttn* _vllm_fa2_C::*
    _vllm_fa3_C::* xformers_flash::* xformers::* aiter::mha* aiter::fmha* aiter::_flash_attn*
    aiter::paged_attention* aiter::pa_* aiter::mla* aiter::wrapper_fmha* _C::paged_attention*
    sgl_kernel::fwd sgl_kernel::cutlass_mla*
    natten::* flashinfer::*
""",
    "attention",
)
set_category(
    """
    aten::local_response_norm
    aten::batch_norm_update_stats aten::native_norm aten::quantized_batch_norm
    aten::_weight_norm aten::norm_except_dim quantized::batch_norm* quantized::layer_norm
    quantized::group_norm quantized::instance_norm aiter::rmsnorm* aiter::add_rmsnorm*
    aiter::layernorm* aiter::_groupnorm* _C::rms_norm* _C::fused_add_rms_norm*
    sgl_kernel::*norm flashinfer::norm* vllm::rms_norm* apex::*
""",
    "norm",
)
set_category(
    """
    aten::_sparse_softmax aten::_sparse_log_softmax aten::_nested_tensor_softmax_with_shape
    quantized::softmax
""",
    "softmax",
)
set_category(
    """
    aten::alpha_dropout_ aten::feature_dropout_ aten::feature_alpha_dropout_
    aten::rrelu_with_noise_functional aten::_fake_quantize_learnable* aten::fake_quantize*
    aten::fused_moving_avg_obs_fake_quant aten::unfold_copy
    aten::clamp_max_ aten::rrelu aten::rrelu_ aten::alpha_dropout aten::feature_alpha_dropout
    aten::_fused_moving_avg_obs_fq_helper aten::_choose_qparams_per_tensor
    aten::fake_quantize_per_tensor_affine aten::fake_quantize_per_channel_affine
    aten::gradient aten::diff aten::cross aten::linalg_cross aten::frexp aten::modf
    aten::allclose aten::_masked_scale aten::real aten::special_* quantized::add*
    quantized::mul* quantized::relu* quantized::sigmoid quantized::hardswish
    quantized::leaky_relu quantized::elu quantized::clamp quantized::dropout _C::*quant*
    _C::silu* _C::gelu* _C::fatrelu* _C::swigluoai* aiter::*quant* aiter::silu* aiter::gelu*
    aiter::rope* bitsandbytes::*quant* sgl_kernel::*quant* sgl_kernel::silu* sgl_kernel::gelu*
    vllm::silu*
    fbgemm::Float* fbgemm::FP8* fbgemm::HFP8* fbgemm::quantize* torch::distributed::reducer::*
    _C::*rotary* sgl_kernel::*rope* sgl_kernel::*rotary* vllm::*rotary*
    vllm::triton_per_token_group_quant* triton_poi_* triton_for_fused*
""",
    "elementwise",
)
set_category(
    """
    aten::norm_ aten::linalg_matrix_norm aten::nuclear_norm aten::dist
    aten::cov aten::corrcoef aten::segment_reduce aten::_is_all_true aten::_is_any_true
    aten::cumulative_trapezoid aten::trapezoid aten::hash_tensor aten::nansum aten::bincount
    aten::histc aten::histogram aten::_cdist_backward aten::_pdist_forward aten::pdist
    aten::cumprod_backward aten::cummaxmin_backward aten::quantile aten::nanquantile
    aten::std_mean _grad_sum_to_size _moe_C::moe_sum sgl_kernel::moe_sum* fbgemm::asynchronous_*
    triton_red_* triton_per_*
""",
    "reduce",
)
set_category(
    """
    aten::fractional_max_pool2d aten::fractional_max_pool3d aten::max_unpool1d
    aten::mkldnn_max_pool2d_backward aten::max_pool2d_backward aten::lp_pool2d
    quantized::max_pool* aten::affine_grid_generator_backward
""",
    "pool",
)
set_category(
    """
    aten::embedding_renorm_ aten::_embedding_bag_backward aten::_embedding_bag_sparse_backward
    aten::embedding_sparse_backward aten::_embedding_bag_per_sample_weights_backward
    fbgemm::split_embedding* fbgemm::dense_embedding* fbgemm::ssd_embedding*
    fbgemm::int_nbit_split_embedding* fbgemm::emb_* fbgemm::lxu_cache* fbgemm::linearize_cache*
    torch::autograd::CppNode<SplitLookup* quantized::embedding* SplitLookupFunction*
""",
    "embedding",
)
set_category(
    """
    aten::unique* aten::_unique* aten::isin aten::nonzero_static aten::masked_select_backward
    aten::put_ aten::tril_indices aten::triu_indices aten::block_diag aten::diag
    aten::diag_embed aten::combinations aten::cartesian_prod aten::vander
    aten::_pack_padded_sequence aten::_pad_packed_sequence aten::pad_sequence aten::coalesce
    aten::_coalesce aten::sparse_mask fbgemm::* fb::* _moe_C::moe_align_block_size
    sgl_kernel::moe_align_block_size vllm::moe_* aten::_index_put_impl torchvision::nms
""",
    "index",
)
set_category(
    """
    aten::copy_sparse_to_sparse_ aten::_to_cpu aten::to_dense aten::_to_dense aten::to_sparse
    aten::_to_sparse aten::to_mkldnn aten::view_as_real_copy aten::expand_copy
    aten::slice_copy aten::select_copy aten::split_copy aten::split_with_sizes_copy
    aten::unbind_copy aten::as_strided_copy aten::cpu aten::cuda aten::flatten_dense_tensors
    aten::tensor aten::as_tensor aten::_cast_* aten::narrow_copy aten::diagonal_copy
    aten::_lazy_clone aten::resize_as aten::_new_zeros_with_same_feature_meta
    aten::_make_per_* aten::int_repr aten::sparse_* aten::_sparse_* aten::_to_sparse*
    aten::to_sparse* aten::blackman_window aten::kaiser_window aten::diagflat
    aten::_no_grad_fill_ aten::_no_grad_zero_ aten::choose_qparams*
    aten::empty* aten::new_empty* aten::resize_ aten::_nested_* aten::to_padded_tensor
    aten::_jagged_to_padded_dense_forward aten::_padded_dense_to_jagged_forward
    aten::eye aten::logspace aten::bartlett_window aten::hann_window aten::hamming_window
    aten::im2col aten::zero _C_cache_ops::* sglang::store_cache sgl_kernel::transfer_kv*
    fsdp::* torch.distributed.ddp.reducer::* detach detach_
""",
    "copy",
)
set_category(
    """
    aten::column_stack
    aten::dstack aten::row_stack aten::block_diag
""",
    "cat",
)
set_category(
    """
    aten::_foreach_* aten::_fused_* bitsandbytes::optimizer_update* Optimizer.*
    apex::multi_tensor* torch::optim::* aten::_multi_tensor*
""",
    "optimizer",
)
set_category(
    """
    aten::ctc_loss aten::_ctc_loss_backward aten::multi_margin_loss*
    aten::multilabel_margin_loss* aten::margin_ranking_loss aten::triplet_margin_loss
    aten::cosine_embedding_loss aten::hinge_embedding_loss aten::pairwise_distance
    aten::linear_cross_entropy*
""",
    "loss",
)
set_category(
    """
    aten::_sample_dirichlet aten::_dirichlet_grad aten::_standard_gamma_grad
    aten::_sobol_engine* aten::rrelu_with_noise* aten::_philox* rngprims::*
    aten::_fill_mem_eff_dropout_mask_ aten::_no_grad_normal_ aten::_no_grad_uniform_
    aten::geometric aten::cauchy aten::log_normal aten::manual_seed aten::seed
    aten::_cudnn_init_dropout_state aten::random aten::uniform aten::exponential
    sgl_kernel::top_p* sgl_kernel::top_k* sgl_kernel::min_p* vllm::sample*
""",
    "random",
)
set_category(
    """
    aten::unique_consecutive aten::sorted aten::median aten::sort* aten::topk*
    _moe_C::topk* _moe_C::grouped_topk aiter::topk* aiter::grouped_topk aiter::biased_grouped*
    sgl_kernel::moe_fused_gate sgl_kernel::fast_topk*
""",
    "sort",
)
set_category(
    """
    aten::_cudnn_rnn_flatten_weight aten::quantized_lstm
    aten::quantized_gru quantized::quantized_*cell* aten::_thnn_differentiable*
    aten::lstm_mps* aten::_lstm_mps
""",
    "rnn",
)
set_category("aten::stft aten::istft aten::fft_* aten::_fft_* prims::fft*", "fft")
set_category(
    """
    c10d::* _c10d_functional::* _c10d_functional_autograd::* symm_mem::* nccl:* gloo:* mpi:*
    record_param_comms _C_custom_ar::* _dtensor::shard_dim_alltoall torch::distributed::*
    vllm::all_reduce* vllm::all_gather* vllm::reduce_scatter* sgl_kernel::all_reduce*
    sgl_kernel::*custom_ar* aiter::all_reduce* aiter::*custom_all_reduce* deep_ep::*
    All2All_Pooled_Req* All2All_Pooled_Wait* fbgemm::all_to_one* DistributedDataParallel.*
""",
    "comm",
)

# The same ops under other names.
set_category("aten::_index_put_impl aten::reshape_as aten::_reshape_alias", "copy")
