"""fbgemm: embedding tables for recommendation, sparse features, quantised exchange.

A lookup has T tables, B bags in each, n indices in all; table rows have D elements. Recordings
have neither D nor the bags' lengths by value, but a rowwise optimizer keeps one number for each
row, so the mean D is the weights' size over the optimizer state's.

FLOPs: n·D additions. Bytes: n rows, the indices and offsets, and the pooled result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyprof2.analysis.costs.operands import (
    bounded,
    fresh,
    integer,
    like,
    maybe_tensor,
    numel,
    result,
    tally,
    tensor,
)
from pyprof2.analysis.costs.registry import (
    Context,
    Cost,
    UnknownCostError,
    cost_in_context,
    cost_of,
)

if TYPE_CHECKING:
    from pyprof2.signatures import OpCall, Tensor

_LOOKUPS: Final = {
    "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function": 20,
    "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_with_counter_function": 20,
    "fbgemm::split_embedding_codegen_lookup_adagrad_function": -1,
    "fbgemm::split_embedding_codegen_lookup_adam_function": -1,
    "fbgemm::split_embedding_codegen_lookup_sgd_function": -1,
    "fbgemm::split_embedding_codegen_lookup_partial_rowwise_adam_function": -1,
}
"""The lookups, and where they keep one number for each row; -1: nowhere."""

_WIDEST: Final = 2048
"""The widest row that the library takes."""


def _weights(call: OpCall) -> Tensor:
    """Return the weights: on the device, or cached from the host's memory."""
    return max((tensor(call, at) for at in (1, 2)), key=lambda item: numel(item.shape))


@cost_in_context(*_LOOKUPS, category="embedding")
def lookup(call: OpCall, context: Context) -> Cost:
    """Weights, …, indices (n), offsets (T·B + 1), …: n rows read and added up in T·B bags.

    Assumed, where more than one table has its rows in one place: all have rows of the mean
    length. Bounds: one distinct row each of 4 elements, and rows of 2048.
    """
    weights, indices, offsets = _weights(call), tensor(call, 11), tensor(call, 12)
    tables = numel(tensor(call, 6).shape) - 1
    count, bags = numel(indices.shape), numel(offsets.shape) - 1
    width = _mean_width(call, weights, tables, bags, context)
    scales = maybe_tensor(call, 14)
    dtype = context.output.dtype if context.output and context.output.dtype else "f32"
    costs = [
        tally(
            count * columns * (1 if scales is None else 2),
            read=[fresh((rows * columns,), weights.dtype), indices, offsets, scales],
            written=[fresh((bags * columns,), dtype)],
            dtype=weights.dtype,
            params=f"rows={count},width={columns},tables={tables},bags={bags}",
        )
        for rows, columns in ((count, width), (min(count, 1), 4), (count, _WIDEST))
    ]
    likely, least, most = costs
    if tables == 1:
        return bounded(likely, traffic=(_at_most(least, likely), likely.bytes))
    return bounded(
        likely,
        "rows of all tables taken to have the mean length",
        flops=(least.flops, max(most.flops, likely.flops)),
        traffic=(_at_most(least, likely), most.bytes),
    )


def _at_most(least: Cost, likely: Cost) -> int | None:
    if least.bytes is None or likely.bytes is None:
        return None
    return min(least.bytes, likely.bytes)


def _mean_width(call: OpCall, weights: Tensor, tables: int, bags: int, context: Context) -> int:
    """Return the mean length of a row: from the result, the total, or the optimizer's state."""
    total_width = integer(call, 7)
    if total_width is None and context.output is not None and bags:
        return max(numel(context.output.shape) // bags, 1)
    if total_width is not None and tables > 0:
        return max(total_width // tables, 1)
    place = _LOOKUPS[call.op]
    rows = max((numel(t.shape) for at in (place, place + 1) if (t := maybe_tensor(call, at))),
               default=0) if place >= 0 else 0  # fmt: skip
    if not rows:
        msg = "the length of the rows is not in the recording"
        raise UnknownCostError(msg)
    return max(round(numel(weights.shape) / rows), 1)


_NODES: Final = (
    "torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>",
    "torch::autograd::CppNode<SplitLookupFunction_adagrad_Op>",
    "torch::autograd::CppNode<SplitLookupFunction_Dense_Op>",
    "torch::autograd::CppNode<SplitLookupFunction_sgd_Op>",
)


@cost_in_context(*_NODES, category="embedding")
def lookup_backward(call: OpCall, context: Context) -> Cost:
    """Grad (B, widths of all tables): each of n rows gets its bag's gradient, and is updated.

    With the forward lookup: n·D additions and 4 more for each element updated; bytes: grad,
    indices, n rows of weights read and written, and their optimizer state. Without: the rows are
    taken to be as many as grad has, one for each bag; at least grad is read, at most each bag
    has 1024 rows.
    """
    grad, forward = tensor(call, 0), context.forward
    count = numel(grad.shape)
    note = "rows updated not recorded: taken as one for each bag, at most 1024"
    if forward is not None and forward.op in _LOOKUPS:
        count = lookup(forward, Context(output=grad)).flops
        note = "all rows taken to be distinct"
    rows = fresh((count,), grad.dtype)
    cost = tally(5 * count, read=[grad, rows], written=[rows], dtype=grad.dtype)
    least = tally(0, read=[grad])
    most = fresh((1024 * max(count, numel(grad.shape)),), grad.dtype)
    widest = tally(5 * numel(most.shape), read=[grad, most, most], written=[most, most])
    return bounded(
        cost,
        note,
        flops=(0, widest.flops),
        traffic=(least.bytes, widest.bytes),
    )


@cost_in_context("fbgemm::dense_embedding_codegen_lookup_function", category="embedding")
def dense_lookup(call: OpCall, context: Context) -> Cost:
    """Weights, offsets of tables and columns, …, indices (n), offsets (T·B + 1): as `lookup`."""
    weights, indices, offsets = tensor(call, 0), tensor(call, 7), tensor(call, 8)
    tables = numel(tensor(call, 2).shape) - 1
    bags = numel(offsets.shape) - 1
    width = integer(call, 3)
    if width is None and context.output is None:
        msg = "the length of the rows is not in the recording"
        raise UnknownCostError(msg)
    mean = width // max(tables, 1) if width else numel(_shape(context)) // max(bags, 1)
    count = numel(indices.shape)
    rows = fresh((min(count * mean, numel(weights.shape)),), weights.dtype)
    out = fresh((bags * mean,), weights.dtype)
    cost = tally(count * mean, read=[rows, indices, offsets], written=[out], dtype=weights.dtype)
    least = tally(0, read=[indices, offsets])
    most = tally(0, read=[fresh((count * _WIDEST,), weights.dtype), indices, offsets, weights],
                 written=[fresh((bags * _WIDEST,), weights.dtype)])  # fmt: skip
    return bounded(
        cost,
        "rows of all tables taken to have the mean length",
        flops=(0, count * _WIDEST),
        traffic=(least.bytes, most.bytes),
    )


def _shape(context: Context) -> tuple[int, ...]:
    return context.output.shape if context.output else ()


@cost_of(
    "fbgemm::permute_pooled_embs_auto_grad", "fbgemm::permute_pooled_embs",
    "torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction*",
    "fbgemm::recat_embedding_grad_output_mixed_D_batch",
    "fbgemm::recat_embedding_grad_output_mixed_D", category="copy",
)  # fmt: skip
def permute_columns(call: OpCall) -> Cost:
    """x (b, columns) in another order: x read, and as much written; the orders are small."""
    x = tensor(call, 0)
    return tally(0, read=[x], written=[like(x)], params=f"N={numel(x.shape)}")


@cost_in_context(
    "fbgemm::permute_2D_sparse_data", "fbgemm::permute_sparse_features",
    "fbgemm::permute_1D_sparse_data", "fbgemm::block_bucketize_sparse_features", category="index",
)  # fmt: skip
def permute_sparse(call: OpCall, context: Context) -> Cost:
    """Order, lengths (T, B), values, weights -> lengths and values in that order.

    bytes: all read and as much written. An order that names a table twice, or not at all, has
    more or fewer values: the bounds are none, and all for each that it names.
    """
    # Bucketizing has no order before its lengths and values.
    first = 0 if call.op.endswith("bucketize_sparse_features") else 1
    lengths, values = tensor(call, first), tensor(call, first + 1)
    order = tensor(call, 0) if first else None
    weights = maybe_tensor(call, 3) if first else None
    moved = result(context, values.dtype) or like(values)
    written = [like(lengths), moved, None if weights is None else like(weights)]
    cost = tally(
        0, read=[order, lengths, moved, weights], written=written, params=f"N={numel(values.shape)}"
    )
    least = tally(0, read=[lengths], written=[])
    named = 2 if order is None else max(numel(order.shape), 1)
    most = None if cost.bytes is None else cost.bytes * named
    note = "each table taken to be named once"
    return bounded(cost, note, traffic=(least.bytes, most))


@cost_of("fbgemm::bounds_check_indices", category="index")
def bounds_check(call: OpCall) -> Cost:
    """Rows of each table, indices, offsets: read; written only where they are wrong."""
    tables, indices, offsets = (tensor(call, at) for at in range(3))
    weights = maybe_tensor(call, 5)
    count = numel(indices.shape)
    read = [tables, indices, offsets]
    cost = tally(0, read=read, params=f"N={count}")
    most = tally(0, read=[*read, weights], written=[indices, offsets])
    return bounded(cost, traffic=(cost.bytes, most.bytes))


@cost_of(
    "fbgemm::asynchronous_complete_cumsum", "fbgemm::asynchronous_exclusive_cumsum",
    "fbgemm::asynchronous_inclusive_cumsum", "fb::asynchronous_complete_cumsum",
    category="reduce",
)  # fmt: skip
def cumsum(call: OpCall) -> Cost:
    """Lengths (n) -> their running sums, n + 1 of them: n additions; bytes: both."""
    x = tensor(call, 0)
    count = numel(x.shape)
    out = fresh((count + (1 if "complete" in call.op else 0),), x.dtype)
    return tally(count, read=[x], written=[out], dtype=x.dtype, params=f"N={count}")


@cost_in_context("fb::offsets_range", "fbgemm::offsets_range", "fb::lengths_range",
                 "fb::lengths_range_w_truncation_size", category="index")  # fmt: skip
def offsets_range(call: OpCall, context: Context) -> Cost:
    """Offsets or lengths (n), total -> 0, 1, … for each: the input read, the total written.

    The total is the result's size, that of another input, or by value.
    """
    x, other = tensor(call, 0), maybe_tensor(call, 1)
    total = integer(call, 1)
    out = result(context, x.dtype) or (like(other, x.dtype) if other else None)
    if out is None and total is not None:
        out = fresh((total,), x.dtype)
    if out is None:
        msg = "the size of the result is not in the recording"
        raise UnknownCostError(msg)
    return tally(0, read=[x], written=[out], params=f"N={numel(out.shape)}")


@cost_of("fb::convex_sum", category="reduce")
def convex_sum(call: OpCall) -> Cost:
    """x (b, k), weights (k, 1) -> (b, 1): a product and a sum, 2 flops for each element of x."""
    x, weights = tensor(call, 0), tensor(call, 1)
    out = fresh(x.shape[:1], x.dtype)
    return tally(2 * numel(x.shape), read=[x, weights], written=[out], dtype=x.dtype)


@cost_of("fb::to_dense_representation", category="index")
def to_dense(call: OpCall) -> Cost:
    """Values (n), offsets, … -> at least as many: read, and written once."""
    x = tensor(call, 0)
    more = [maybe_tensor(call, at) for at in (1, 2)]
    cost = tally(0, read=[x, *more], written=[like(x)], params=f"N={numel(x.shape)}")
    most = None if cost.bytes is None else 1024 * cost.bytes
    note = "the size of the result is not recorded: taken as the values', at most 1024 times"
    return bounded(cost, note, traffic=(tally(0, read=[x]).bytes, most))


@cost_of("fbgemm::FloatToFP8RowwiseQuantized", category="elementwise")
def to_fp8_rows(call: OpCall) -> Cost:
    """x (…, n) f32 -> n bytes and 8 for the scale: 3 flops each: compare, scale, round."""
    x = tensor(call, 0)
    *rows, width = x.shape
    out = fresh((*rows, width + 8), "u8")
    return tally(3 * numel(x.shape), read=[x], written=[out], dtype=x.dtype)


@cost_of("fbgemm::FP8RowwiseQuantizedToFloat", category="elementwise")
def from_fp8_rows(call: OpCall) -> Cost:
    """x (…, n + 8) bytes -> (…, n) f32: 1 flop for each; bytes: both."""
    x = tensor(call, 0)
    *rows, width = x.shape
    out = fresh((*rows, max(width - 8, 0)), "f32")
    return tally(numel(out.shape), read=[x], written=[out], dtype="f32")


@cost_of("fbgemm::FloatToHFP8Quantized", category="elementwise")
def to_hfp8(call: OpCall) -> Cost:
    """x f32 -> a byte each: scale, clamp, round: 3 flops each; bytes: both."""
    x = tensor(call, 0)
    return tally(3 * numel(x.shape), read=[x], written=[like(x, "u8")], dtype=x.dtype)


@cost_of("fbgemm::HFP8QuantizedToFloat", category="elementwise")
def from_hfp8(call: OpCall) -> Cost:
    """x of a byte each -> f32: 1 flop each; bytes: both."""
    x = tensor(call, 0)
    return tally(numel(x.shape), read=[x], written=[like(x, "f32")], dtype="f32")
