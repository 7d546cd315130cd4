"""Triton kernels that Inductor makes from templates, and flex_attention.

`triton_tem_fused_addmm_relu_3` is a product with what is fused to it. Its arguments are tensors,
as they lie in memory: which of them are multiplied follows from their sizes, as (m, k), (k, n)
and (m, n) hold m·k, k·n and m·n elements. Where more than one reading fits, there is no count.

FLOPs: of the product, the convolution or the attention alone, at the least none: that tensors of
these sizes are multiplied is read from the kernel's name. Bytes: each tensor once, at the least the
result.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import isqrt
from typing import TYPE_CHECKING, Final

from pyprof2.analysis.costs.operands import bounded, fresh, like, numel, refuse, size, tally
from pyprof2.analysis.costs.registry import Cost, cost_of
from pyprof2.analysis.costs.sizes import Size
from pyprof2.signatures import OpCall, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

_BY_SIZE: Final = "what is multiplied follows from the sizes of the kernel's tensors"


@cost_of("triton_tem_*", "triton_mm*", "triton_bmm*", "triton_addmm*", category="matmul")
def template(call: OpCall) -> Cost:
    """Tensors, the result last: flops 2·m·n·k of the product that their sizes fit."""
    if "flex_attention" in call.op:
        return flex_attention(call)
    if "convolution" in call.op:
        return template_convolution(call)
    items = _tensors(call, 2)
    *operands, out = items
    pairs = [pair for pair in combinations(operands, 2) if _depth(*pair, out, call.op)]
    found = {_product(a, b, out, call.op) for a, b in pairs}
    # Four operands may be two products that are added.
    if len(found) != 1 or (len(pairs) > 1 and len(operands) > 3):
        refuse("the tensors' sizes do not say what is multiplied")
    return _assumed(call, found.pop(), operands[0].dtype)


def _tensors(call: OpCall, dims: int) -> list[Tensor]:
    """Return the inputs that are tensors of at least so many dimensions."""
    items = [item for item in call.inputs if isinstance(item, Tensor) and len(item.shape) >= dims]
    if len(items) < 3:
        refuse("the tensors' shapes are not in the recording")
    return items


def _depth(a: Tensor, b: Tensor, out: Tensor, name: str) -> int | None:
    """Return the k of (m, k), (k, n) and (m, n) of these sizes, for each of a batch; else None."""
    batch = _batch(a, b, out, name)
    one, other, result = (numel(item.shape) // batch for item in (a, b, out))
    k = isqrt(one * other // result) if result else 0
    fits = k > 0 and one * other == result * k * k and not one % k and not other % k
    return k if fits and k in a.shape and k in b.shape else None


def _batch(a: Tensor, b: Tensor, out: Tensor, name: str) -> int:
    """Return the size of the batch, 1 where the product is none of a batch."""
    firsts = {item.shape[0] for item in (a, b, out) if len(item.shape) == 3}
    return firsts.pop() if "bmm" in name and len(firsts) == 1 and 0 not in firsts else 1


def _product(a: Tensor, b: Tensor, out: Tensor, name: str) -> int:
    return 2 * numel(out.shape) * (_depth(a, b, out, name) or 0)


def _assumed(call: OpCall, flops: int, dtype: str | None) -> Cost:
    *read, out = [item for item in call.inputs if isinstance(item, Tensor)]
    cost = tally(flops, read=read, written=[out], dtype=dtype)
    return bounded(cost, _BY_SIZE, flops=(0, flops), traffic=(size(out), cost.bytes))


@cost_of("triton_tem_fused_convolution*", "triton_convolution*", category="conv")
def template_convolution(call: OpCall) -> Cost:
    """x (n, c, …), weight (o, c/groups, …), result (n, o, …): flops 2·result·c/groups·window."""
    *operands, out = _tensors(call, 3)
    found = {
        2 * numel(out.shape) * numel(weight.shape[1:])
        for x in operands
        for weight in operands
        if x is not weight and _convolves(x, weight, out)
    }
    if len(found) != 1:
        refuse("the tensors' sizes do not say which one is the weight")
    return _assumed(call, found.pop(), operands[0].dtype)


def _convolves(x: Tensor, weight: Tensor, out: Tensor) -> bool:
    dims = {len(item.shape) for item in (x, weight, out)}
    channels, each = x.shape[1], weight.shape[1]
    is_alike = (x.shape[0], weight.shape[0]) == out.shape[:2]
    return len(dims) == 1 and is_alike and each > 0 and channels % each == 0


_MASK: Final = "which blocks the mask leaves is not recorded: counted in full"


@cost_of("flex_attention", "flex_attention_backward", "triton_tem_fused_flex_attention*",
         category="attention")  # fmt: skip
def flex_attention(call: OpCall) -> Cost:
    """q, k, v (b, h, s, d), …: flops 2·b·h_q·s_q·s_k·(d + d_v), backward (3d + 2d_v).

    The mask is a function, and the blocks that it leaves are data: all pairs count, and none is
    the lower bound. bytes: q, k, v and the result; backward their gradients too.
    """
    q, k, v = _heads(_tensors(call, 4))
    (batch, heads, rows, width), (_, _, keys, _), (*_, value_width) = q.shape, k.shape, v.shape
    pairs = Size(batch, "B") * Size(heads, "H") * Size(rows, "Sq") * Size(keys, "Sk")
    d, d_v = Size(width, "D"), Size(value_width, "Dv")
    out = fresh((batch, heads, rows, value_width), q.dtype)
    backward = "backward" in call.op
    widths = 3 * d + 2 * d_v if backward else d + d_v
    read = [q, k, v, out, out] if backward else [q, k, v]
    written = [like(q), like(k), like(v)] if backward else [out]
    cost = tally(2 * pairs * widths, read=read, written=written, dtype=q.dtype)
    params = f"B={batch},H={heads},Sq={rows},Sk={keys},D={width}"
    least = size(out)
    return bounded(
        replace(cost, params=params), _MASK, flops=(0, cost.flops), traffic=(least, cost.bytes)
    )


def _heads(items: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value, if they fit."""
    q, k, v = items[:3]
    if not (q.shape[-1] == k.shape[-1] and k.shape[:3] == v.shape[:3] and k.shape[2]):
        refuse("the first tensors are no query, key and value")
    return q, k, v
