"""Operators of libraries that train large models: Megatron, Apex, Transformer Engine, Primus.

A function of autograd in Python is recorded with its tensors; other arguments may be missing.

Source: the functions' signatures in the libraries.
"""

from __future__ import annotations

import re
from typing import Final

from pyprof2.analysis.costs.attention import band
from pyprof2.analysis.costs.matmul import packed_product
from pyprof2.analysis.costs.operands import (
    bounded,
    counted,
    fresh,
    like,
    maybe_tensor,
    needed,
    numel,
    refuse,
    tally,
    tensor,
)
from pyprof2.analysis.costs.registry import Cost, Evidence, cost_of, cost_with_evidence
from pyprof2.analysis.costs.sizes import Size
from pyprof2.signatures import OpCall, Scalar, Tensor

_LAYOUT: Final = re.compile(r"(sb|bs)3?2?h")
_UNKNOWN_MASK: Final = "the mask is not recorded: counted in full"
_HIDDEN: Final = "how many pairs the padding, the mask or the window leaves is not recorded"
_MASK: Final = re.compile(r"(?:^|_)(?:causal|padding|arbitrary)")
_UNKNOWN_LAYOUT: Final = (
    "whether sequences or batch come first is not recorded: the larger is taken"
)


@cost_of("FusedAttnFunc", category="attention")
def fused_attention(call: OpCall) -> Cost:
    """…, q, k, v (s, b, h, d) or (b, s, h, d), …, layout, mask: flops 2·b·h·pairs·(d + d_v).

    bytes: q, k, v, result, and one f32 for each query row. Packed sequences have no counts.
    """
    return _fused_attention(call, is_backward=False)


@cost_with_evidence("FusedAttnFuncBackward", category="attention")
def fused_attention_backward(call: OpCall, evidence: Evidence) -> Cost:
    """Gradient of the result -> those of q, k, v: flops 2·b·h·pairs·(3·d + 2·d_v).

    These are the scores again, and two products for each of both in the forward pass. bytes: q, k,
    v, the result, its gradient and one f32 for each query row; the three gradients.
    """
    forward = needed(evidence.forward, "its forward op is not in the recording")
    if forward.op != call.op.removesuffix("Backward"):
        refuse("its forward op is another one")
    return _fused_attention(forward, is_backward=True)


def _fused_attention(call: OpCall, *, is_backward: bool) -> Cost:
    operands = [item for item in call.inputs if isinstance(item, Tensor) and len(item.shape) >= 3]
    words = [each.value for each in call.inputs if isinstance(each, Scalar)]
    texts = [each for each in words if isinstance(each, str)]
    if len(operands) < 3 or any(len(item.shape) != 4 for item in operands[:3]):
        refuse("the lengths of the sequences are not in the recording")
    q, k, v = operands[:3]
    layout = next((match[1] for text in texts if (match := _LAYOUT.match(text))), None)
    assumed = [] if layout else [_UNKNOWN_LAYOUT]
    first, second, heads, width = q.shape
    is_first = layout == "sb" if layout else first >= second
    batch, rows = (second, first) if is_first else (first, second)
    keys = k.shape[0 if is_first else 1]
    mask = next((text for text in texts if text == "no_mask" or _MASK.search(text)), None)
    # Lengths of padded sequences, and which pairs a mask or a window leaves, are not recorded.
    hidden = mask is not None and ("padding" in mask or "arbitrary" in mask)
    pairs_of_words = [each for each in words if isinstance(each, (list, tuple)) and len(each) == 2]
    hidden |= any(each[0] >= 0 or each[1] > 0 for each in pairs_of_words)  # windows
    ends = keys - rows if mask and "bottom_right" in mask else 0
    causal, every = band(rows, keys, None, ends), rows * keys
    pairs = causal if mask and "causal" in mask else every
    widths = Size(width, "D") + Size(v.shape[-1], "Dv")
    if is_backward:
        widths = 3 * Size(width, "D") + 2 * Size(v.shape[-1], "Dv")
    result = fresh((*q.shape[:-1], v.shape[-1]), q.dtype)
    sums = fresh(q.shape[:-1], "f32")
    found = tally(
        2 * Size(batch, "B") * Size(heads, "H") * Size(pairs, "pairs") * widths,
        read=[q, k, v, *([result, result, sums] if is_backward else [])],
        written=[q, k, v] if is_backward else [result, sums],
        params=f"B={batch},H={heads},Sq={rows},Sk={keys},D={width}",
    )
    scale = 2 * batch * heads * widths
    least, most = scale * (pairs if mask else min(causal, every)), scale * pairs
    if mask is None:
        assumed.append(_UNKNOWN_MASK)
    if hidden:
        least = 0 * scale
        assumed.append(_HIDDEN)
    if not layout:  # as if the batch were the sequence
        other = first * first * second if not is_first else second * second * first
        least = min(least, 2 * heads * widths * other // 2)
    if not assumed:
        return found
    return bounded(found, "; ".join(assumed), flops=(int(least), int(most)))


@cost_of("ScaledUpperTriangMaskedSoftmax", category="softmax")
def causal_softmax(call: OpCall) -> Cost:
    """x (b·h, s, s), scale -> y: 6 operations for each element under the diagonal, one the scale.

    bytes: y, and of x what is under the diagonal.
    """
    x = tensor(call, 0)
    if len(x.shape) < 2:
        refuse("it is not a batch of matrices")
    *batch, rows, columns = x.shape
    pairs = numel(tuple(batch)) * band(rows, columns, None, 0)
    below = fresh((pairs,), x.dtype)
    return tally(6 * Size(pairs, "pairs"), read=[below], written=[like(x)])


@cost_of("ScaledMaskedSoftmax", "ScaledSoftmax", category="softmax")
def scaled_softmax(call: OpCall) -> Cost:
    """x, mask, scale -> y: 6 operations for each element, one of them the scale."""
    x = tensor(call, 0)
    return tally(6 * counted(x), read=[x, maybe_tensor(call, 1)], written=[like(x)])


@cost_of(
    "FusedLayerNormAffineFunction", "FusedLayerNormAffineMixedDtypesFunction",
    "FusedRMSNormAffineFunction", "FusedRMSNormAffineMixedDtypesFunction", category="norm",
)  # fmt: skip
def fused_norm(call: OpCall) -> Cost:
    """x, weight, bias -> y; by the root of the mean square x, weight -> y.

    flops 8N as `layer_norm`, 5N without mean and bias. bytes: x, y, weight, bias, f32 statistics
    of each row.
    """
    x, weight = tensor(call, 0), tensor(call, 1)
    bias = None if "RMS" in call.op else maybe_tensor(call, 2)
    rows = fresh((numel(x.shape) // max(1, numel(weight.shape)),), "f32")
    per_element, kept = (5, [rows]) if "RMS" in call.op else (8, [rows, rows])
    return tally(
        per_element * counted(x), read=[x, weight, bias], written=[like(x, weight.dtype), *kept]
    )


@cost_of("_rocm_C::wvSplitK", "_rocm_C::LLMM1", category="matmul")
def skinny_product(call: OpCall) -> Cost:
    """Weights (m, k), a few rows (n, k), …, perhaps a bias -> (n, m): flops 2·m·n·k."""
    weights, x = tensor(call, 0), tensor(call, 1)
    if len(weights.shape) != 2 or x.shape[-1:] != weights.shape[-1:]:
        refuse("the inner dimensions differ")
    return packed_product(x, weights.shape[0], [weights, maybe_tensor(call, 2)])


_PRIMUS: Final = tuple(
    f"{space}::{name}"
    for space in ("primus_turbo", "primus_turbo_cpp_extension")
    for name in ("grouped_gemm", "ck_grouped_gemm", "hipblaslt_grouped_gemm", "turbo_grouped_gemm")
)


@cost_of("grouped_gemm", *_PRIMUS, category="matmul")
def grouped_product(call: OpCall) -> Cost:
    """Rows (m, k) of all groups, weights (g, k, n) or (g, n, k), … -> (m, n): flops 2·m·n·k."""
    x, weights = tensor(call, 0), tensor(call, 1)
    if len(x.shape) != 2 or len(weights.shape) != 3 or x.shape[1] not in weights.shape[1:]:
        refuse("they are not rows and the weights of groups")
    depth = x.shape[1]
    return packed_product(x, numel(weights.shape[1:]) // max(1, depth), [weights])


@cost_of(*(f"{name}_variable_k" for name in _PRIMUS), category="matmul")
def grouped_gradient(call: OpCall) -> Cost:
    """Rows (t, m), rows (t, n), lengths (g) … -> (g, m, n): flops 2·t·m·n over all groups."""
    a, b = tensor(call, 0), tensor(call, 1)
    groups = maybe_tensor(call, 2)
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[0] != b.shape[0] or groups is None:
        refuse("they are not the rows of groups")
    (rows, m), n = a.shape, b.shape[1]
    flops = 2 * Size(rows, "rows") * Size(m, "M") * Size(n, "N")
    out = fresh((numel(groups.shape), m, n), a.dtype)
    return tally(flops, read=[a, b], written=[out], params=f"M={m},N={n},K={rows}")


@cost_of("aten::_transform_bias_rescale_qkv", category="attention")
def split_heads(call: OpCall) -> Cost:
    """qkv (b, s, 3·d), bias (3·d), heads -> q, k, v, of N = b·s·d each: flops 4N.

    The bias is added to all, and q is scaled. bytes: qkv, bias, and the three results.
    """
    qkv, bias = tensor(call, 0), tensor(call, 1)
    if qkv.shape[-1] % 3:
        refuse("it is not q, k and v beside one another")
    third = Size(numel(qkv.shape) // 3, "N")
    return tally(4 * third, read=[qkv, bias], written=[like(qkv)])
