"""fbgemm: embedding tables for recommendation, sparse features, quantised exchange.

A lookup has T tables, B bags in each, n indices in all; table rows have D elements. Recordings
have neither D nor the bags' lengths by value, but a rowwise optimizer keeps one number for each
row, so the mean D is the weights' size over the optimizer state's.

FLOPs: n·D additions. Bytes: n rows, the indices and offsets, and the pooled result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyprof2.analysis.costs.index import AS_FEW
from pyprof2.analysis.costs.operands import (
    bounded,
    counted,
    fresh,
    integer,
    like,
    maybe_tensor,
    numel,
    refuse,
    result,
    tally,
    tensor,
)
from pyprof2.analysis.costs.registry import (
    Cost,
    Evidence,
    cost_of,
    cost_with_evidence,
)
from pyprof2.analysis.costs.sizes import Size

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyprof2.signatures import OpCall, Tensor


class _Place(NamedTuple):
    """Where a lookup has its inputs, and what its optimizer keeps.

    At `weights` and the input after it are the weights on the device and in the host's memory, at
    input 20 and after it the optimizer's state: so many numbers for each element, and each row.
    """

    weights: int
    widths: int
    total: int
    indices: int
    scales: int
    per_element: int
    per_row: int


_DENSE: Final = "fbgemm::dense_embedding_codegen_lookup_function"
_STATE: Final = 20
_KEPT: Final = {
    "rowwise_adagrad": (0, 1), "rowwise_adagrad_with_counter": (0, 3), "adagrad": (1, 0),
    "adam": (2, 0), "partial_rowwise_adam": (1, 1), "sgd": (0, 0),
}  # fmt: skip
"""The state of each optimizer for each element, and for each row."""
_LOOKUPS: Final = {_DENSE: _Place(0, 2, 3, 7, 10, 0, 0)} | {
    f"fbgemm::split_embedding_codegen_lookup_{name}_function": _Place(1, 6, 7, 11, 14, *kept)
    for name, kept in _KEPT.items()
}
"""The lookups of several tables at once, and where each has what."""

_WIDEST: Final = 2048
"""The widest row that the library takes."""


class _Lookup(NamedTuple):
    """The operands of a lookup; `width` is the mean length of a row, of all if `is_every`."""

    weights: Tensor
    indices: Tensor
    offsets: Tensor
    scales: Tensor | None
    tables: int
    width: int
    is_every: bool

    @property
    def named(self) -> int:
        """How many rows are looked up, each as often as it is named."""
        return numel(self.indices.shape)

    @property
    def bags(self) -> int:
        """In how many bags they are added up, those of all tables together."""
        return numel(self.offsets.shape) - 1

    def rows(self, count: int, width: int) -> Tensor:
        """Return so many rows, no more than there are."""
        return fresh((min(count * width, numel(self.weights.shape)),), self.weights.dtype)


def _lookup(call: OpCall, known: Tensor | None) -> _Lookup:
    """Read a lookup's inputs.

    The length of the rows is from the total of all tables, or the optimizer's state. The total is
    by value, or what the result, or its gradient, has for each bag. All tables have rows of the
    mean length where there is one table, and where the mean by table is the mean by row, as a
    rowwise state says how many rows there are. Among tables with as many rows each that would
    say nothing; among others it holds for rows of several lengths by chance alone.

    Args:
        call: of one of `_LOOKUPS`.
        known: the result, or its gradient.
    """
    place = _LOOKUPS[call.op]
    found = (maybe_tensor(call, at) for at in (place.weights, place.weights + 1))
    weights = max((item for item in found if item), key=lambda item: numel(item.shape))
    weights = tensor(call, 0) if call.op == _DENSE else weights
    indices, offsets = tensor(call, place.indices), tensor(call, place.indices + 1)
    tables, bags = numel(tensor(call, place.widths).shape) - 1, numel(offsets.shape) - 1
    states = (maybe_tensor(call, at) for at in (_STATE, _STATE + 1))
    rows = max((numel(state.shape) for state in states if state), default=0)
    rows = rows if place.per_row and not place.per_element else 0
    total = integer(call, place.total)
    if total is None and known is not None and bags > 0:
        total = numel(known.shape) * tables // bags
    if total is not None and tables > 0:
        width = max(total // tables, 1)
        even = total % tables == 0 and numel(weights.shape) == rows * width
        even = even and rows % tables != 0
    elif rows:
        width, even = max(round(numel(weights.shape) / rows), 1), False
    else:
        refuse("the length of the rows is not in the recording")
    scales = maybe_tensor(call, place.scales)
    return _Lookup(weights, indices, offsets, scales, tables, width, tables == 1 or even)


_MEAN: Final = "rows of all tables taken to have the mean length"


@cost_with_evidence(*_LOOKUPS, category="embedding")
def lookup(call: OpCall, evidence: Evidence) -> Cost:
    """Weights, …, indices (n), offsets (T·B + 1), …: n rows read and added up in T·B bags.

    flops: n·D, with weights for the indices 2·n·D. Assumed, where several tables have rows of
    several lengths: all have rows of the mean length. Bounds: one distinct row of 4 elements, and
    each anew, of 2048.
    """
    found = _lookup(call, evidence.output)
    dtype = evidence.output.dtype if evidence.output and evidence.output.dtype else "f32"
    if call.op == _DENSE:
        dtype = found.weights.dtype or dtype

    def made(count: int, width: int) -> Cost:
        return tally(
            (1 if found.scales is None else 2) * Size(found.named, "rows") * Size(width, "width"),
            read=[found.rows(count, width), found.indices, found.offsets, found.scales],
            written=[fresh((found.bags * width,), dtype)],
            dtype=found.weights.dtype,
            params=f"rows={found.named},width={width},tables={found.tables},bags={found.bags}",
        )

    return _within(found, made)


def _within(found: _Lookup, made: Callable[[int, int], Cost]) -> Cost:
    """Return the cost by how many rows differ, and their width, with its bounds."""
    narrow, wide = (found.width,) * 2 if found.is_every else (4, _WIDEST)
    least, most = made(min(found.named, 1), narrow), made(found.named, wide)
    return bounded(
        made(found.named, found.width),
        AS_FEW if found.is_every else f"{_MEAN}; {AS_FEW}",
        flops=(least.flops, most.flops),
        traffic=(least.bytes, most.bytes),
    )


_NODES: Final = tuple(
    f"torch::autograd::CppNode<SplitLookupFunction_{name}_Op>" for name in (*_KEPT, "Dense")
)


@cost_with_evidence(*_NODES, category="embedding")
def lookup_backward(call: OpCall, evidence: Evidence) -> Cost:
    """Grad (B, widths of all tables): the rows that were looked up get their bag's gradient.

    With the forward lookup of n rows: n·D additions, and 4 more for each element updated; bytes:
    grad, indices and offsets, the rows and the optimizer's state for them read and written; rows
    named more than once count once if there are no more. Dense tables get a gradient of their
    own, all of it written. Without the forward lookup, the rows are taken to be as many as grad
    has, one for each bag; at least grad is read, at most each bag has 1024 rows.
    """
    grad, forward = tensor(call, 0), evidence.forward
    if forward is None or forward.op not in _LOOKUPS:
        return _without_lookup(grad)
    place, found = _LOOKUPS[forward.op], _lookup(forward, grad)
    read = [grad, found.indices, found.offsets, found.scales]
    if forward.op == _DENSE:
        flops = Size(found.named, "rows") * Size(found.width, "width")
        own = tally(flops, read=read, written=[found.weights])
        wide = None if found.is_every else (0, found.named * _WIDEST)
        return bounded(own, _MEAN if wide else "", flops=wide)

    def made(count: int, width: int) -> Cost:
        rows = found.rows(count, width)
        updated = numel(rows.shape)
        kept = updated * place.per_element + updated // width * place.per_row
        state = fresh((kept,), "f32")
        return tally(
            Size(found.named, "rows") * Size(width, "width") + 4 * Size(updated, "updated"),
            read=[*read, rows, state],
            written=[rows, state],
            dtype=grad.dtype,
            params=f"rows={found.named},width={width},tables={found.tables},bags={found.bags}",
        )

    return _within(found, made)


def _without_lookup(grad: Tensor) -> Cost:
    count = counted(grad)
    rows = fresh((count,), grad.dtype)
    most = fresh((1024 * count,), grad.dtype)
    widest = tally(5 * counted(most), read=[grad, most, most], written=[most, most])
    return bounded(
        tally(5 * count, read=[grad, rows], written=[rows], dtype=grad.dtype),
        "rows updated not recorded: taken as one for each bag, at most 1024",
        flops=(0, widest.flops),
        traffic=(tally(0, read=[grad]).bytes, widest.bytes),
    )


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


@cost_with_evidence(
    "fbgemm::permute_2D_sparse_data", "fbgemm::permute_sparse_features",
    "fbgemm::permute_1D_sparse_data", "fbgemm::block_bucketize_sparse_features", category="index",
)  # fmt: skip
def permute_sparse(call: OpCall, evidence: Evidence) -> Cost:
    """Order, lengths (T, B), values, weights -> lengths and values in that order.

    bytes: all read and as much written. An order that names a table twice, or not at all, has
    more or fewer values: the bounds are none, and all for each that it names.
    """
    # Bucketizing has no order before its lengths and values.
    first = 0 if call.op.endswith("bucketize_sparse_features") else 1
    lengths, values = tensor(call, first), tensor(call, first + 1)
    order = tensor(call, 0) if first else None
    weights = maybe_tensor(call, 3) if first else None
    moved = result(evidence, values.dtype) or like(values)
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
    """Rows of each table, indices, offsets: read; written where they are wrong, assumed nowhere."""
    tables, indices, offsets = (tensor(call, at) for at in range(3))
    weights = maybe_tensor(call, 5)
    count = counted(indices)
    read = [tables, indices, offsets]
    cost = tally(0, read=read, params=f"N={count}")
    most = tally(0, read=[*read, weights], written=[indices, offsets])
    note = "all indices taken to be within their tables"
    return bounded(cost, note, traffic=(cost.bytes, most.bytes))


@cost_of(
    "fbgemm::asynchronous_complete_cumsum", "fbgemm::asynchronous_exclusive_cumsum",
    "fbgemm::asynchronous_inclusive_cumsum", "fb::asynchronous_complete_cumsum",
    category="reduce",
)  # fmt: skip
def cumsum(call: OpCall) -> Cost:
    """Lengths (n) -> their running sums, n + 1 of them: n additions; bytes: both."""
    x = tensor(call, 0)
    count = counted(x)
    out = fresh((count + (1 if "complete" in call.op else 0),), x.dtype)
    return tally(count, read=[x], written=[out], dtype=x.dtype, params=f"N={count}")


@cost_with_evidence("fb::offsets_range", "fbgemm::offsets_range", "fb::lengths_range",
                 "fb::lengths_range_w_truncation_size", category="index")  # fmt: skip
def offsets_range(call: OpCall, evidence: Evidence) -> Cost:
    """Offsets or lengths (n), total -> 0, 1, … for each: the input read, the total written.

    The total is the result's size, that of another input, or by value.
    """
    x, other = tensor(call, 0), maybe_tensor(call, 1)
    total = integer(call, 1)
    out = result(evidence, x.dtype) or (like(other, x.dtype) if other else None)
    if out is None and total is not None:
        out = fresh((total,), x.dtype)
    if out is None:
        refuse("the size of the result is not in the recording")
    return tally(0, read=[x], written=[out], params=f"N={numel(out.shape)}")


@cost_of("fb::convex_sum", category="reduce")
def convex_sum(call: OpCall) -> Cost:
    """x (b, k), weights (k, 1) -> (b, 1): a product and a sum, 2 flops for each element of x."""
    x, weights = tensor(call, 0), tensor(call, 1)
    out = fresh(x.shape[:1], x.dtype)
    return tally(2 * counted(x), read=[x, weights], written=[out], dtype=x.dtype)


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
    return tally(3 * counted(x), read=[x], written=[out], dtype=x.dtype)


@cost_of("fbgemm::FP8RowwiseQuantizedToFloat", category="elementwise")
def from_fp8_rows(call: OpCall) -> Cost:
    """x (…, n + 8) bytes -> (…, n) f32: 1 flop for each; bytes: both."""
    x = tensor(call, 0)
    *rows, width = x.shape
    out = fresh((*rows, max(width - 8, 0)), "f32")
    return tally(counted(out), read=[x], written=[out], dtype="f32")


@cost_of("fbgemm::FloatToHFP8Quantized", category="elementwise")
def to_hfp8(call: OpCall) -> Cost:
    """x f32 -> a byte each: scale, clamp, round: 3 flops each; bytes: both."""
    x = tensor(call, 0)
    return tally(3 * counted(x), read=[x], written=[like(x, "u8")], dtype=x.dtype)


@cost_of("fbgemm::HFP8QuantizedToFloat", category="elementwise")
def from_hfp8(call: OpCall) -> Cost:
    """x of a byte each -> f32: 1 flop each; bytes: both."""
    x = tensor(call, 0)
    return tally(counted(x), read=[x], written=[like(x, "f32")], dtype="f32")
