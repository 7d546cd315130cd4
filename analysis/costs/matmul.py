"""Matrix products: dense, batched, grouped, quantised, sparse.

FLOPs are exact: 2 for each multiply-add of the product, 8 where the numbers are complex: 4 products
and 4 additions of real ones (`torch.utils.flop_counter` counts 2). Work fused to it (adding a
bias, scaling, an activation) is not counted, as in `torch.utils.flop_counter`; its bytes are. Each
operand is read once, even where tiles of it are read again.

Sparse operands: the values that are stored count, zeros among them too, as they lie in memory with
their indices. How many these are shows where ops inside look at them; elsewhere a sparse operand
counts as a dense one, and none of it is the lower bound.

Source: the definition of the product; checked against `torch.utils.flop_counter`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from pyprof2.analysis.costs.operands import (
    bounded,
    broadcast,
    dtype_at,
    flags,
    fresh,
    integer,
    maybe_tensor,
    maybe_tensors,
    numel,
    over_dtypes,
    refuse,
    scalars_recorded,
    size,
    spanning,
    tally,
    tensor,
    tensors,
    typed,
    value,
)
from pyprof2.analysis.costs.registry import (
    Cost,
    Evidence,
    cost_of,
    cost_with_evidence,
    mark_product,
)
from pyprof2.analysis.costs.sizes import Size
from pyprof2.signatures import OpCall, Tensor


def product(
    a: Tensor,
    b: Tensor,
    *more: Tensor | None,
    out_dtype: str | None = None,
    summed: bool = False,
) -> Cost:
    """(…, m, k) @ (…, k, n) -> (…, m, n), batch dimensions broadcast.

    flops: 2·batch·m·n·k, of complex numbers 8·batch·m·n·k. bytes: `a`, `b`, the result, and the
    tensors in `more`, once each.

    Args:
        a: the left operand.
        b: the right operand.
        more: what else is read, such as a bias.
        out_dtype: element type of the result, by default that of `a`.
        summed: the products of the batch are added up, so the result has no batch dimensions.
    """
    *batch_a, m, k = a.shape
    *batch_b, k_of_b, n = b.shape
    if k != k_of_b:
        refuse(f"the inner dimensions differ: {k} and {k_of_b}")
    batch = broadcast(tuple(batch_a), tuple(batch_b))
    depth = k * _packed(a.dtype)
    params = f"M={m},N={n},K={depth}"
    count: int = 1
    if batch:
        count = Size(numel(batch), "B")
        params = f"B={count},{params}"
    out = fresh((m, n) if summed else (*batch, m, n), out_dtype or a.dtype)
    return tally(
        _per_term(a.dtype) * count * multiply_adds(m, n, depth),
        read=[a, b, *more] if k else more,
        written=[out],
        dtype=a.dtype,
        params=params,
    )


def packed_product(
    x: Tensor, n: int, read: list[Tensor | None], out: Tensor | None = None, k: int | None = None
) -> Cost:
    """X (…, k) and weights packed anyhow -> (…, n)."""
    *rows, width = x.shape
    m, depth = numel(rows), k or width
    result = out or fresh((*rows, n), x.dtype)
    flops, params = 2 * multiply_adds(m, n, depth), f"M={m},N={n},K={depth}"
    return tally(flops, read=[x, *read], written=[result], dtype=x.dtype, params=params)


def multiply_adds(m: int, n: int, k: int) -> Size:
    """Return how many multiply-adds a product of (m, k) and (k, n) takes."""
    return Size(m, "M") * Size(n, "N") * Size(k, "K")


def _per_term(dtype: str | None) -> int:
    """How many operations on real numbers a multiply-add is."""
    return 8 if dtype in ("c32", "c64", "c128") else 2


def _packed(dtype: str | None) -> int:
    """How many values one element holds."""
    return 2 if dtype == "f4e2m1x2" else 1


def _transposed(item: Tensor) -> Tensor:
    """Swap the last two dimensions."""
    strides = item.strides and (*item.strides[:-2], item.strides[-1], item.strides[-2])
    return Tensor((*item.shape[:-2], item.shape[-1], item.shape[-2]), item.dtype, strides)


def _addend(call: OpCall) -> Tensor | None:
    """Return the tensor that the product is added to, if it is read: not where beta is 0."""
    return None if value(call, 3) == 0 else maybe_tensor(call, 0)


@cost_of(
    "aten::mm", "aten::bmm", "aten::_sparse_mm", "aten::smm", "aten::hspmm",
    "aten::_sparse_sparse_matmul", "aten::_sparse_mm_reduce_impl", category="matmul",
)  # fmt: skip
def mm(call: OpCall) -> Cost:
    """(…, m, k) @ (…, k, n): see `product`."""
    return product(tensor(call, 0), tensor(call, 1))


@cost_of(
    "aten::addmm", "aten::addmm_", "aten::_addmm_activation", "aten::baddbmm", "aten::baddbmm_",
    "aten::_sparse_addmm", category="matmul",
)  # fmt: skip
def addmm(call: OpCall) -> Cost:
    """Bias, (…, m, k) @ (…, k, n): as `product`; the bias is read, unless beta is 0."""
    return product(tensor(call, 1), tensor(call, 2), _addend(call))


@cost_of("aten::addbmm", "aten::addbmm_", category="matmul")
def addbmm(call: OpCall) -> Cost:
    """(m, n) + the sum over b of (b, m, k) @ (b, k, n): flops 2·b·m·n·k, one (m, n) written."""
    return product(tensor(call, 1), tensor(call, 2), _addend(call), summed=True)


@cost_of("aten::mv", category="matmul")
def mv(call: OpCall) -> Cost:
    """(m, k) @ (k): flops 2·m·k; bytes: matrix, vector, result."""
    return _matrix_vector(tensor(call, 0), tensor(call, 1), None)


@cost_of("aten::addmv", "aten::addmv_", category="matmul")
def addmv(call: OpCall) -> Cost:
    """(m) + (m, k) @ (k): as `mv`; the addend is read, if beta is not 0."""
    return _matrix_vector(tensor(call, 1), tensor(call, 2), _addend(call))


def _matrix_vector(a: Tensor, x: Tensor, addend: Tensor | None) -> Cost:
    m, k = a.shape
    return tally(
        _per_term(a.dtype) * Size(m, "M") * Size(k, "K"),
        read=[a, x, addend] if k else [addend],
        written=[fresh((m,), a.dtype)],
        dtype=a.dtype,
        params=f"M={m},N=1,K={k}",
    )


@cost_of("aten::dot", "aten::vdot", category="matmul")
def dot(call: OpCall) -> Cost:
    """(k) · (k): flops 2·k; bytes: both vectors and one element."""
    a, b = tensor(call, 0), tensor(call, 1)
    (k,) = a.shape
    out = fresh((), a.dtype)
    flops = _per_term(a.dtype) * Size(k, "K")
    return tally(flops, read=[a, b], written=[out], dtype=a.dtype, params=f"M=1,N=1,K={k}")


@cost_of("aten::linalg_vecdot", category="matmul")
def vecdot(call: OpCall) -> Cost:
    """(…, k) · (…, k), the last dimension unless another is named: flops 2·rows·k."""
    a, b = tensor(call, 0), tensor(call, 1)
    dim = integer(call, 2)
    shape = list(broadcast(a.shape, b.shape))
    k = shape.pop(-1 if dim is None else dim)
    flops = _per_term(a.dtype) * Size(k, "K") * Size(numel(shape), "rows")
    return tally(flops, read=[a, b], written=[fresh(shape, a.dtype)], dtype=a.dtype)


@cost_of("aten::outer", "aten::ger", category="matmul")
def outer(call: OpCall) -> Cost:
    """(m) x (n) -> (m, n): flops m·n, a multiplication each; bytes: vectors and result."""
    return _outer(tensor(call, 0), tensor(call, 1), None)


@cost_of("aten::addr", "aten::addr_", category="matmul")
def addr(call: OpCall) -> Cost:
    """(m, n) + (m) x (n): flops m·n as `outer`; the addend is read, if beta is not 0."""
    return _outer(tensor(call, 1), tensor(call, 2), _addend(call))


@cost_with_evidence("aten::sparse_sampled_addmm", category="matmul")
def sampled_addmm(call: OpCall, evidence: Evidence) -> Cost:
    """Sparse (m, n), (m, k) @ (k, n) where it has values: flops 2·nnz·k.

    bytes: the operands, the sparse one too, and its values again, written.
    """
    pattern, a, b = (tensor(call, index) for index in range(3))
    cost = product(a, b, pattern)
    if not evidence.stored:
        return cost
    return replace(cost, bytes_written=size(evidence.stored[-1]))


def _outer(a: Tensor, b: Tensor, addend: Tensor | None) -> Cost:
    (m,), (n,) = a.shape, b.shape
    out = fresh((m, n), a.dtype)
    params = f"M={m},N={n},K=1"
    flops = Size(m, "M") * Size(n, "N")
    return tally(flops, read=[a, b, addend], written=[out], dtype=a.dtype, params=params)


@cost_of("aten::matmul", "aten::linalg_matmul", "aten::__matmul__", category="matmul")
def matmul(call: OpCall) -> Cost:
    """The product of any two tensors; one of one dimension counts as a row or a column."""
    a, b = tensor(call, 0), tensor(call, 1)
    if len(a.shape) == len(b.shape) == 1:
        return dot(call)
    if len(a.shape) == 1:
        a = _reshaped(a, (1, *a.shape))
    if len(b.shape) == 1:
        b = _reshaped(b, (*b.shape, 1))
    if len(b.shape) == 2:
        a = _reshaped(a, (numel(a.shape[:-1]), a.shape[-1]))
    return product(a, b)


def _reshaped(item: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Give the tensor another shape; the strides stay behind where they no longer fit."""
    return item if item.shape == shape else Tensor(shape, item.dtype)


@cost_of("aten::linear", "aten::mkldnn_linear", "mkldnn::_linear_pointwise", category="matmul")
def linear(call: OpCall) -> Cost:
    """x (…, in), weight (out, in), bias (out): flops 2·rows·in·out; bytes: x, weight, bias, y."""
    x, weight = tensor(call, 0), tensor(call, 1)
    rows = _reshaped(x, (numel(x.shape[:-1]), x.shape[-1]))
    if len(weight.shape) == 1:
        weight = _reshaped(weight, (1, *weight.shape))
    return product(rows, _transposed(weight), maybe_tensor(call, 2))


@cost_of("aten::linear_backward", category="matmul")
def linear_backward(call: OpCall) -> Cost:
    """Input (…, in), grad (…, out), weight (out, in), mask: the ops that the mask asks for, added.

    dX = grad @ weight, dW = gradᵀ @ x: flops 2·rows·in·out each; db = the sum of grad, not
    counted as FLOPs. Each of the three reads its own operands.
    """
    x, grad, weight = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    wanted = flags(call, 3) or (True, True, True)
    grad = _reshaped(grad, (numel(grad.shape[:-1]), grad.shape[-1]))
    x = _reshaped(x, (numel(x.shape[:-1]), x.shape[-1]))
    parts = (
        product(grad, weight),
        product(_transposed(grad), x),
        tally(0, read=[grad], written=[fresh(grad.shape[-1:], grad.dtype)]),
    )
    chosen = [part for part, want in zip(parts, wanted, strict=True) if want]
    return replace(together(*chosen), dtype=grad.dtype, params=linear_params(grad, x.shape[-1]))


def linear_params(grad: Tensor, width: int) -> str:
    """Return the numbers that matter of a linear layer's backward."""
    return f"M={grad.shape[0]},N={grad.shape[-1]},K={width}"


def together(*costs: Cost) -> Cost:
    """Return the cost of doing all of these, one after the other."""
    reads = [cost.bytes_read for cost in costs]
    writes = [cost.bytes_written for cost in costs]
    return Cost(
        sum(cost.flops for cost in costs),
        None if None in reads else sum(filter(None, reads)),
        None if None in writes else sum(filter(None, writes)),
    )


mark_product("aten::mm", "aten::bmm", "aten::matmul", "aten::linalg_matmul", factors=(0, 1))
mark_product(
    "aten::_sparse_mm", "aten::smm", "aten::hspmm", "aten::_sparse_sparse_matmul",
    "aten::_sparse_mm_reduce_impl", factors=(0, 1), sparse=0,
)  # fmt: skip
mark_product("aten::addmm", "aten::addmm_", "aten::baddbmm", "aten::baddbmm_", factors=(1, 2))
mark_product("aten::_sparse_addmm", factors=(1, 2), sparse=1)
mark_product("aten::mv", "aten::linear", factors=(0, 1))
mark_product("aten::addmv", "aten::addmv_", factors=(1, 2))
mark_product("aten::sparse_sampled_addmm", factors=(0,), sparse=0)


@cost_of("aten::tensordot", category="matmul")
def tensordot(call: OpCall) -> Cost:
    """The dimensions named in the lists are summed over: flops 2·(kept of a)·(kept of b)·summed."""
    a, b = tensor(call, 0), tensor(call, 1)
    dims_a, dims_b = value(call, 2), value(call, 3)
    if dims_a is None or dims_b is None:
        refuse("the dimensions to sum over are not in the recording")
    summed_a = {dim % len(a.shape) for dim in dims_a}
    summed_b = {dim % len(b.shape) for dim in dims_b}
    kept_a = [n for dim, n in enumerate(a.shape) if dim not in summed_a]
    kept_b = [n for dim, n in enumerate(b.shape) if dim not in summed_b]
    depth = math.prod(a.shape[dim] for dim in summed_a)
    left = Tensor((numel(kept_a), depth), a.dtype)
    return product(left, Tensor((depth, numel(kept_b)), b.dtype))


@cost_of("aten::einsum", category="matmul")
def einsum(call: OpCall) -> Cost:
    """Equation and one or two tensors: flops, the product of all distinct dimensions.

    Times 2 where a dimension is summed over. The order in which more than two are contracted is
    not in the recording, so those have no formula.
    """
    equation, operands = value(call, 0), tensors(call, 1)
    if not isinstance(equation, str) or "..." in equation or len(operands) > 2:
        refuse("the equation is not in the recording, or leaves the order of contraction open")
    terms, _, kept = equation.replace(" ", "").partition("->")
    names = terms.split(",")
    if "->" not in equation:
        kept = "".join(sorted(name for name in set(terms) - {","} if terms.count(name) == 1))
    sizes = {
        name: dim
        for letters, operand in zip(names, operands, strict=True)
        for name, dim in zip(letters, operand.shape, strict=True)
    }
    out = [sizes[name] for name in kept]
    per_term = 2 if set(sizes) - set(kept) else 1

    def make(dtype: str) -> Cost:
        known = typed(operands, dtype)
        flops = per_term * math.prod(Size(sizes[name], name) for name in sorted(sizes))
        return tally(flops, read=known, written=[fresh(out, known[0].dtype)], dtype=known[0].dtype)

    return over_dtypes(operands, make, ("f16", "f32", "c128"))


_MATMUL_OUT: Final = "element type of the result not recorded: taken as bf16"


def _with_out_dtype(a: Tensor, b: Tensor, *more: Tensor | None, out: str | None) -> Cost:
    """As `product`, where the result's type may be unknown: bf16, at most 4 bytes each."""
    if out is not None:
        return product(a, b, *more, out_dtype=out)
    likely, *others = (product(a, b, *more, out_dtype=each) for each in ("bf16", "i8", "f32"))
    return spanning(likely, *others, assumed=_MATMUL_OUT)


@cost_of("aten::_scaled_mm", category="matmul")
def scaled_mm(call: OpCall) -> Cost:
    """(m, k) @ (k, n) with scales: flops 2·m·n·k; bytes: operands, scales, bias, result.

    Inputs: a, b, scale_a, scale_b, bias, scale_result, out_dtype. Two fp4 values in one element
    count as two. Without an out_dtype the result has the type of `a`.
    """
    a, b = tensor(call, 0), tensor(call, 1)
    more = [maybe_tensor(call, index) for index in (2, 3, 4, 5)]
    out = dtype_at(call, 6) or (a.dtype if scalars_recorded(call) else None)
    return _with_out_dtype(a, b, *more, out=out)


@cost_of("aten::_scaled_mm_v2", category="matmul")
def scaled_mm_v2(call: OpCall) -> Cost:
    """As `scaled_mm`; inputs: a, b, scales and how, twice, bias, out_dtype.

    The scales come in lists without element types; taken as f32.
    """
    a, b = tensor(call, 0), tensor(call, 1)
    scales = typed([*maybe_tensors(call, 2), *maybe_tensors(call, 5)], "f32")
    out = dtype_at(call, 9) or (a.dtype if scalars_recorded(call) else None)
    return _with_out_dtype(a, b, *scales, maybe_tensor(call, 8), out=out)


@cost_of("aten::_int_mm", category="matmul")
def int_mm(call: OpCall) -> Cost:
    """(m, k) i8 @ (k, n) i8 -> i32: operations 2·m·n·k; bytes: 1 in, 4 out."""
    return product(tensor(call, 0), tensor(call, 1), out_dtype="i32")


_GROUPED: Final = "the groups are taken to fill the tensor, and each to have rows"


@cost_of("aten::_grouped_mm", category="matmul")
def grouped_mm(call: OpCall) -> Cost:
    """One product for each group of rows, columns, or of the summed dimension.

    (t, k) @ (g, k, n) -> (t, n), rows in groups; (g, m, k) @ (k, t) -> (m, t), columns in groups;
    (m, t) @ (t, n) -> (g, m, n), the summed dimension in groups. flops 2·t·k·n, 2·m·k·t, 2·m·t·n.
    bytes: both operands and the result; not the few bytes of the offsets.
    Assumed: the offsets end at the end of the tensor, and no group is empty.
    """
    out = dtype_at(call, 4)
    return _grouped(tensor(call, 0), tensor(call, 1), maybe_tensor(call, 2), out)


@cost_of("aten::_scaled_grouped_mm", category="matmul")
def scaled_grouped_mm(call: OpCall) -> Cost:
    """As `grouped_mm`, and the scales are read; inputs: a, b, two scales, offsets, …, out_dtype."""
    scales = [maybe_tensor(call, 2), maybe_tensor(call, 3)]
    out = dtype_at(call, 7) or "bf16"
    return _grouped(tensor(call, 0), tensor(call, 1), maybe_tensor(call, 4), out, *scales)


@cost_of("aten::_scaled_grouped_mm_v2", category="matmul")
def scaled_grouped_mm_v2(call: OpCall) -> Cost:
    """As `grouped_mm`; inputs: a, b, scales and how, twice, offsets, bias, out_dtype.

    The scales come in lists without element types; taken as f32.
    """
    scales = typed([*maybe_tensors(call, 2), *maybe_tensors(call, 5)], "f32")
    out = dtype_at(call, 10) or "bf16"
    return _grouped(tensor(call, 0), tensor(call, 1), maybe_tensor(call, 8), out, *scales)


def _grouped(
    a: Tensor, b: Tensor, offsets: Tensor | None, out: str | None, *more: Tensor | None
) -> Cost:
    dims = len(a.shape), len(b.shape)
    if dims == (3, 3):
        return product(a, b, *more, out_dtype=out)
    groups = offsets.shape[0] if offsets else None
    if dims == (2, 3):
        (rows, k), (groups, _, n) = a.shape, b.shape
        shape: tuple[int, ...] = (rows, n)
    elif dims == (3, 2):
        (groups, n, k), (_, rows) = a.shape, b.shape
        shape = (n, rows)
    else:
        (n, rows), (_, k) = a.shape, b.shape
        if groups is None:
            refuse("the number of groups is not in the recording")
        shape = (groups, n, k)
    params = f"M={rows},N={n},K={k},G={groups}"
    result = fresh(shape, out or a.dtype)
    flops = 2 * multiply_adds(rows, n, k) * _packed(a.dtype)
    cost = tally(flops, read=[a, b, *more], written=[result], dtype=a.dtype, params=params)
    return bounded(cost, _GROUPED, flops=(0, flops), traffic=(0, cost.bytes))


@cost_of("aten::_sparse_semi_structured_mm", category="matmul")
def semi_structured_mm(call: OpCall) -> Cost:
    """2:4 sparse (m, k/2) and its metadata @ (k, n): flops 2·m·n·k/2, those of the values kept.

    bytes: values, metadata, dense operand, result. `flops_hi` is the dense count 2·m·n·k.
    """
    return _half_sparse(tensor(call, 0), tensor(call, 1), tensor(call, 2))


@cost_of("aten::_sparse_semi_structured_addmm", category="matmul")
def semi_structured_addmm(call: OpCall) -> Cost:
    """Addend, 2:4 sparse (m, k/2), metadata, (k, n): as `semi_structured_mm`."""
    return _half_sparse(tensor(call, 1), tensor(call, 2), tensor(call, 3), tensor(call, 0))


@cost_of("aten::_sparse_semi_structured_linear", category="matmul")
def semi_structured_linear(call: OpCall) -> Cost:
    """Input (…, k), 2:4 sparse weight (n, k/2), metadata, bias: as `semi_structured_mm`."""
    x = tensor(call, 0)
    rows = _reshaped(x, (numel(x.shape[:-1]), x.shape[-1]))
    return _half_sparse(tensor(call, 1), tensor(call, 2), _transposed(rows), maybe_tensor(call, 3))


def _half_sparse(values: Tensor, meta: Tensor, dense: Tensor, *more: Tensor | None) -> Cost:
    (m, half), (k, n) = values.shape, dense.shape
    cost = tally(
        2 * Size(m, "M") * Size(n, "N") * Size(half, "(K/2)"),
        read=[values, meta, dense, *more],
        written=[fresh((m, n), values.dtype)],
        dtype=values.dtype,
        params=f"M={m},N={n},K={k}",
    )
    return bounded(cost, flops=(cost.flops, 2 * m * n * k), note=_HALF)


_HALF: Final = "2:4 sparse: half of the products; all of them are the upper bound"


@cost_of("aten::_cslt_sparse_mm", category="matmul")
def cslt_mm(call: OpCall) -> Cost:
    """2:4 sparse and compressed @ (k, n): as `semi_structured_mm`.

    The compressed operand holds k/2 values and their 2-bit positions for each row: 9/16 of the
    dense size for 16-bit types, 10/16 for 8-bit ones. Its size gives the rows.
    """
    packed, dense = tensor(call, 0), tensor(call, 1)
    k, n = dense.shape
    bits = {"i8": 8, "f8e4m3": 8, "f8e5m2": 8}.get(packed.dtype or "", 16)
    sixteenths = 10 if bits == 8 else 9
    m = 16 * numel(packed.shape) // (sixteenths * k)
    out = fresh((m, n), dtype_at(call, 4) or packed.dtype)
    more = [maybe_tensor(call, 2), maybe_tensor(call, 3)]
    cost = tally(
        multiply_adds(m, n, k),
        read=[packed, dense, *more],
        written=[out],
        dtype=dense.dtype,
        params=f"M={m},N={n},K={k}",
    )
    return bounded(cost, flops=(cost.flops, 2 * cost.flops), note=_HALF)


@cost_of("aten::_weight_int8pack_mm", category="matmul")
def int8_weight_mm(call: OpCall) -> Cost:
    """x (m, k), weight (n, k) i8, scales (n): flops 2·m·n·k; bytes: all operands, y of x's type."""
    x, weight = tensor(call, 0), tensor(call, 1)
    return product(x, _transposed(weight), maybe_tensor(call, 2), out_dtype=x.dtype)


@cost_of("aten::_weight_int4pack_mm", category="matmul")
def int4_weight_mm(call: OpCall) -> Cost:
    """x (m, k), packed 4-bit weight, group size, scales and zeros (k/group, n, 2): flops 2·m·n·k.

    bytes: x, the packed weight as it lies in memory, scales, y.
    """
    x, packed, scales = tensor(call, 0), tensor(call, 1), tensor(call, 3)
    return packed_product(x, scales.shape[1], [packed, scales])


@cost_of("aten::_mixed_dtypes_linear", category="matmul")
def mixed_dtypes_linear(call: OpCall) -> Cost:
    """x (…, k), weight (k, n) of 8 bits or (k, n/2) with two 4-bit values, scale (n), bias.

    flops 2·rows·n·k; bytes: all operands as they lie in memory, y of x's type.
    """
    x, weight, scale = tensor(call, 0), tensor(call, 1), tensor(call, 2)
    return packed_product(x, numel(scale.shape), [weight, scale, maybe_tensor(call, 3)])


@cost_of("inductor::_mm_plus_mm", category="matmul")
def mm_plus_mm(call: OpCall) -> Cost:
    """A @ b + c @ d: flops of both products; bytes: four operands and one result."""
    a, b, c, d = (tensor(call, index) for index in range(4))
    one, other = product(a, b), product(c, d)
    out = fresh((a.shape[0], b.shape[1]), a.dtype)
    flops = one.flops + other.flops
    return tally(flops, read=[a, b, c, d], written=[out], dtype=a.dtype, params=one.params)


@cost_of(
    "vllm::rocm_unquantized_gemm", "vllm::rocm_unquantized_gemm_impl", "vllm::cpu_unquantized_gemm",
    "fbgemm::bf16_linear", category="matmul",
)  # fmt: skip
def external_linear(call: OpCall) -> Cost:
    """x (…, in), weight (out, in), bias: as `linear`."""
    return linear(call)


@cost_of("_C::cutlass_scaled_mm", "_C::cutlass_scaled_mm_azp", category="matmul")
def cutlass_scaled_mm(call: OpCall) -> Cost:
    """Out (m, n), a (m, k), b (k, n), scales, bias: flops 2·m·n·k; bytes: all, at their sizes."""
    out, a, b = (tensor(call, index) for index in range(3))
    scales = [maybe_tensor(call, index) for index in (3, 4, 5)]
    return product(a, b, *scales, out_dtype=out.dtype)


@cost_of(
    "fbgemm::f8f8bf16", "fbgemm::f8f8bf16_rowwise", "fbgemm::f8f8bf16_blockwise",
    "fbgemm::i8i8bf16", "aiter::gemm_a8w8", "aiter::gemm_a8w8_bpreshuffle",
    "aiter::gemm_a8w8_blockscale", category="matmul",
)  # fmt: skip
def quantised_linear(call: OpCall) -> Cost:
    """x (…, k), weight (n, k), scales -> bf16: flops 2·rows·n·k; bytes: operands, scales, result.

    Assumed: the result is bf16, as by default.
    """
    x, weight = tensor(call, 0), tensor(call, 1)
    rows = _reshaped(x, (numel(x.shape[:-1]), x.shape[-1]))
    scales = [maybe_tensor(call, 2), maybe_tensor(call, 3)]
    return _with_out_dtype(rows, _transposed(weight), *scales, out=None)
