"""Quantised products: each call as its library makes it, each count by hand."""

from __future__ import annotations

from typing import Final

import pytest

from pyprof2.analysis.costs import category_of, estimate
from pyprof2.signatures import OpCall, Tensor
from tests.analysis.costs.calls import call, known

YES, NO = True, False
BF16, F16 = 15, 5
"""PyTorch's numbers of element types."""


def of(dtype: str, *shape: int) -> Tensor:
    return Tensor(shape, dtype)


# 4 rows, k = 32, n = 16: the product takes 2·4·16·32 FLOPs.
PRODUCT: Final = 2 * 4 * 16 * 32
X: Final = of("bf16", 4, 32)
Y: Final = 2 * 4 * 16
"""Bytes of a result of 16 bits."""
Q4: Final = of("i32", 2, 32)
"""32 x 16 values of 4 bits in 64 words."""
SCALES: Final = of("bf16", 2, 16)
WORK: Final = of("i32", 1000)
PAIRED: Final = (Tensor((4, 32)), Tensor((4, 1)))
WEIGHTS: Final = (Tensor((16, 32)), Tensor((1, 1)))

COUNTS: Final = {
    "marlin, 2025": (
        call("_C::marlin_gemm", X, None, Q4, None, SCALES, None, None, None, None, None, WORK,
             1125899907892224, 4, 16, 32, YES, NO, YES, NO),
        PRODUCT, 2 * 128 + 4 * 64 + 2 * 32 + Y),
    "marlin into a buffer": (
        call("_C::gptq_marlin_gemm", X, of("bf16", 4, 16), Q4, SCALES, None, None, None, None,
             WORK, 7, 4, 16, 32, YES, NO, YES, NO),
        PRODUCT, 2 * 128 + 4 * 64 + 2 * 32 + Y),
    "marlin, 2024": (
        call("_C::gptq_marlin_gemm", X, Q4, SCALES, of("i32", 0), of("i32", 32), of("i32", 32),
             WORK, 4, 4, 16, 32, YES, NO, NO),
        PRODUCT, 2 * 128 + 4 * 64 + 2 * 32 + 2 * 4 * 32 + Y),
    "marlin of SGLang": (
        call("sgl_kernel::gptq_marlin_gemm", X, None, Q4, SCALES, None, None, None, None, WORK, 7,
             4, 16, 32, YES, NO, YES, NO),
        PRODUCT, 2 * 128 + 4 * 64 + 2 * 32 + Y),
    "marlin with x of 8 bits": (
        call("torchao::marlin_qqq_gemm", of("i8", 4, 32), Q4, of("f32", 4, 1), of("f32", 1, 16),
             of("f16", 2, 16), WORK, 4, 16, 32),
        PRODUCT, 128 + 4 * 64 + 4 * 4 + 4 * 16 + 2 * 32 + Y),
    "awq": (
        call("_C::awq_gemm", X, of("i32", 32, 2), SCALES, of("i32", 2, 2), 8),
        PRODUCT, 2 * 128 + 4 * 64 + 2 * 32 + 4 * 4 + Y),
    "awq, taken apart": (
        call("_C::awq_dequantize", of("i32", 32, 2), SCALES, of("i32", 2, 2), 0, 0, 0),
        2 * 32 * 16, 4 * 64 + 2 * 32 + 4 * 4 + 2 * 32 * 16),
    "gptq": (
        call("_C::gptq_gemm", X, of("i32", 4, 16), of("i32", 2, 2), SCALES, of("i32", 32), YES,
             NO, 4),
        PRODUCT, 2 * 128 + 4 * 64 + 4 * 4 + 2 * 32 + 4 * 32 + Y),
    "machete": (
        call("_C::machete_mm", X, of("i32", 4, 16), 7, None, SCALES, None, 16, None, None, None),
        PRODUCT, 2 * 128 + 4 * 64 + 2 * 32 + Y),
    "allspark": (
        call("_C::allspark_w8a16_gemm", X, of("u8", 32, 16), of("bf16", 1, 16), None, 16, -1, 132,
             90, 256, NO, YES),
        PRODUCT, 2 * 128 + 512 + 32 + Y),
    "fp4": (
        call("_C::cutlass_scaled_fp4_mm", of("bf16", 4, 16), of("u8", 4, 16), of("u8", 16, 16),
             of("f8e4m3", 128, 4), of("f8e4m3", 128, 4), of("f32")),
        PRODUCT, 64 + 256 + 512 + 512 + 4 + Y),
    "fp8 of SGLang": (
        call("sgl_kernel::fp8_scaled_mm", of("f8e4m3", 4, 32), of("f8e4m3", 32, 16),
             of("f32", 4, 1), of("f32", 1, 16), BF16, of("bf16", 16)),
        PRODUCT, 128 + 512 + 16 + 64 + 32 + Y),
    "fused A gemm": (
        call("sgl_kernel::dsv3_fused_a_gemm", of("bf16", 4, 16), X, of("bf16", 32, 16)),
        PRODUCT, 2 * 128 + 2 * 512 + Y),
    "deep_gemm, operands as pairs": (
        call("deep_gemm::fp8_gemm_nt", PAIRED, WEIGHTS, of("bf16", 4, 16), None, None, "nk", NO),
        PRODUCT, 128 + 512 + 4 * 4 + 4 + Y),
    "deep_gemm, flat": (
        call("deep_gemm::fp8_gemm_nt", of("f8e4m3", 4, 32), of("f32", 4, 1),
             of("f8e4m3", 16, 32), of("f32", 1, 1), of("bf16", 4, 16)),
        PRODUCT, 128 + 512 + 4 * 4 + 4 + Y),
    "deep_gemm, bf16": (
        call("deep_gemm::bf16_gemm_nt", X, of("bf16", 16, 32), of("bf16", 4, 16), None, "nk"),
        PRODUCT, 2 * 128 + 2 * 512 + Y),
    "int8": (
        call("bitsandbytes::int8_linear_matmul", of("i8", 2, 2, 32), of("i8", 16, 32)),
        PRODUCT, 128 + 512 + 2 * Y),
    "int8, scaled": (
        call("bitsandbytes::int8_scaled_mm", of("i8", 4, 32), of("i8", 16, 32), of("f32", 4),
             of("f32", 16), None, F16),
        PRODUCT, 128 + 512 + 4 * 4 + 4 * 16 + Y),
    "int32 to f16": (
        call("bitsandbytes::int8_mm_dequant", of("i32", 4, 16), of("f32", 4), of("f32", 16), F16,
             None),
        2 * 64, 4 * 64 + 4 * 4 + 4 * 16 + Y),
    "rows to int8": (
        call("bitsandbytes::int8_vectorwise_quant", of("f16", 4, 32), 0.0),
        3 * 128, 2 * 128 + 128 + 4 * 4),
    "one row, 4 bits": (
        call("bitsandbytes::gemv_4bit", of("bf16", 1, 32), of("u8", 256, 1), [16, 32],
             of("f32", 8), of("f32", 16), 64),
        2 * 16 * 32, 2 * 32 + 256 + 4 * 8 + 4 * 16 + 2 * 16),
    "rows, 4 bits": (
        call("bitsandbytes::gemm_4bit", X, of("u8", 256, 1), [16, 32], of("f32", 8), 64, "nf4",
             None),
        PRODUCT, 2 * 128 + 256 + 4 * 8 + Y),
    "4 bits, taken apart": (
        call("bitsandbytes::dequantize_4bit", of("u8", 256, 1), of("f32", 8), 64, "nf4", [16, 32],
             BF16),
        512, 256 + 4 * 8 + 2 * 512),
    "4 bits, packed": (
        call("bitsandbytes::quantize_4bit", of("bf16", 16, 32), 64, "nf4", 0),
        3 * 512, 2 * 512 + 256 + 4 * 8),
    "blocks to 8 bits": (
        call("bitsandbytes::quantize_blockwise", of("f32", 1000), of("f32", 256), 256),
        3000, 4000 + 1024 + 1000 + 4 * 4),
    "8 bits to blocks": (
        call("bitsandbytes::dequantize_blockwise", of("u8", 1000), of("f32", 4), of("f32", 256),
             256, F16),
        1000, 1000 + 16 + 1024 + 2000),
    "floats of 6 bits": (
        call("torchao::quant_llm_linear", 3, 2, of("f16", 4, 32), of("u8", 16, 24), of("f16", 16),
             1),
        PRODUCT, 2 * 128 + 384 + 32 + Y),
    "8 bits by 4 bits": (
        call("torchao::rowwise_scaled_linear_cutlass_s8s4", of("i8", 4, 32), of("f32", 4),
             of("i8", 16, 16), of("f32", 16), None, BF16),
        PRODUCT, 128 + 16 + 256 + 64 + Y),
    "4 bits by 4 bits": (
        call("torchao::rowwise_scaled_linear_cutlass_s4s4", of("i8", 4, 16), of("f32", 4),
             of("i8", 16, 16), of("f32", 16), None, BF16),
        PRODUCT, 64 + 16 + 256 + 64 + Y),
    "int8 of torchao": (
        call("torchao::int_scaled_matmul", of("i8", 4, 32), of("i8", 32, 16), of("bf16", 4, 1)),
        PRODUCT, 128 + 512 + 8 + Y),
    "Transformer Engine": (
        call("tex_ts::te_gemm_ts", of("u8", 16, 32), of("f32", 1), 0, 0, 1, of("u8", 4, 32),
             of("f32", 1), 0, 0, 0, of("bf16", 4, 16), of("f32", 0), 6, of("f32", 0),
             of("bf16", 0), 6, of("bf16", 0), 0, of("u8", 4000), 4000, 0, 0),
        PRODUCT, 512 + 128 + Y),
    "Transformer Engine, first version": (
        call("tex_ts::te_gemm_ts", of("bf16", 16, 32), of("f32", 0), 6, 1, X, of("f32", 0), 6, 0,
             of("bf16", 4, 16), 6, of("bf16", 0), of("bf16", 0), 0, of("u8", 4000), 4000, 0, 0),
        PRODUCT, 2 * 512 + 2 * 128 + Y),
    "groups to 8 bits": (
        call("sgl_kernel::sgl_per_token_group_quant_8bit", X, of("f8e4m3", 4, 32),
             of("f32", 4, 2), 16, 1e-10, -448.0, 448.0, NO),
        3 * 128, 256 + 128 + 32),
    "int8 with a known scale": (
        call("_C::static_scaled_int8_quant", of("i8", 4, 32), X, of("f32", 1), None),
        3 * 128, 128 + 256 + 4),
    "merge": (
        call("sgl_kernel::merge_state_v2", of("bf16", 4, 2, 8), of("f32", 4, 2),
             of("bf16", 4, 2, 8), of("f32", 4, 2), of("bf16", 4, 2, 8), of("f32", 4, 2)),
        3 * 64, 3 * 2 * 64 + 3 * 4 * 8),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_those_of_the_hand(name: str) -> None:
    op, flops, nbytes = COUNTS[name]
    found = estimate(op)
    cost = known(found)

    assert (found.status, cost.flops, cost.bytes) == ("ok", flops, nbytes)


@pytest.mark.parametrize(
    "name", [name for name, (_, flops, _) in COUNTS.items() if flops == PRODUCT]
)
def test_the_numbers_that_matter_are_those_of_the_product(name: str) -> None:
    assert known(estimate(COUNTS[name][0])).params == "M=4,N=16,K=32"


def test_a_sparse_product_counts_the_values_kept() -> None:
    marlin = call("torchao::marlin_24_gemm", X, Q4, of("i16", 2, 16), SCALES, WORK, 4, 4, 16, 32)
    cutlass = call(
        "torchao::rowwise_scaled_linear_sparse_cutlass_f8f8", of("f8e4m3", 4, 32), of("f32", 4),
        of("f8e4m3", 16, 16), of("u8", 16, 4), of("f32", 16), None, BF16,
    )  # fmt: skip

    for op in (marlin, cutlass):
        cost = known(estimate(op))
        assert (cost.flops, cost.flops_hi) == (PRODUCT // 2, PRODUCT)


@pytest.mark.parametrize(
    "op",
    [
        call("_C::cutlass_moe_mm", of("bf16", 4, 16), of("f8e4m3", 4, 32), of("f8e4m3", 3, 32, 16)),
        call("_C::cutlass_fp4_group_mm", of("bf16", 4, 16), of("u8", 4, 16), of("u8", 3, 16, 16)),
        call("sgl_kernel::fp8_blockwise_scaled_grouped_mm", of("bf16", 4, 16), *[None] * 5,
             of("f8e4m3", 4, 32), of("f8e4m3", 3, 32, 16)),
        call("deep_gemm::m_grouped_fp8_gemm_nt_contiguous", PAIRED,
             (Tensor((3, 16, 32)), Tensor((3, 1, 1))), of("bf16", 4, 16), of("i32", 4)),
    ],
    ids=lambda op: op.op,
)  # fmt: skip
def test_rows_of_experts_are_at_most_all_rows(op: OpCall) -> None:
    found = estimate(op)
    cost = known(found)

    assert found.status == "assumed"
    assert (cost.flops_lo, cost.flops, cost.flops_hi) == (0, PRODUCT, PRODUCT)
    assert cost.params == "M=4,N=16,K=32,G=3"
    assert cost.bytes_lo == 0


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        pytest.param(
            call("_C::marlin_gemm", X, Q4, SCALES, WORK), "the size of the result", id="no numbers"
        ),
        pytest.param(
            call("_C::marlin_gemm", X, Q4, SCALES, WORK, 4, 16, 99), "the size", id="another k"
        ),
        pytest.param(
            call("bitsandbytes::gemv_4bit", X, of("u8", 256, 1)), "the shape", id="no shape"
        ),
        pytest.param(
            call("deep_gemm::fp8_gemm_nt", of("bf16", 4, 16)), "an operand", id="no operands"
        ),
        pytest.param(
            call("sgl_kernel::fp8_scaled_mm", of("f8e4m3", 4, 32), of("f8e4m3", 32, 16)),
            "the type of the result", id="no type",
        ),
    ],
)  # fmt: skip
def test_what_the_inputs_do_not_say_is_unknown(op: OpCall, reason: str) -> None:
    found = estimate(op)

    assert (found.cost, found.status) == (None, "no_shapes")
    assert found.note.startswith(reason)


def test_a_layer_of_transformer_engine_multiplies_its_input_and_its_weight() -> None:
    plain = call("_Linear", of("bf16", 16, 32), of("bf16", 2, 2, 32), of("bf16", 16))
    normed = call(
        "_LayerNormLinear", of("bf16", 2, 2, 32), of("bf16", 32), None, of("bf16", 16, 32)
    )

    for op in (plain, normed):
        found = estimate(op)
        cost = known(found)
        assert (found.status, cost.flops, cost.dtype) == ("assumed", PRODUCT, None)
        assert cost.params == "M=4,N=16,K=32"
        assert cost.bytes == cost.bytes_hi == 2 * 512 + 2 * 128 + Y
        assert cost.bytes_lo == 512 + 128 + Y


@pytest.mark.parametrize("name", ["_Linear", "_LayerNormLinear"])
@pytest.mark.parametrize("shape", [(0, 2**33), (0, 0), (2**33, 0)])
def test_of_an_empty_layer_only_what_is_in_memory_is_left_open(
    name: str, shape: tuple[int, int]
) -> None:
    item = of("f32", *shape)

    found = estimate(call(name, item, item))

    nothing = (0, 0) if shape[0] == 0 else None
    cost = found.cost
    assert found.status in ("ok", "no_shapes")
    assert cost is None or (cost.flops, cost.bytes) == nothing


def test_layers_with_more_than_one_input_of_that_width_are_left_open() -> None:
    op = call("_Linear", of("bf16", 16, 32), of("bf16", 4, 32), of("bf16", 8, 32))

    assert estimate(op).status == "no_shapes"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("deep_gemm::fp8_m_grouped_gemm_nt_masked", "the rows of each group"),
        ("vllm::moe_forward", "the experts' weights"),
        ("vllm::unified_attention", "the lengths of the cached sequences"),
    ],
)
def test_what_no_input_can_tell_has_no_formula_but_a_reason(name: str, reason: str) -> None:
    found = estimate(call(name, X, X))

    assert found.status == "no_formula"
    assert found.note.startswith(reason)


def test_an_optimizer_of_bitsandbytes_is_no_product() -> None:
    assert category_of("bitsandbytes::optimizer_update_8bit_blockwise") == "optimizer"
    assert category_of("bitsandbytes::int8_mixed_scaled_mm") == "matmul"
    assert category_of("bitsandbytes::int8_double_quant") == "elementwise"
