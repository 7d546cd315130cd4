"""Ops that work on each element by itself: arithmetic, comparisons, activations, casts of masks.

FLOPs: elements of the result times the elementary operations that each takes; a transcendental
function, and an activation named as one function, is 1; selecting is 0. A scale such as the
`alpha` of `add` is not counted, as with `addmm`. Bytes: each operand at its own size, what is
broadcast once, and the result; an in-place result is a write.

Source: counted by hand, per row of the table.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyprof2.analysis.costs.operands import (
    broadcast,
    counted,
    first_tensor,
    flag,
    fresh,
    kind,
    like,
    maybe_tensor,
    numel,
    promote,
    tally,
    tensor,
)
from pyprof2.analysis.costs.registry import Cost, cost_of
from pyprof2.analysis.costs.sizes import Size
from pyprof2.signatures import Input, OpCall, Scalar, Tensor


class _PointwiseRow(NamedTuple):
    """Ops that cost the same.

    Attributes:
        flops: elementary operations per element of the result.
        operands: how many of the inputs, from the first, may be tensors to read.
        result: `same`: the type in which the operands meet; `float`: that, and f32 for whole
            numbers; `bool`; `real`: the parts of a complex type; `angle`: both of these.
        names: without `aten::`; each also in place, with `_` at the end.
    """

    flops: int
    operands: int
    result: str
    names: str


_TABLE: Final = (
    _PointwiseRow(1, 1, "same", """
        neg negative sign sgn ceil floor round trunc fix frac positive square relu relu6
        bitwise_not conj_physical _conj_physical nan_to_num hardtanh hardsigmoid
        hardswish hardshrink softshrink elu celu selu gelu silu mish softplus log_sigmoid
        special_round
    """),
    _PointwiseRow(1, 1, "float", """
        exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh
        cosh tanh asinh acosh atanh arcsin arccos arctan arcsinh arccosh arctanh erf erfc erfinv
        sigmoid special_expit lgamma digamma i0 sinc logit special_i0 special_i0e special_i1
        special_i1e special_erf special_erfc special_erfcx special_erfinv special_exp2
        special_expm1 special_log1p special_digamma special_psi special_gammaln special_logit
        special_ndtr special_ndtri special_log_ndtr special_entr special_sinc special_bessel_j0
        special_bessel_j1 special_bessel_y0 special_bessel_y1 special_modified_bessel_i0
        special_modified_bessel_i1 special_airy_ai mvlgamma deg2rad rad2deg
    """),
    _PointwiseRow(1, 1, "bool", """
        logical_not isnan isinf isfinite isneginf isposinf signbit isreal
    """),
    _PointwiseRow(1, 1, "real", "abs absolute"),
    _PointwiseRow(1, 1, "angle", "angle"),
    _PointwiseRow(1, 2, "same", """
        add sub subtract rsub mul multiply remainder fmod pow floor_divide maximum minimum fmax
        fmin bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm
        hypot nextafter heaviside __and__ __or__ __xor__ __lshift__ __rshift__ __iand__ __ior__
        __ixor__ __ilshift__ __irshift__ clamp_min clamp_max threshold leaky_relu ldexp
        igamma igammac special_gammainc special_gammaincc
    """),
    _PointwiseRow(1, 2, "float", """
        div divide true_divide atan2 arctan2 copysign logaddexp logaddexp2 float_power xlogy
        special_xlogy special_xlog1py special_zeta
    """),
    _PointwiseRow(1, 2, "bool", """
        eq ne lt le gt ge not_equal less less_equal greater greater_equal logical_and logical_or
        logical_xor
    """),
    _PointwiseRow(1, 2, "same", "prelu _prelu_kernel rrelu_with_noise polar complex"),
    _PointwiseRow(2, 2, "same", "_add_relu add_relu"),
    _PointwiseRow(2, 3, "same", "clamp clip"),
    _PointwiseRow(1, 2, "float", "polygamma special_polygamma"),
    _PointwiseRow(3, 2, "same", "cross linalg_cross"),
    _PointwiseRow(3, 3, "same", "addcmul addcdiv lerp"),
    _PointwiseRow(4, 2, "bool", "isclose"),
    # Backward: a product with the derivative, which counts like a function of its own.
    _PointwiseRow(1, 2, "same", """
        threshold_backward hardtanh_backward leaky_relu_backward hardshrink_backward
        softshrink_backward hardsigmoid_backward
    """),
    _PointwiseRow(2, 2, "same", """
        gelu_backward silu_backward mish_backward softplus_backward
        hardswish_backward logit_backward infinitely_differentiable_gelu_backward
    """),
    _PointwiseRow(2, 6, "same", "elu_backward"),
    _PointwiseRow(3, 2, "same", "sigmoid_backward tanh_backward"),
    _PointwiseRow(2, 3, "same", "log_sigmoid_backward rrelu_with_noise_backward"),
)  # fmt: skip

FLOPS_PER_ELEMENT: Final = {name: row.flops for row in _TABLE for name in row.names.split()}
"""Elementary operations per element of the result, by name without `aten::`."""

_ROWS: Final = {
    f"aten::{spelling}": row
    for row in _TABLE
    for name in row.names.split()
    for spelling in ((name,) if name.endswith("_") else (name, f"{name}_"))
}
_COMPLEX_PARTS: Final = {"c32": "f16", "c64": "f32", "c128": "f64"}


@cost_of(*_ROWS, category="elementwise")
def pointwise(call: OpCall) -> Cost:
    """Operands -> their broadcast shape: flops per element from the table.

    bytes: each operand once, and the result. Some recordings of `clamp_min` and ops like it name
    the output as a further tensor; it is not read.
    """
    row = _ROWS[call.op]
    operands = call.inputs[: row.operands]
    read = [item for item in operands if isinstance(item, Tensor)] or [first_tensor(call)]
    out = like(read[0]) if _in_place(call.op) else fresh(_shape(read), _dtype(row, operands))
    return tally(
        row.flops * counted(out),
        read=read,
        written=[read[0] if _in_place(call.op) else out],
        dtype=promote(*_values(operands)) if row.result == "bool" else out.dtype,
        params=f"N={numel(out.shape)}",
    )


def _in_place(op: str) -> bool:
    return (op.endswith("_") and not op.endswith("__")) or op.startswith("aten::__i")


def _shape(read: list[Tensor]) -> tuple[int, ...]:
    return broadcast(*(item.shape for item in read))


def _values(operands: tuple[Input, ...]) -> list[Tensor | Scalar]:
    return [item for item in operands if isinstance(item, Tensor | Scalar)]


def _dtype(row: _PointwiseRow, operands: tuple[Input, ...]) -> str | None:
    if row.result == "bool":
        return "bool"
    dtype = promote(*_values(operands))
    if dtype is None:
        return None
    if row.result in ("real", "angle"):
        dtype = _COMPLEX_PARTS.get(dtype, dtype)
    return "f32" if row.result in ("float", "angle") and kind(dtype) < 2 else dtype


@cost_of("aten::where", category="elementwise")
def where(call: OpCall) -> Cost:
    """Condition, a, b -> broadcast: no FLOPs; bytes: condition (1 each), both, the result.

    Only the elements chosen are needed of `a` and `b`, which data decides: bounds without them.
    """
    condition = tensor(call, 0)
    branches = call.inputs[1:3]
    read = [item for item in branches if isinstance(item, Tensor)]
    out = fresh(_shape([condition, *read]), promote(*_values(branches)))
    return tally(read=[condition, *read], written=[out], params=f"N={numel(out.shape)}")


@cost_of("aten::masked_fill", "aten::masked_fill_", category="elementwise")
def masked_fill(call: OpCall) -> Cost:
    """x, mask, number: no FLOPs; bytes: x, mask (1 each), the result.

    In place, where no element needs to be read: mask read, at most all of x written.
    """
    x, mask = tensor(call, 0), tensor(call, 1)
    if call.op.endswith("_"):
        return tally(read=[x, mask], written=[x], params=f"N={numel(x.shape)}")
    out = fresh(broadcast(x.shape, mask.shape), x.dtype)
    return tally(read=[x, mask], written=[out], params=f"N={numel(out.shape)}")


@cost_of("aten::glu", category="elementwise")
def glu(call: OpCall) -> Cost:
    """(…, 2n) -> (…, n): a sigmoid and a product, 2 flops each; bytes: input and result."""
    x = tensor(call, 0)
    count = Size(numel(x.shape) // 2, "N")
    return tally(2 * count, read=[x], written=[fresh((count,), x.dtype)])


@cost_of("aten::glu_backward", category="elementwise")
def glu_backward(call: OpCall) -> Cost:
    """Grad (…, n), x (…, 2n) -> (…, 2n): 6 flops per element of grad; bytes: all three."""
    grad, x = tensor(call, 0), tensor(call, 1)
    return tally(6 * counted(grad), read=[grad, x], written=[like(x)], dtype=x.dtype)


@cost_of("aten::log_sigmoid_forward", category="elementwise")
def log_sigmoid_forward(call: OpCall) -> Cost:
    """x -> result, and a buffer that only the CPU fills: 1 flop each; bytes: x and the result."""
    x = tensor(call, 0)
    return tally(counted(x), read=[x], written=[like(x)])


@cost_of("aten::_prelu_kernel_backward", category="elementwise")
def prelu_backward(call: OpCall) -> Cost:
    """Grad, x, weight -> gradients of x and, per element, of the weight: 2 flops each."""
    grad, x, weight = (tensor(call, index) for index in range(3))
    outs = [like(x), like(x, weight.dtype)]
    return tally(2 * counted(x), read=[grad, x, weight], written=outs, dtype=x.dtype)


_DROPOUT: Final = ("aten::native_dropout", "aten::_fused_dropout")


@cost_of(*_DROPOUT, category="elementwise")
def native_dropout(call: OpCall) -> Cost:
    """x -> result and mask: compare and scale, 2 flops each; bytes: x, result, a mask of 1 each."""
    x = tensor(call, 0)
    count = counted(x)
    written = [like(x), like(x, "bool")]
    return tally(2 * count, read=[x], written=written, params=f"N={count}")


@cost_of("aten::native_dropout_backward", "aten::_masked_scale", category="elementwise")
def native_dropout_backward(call: OpCall) -> Cost:
    """Grad, mask -> gradient: two products, 2 flops each; bytes: grad, mask, result."""
    grad, mask = tensor(call, 0), tensor(call, 1)
    flops = 2 * counted(grad)
    return tally(flops, read=[grad, mask], written=[like(grad)])


@cost_of(
    "aten::dropout", "aten::dropout_", "aten::alpha_dropout", "aten::feature_dropout",
    category="elementwise",
)  # fmt: skip
def dropout(call: OpCall) -> Cost:
    """As `native_dropout` in training, nothing in inference.

    Where the flag is not recorded: nothing, since in training there are ops inside.
    """
    return native_dropout(call) if flag(call, 2) else Cost(0, 0, 0)


@cost_of(
    "aten::fake_quantize_per_tensor_affine_cachemask",
    "aten::fake_quantize_per_channel_affine_cachemask",
    "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    category="elementwise",
)  # fmt: skip
def fake_quantize(call: OpCall) -> Cost:
    """x -> rounded result and mask: scale, shift, round, clamp twice, unshift, unscale: 7 each."""
    x = tensor(call, 0)
    written = [like(x), like(x, "bool")]
    more = [maybe_tensor(call, 1), maybe_tensor(call, 2)]
    return tally(7 * counted(x), read=[x, *more], written=written)


@cost_of(
    "aten::quantize_per_tensor", "aten::quantize_per_channel",
    "aten::quantize_per_tensor_dynamic", category="elementwise",
)  # fmt: skip
def quantize(call: OpCall) -> Cost:
    """x -> one byte each: scale, shift, round, clamp: 4 flops each; bytes: x and the result."""
    x = tensor(call, 0)
    return tally(4 * counted(x), read=[x], written=[like(x, "qi8")])


@cost_of("aten::dequantize", category="elementwise")
def dequantize(call: OpCall) -> Cost:
    """Quantised -> f32: shift and scale, 2 flops each; bytes: input and result."""
    x = tensor(call, 0)
    return tally(2 * counted(x), read=[x], written=[like(x, "f32")], dtype="f32")


@cost_of(
    "_C::silu_and_mul", "_C::gelu_and_mul", "_C::gelu_tanh_and_mul", "_C::mul_and_silu",
    "sgl_kernel::silu_and_mul", "sgl_kernel::gelu_and_mul", "sgl_kernel::gelu_tanh_and_mul",
    "aiter::silu_and_mul", "aiter::gelu_and_mul", "aiter::gelu_tanh_and_mul",
    category="elementwise",
)  # fmt: skip
def gated(call: OpCall) -> Cost:
    """Result (…, n), x (…, 2n): an activation and a product, 2 flops each; bytes: x and result."""
    out, x = tensor(call, 0), tensor(call, 1)
    count = counted(out)
    return tally(2 * count, read=[x], written=[out], params=f"N={count}")


@cost_of(
    "_C::rotary_embedding", "sgl_kernel::rotary_embedding", "vllm::rotary_embedding",
    category="elementwise",
)  # fmt: skip
def rotary_embedding(call: OpCall) -> Cost:
    """Positions, query, key, head size, table of cosines and sines: 3 flops per element turned.

    Each pair takes four products and two additions. bytes: query and key read and written, one
    row of the table for each position; in place.
    """
    positions, query = tensor(call, 0), tensor(call, 1)
    key, table = maybe_tensor(call, 2), tensor(call, 4)
    turned = [item for item in (query, key) if item is not None]
    rows = fresh((numel(positions.shape), *table.shape[1:]), table.dtype)
    flops = 3 * sum(numel(item.shape) for item in turned)
    return tally(flops, read=[positions, *turned, rows], written=turned, dtype=query.dtype)


@cost_of(
    "_C::static_scaled_fp8_quant", "_C::dynamic_scaled_fp8_quant",
    "_C::dynamic_per_token_scaled_fp8_quant", "sgl_kernel::sgl_per_tensor_quant_fp8",
    "sgl_kernel::sgl_per_token_quant_fp8", category="elementwise",
)  # fmt: skip
def fp8_quant(call: OpCall) -> Cost:
    """Result and x, in either order, and scales: scale and clamp, 3 flops each; bytes: all.

    The result is the one of 8 bits.
    """
    one, other, scale = tensor(call, 0), tensor(call, 1), maybe_tensor(call, 2)
    out, x = (one, other) if (one.dtype or "").startswith(("f8", "i8", "u8")) else (other, one)
    return tally(3 * counted(x), read=[x, scale], written=[out])
