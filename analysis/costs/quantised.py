"""Products of quantised weights, as libraries for inference and training make them.

FLOPs: 2 for each multiply-add of the product (m, k) @ (k, n), whatever the bits of its operands;
taking the weights apart again is not counted, as with what is fused to other products. Bytes:
each operand as it lies in memory, packed, with its scales and zero points, and the result. Work
buffers are not counted.

Libraries: vLLM (`_C`), SGLang (`sgl_kernel`), DeepGEMM, bitsandbytes, torchao and Transformer
Engine. Source: the schemas with which they register their operators.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from pyprof2.analysis.costs.matmul import multiply_adds, packed_product, product
from pyprof2.analysis.costs.operands import (
    bounded,
    counted,
    dtype_at,
    fresh,
    integer,
    integers,
    like,
    maybe_tensor,
    needed,
    numel,
    refuse,
    scalars_recorded,
    tally,
    tensor,
)
from pyprof2.analysis.costs.registry import (
    Cost,
    Evidence,
    cost_of,
    cost_with_evidence,
)
from pyprof2.signatures import OpCall, Tensor

# --------------------------------------------------------------------------- Marlin, AWQ, GPTQ


@cost_of(
    "_C::marlin_gemm", "_C::gptq_marlin_gemm", "sgl_kernel::gptq_marlin_gemm",
    "torchao::marlin_qqq_gemm", category="matmul",
)  # fmt: skip
def marlin_gemm(call: OpCall) -> Cost:
    """x (m, k), packed weights, scales, …, a work buffer, …, m, n, k: flops 2·m·n·k.

    bytes: x, weights, scales, zero points and permutation as they lie in memory, the result. Where
    the arguments stand differs by version; m, n and k are the numbers that fit x.
    """
    return _marlin(call)


@cost_of("_C::gptq_marlin_24_gemm", "torchao::marlin_24_gemm", category="matmul")
def marlin_24_gemm(call: OpCall) -> Cost:
    """As `marlin_gemm`, the weights 2:4 sparse: flops 2·m·n·k/2; `flops_hi` the dense count."""
    cost = _marlin(call)
    return bounded(replace(cost, flops=cost.flops // 2), flops=(cost.flops // 2, cost.flops))


def _marlin(call: OpCall) -> Cost:
    x = tensor(call, 0)
    m, k = x.shape
    numbers = [integer(call, at) for at in range(len(call.inputs))]
    triples = zip(numbers, numbers[1:], numbers[2:], strict=False)
    found = {n for rows, n, depth in triples if (rows, depth) == (m, k) and n}
    if len(found) != 1:
        refuse("the size of the result is not in the recording")
    n = found.pop()
    *read, _work = (item for item in call.inputs[1:] if isinstance(item, Tensor))
    # An optional buffer for the result stands before the weights.
    outs = [item for item in read[:1] if item.shape == (m, n) and item.dtype != "i32"]
    eight_bits = (x.dtype or "").startswith(("i8", "f8"))
    out = outs[0] if outs else fresh((m, n), "f16" if eight_bits else x.dtype)
    return packed_product(x, n, list(read[len(outs) :]), out)


@cost_of("_C::awq_gemm", category="matmul")
def awq_gemm(call: OpCall) -> Cost:
    """x (m, k), weights (k, n/8) with eight 4-bit values in each, scales (k/g, n), zero points."""
    x, packed, scales, zeros = (tensor(call, at) for at in range(4))
    return packed_product(x, scales.shape[-1], [packed, scales, zeros])


@cost_of("_C::awq_dequantize", "sgl_kernel::awq_dequantize", category="elementwise")
def awq_dequantize(call: OpCall) -> Cost:
    """Weights (k, n/8), scales (k/g, n), zero points -> (k, n): shift and scale, 2 flops each."""
    packed, scales, zeros = (tensor(call, at) for at in range(3))
    out = fresh((packed.shape[0], scales.shape[-1]), scales.dtype)
    count, read = counted(out), [packed, scales, zeros]
    return tally(2 * count, read=read, written=[out], dtype=out.dtype, params=f"N={count}")


@cost_of("_C::gptq_gemm", "sgl_kernel::gptq_gemm", category="matmul")
def gptq_gemm(call: OpCall) -> Cost:
    """x (m, k), packed weights (…, n), zero points, scales (k/g, n), order of the groups."""
    x, *more = (tensor(call, at) for at in range(4))
    return packed_product(x, more[0].shape[-1], [*more, maybe_tensor(call, 4)])


@cost_of("_C::machete_mm", category="matmul")
def machete_mm(call: OpCall) -> Cost:
    """x (m, k), packed weights (…, n), type, result's type, scales, zero points, …, more scales."""
    x, packed = tensor(call, 0), tensor(call, 1)
    more = [maybe_tensor(call, at) for at in (4, 5, 7, 8)]
    n = packed.shape[-1]
    if more[0] is not None and more[0].shape[-1] != n:
        refuse("how the weights are packed is not in the recording")
    out = fresh((x.shape[0], n), dtype_at(call, 3) or x.dtype)
    return packed_product(x, n, [packed, *more], out)


@cost_of("_C::allspark_w8a16_gemm", category="matmul")
def allspark_gemm(call: OpCall) -> Cost:
    """x (m, k), weights of 8 bits, scales, zero points, n: flops 2·m·n·k."""
    x = tensor(call, 0)
    n = needed(integer(call, 4), "the size of the result is not in the recording")
    return packed_product(x, n, [tensor(call, 1), tensor(call, 2), maybe_tensor(call, 3)])


# --------------------------------------------------------------------------- CUTLASS


@cost_of("_C::cutlass_scaled_fp4_mm", "sgl_kernel::cutlass_scaled_fp4_mm", category="matmul")
def scaled_fp4_mm(call: OpCall) -> Cost:
    """Result (m, n), a (m, k/2) and b (n, k/2) with two fp4 values in each byte, scales, alpha."""
    out, a, b = (tensor(call, at) for at in range(3))
    more = [maybe_tensor(call, at) for at in (3, 4, 5)]
    cost = packed_product(a, out.shape[-1], [b, *more], out, 2 * a.shape[-1])
    return replace(cost, dtype="f4e2m1")


@cost_of(
    "sgl_kernel::fp8_scaled_mm", "sgl_kernel::int8_scaled_mm",
    "sgl_kernel::fp8_blockwise_scaled_mm", category="matmul",
)  # fmt: skip
def scaled_mm_by_columns(call: OpCall) -> Cost:
    """A (m, k), b (k, n), scales of both, type of the result, bias: flops 2·m·n·k."""
    a, b = tensor(call, 0), tensor(call, 1)
    out = needed(dtype_at(call, 4), "the type of the result is not in the recording")
    return product(a, b, *(maybe_tensor(call, at) for at in (2, 3, 5)), out_dtype=out)


@cost_of(
    "_C::dsv3_fused_a_gemm", "sgl_kernel::dsv3_fused_a_gemm", "sgl_kernel::dsv3_router_gemm",
    category="matmul",
)  # fmt: skip
def gemm_into(call: OpCall) -> Cost:
    """Result (m, n), a (m, k), b: flops 2·m·n·k."""
    out, a, b = (tensor(call, at) for at in range(3))
    return packed_product(a, out.shape[-1], [b], out)


_ROUTED: Final = "every row is taken to be multiplied, and the weights of every expert to be read"


def _routed(out: Tensor, a: Tensor, b: Tensor, more: list[Tensor | None], k: int) -> Cost:
    """Rows of `a`, each times the matrix of its expert in `b` (e, …): at most all of them."""
    cost = packed_product(a, out.shape[-1], [b, *more], out, k)
    params = f"{cost.params},G={b.shape[0]}"
    return bounded(
        replace(cost, params=params), _ROUTED, flops=(0, cost.flops), traffic=(0, cost.bytes)
    )


@cost_of("_C::cutlass_moe_mm", category="matmul")
def cutlass_moe_mm(call: OpCall) -> Cost:
    """Result (t, n), a (t, k), weights of e experts, scales: at most 2·t·n·k."""
    out, a, b = (tensor(call, at) for at in range(3))
    return _routed(out, a, b, [maybe_tensor(call, 3), maybe_tensor(call, 4)], a.shape[-1])


@cost_of("_C::cutlass_fp4_group_mm", "sgl_kernel::cutlass_fp4_group_mm", category="matmul")
def fp4_group_mm(call: OpCall) -> Cost:
    """As `cutlass_moe_mm`, with two fp4 values in each byte of a and b."""
    out, a, b = (tensor(call, at) for at in range(3))
    cost = _routed(out, a, b, [maybe_tensor(call, at) for at in (3, 4, 5)], 2 * a.shape[-1])
    return replace(cost, dtype="f4e2m1")


@cost_of("sgl_kernel::fp8_blockwise_scaled_grouped_mm", category="matmul")
def fp8_grouped_mm(call: OpCall) -> Cost:
    """As `cutlass_moe_mm`; the result is input 0, a and b are inputs 6 and 7, their scales next."""
    out, a, b = tensor(call, 0), tensor(call, 6), tensor(call, 7)
    return _routed(out, a, b, [maybe_tensor(call, 8), maybe_tensor(call, 9)], a.shape[-1])


# --------------------------------------------------------------------------- DeepGEMM


def _operands(call: OpCall) -> tuple[Tensor, Tensor, Tensor, list[Tensor | None]]:
    """Return a, b, the result, and the scales; lists are recorded without element types."""
    # All tensors in order: operands come as pairs with their scales.
    found: list[Tensor] = []
    for item in call.inputs:
        found += item if isinstance(item, tuple) else [item] if isinstance(item, Tensor) else []
    if "bf16_gemm" in call.op:
        a, b, out, *_ = (*found, *[fresh((), None)] * 3)
        return a, b, out, []
    if len(found) < 5:
        refuse("an operand or its scales is not in the recording")
    a, a_scale, b, b_scale, out = found[:5]
    a, b = (item if item.dtype else replace(item, dtype="f8e4m3") for item in (a, b))
    scales = [item if item.dtype else replace(item, dtype="f32") for item in (a_scale, b_scale)]
    return a, b, out, [*scales]


@cost_of(
    "deep_gemm::fp8_gemm_nt", "deep_gemm::fp8_gemm_nn", "deep_gemm::fp8_gemm_tn",
    "deep_gemm::fp8_gemm_tt", "deep_gemm::bf16_gemm_nt", "deep_gemm::bf16_gemm_nn",
    "deep_gemm::bf16_gemm_tn", "deep_gemm::bf16_gemm_tt", category="matmul",
)  # fmt: skip
def deep_gemm(call: OpCall) -> Cost:
    """A and b, with their scales if fp8, and the result (m, n): flops 2·m·n·k.

    k is what a has beside m. bytes: operands, scales, result; not an addend.
    """
    a, b, out, scales = _operands(call)
    return _by_result(a, b, out, scales, a.dtype)


def _by_result(
    rows: Tensor, columns: Tensor, out: Tensor, scales: list[Tensor | None], dtype: str | None
) -> Cost:
    """Operands that lie either way -> (m, n): k is what the rows have beside m."""
    m, n = out.shape
    k = numel(rows.shape) // m if m else 0
    if m * k != numel(rows.shape) or n * k != numel(columns.shape):
        refuse("a shape that fits is not in the recording")
    flops, read = 2 * multiply_adds(m, n, k), [rows, columns, *scales]
    return tally(flops, read=read, written=[out], dtype=dtype, params=f"M={m},N={n},K={k}")


@cost_of(
    "deep_gemm::m_grouped_fp8_gemm_nt_contiguous", "deep_gemm::m_grouped_fp8_gemm_nn_contiguous",
    "deep_gemm::m_grouped_bf16_gemm_nt_contiguous",
    "deep_gemm::m_grouped_bf16_gemm_nn_contiguous", category="matmul",
)  # fmt: skip
def deep_gemm_grouped(call: OpCall) -> Cost:
    """Rows (t, k) in groups, weights (g, n, k), result (t, n): at most 2·t·n·k."""
    a, b, out, scales = _operands(call)
    return _routed(out, a, b, scales, a.shape[-1])


# --------------------------------------------------------------------------- bitsandbytes


@cost_of("bitsandbytes::int8_linear_matmul", category="matmul")
def int8_linear_matmul(call: OpCall) -> Cost:
    """x (…, k) i8, weight (n, k) i8 -> i32: operations 2·rows·n·k; bytes: 1 in, 4 out."""
    x, weight = tensor(call, 0), tensor(call, 1)
    out = fresh((*x.shape[:-1], weight.shape[0]), "i32")
    return packed_product(x, weight.shape[0], [weight], out)


@cost_of("bitsandbytes::int8_scaled_mm", category="matmul")
def int8_scaled_mm(call: OpCall) -> Cost:
    """x (…, k) i8, weight (n, k) i8, scales of rows and columns, bias, type -> f16 by default."""
    x, weight = tensor(call, 0), tensor(call, 1)
    out = fresh((*x.shape[:-1], weight.shape[0]), _named(call, 5))
    return packed_product(
        x, weight.shape[0], [weight, *(maybe_tensor(call, at) for at in (2, 3, 4))], out
    )


def _named(call: OpCall, at: int) -> str | None:
    """Return the type at input `at`, f16 where scalars are recorded and it is not among them."""
    return dtype_at(call, at) or ("f16" if scalars_recorded(call) else None)


@cost_of("bitsandbytes::int8_mm_dequant", category="elementwise")
def int8_mm_dequant(call: OpCall) -> Cost:
    """x i32, scales of rows and columns, type, bias -> f16 by default: 2 products each, 1 sum."""
    x, bias = tensor(call, 0), maybe_tensor(call, 4)
    flops = (2 if bias is None else 3) * counted(x)
    read = [x, maybe_tensor(call, 1), maybe_tensor(call, 2), bias]
    return tally(flops, read=read, written=[fresh(x.shape, _named(call, 3))], dtype="f32")


@cost_of("bitsandbytes::int8_vectorwise_quant", category="elementwise")
def int8_vectorwise_quant(call: OpCall) -> Cost:
    """x (…, k) -> i8 and the largest value of each row in f32: compare, scale, round: 3 each."""
    x = tensor(call, 0)
    stats = fresh(x.shape[:-1], "f32")
    return tally(3 * counted(x), read=[x], written=[like(x, "i8"), stats])


@cost_of("bitsandbytes::gemv_4bit", "bitsandbytes::gemm_4bit", category="matmul")
def gemm_4bit(call: OpCall) -> Cost:
    """x (…, k), weights of 4 bits, their shape (n, k), scales of the blocks, …: 2·rows·n·k."""
    x, packed, shape = tensor(call, 0), tensor(call, 1), integers(call, 2)
    if shape is None or len(shape) != 2 or shape[1] != x.shape[-1]:
        refuse("the shape of the weights is not in the recording")
    more = [item for item in call.inputs[3:] if isinstance(item, Tensor)]
    return packed_product(x, shape[0], [packed, *more])


@cost_of("bitsandbytes::dequantize_4bit", category="elementwise")
def dequantize_4bit(call: OpCall) -> Cost:
    """Packed, scales of the blocks, size of a block, kind, shape, type -> two for each byte."""
    packed, shape, dtype = tensor(call, 0), integers(call, 4), dtype_at(call, 5)
    if shape is None or dtype is None:
        refuse("the shape or the type of the result is not in the recording")
    out = fresh(shape, dtype)
    cost = tally(numel(shape), read=[packed, maybe_tensor(call, 1)], written=[out], dtype=dtype)
    return replace(cost, params=f"N={numel(shape)}")


@cost_of("bitsandbytes::quantize_4bit", category="elementwise")
def quantize_4bit(call: OpCall) -> Cost:
    """x, size of a block -> half a byte each, and a scale in f32 for each block: 3 flops each."""
    x, block = tensor(call, 0), integer(call, 1)
    return _blocks(x, block, fresh((-(-numel(x.shape) // 2),), "u8"), [])


@cost_of("bitsandbytes::quantize_blockwise", category="elementwise")
def quantize_blockwise(call: OpCall) -> Cost:
    """x, table of 256 values, size of a block -> a byte each, and a scale for each block."""
    x, block = tensor(call, 0), integer(call, 2)
    return _blocks(x, block, like(x, "u8"), [maybe_tensor(call, 1)])


def _blocks(x: Tensor, block: int | None, out: Tensor, more: list[Tensor | None]) -> Cost:
    if not block:
        refuse("the size of a block is not in the recording")
    scales = fresh((math.ceil(numel(x.shape) / block),), "f32")
    return tally(3 * counted(x), read=[x, *more], written=[out, scales])


@cost_of("bitsandbytes::dequantize_blockwise", category="elementwise")
def dequantize_blockwise(call: OpCall) -> Cost:
    """Bytes, scales of the blocks, table of 256 values, size, type: scaled, 1 flop each."""
    x = tensor(call, 0)
    dtype = needed(dtype_at(call, 4), "the type of the result is not in the recording")
    read = [x, maybe_tensor(call, 1), maybe_tensor(call, 2)]
    return tally(counted(x), read=read, written=[like(x, dtype)], dtype=dtype)


# --------------------------------------------------------------------------- torchao


@cost_of("torchao::quant_llm_linear", category="matmul")
def quant_llm_linear(call: OpCall) -> Cost:
    """Bits of exponent and mantissa, x (m, k), packed weights, scales (n): flops 2·m·n·k."""
    x, packed, scales = (tensor(call, at) for at in (2, 3, 4))
    return packed_product(x, numel(scales.shape), [packed, scales])


@cost_of(
    "torchao::rowwise_scaled_linear_cutlass_s8s4", "torchao::rowwise_scaled_linear_cutlass_s4s4",
    category="matmul",
)  # fmt: skip
def rowwise_scaled_linear(call: OpCall) -> Cost:
    """x (…, k), its scales, weights of 4 bits, two in a byte, their scales, bias, type.

    In the op whose name ends in `s4s4` x has two values in each byte too.
    """
    x, weight = tensor(call, 0), tensor(call, 2)
    k = x.shape[-1] * (2 if call.op.endswith("s4s4") else 1)
    out = fresh((*x.shape[:-1], weight.shape[0]), _ao_type(call, 5))
    more = [maybe_tensor(call, at) for at in (1, 3, 4)]
    return packed_product(x, weight.shape[0], [weight, *more], out, k)


def _ao_type(call: OpCall, at: int) -> str | None:
    """Return the type of the result: the one asked for, else that of the scales."""
    scales = maybe_tensor(call, 1)
    return dtype_at(call, at) or (scales.dtype if scales and scalars_recorded(call) else None)


@cost_of("torchao::rowwise_scaled_linear_sparse_cutlass_f8f8", category="matmul")
def sparse_scaled_linear(call: OpCall) -> Cost:
    """x (…, k), its scales, 2:4 sparse weights (n, k/2), positions, scales, bias, type.

    flops 2·rows·n·k/2, those of the values kept; `flops_hi` the dense count.
    """
    x, weight = tensor(call, 0), tensor(call, 2)
    out = fresh((*x.shape[:-1], weight.shape[0]), _ao_type(call, 6))
    more = [maybe_tensor(call, at) for at in (1, 3, 4, 5)]
    cost = packed_product(x, weight.shape[0], [weight, *more], out)
    return bounded(replace(cost, flops=cost.flops // 2), flops=(cost.flops // 2, cost.flops))


@cost_of("torchao::int_scaled_matmul", category="matmul")
def int_scaled_matmul(call: OpCall) -> Cost:
    """A (m, k) i8, b (k, n) i8, scales of the rows -> of the scales' type: 2·m·n·k."""
    a, b, scales = (tensor(call, at) for at in range(3))
    return product(a, b, scales, out_dtype=scales.dtype)


# --------------------------------------------------------------------------- Transformer Engine


@cost_of("tex_ts::te_gemm_ts", category="matmul")
def te_gemm(call: OpCall) -> Cost:
    """A, its scale, …, b, its scale, …, the result (m, n), …: flops 2·m·n·k.

    Whichever way the operands lie, k is what b (the rows) has beside m, and a beside n.
    bytes: operands and result.
    """
    # The first version had fewer numbers before b and the result.
    b_at, out_at = (4, 8) if isinstance(call.inputs[4], Tensor) else (5, 10)
    a, b, out = (tensor(call, at) for at in (0, b_at, out_at))
    dtype = "f8e4m3" if a.dtype == "u8" else a.dtype  # fp8 lies in bytes
    return _by_result(b, a, out, [], dtype)


_AS_TE: Final = (
    "as Transformer Engine's layer: in which type it multiplies is not recorded, of 8 bits or not"
)


@cost_of("_Linear", "_LayerNormLinear", category="matmul")
def te_linear(call: OpCall) -> Cost:
    """Among the inputs a weight (n, k) and x (…, k), of Transformer Engine's: flops 2·rows·n·k.

    bytes: x, weight, the result of x's type. Assumed: these are what is multiplied, in the types
    that they lie in memory; at the least x and weight of 8 bits.
    """
    items = [item for item in call.inputs if isinstance(item, Tensor) and len(item.shape) > 1]
    if call.op == "_LayerNormLinear":
        items.reverse()
    weight, rest = (items[0], items[1:]) if items else (fresh((0, 0), None), [])
    xs = {item for item in rest if item.shape[-1] == weight.shape[-1]}
    if len(xs) != 1 or len(weight.shape) != 2:
        refuse("which inputs are multiplied is not in the recording")
    x = xs.pop()
    n = weight.shape[0]
    cost, least = (
        packed_product(item, n, [like(weight, dtype)], fresh((*x.shape[:-1], n), x.dtype))
        for item, dtype in ((x, None), (like(x, "f8e4m3"), "f8e4m3"))
    )
    return bounded(replace(cost, dtype=None), _AS_TE, traffic=(least.bytes, cost.bytes))


@cost_with_evidence(
    "quantized::linear_dynamic", "quantized::linear_relu_dynamic", category="matmul"
)
def linear_dynamic(call: OpCall, evidence: Evidence) -> Cost:
    """x (…, k), packed weights of 8 bits (n, k) -> (…, n): operations 2·rows·n·k, of whole numbers.

    The weights are an object without a shape: n is that of the result, as it is allocated inside.
    bytes: x, the weights at a byte each, the result of x's type.
    """
    x = tensor(call, 0)
    out = needed(evidence.output, "the shape of the weights is not in the recording")
    n = out.shape[-1]
    return replace(packed_product(x, n, [fresh((n, x.shape[-1]), "i8")]), dtype="i8")


# --------------------------------------------------------------------------- around products


@cost_of(
    "sgl_kernel::sgl_per_token_group_quant_8bit", "sgl_kernel::sgl_per_token_group_quant_fp8",
    "sgl_kernel::sgl_per_token_group_quant_int8", "_C::per_token_group_fp8_quant",
    "_C::per_token_group_quant_int8", category="elementwise",
)  # fmt: skip
def group_quant(call: OpCall) -> Cost:
    """x, result of 8 bits, a scale for each group: compare, scale, clamp: 3 flops each."""
    x, out, scales = (tensor(call, at) for at in range(3))
    return tally(3 * counted(x), read=[x], written=[out, scales])


@cost_of("_C::static_scaled_int8_quant", "_C::dynamic_scaled_int8_quant", category="elementwise")
def int8_quant(call: OpCall) -> Cost:
    """Result, x, scale, zero point: scale, round, clamp: 3 flops each; a dynamic scale is written.

    bytes: x, result, scale, zero point.
    """
    out, x, *scales = (maybe_tensor(call, at) for at in range(4))
    if out is None or x is None:
        refuse("a tensor's shape is not in the recording")
    made = [item for item in scales if item is not None]
    dynamic = call.op.startswith("_C::dynamic")
    read, written = ([x], [out, *made]) if dynamic else ([x, *made], [out])
    return tally(3 * counted(x), read=read, written=written, dtype=x.dtype)


@cost_of("_C::gelu_new", "_C::gelu_fast", "_C::gelu_quick", category="elementwise")
def gelu_into(call: OpCall) -> Cost:
    """Result, x: an activation named as one function, 1 flop each."""
    out, x = tensor(call, 0), tensor(call, 1)
    return tally(counted(x), read=[x], written=[out])


@cost_of("sgl_kernel::merge_state", "sgl_kernel::merge_state_v2", category="attention")
def merge_state(call: OpCall) -> Cost:
    """Two results and their logarithms -> one of each: two products and a sum, 3 flops each."""
    one, log_one, other, log_other = (tensor(call, at) for at in range(4))
    written = [like(one), like(log_one)]
    read = [one, log_one, other, log_other]
    return tally(3 * counted(one), read=read, written=written, dtype=one.dtype)
