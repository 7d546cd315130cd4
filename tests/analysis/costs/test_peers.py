"""Errors that other tools make on the same calls: what is right, each by hand."""

from __future__ import annotations

from typing import Any

import pytest

from pyprof2.analysis.costs import Cost, category_of, estimate, has_formula
from pyprof2.signatures import DTYPE_BITS, Input, OpCall, Scalar, Tensor
from tests.analysis.costs.calls import bf16, f32

YES, NO = True, False


def cost(name: str, *inputs: Any) -> Cost:
    def as_input(item: Any) -> Input:
        return item if item is None or isinstance(item, Tensor) else Scalar(item)

    found = estimate(OpCall(name, tuple(map(as_input, inputs))))
    assert found.cost is not None, found
    return found.cost


def test_the_bias_of_a_convolution_is_moved_although_the_op_has_nine_inputs() -> None:
    """The patches of ViT-B: 4 images, 196 patches of 588 weights each... with a bias of 768."""
    args = ([16, 16], [0, 0], [1, 1], NO, [0, 0], 1)
    x, weight = bf16(4, 3, 224, 224), bf16(768, 3, 16, 16)

    found = cost("aten::convolution", x, weight, bf16(768), *args)

    assert found.flops == 924_844_032
    assert found.bytes == 2 * (4 * 3 * 224 * 224 + 768 * 768 + 768 + 4 * 768 * 196)


def test_gradients_that_the_mask_leaves_out_do_not_count() -> None:
    """The first layer of ResNet with 10 images: no gradient of the images is wanted."""
    args = ([0], [2, 2], [3, 3], [1, 1], NO, [0, 0], 1)
    grad, x, weight = bf16(10, 64, 112, 112), bf16(10, 3, 224, 224), bf16(64, 3, 7, 7)

    one = cost("aten::convolution_backward", grad, x, weight, *args, [NO, YES, NO])
    both = cost("aten::convolution_backward", grad, x, weight, *args, [YES, YES, NO])

    assert one.flops == 2 * (10 * 64 * 112 * 112) * 147
    assert both.flops == 2 * one.flops


@pytest.mark.parametrize(
    ("name", "shape", "dims", "results"),
    [
        pytest.param("aten::sum", (1024, 4096), [1], 1024, id="rows"),
        pytest.param("aten::sum", (10, 1000), [0], 1000, id="columns"),
        pytest.param("aten::mean", (10, 512, 7, 7), [-1, -2], 5120, id="images"),
    ],
)
def test_a_reduction_has_the_results_that_its_dims_leave(
    name: str, shape: tuple[int, ...], dims: list[int], results: int
) -> None:
    assert cost(name, f32(*shape), dims, YES, None).bytes_written == 4 * results


@pytest.mark.parametrize(
    ("queries", "keys", "pairs"),
    [
        pytest.param(1, 1000, 1000, id="decode"),
        pytest.param(4, 10, 7 + 8 + 9 + 10, id="a chunk of the prompt"),
    ],
)
def test_causal_attention_need_not_be_square(queries: int, keys: int, pairs: int) -> None:
    q, k = bf16(2, queries, 3, 16), bf16(2, keys, 3, 16)

    found = cost("flash_attn::_flash_attn_forward", q, k, k, 0.0, 0.25, YES, -1, -1)

    assert found.flops == 2 * 2 * 3 * pairs * (16 + 16)


def test_attention_in_f32_moves_four_bytes_for_each_element() -> None:
    q = f32(4, 16, 2048, 64)

    found = cost("aten::_scaled_dot_product_efficient_attention", q, q, q, None, NO, 0.0, NO)

    assert found.bytes == 134_217_728


def test_a_scaled_product_has_its_bias_its_scales_and_the_type_of_its_result() -> None:
    a, b = Tensor((16, 32), "f8e4m3"), Tensor((32, 8), "f8e4m3")

    found = cost("aten::_scaled_mm", a, b, f32(16, 1), f32(1, 8), bf16(8), None, 6, NO)

    assert found.bytes_read == 512 + 256 + 64 + 32 + 16
    assert found.bytes_written == 4 * 16 * 8


@pytest.mark.parametrize("training", [NO, "False"], ids=["bool", "text"])
def test_the_text_false_is_false(training: Any) -> None:
    x = f32(2, 3, 8, 8)

    found = cost("aten::instance_norm", x, None, None, f32(3), f32(3), training, 0.1, 1e-5, YES)

    assert found.flops == 2 * 384


def test_a_norm_without_weight_reads_none() -> None:
    found = cost("aten::native_layer_norm", f32(4, 8), [8], None, None, 1e-5)

    assert found.bytes_read == 4 * 32


@pytest.mark.parametrize("dtype", DTYPE_BITS)
def test_every_element_type_has_its_real_size(dtype: str) -> None:
    x = Tensor((64,), dtype)

    assert cost("aten::clone", x, None).bytes == 2 * 64 * DTYPE_BITS[dtype] // 8


@pytest.mark.parametrize(
    "name",
    [
        "aten::_softmax", "aten::gelu", "aten::cat", "aten::max_pool2d_with_indices",
        "aten::index", "aten::index_put_", "aten::embedding", "aten::embedding_dense_backward",
        "aten::native_dropout", "aten::nll_loss_forward", "aten::mse_loss", "aten::_fused_adamw_",
        "aten::_foreach_addcdiv_", "aten::_cudnn_rnn", "aten::relu", "aten::tanh", "aten::exp",
        "aten::where", "aten::masked_fill", "aten::log_softmax", "aten::stack", "aten::gather",
        "aten::scatter_add_", "aten::sort", "aten::topk", "aten::upsample_bilinear2d",
        "aten::normal_", "aten::_fft_c2c", "aten::_grouped_mm", "aten::_scaled_grouped_mm",
        "aten::_scaled_mm_v2", "aten::_int_mm", "aten::dot", "aten::mv", "aten::addmv",
        "aten::addbmm", "aten::_addmm_activation", "aten::_sparse_semi_structured_mm",
        "aten::cudnn_convolution", "aten::miopen_convolution",
        "aten::_efficient_attention_forward", "aten::_efficient_attention_backward",
        "aten::_scaled_dot_product_flash_attention_backward", "_C::fused_add_rms_norm",
        "_C::rotary_embedding",
    ],
)  # fmt: skip
def test_ops_that_others_leave_out_have_a_formula(name: str) -> None:
    assert has_formula(name)


@pytest.mark.parametrize(
    "name",
    ["symm_mem::multimem_all_reduce_", "vllm::all_reduce", "c10d::allreduce_", "nccl:all_reduce"],
)
def test_communication_is_no_computation(name: str) -> None:
    assert category_of(name) == "comm"


def test_a_text_from_the_recording_is_never_executed() -> None:
    found = estimate(
        OpCall(
            "aten::conv2d",
            (f32(1, 1, 4, 4), f32(1, 1, 3, 3), None, Scalar("[__import__('os').abort()]")),
        )
    )

    assert (found.status, found.cost) == ("no_shapes", None)
