"""Reductions, scans, sorting and searching.

FLOPs: N elements in, R out. A sum takes N - R additions; a mean R divisions more; where an index
is kept each element is compared, N. Bytes: the input, and what results.

Where the dimensions are not recorded (2021-22) the result may have from one element to N: then
one is taken, unless the result's shape is known from elsewhere, with both ends as bounds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from pyprof2.analysis.costs.operands import (
    bounded,
    counted,
    dtype_at,
    first_tensor,
    fresh,
    integer,
    integers,
    kind,
    like,
    maybe_tensor,
    numel,
    refuse,
    result,
    scalars_recorded,
    spanning,
    tally,
    tensor,
    value,
)
from pyprof2.analysis.costs.registry import (
    Cost,
    Evidence,
    cost_of,
    cost_with_evidence,
)
from pyprof2.analysis.costs.sizes import Size
from pyprof2.signatures import OpCall, Tensor


class _ReducedRow(NamedTuple):
    """Reductions that cost the same.

    Attributes:
        flops: operations per element of the input.
        minus: how many of them are saved for each element of the result.
        dims: where the dimensions stand.
        dtype: where the element type of the result stands; -1: it has none.
        result: `sum` (whole numbers in i64), `same`, `float`, `real`, `bool` or `i64`.
        names: without `aten::`.
    """

    flops: int
    minus: int
    dims: int
    dtype: int
    result: str
    names: str


_TABLE: Final = (
    _ReducedRow(1, 1, 1, 3, "sum", "sum nansum prod"),
    _ReducedRow(1, 0, 1, 3, "same", "mean nanmean"),
    _ReducedRow(1, 1, 1, -1, "same", "amax amin"),
    _ReducedRow(1, 1, 1, -1, "bool", "any all"),
    _ReducedRow(1, 0, 1, -1, "i64", "argmax argmin count_nonzero"),
    _ReducedRow(2, 0, 1, -1, "same", "_aminmax aminmax"),
    _ReducedRow(4, 0, 1, -1, "real", "var std"),
    _ReducedRow(4, 0, 1, -1, "float", "logsumexp special_logsumexp"),
    _ReducedRow(2, 0, 2, 4, "real", "linalg_vector_norm linalg_norm norm"),
    _ReducedRow(2, 0, 1, -1, "real", "frobenius_norm"),
)  # fmt: skip
_ROWS: Final = {f"aten::{name}": row for row in _TABLE for name in row.names.split()}
_REAL: Final = {"c32": "f16", "c64": "f32", "c128": "f64"}
_UNKNOWN_DIMS: Final = "the dimensions are not recorded: taken to reduce to one element"


@cost_with_evidence(*_ROWS, category="reduce")
def reduction(call: OpCall, evidence: Evidence) -> Cost:
    """x, dims -> x without them: flops per element from the table; bytes: x and the result."""
    row = _ROWS[call.op]
    x = first_tensor(call)
    out = _reduced(call, x, row) or result(evidence, None)
    if out is not None:
        return _reduction(row, call, x, out)
    one, every = (_reduction(row, call, x, fresh(shape, None)) for shape in ((), x.shape))
    return bounded(
        one, _UNKNOWN_DIMS, flops=(every.flops, one.flops), traffic=(one.bytes, every.bytes)
    )


def _reduction(row: _ReducedRow, call: OpCall, x: Tensor, out: Tensor) -> Cost:
    count, kept = counted(x), counted(out, "out")
    flops = row.flops * count - (row.minus * kept if row.minus else 0)
    dtype = _result_dtype(row, call, x)
    written = [fresh(out.shape, dtype)]
    if row.names.startswith("_aminmax"):
        written *= 2
    return tally(
        max(flops, 0),
        read=[x],
        written=written,
        dtype=x.dtype,
        params=f"N={count},out={kept}",
    )


def _reduced(call: OpCall, x: Tensor, row: _ReducedRow) -> Tensor | None:
    """Return the result, as far as its shape is recorded."""
    dims = integers(call, row.dims)
    if dims or (dims is not None and not isinstance(value(call, row.dims), list | tuple)):
        return fresh(_without(x.shape, dims), None)
    if dims is not None or len(call.inputs) <= row.dims + 1 or scalars_recorded(call):
        return fresh((), None)
    return None


def _without(shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    gone = {dim % max(len(shape), 1) for dim in dims}
    return tuple(n for at, n in enumerate(shape) if at not in gone)


def _result_dtype(row: _ReducedRow, call: OpCall, x: Tensor) -> str | None:
    asked = dtype_at(call, row.dtype)
    if row.names.startswith("sum") and len(call.inputs) == 2:
        asked = dtype_at(call, 1)
    if asked or x.dtype is None:
        return asked
    if row.result in ("bool", "i64"):
        return row.result
    if row.result == "sum":
        return "i64" if kind(x.dtype) < 2 else x.dtype
    if row.result == "float":
        return "f32" if kind(x.dtype) < 2 else x.dtype
    return _REAL.get(x.dtype, x.dtype) if row.result == "real" else x.dtype


@cost_with_evidence("aten::var_mean", "aten::std_mean", category="reduce")
def var_mean(call: OpCall, evidence: Evidence) -> Cost:
    """x, dims -> two results: 4N as `var`; bytes: x and both."""
    cost = reduction(OpCall("aten::var", call.inputs), evidence)
    least, most = cost.bytes_lo, cost.bytes_hi
    if cost.bytes_read is None or cost.bytes_written is None:
        return cost
    return replace(
        cost,
        bytes_written=2 * cost.bytes_written,
        bytes_lo=None if least is None else 2 * least - cost.bytes_read,
        bytes_hi=None if most is None else 2 * most - cost.bytes_read,
    )


@cost_with_evidence(
    "aten::max", "aten::min", "aten::median", "aten::nanmedian", "aten::mode", "aten::kthvalue",
    category="reduce",
)  # fmt: skip
def extreme(call: OpCall, evidence: Evidence) -> Cost:
    """One input: the extreme of all; a dimension too: values and places; two tensors: of each.

    flops: N comparisons. bytes: inputs, values, and 8 for each place.
    """
    x, other = first_tensor(call), maybe_tensor(call, 1)
    if other is not None and other.shape and call.op in ("aten::max", "aten::min"):
        from pyprof2.analysis.costs.pointwise import pointwise

        return pointwise(OpCall("aten::maximum", call.inputs[:2]))
    count = counted(x)
    params = f"N={count}"
    if len(call.inputs) == 1:
        return tally(count, read=[x], written=[fresh((), x.dtype)], dtype=x.dtype, params=params)
    dim = integer(call, 2 if call.op == "aten::kthvalue" else 1)
    known = evidence.output.shape if evidence.output else None
    shape = _without(x.shape, (dim,)) if dim is not None else known
    shapes = [shape] if shape is not None else [(), x.shape]
    costs = [
        tally(
            count,
            read=[x],
            written=[fresh(out, x.dtype), fresh(out, "i64")],
            dtype=x.dtype,
            params=params,
        )
        for out in shapes
    ]
    return spanning(*costs, assumed=_UNKNOWN_DIMS)


@cost_of("aten::equal", category="reduce")
def equal(call: OpCall) -> Cost:
    """Two tensors -> one bool: N comparisons; bytes: both."""
    a, b = tensor(call, 0), tensor(call, 1)
    return tally(counted(a), read=[a, b], written=[fresh((), "bool")], dtype=a.dtype)


@cost_of("aten::trace", category="reduce")
def trace(call: OpCall) -> Cost:
    """(m, n) -> one number: min(m, n) additions; bytes: the diagonal and the number."""
    x = tensor(call, 0)
    count = min(x.shape)
    return tally(count, read=[fresh((count,), x.dtype)], written=[fresh((), x.dtype)])


@cost_of(
    "aten::cumsum", "aten::cumsum_", "aten::cumprod", "aten::cumprod_", "aten::logcumsumexp",
    "aten::_logcumsumexp", category="reduce",
)  # fmt: skip
def scan(call: OpCall) -> Cost:
    """x, dim, dtype -> running sums: N operations, 3N for logarithms; bytes: x and the result.

    Whole numbers add up in i64.
    """
    x = first_tensor(call)
    dtype = dtype_at(call, 2) or ("i64" if x.dtype and kind(x.dtype) < 2 else x.dtype)
    each = 3 if "log" in call.op else 1
    count = counted(x)
    out = x if call.op.endswith("_") else like(x, dtype)
    return tally(each * count, read=[x], written=[out], dtype=x.dtype, params=f"N={count}")


@cost_of("aten::cummax", "aten::cummin", "aten::_cummax_helper", "aten::_cummin_helper",
         category="reduce")  # fmt: skip
def running_extreme(call: OpCall) -> Cost:
    """x, dim -> running extremes and their places: N comparisons; bytes: x, values, 8 per place."""
    x = tensor(call, 0)
    return tally(counted(x), read=[x], written=[like(x), like(x, "i64")], dtype=x.dtype)


def _width(call: OpCall, x: Tensor, index: int) -> int:
    """Return the size of the dimension at input `index`, the last one if it is not recorded."""
    dim = integer(call, index)
    return x.shape[-1 if dim is None else dim] if x.shape else 1


def _log2(count: int) -> Size:
    """Round the logarithm up: how often a range of so many is halved."""
    return Size(max(count - 1, 0).bit_length(), "log2(n)")


@cost_of("aten::sort", "aten::argsort", "aten::msort", category="sort")
def sort(call: OpCall) -> Cost:
    """x, dim -> values and places: flops N·log2 n comparisons, n the size of the dimension.

    bytes: x, values, 8 for each place; `argsort` has only the places. A radix sort makes several
    passes and moves more.
    """
    x = tensor(call, 0)
    # sort.stable has its flag before the dimension
    first = 1 if call.op != "aten::sort" or not isinstance(value(call, 1), bool | None) else 2
    count = counted(x)
    flops = count * _log2(_width(call, x, first))
    written = [] if call.op == "aten::argsort" else [like(x)]
    if call.op != "aten::msort":
        written.append(like(x, "i64"))
    return tally(flops, read=[x], written=written, dtype=x.dtype, params=f"N={count}")


@cost_with_evidence("aten::topk", category="sort")
def topk(call: OpCall, evidence: Evidence) -> Cost:
    """x, k, dim -> the k largest of each row and their places: N comparisons.

    bytes: x, and values and places, 8 each, of k for each row.
    """
    x, k = tensor(call, 0), integer(call, 1)
    count = counted(x)
    if k is None and evidence.output is None:
        refuse("k is not in the recording")
    rows = count // max(_width(call, x, 2), 1)
    picked = rows * k if k is not None else numel(evidence.output.shape if evidence.output else ())
    written = [fresh((picked,), x.dtype), fresh((picked,), "i64")]
    return tally(count, read=[x], written=written, dtype=x.dtype, params=f"N={count},k={k}")


@cost_of("aten::searchsorted", "aten::bucketize", category="sort")
def searchsorted(call: OpCall) -> Cost:
    """Sorted (…, n) and values -> places: log2 n comparisons each; bytes: all, 8 for each place.

    `bucketize` names the values first. `out_int32` makes the places 4 bytes.
    """
    one, other = call.inputs[:2]
    if call.op == "aten::bucketize":
        one, other = other, one
    edges = one if isinstance(one, Tensor) else None
    if edges is None:
        refuse("the boundaries are not in the recording")
    values = other if isinstance(other, Tensor) else fresh((), edges.dtype)
    out = like(values, "i32" if value(call, 2) is True else "i64")
    flops = counted(values) * _log2(edges.shape[-1] + 1)
    return tally(flops, read=[edges, values], written=[out], dtype=edges.dtype)


@cost_of("aten::renorm", "aten::renorm_", category="reduce")
def renorm(call: OpCall) -> Cost:
    """x -> x with the norm of each row bounded: 3N: square, add, scale; bytes: x and the result."""
    x = tensor(call, 0)
    return tally(3 * counted(x), read=[x], written=[like(x)], dtype=x.dtype)


@cost_of("_moe_C::topk_softmax", "sgl_kernel::topk_softmax", "aiter::topk_softmax",
         category="sort")  # fmt: skip
def topk_softmax(call: OpCall) -> Cost:
    """Weights (t, k), places (t, k), places of tokens or not, scores (t, e): 5N + N comparisons.

    bytes: the scores, and the results at their sizes.
    """
    items = [item for item in call.inputs if isinstance(item, Tensor)]
    scores = items[-1]
    return tally(6 * counted(scores), read=[scores], written=items[:-1], dtype=scores.dtype)
