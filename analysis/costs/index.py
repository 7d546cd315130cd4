"""Moving data: copies, fills, concatenation, gathering and scattering, embeddings.

No FLOPs but where elements are added up. Bytes: an op that gathers reads the indices and only
the rows that they name, each time they name one; rows that are named twice may come from the
cache, so the lower bound is one of them. An op that fills only writes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from pyprof2.analysis.costs.operands import (
    ANY_DTYPE,
    bounded,
    broadcast,
    dtype_at,
    elements,
    first_tensor,
    fresh,
    integer,
    integers,
    kind,
    like,
    maybe_tensor,
    maybe_tensors,
    numel,
    over_dtypes,
    result,
    scalars_recorded,
    tally,
    tensor,
    tensors,
    total,
    typed,
    value,
)
from pyprof2.analysis.costs.registry import (
    Context,
    Cost,
    UnknownCostError,
    cost_in_context,
    cost_of,
)
from pyprof2.signatures import OpCall, Tensor


def _count(item: Tensor) -> str:
    return f"N={numel(item.shape)}"


@cost_of("aten::copy_", "aten::copy", "aten::_copy_from", category="copy")
def copy(call: OpCall) -> Cost:
    """Target, source: the source read at its own size and type, the target written."""
    target, source = tensor(call, 0), tensor(call, 1)
    return tally(0, read=[source], written=[target], params=_count(target))


@cost_in_context("aten::_to_copy", "aten::to", "aten::type_as", category="copy")
def to_copy(call: OpCall, context: Context) -> Cost:
    """x, dtype, … -> x as that type: x read, the result written.

    Where the type is not recorded but others are, it stays; else between 1 and 16 bytes each.
    `to` moves nothing if nothing changes; its formula holds where it has no op inside.
    """
    x = tensor(call, 0)
    wanted = dtype_at(call, 1)
    if call.op == "aten::type_as":
        wanted = (maybe_tensor(call, 1) or x).dtype
    if wanted is None and context.output is not None:
        wanted = context.output.dtype
    if wanted is not None or scalars_recorded(call):
        return tally(0, read=[x], written=[like(x, wanted)], params=_count(x))
    least, most = (tally(0, read=[x], written=[like(x, dtype)]).bytes for dtype in ("i8", "c128"))
    same = tally(0, read=[x], written=[like(x)], params=_count(x))
    note = "the element type of the result is not recorded: taken as before"
    return bounded(same, note, traffic=(least, most))


@cost_of(
    "aten::clone", "aten::contiguous", "aten::flip", "aten::roll", "aten::rot90",
    "aten::_reshape_copy", "aten::view_copy", "aten::permute_copy", "aten::transpose_copy",
    "aten::t_copy", "aten::alias_copy", "aten::detach_copy", "aten::unsqueeze_copy",
    "aten::squeeze_copy", "aten::_pin_memory", "aten::pin_memory", "aten::lift_fresh_copy",
    "aten::channel_shuffle", "aten::native_channel_shuffle", "aten::pixel_shuffle",
    "aten::pixel_unshuffle", "aten::_conj_copy", "aten::_neg_view_copy", "aten::lift",
    "aten::resolve_conj", "aten::resolve_neg", "aten::_local_scalar_dense", "aten::item",
    "aten::split_with_sizes_copy", "aten::split_copy", "aten::unbind_copy", "aten::fliplr",
    "aten::flipud", category="copy",
)  # fmt: skip
def clone(call: OpCall) -> Cost:
    """x -> x elsewhere, or in another order: x read, and as much written."""
    x = first_tensor(call)
    return tally(0, read=[x], written=[like(x)], params=_count(x))


@cost_of("aten::reshape", "aten::flatten", "aten::ravel", category="copy")
def reshape(call: OpCall) -> Cost:
    """A view, or a copy by the ops inside; without ops inside it is a view: nothing moves."""
    return tally(0, read=[], written=[], params=_count(first_tensor(call)))


@cost_of("aten::repeat", "aten::tile", category="copy")
def repeat(call: OpCall) -> Cost:
    """x, repeats -> x so many times: x read, the result written."""
    x, times = tensor(call, 0), integers(call, 1)
    if times is None:
        msg = "the repeats are not in the recording"
        raise UnknownCostError(msg)
    out = fresh((numel(x.shape) * numel(times),), x.dtype)
    return tally(0, read=[x], written=[out], params=_count(out))


@cost_in_context("aten::repeat_interleave", category="copy")
def repeat_interleave(call: OpCall, context: Context) -> Cost:
    """x, repeats -> each element of x so often, which data decides.

    Known from the result, or from a repeat that is one number.
    """
    x = tensor(call, 0)
    times = integer(call, 1)
    out = result(context, x.dtype)
    if out is None and times is not None:
        out = fresh((numel(x.shape) * times,), x.dtype)
    if out is None:
        msg = "how often is data: the size of the result is not in the recording"
        raise UnknownCostError(msg)
    return tally(0, read=[x, maybe_tensor(call, 1)], written=[out], params=_count(out))


@cost_of("aten::fill_", "aten::zero_", "aten::fill", "aten::fill_diagonal_", category="copy")
def fill(call: OpCall) -> Cost:
    """x, number: x written, not read."""
    x = tensor(call, 0)
    if call.op == "aten::fill_diagonal_":
        x = fresh((min(x.shape),), x.dtype)
    return tally(0, written=[x], params=_count(x))


_LIKE: Final = (
    "aten::zeros_like", "aten::ones_like", "aten::full_like", "aten::new_zeros",
    "aten::new_ones", "aten::new_full",
)  # fmt: skip
_MADE: Final = ("aten::zeros", "aten::ones", "aten::full")


@cost_in_context(*_LIKE, *_MADE, category="copy")
def filled(call: OpCall, context: Context) -> Cost:
    """Shape, or a tensor of it, dtype -> a new tensor: written, nothing read."""
    places = {"aten::full_like": 2, "aten::full": 2, "aten::new_full": 3, "aten::new_zeros": 2,
              "aten::new_ones": 2}  # fmt: skip
    x = maybe_tensor(call, 0)
    dtype = dtype_at(call, places.get(call.op, 1)) or (x.dtype if x else None)
    shape = integers(call, 1 if "new_" in call.op else 0)
    if call.op.endswith("_like"):
        shape = tensor(call, 0).shape
    if context.output is not None:
        shape, dtype = context.output.shape, context.output.dtype or dtype
    if shape is None:
        msg = "the shape is not in the recording"
        raise UnknownCostError(msg)
    out = fresh(shape, dtype or "f32")
    return tally(0, written=[out], params=_count(out))


@cost_of("aten::scalar_tensor", category="copy")
def scalar_tensor(call: OpCall) -> Cost:
    """A number, dtype -> a tensor of no dimensions: written."""
    return tally(0, written=[fresh((), dtype_at(call, 1) or "f32")])


@cost_in_context("aten::arange", "aten::range", "aten::linspace", category="copy")
def arange(call: OpCall, context: Context) -> Cost:
    """Start, end, step -> the numbers between: written, 8 bytes each for whole numbers, else 4."""
    if context.output is not None:
        out = fresh(context.output.shape, context.output.dtype or "i64")
        return tally(0, written=[out], params=_count(out))
    numbers = [value(call, at) for at in range(_limits(call))]
    if not numbers or not all(isinstance(number, int | float) for number in numbers):
        msg = "the range is not in the recording"
        raise UnknownCostError(msg)
    whole = call.op != "aten::linspace" and all(isinstance(number, int) for number in numbers)
    dtype = dtype_at(call, len(numbers)) or ("i64" if whole else "f32")
    out = fresh((_length(call.op, numbers),), dtype)
    return tally(0, written=[out], params=_count(out))


def _limits(call: OpCall) -> int:
    """Return how many numbers the overload starts with; four inputs describe the result.

    Overloads with `out` have only the output after their numbers.
    """
    return len(call.inputs) - (4 if len(call.inputs) > 4 else 1)


def _length(op: str, numbers: list[float]) -> int:
    if op == "aten::linspace":
        return int(numbers[2])
    start, end, step = (0, *numbers, 1) if len(numbers) == 1 else (*numbers, 1)[:3]
    return max(0, math.ceil((end - start) / step) + (op == "aten::range"))


@cost_in_context("aten::cat", "aten::_cat", "aten::concat", "aten::concatenate", "aten::stack",
                 "aten::_stack", "aten::hstack", "aten::vstack", "aten::column_stack", "aten::dstack",
                 "aten::_chunk_cat", category="cat")  # fmt: skip
def cat(call: OpCall, context: Context) -> Cost:
    """Tensors -> one: all read, as much written, no FLOPs.

    Recordings have the shapes in a list, not its element types: those of the result where known,
    else f32 is assumed.
    """
    if not maybe_tensors(call, 0) and context.output is not None:
        out = fresh(context.output.shape, context.output.dtype)
        return tally(0, read=[out], written=[out], params=_count(out))
    parts = tensors(call, 0)
    if context.output is not None and context.output.dtype is not None:
        parts = typed(parts, context.output.dtype)

    def make(dtype: str) -> Cost:
        known = typed(parts, dtype)
        out = fresh((sum(numel(part.shape) for part in known),), known[0].dtype)
        return tally(0, read=known, written=[out], params=_count(out))

    return over_dtypes(parts, make, ANY_DTYPE)


@cost_of("aten::constant_pad_nd", "aten::pad", category="copy")
def constant_pad(call: OpCall) -> Cost:
    """x, pads, the last dimension first -> a larger or smaller tensor: x read, result written."""
    return _padded(call, reads_more=False)


@cost_of(
    "aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d",
    "aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d",
    category="copy",
)  # fmt: skip
def mirror_pad(call: OpCall) -> Cost:
    """As `constant_pad_nd`: the border comes from x, which is read once."""
    return _padded(call, reads_more=True)


def _padded(call: OpCall, *, reads_more: bool) -> Cost:
    x, pads = tensor(call, 0), integers(call, 1)
    if pads is None:
        msg = "the padding is not in the recording"
        raise UnknownCostError(msg)
    shape = list(x.shape)
    kept = list(x.shape)
    for at in range(len(pads) // 2):
        before, after = pads[2 * at : 2 * at + 2]
        shape[-1 - at] += before + after
        kept[-1 - at] += min(before, 0) + min(after, 0)
    out = fresh(shape, x.dtype)
    source = x if reads_more or kept == list(x.shape) else fresh(kept, x.dtype)
    return tally(0, read=[source], written=[out], params=_count(out))


@cost_of(
    "aten::reflection_pad1d_backward", "aten::reflection_pad2d_backward",
    "aten::reflection_pad3d_backward", "aten::replication_pad1d_backward",
    "aten::replication_pad2d_backward", "aten::replication_pad3d_backward", category="copy",
)  # fmt: skip
def mirror_pad_backward(call: OpCall) -> Cost:
    """Grad, x -> gradient of x: each element of grad added to one: |grad| additions."""
    grad, x = tensor(call, 0), tensor(call, 1)
    return tally(numel(grad.shape), read=[grad], written=[like(x)], dtype=grad.dtype)


@cost_of("aten::tril", "aten::triu", "aten::tril_", "aten::triu_", category="copy")
def triangle(call: OpCall) -> Cost:
    """x -> one side of the diagonal, zeros on the other: x read, the result written."""
    x = tensor(call, 0)
    return tally(0, read=[x], written=[like(x)], params=_count(x))


@cost_of("aten::slice_backward", "aten::select_backward", "aten::diagonal_backward",
         category="copy")  # fmt: skip
def slice_backward(call: OpCall) -> Cost:
    """Grad, sizes of the input -> zeros with grad in them: zeros and grad written, grad read.

    The sizes are recorded by value. Where they are not, the zeros are left out of the count.
    """
    grad, sizes = tensor(call, 0), integers(call, 1)
    if sizes is None:
        msg = "the size of the input is not in the recording"
        raise UnknownCostError(msg)
    out = fresh(sizes, grad.dtype)
    return tally(0, read=[grad], written=[out], params=_count(out))


@cost_of("aten::unfold_backward", category="copy")
def unfold_backward(call: OpCall) -> Cost:
    """Grad (windows), sizes of the input -> gradient: each element of grad added to one."""
    grad, sizes = tensor(call, 0), integers(call, 1)
    if sizes is None:
        msg = "the size of the input is not in the recording"
        raise UnknownCostError(msg)
    return tally(
        numel(grad.shape), read=[grad], written=[fresh(sizes, grad.dtype)], dtype=grad.dtype
    )


@cost_of(
    "aten::slice_scatter", "aten::select_scatter", "aten::diagonal_scatter",
    "aten::as_strided_scatter", category="copy",
)  # fmt: skip
def slice_scatter(call: OpCall) -> Cost:
    """x, part -> x with the part in it: the rest of x and the part read, all written."""
    x, part = tensor(call, 0), tensor(call, 1)
    rest = fresh((max(numel(x.shape) - numel(part.shape), 0),), x.dtype)
    return tally(0, read=[rest, part], written=[like(x)], params=_count(x))


def _gathered(
    rows: int, source: Tensor, row: int, index: Tensor | None, out: Tensor, flops: int = 0
) -> Cost:
    """Read `rows` rows of `row` elements, with their indices, and write the result.

    Never more rows than the source has are needed; the bounds are one row, and each anew.
    """
    needed = min(rows * row, elements(source))
    cost, least, most = (
        tally(
            flops,
            read=[fresh((count,), source.dtype), index],
            written=[out],
            dtype=source.dtype,
            params=f"rows={rows},width={row}",
        )
        for count in (needed, min(row, needed), rows * row)
    )
    return bounded(cost, traffic=(least.bytes, most.bytes))


@cost_in_context("aten::index_select", category="index")
def index_select(call: OpCall, context: Context) -> Cost:
    """x, dim, index (n) -> the rows of x at the indices: bytes: index, those rows, result."""
    x, index = tensor(call, 0), tensor(call, 2)
    dim, count = integer(call, 1), numel(index.shape)
    if len(x.shape) < 2:
        width: int | None = 1
    elif dim is not None:
        width = numel(x.shape) // max(x.shape[dim], 1)
    else:
        known = context.output
        width = numel(known.shape) // max(count, 1) if known else None
    if width is None:
        msg = "the dimension is not in the recording"
        raise UnknownCostError(msg)
    return _gathered(count, x, width, index, fresh((count, width), x.dtype))


@cost_of("aten::gather", "aten::take", "aten::take_along_dim", category="index")
def gather(call: OpCall) -> Cost:
    """x, dim, index -> the elements at the indices: bytes: the index, those elements, the result.

    Of x only what the index names, whatever the size of x. `take` has no dimension.
    """
    x = tensor(call, 0)
    index = next(item for item in call.inputs[1:] if isinstance(item, Tensor))
    return _gathered(numel(index.shape), x, 1, index, like(index, x.dtype or "none"))


@cost_of("fb::fast_gather", category="index")
def fast_gather(call: OpCall) -> Cost:
    """x, index -> the elements at the indices: as `gather`."""
    return gather(call)


@cost_in_context("aten::index", "aten::_unsafe_index", category="index")
def index(call: OpCall, context: Context) -> Cost:
    """x, list of indices -> the elements they name: bytes: those elements, the indices, the result.

    Kineto records nothing of the list, so the result must be known from elsewhere: the indices
    are then taken to be one i64 for each row.
    """
    x = tensor(call, 0)
    given = list(maybe_tensors(call, 1))
    if given and context.output is None and len(given) <= len(x.shape):
        return _indexed(x, given)
    if context.output is None:
        msg = "the indices are not in the recording, nor is the size of the result"
        raise UnknownCostError(msg)
    out = fresh(context.output.shape, x.dtype)
    count = numel(out.shape)
    cost = _gathered(count, x, 1, None, out)
    most = None if cost.bytes_hi is None else cost.bytes_hi + 8 * count * len(x.shape)
    return bounded(cost, _NO_INDICES, traffic=(cost.bytes_lo, most))


_NO_INDICES: Final = "the indices are not recorded: their own bytes are left out"


def _indexed(x: Tensor, given: list[Tensor]) -> Cost:
    """Return the cost where one index tensor after another replaces the first dimensions."""
    shape = broadcast(*(item.shape for item in given))
    masks = [item for item in given if item.dtype in ("bool", "u8")]
    if masks or any(item.dtype is None for item in given):
        given = list(typed(given, "i64"))
    if masks:
        msg = "a mask picks the elements: how many is data"
        raise UnknownCostError(msg)
    width = numel(x.shape[len(given) :])
    out = fresh((*shape, width), x.dtype)
    cost = _gathered(numel(shape), x, width, None, out)
    return _with(cost, list(given), [])


@cost_of(
    "aten::index_put_", "aten::index_put", "aten::_index_put_impl_", "aten::_unsafe_index_put",
    category="index",
)  # fmt: skip
def index_put(call: OpCall) -> Cost:
    """x, list of indices, values, accumulate: the values written to the places in x.

    flops: one addition each where it accumulates. bytes: the values read and written, read from x
    too where it accumulates; out of place also x read and written. Kineto records nothing of the
    indices: from none to an i64 per value and dimension.
    """
    x = tensor(call, 0)
    values = tensor(call, 2)
    adds = value(call, 3) is True
    count = numel(values.shape)
    read, written = _placed(call.op, x, count, adds=adds)
    indices = maybe_tensors(call, 1)
    known = bool(indices) and all(item.dtype for item in indices)
    cost = tally(
        count if adds else 0,
        read=[values, *read, *(indices if known else ())],
        written=written,
        dtype=x.dtype,
        params=_count(values),
    )
    if known or cost.bytes is None:
        return cost
    most = cost.bytes + count * 8 * max(len(x.shape), 1) + (total([fresh((count,), x.dtype)]) or 0)
    return bounded(cost, _NO_INDICES, flops=(0, count), traffic=(cost.bytes, most))


def _placed(op: str, x: Tensor, count: int, *, adds: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Return what is read of x and what is written when `count` of its elements change.

    In place: those elements, read only where something is added to them. Else all are written,
    and those that stay, or all where something is added, are read.
    """
    changed = fresh((count,), x.dtype)
    if op.endswith("_"):
        return ([changed] if adds else []), [changed]
    stays = x if adds else fresh((max(numel(x.shape) - count, 0),), x.dtype)
    return [stays], [like(x)]


_SCATTER: Final = (
    "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill",
    "index_reduce", "put",
)  # fmt: skip


@cost_of(*(f"aten::{name}{end}" for name in _SCATTER for end in ("", "_")), category="index")
def scatter(call: OpCall) -> Cost:
    """x, dim, index, source (or number): elements of the source written to places in x.

    flops: one addition for each where they add up. bytes: index and source read, as many elements
    of x written, and read where they add up; out of place also x read and written.
    """
    x, index_, source = _scattered(call)
    name = call.op.removeprefix("aten::").rstrip("_")
    adds = name in ("scatter_add", "scatter_reduce", "index_add", "index_reduce")
    count = numel(source.shape) if source is not None else _filled(call, x, index_)
    if name.startswith("scatter"):
        count = numel(index_.shape)
    taken = None if source is None else fresh((min(count, elements(source)),), source.dtype)
    read, written = _placed(call.op, x, count, adds=adds)
    return tally(
        count if adds else 0,
        read=[index_, taken, *read],
        written=written,
        dtype=x.dtype,
        params=f"N={count}",
    )


def _scattered(call: OpCall) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return x, the index and the source, if that is a tensor with dimensions."""
    x = tensor(call, 0)
    items = [item for item in call.inputs[1:] if isinstance(item, Tensor)]
    if not items:
        msg = "the index has no shape in the recording"
        raise UnknownCostError(msg)
    return x, items[0], items[1] if len(items) > 1 and items[1].shape else None


def _filled(call: OpCall, x: Tensor, index_: Tensor) -> int:
    """Return how many elements `index_fill` writes."""
    dim = integer(call, 1)
    if len(x.shape) < 2:
        return numel(index_.shape)
    if dim is None:
        msg = "the dimension is not in the recording"
        raise UnknownCostError(msg)
    return numel(index_.shape) * (numel(x.shape) // max(x.shape[dim], 1))


@cost_of("aten::index_select_backward", "aten::gather_backward",
         "aten::value_selecting_reduction_backward", category="index")  # fmt: skip
def gather_backward(call: OpCall) -> Cost:
    """Grad, …, index -> zeros with grad added at the indices: grad and index read.

    flops: one addition for each element of grad. bytes: as `scatter_add`, and the zeros, which
    take the size of the input: recorded by value or as a tensor.
    """
    grad = tensor(call, 0)
    items = [item for item in call.inputs[1:] if isinstance(item, Tensor)]
    index_ = items[-1] if items else None
    lists = [integers(call, at) for at in range(1, len(call.inputs))]
    sizes = next((found for found in lists if found and len(found) > 1), None)
    shape = items[0].shape if len(items) > 1 else sizes
    if shape is None or index_ is None:
        msg = "the size of the input is not in the recording"
        raise UnknownCostError(msg)
    out = fresh(shape, grad.dtype)
    return tally(numel(grad.shape), read=[grad, index_], written=[out], dtype=grad.dtype)


@cost_in_context("aten::nonzero", "aten::argwhere", category="index")
def nonzero(call: OpCall, context: Context) -> Cost:
    """x -> the places of elements that are not zero: how many is data.

    bytes: x, and 8 for each dimension of each found; none is assumed, all are the upper bound.
    """
    x = tensor(call, 0)
    shapes = [(0,), (numel(x.shape), len(x.shape))]
    if context.output is not None:
        out = fresh(context.output.shape, "i64")
        return tally(numel(x.shape), read=[x], written=[out], params=_count(x))
    least, most = (
        tally(numel(x.shape), read=[x], written=[fresh(shape, "i64")], params=_count(x))
        for shape in shapes
    )
    return bounded(least, "how many is data: taken as none", traffic=(least.bytes, most.bytes))


@cost_in_context("aten::masked_select", category="index")
def masked_select(call: OpCall, context: Context) -> Cost:
    """x, mask -> the elements under the mask: how many is data.

    bytes: mask, those elements read and written; all are assumed unless the result is known.
    """
    x, mask = tensor(call, 0), tensor(call, 1)
    known = context.output
    count = numel(known.shape) if known else numel(x.shape)
    picked = fresh((count,), x.dtype)
    cost = tally(0, read=[picked, mask], written=[picked], params=_count(x))
    if known:
        return cost
    least = tally(0, read=[mask])
    note = "how many is data: taken as all"
    return bounded(cost, note, traffic=(least.bytes, cost.bytes))


@cost_of("aten::masked_scatter", "aten::masked_scatter_", category="index")
def masked_scatter(call: OpCall) -> Cost:
    """x, mask, source: the source's elements written where the mask is set; how many is data.

    bytes: mask, source, x read where it stays, all of x written; a source longer than x is not
    needed whole.
    """
    x, mask, source = (tensor(call, at) for at in range(3))
    used = fresh((min(numel(source.shape), numel(x.shape)),), source.dtype)
    cost = tally(0, read=[mask, used], written=[x], params=_count(x))
    least = tally(0, read=[mask])
    more = tally(0, read=[mask, used, x], written=[x])
    return bounded(cost, "how many is data: taken as all", traffic=(least.bytes, more.bytes))


@cost_of("aten::embedding", category="embedding")
def embedding(call: OpCall) -> Cost:
    """Weight (v, d), indices -> (…, d): bytes: indices, a row for each, result; no FLOPs."""
    weight, indices = tensor(call, 0), tensor(call, 1)
    count, width = numel(indices.shape), weight.shape[1]
    out = fresh((*indices.shape, width), weight.dtype)
    return _gathered(count, weight, width, indices, out)


@cost_in_context("aten::embedding_dense_backward", "aten::embedding_backward", category="embedding")
def embedding_backward(call: OpCall, context: Context) -> Cost:
    """Grad (…, d), indices, number of rows v -> gradient (v, d), all of it written.

    flops: one addition for each element of grad. bytes: grad, indices, the whole gradient.
    """
    grad, indices = tensor(call, 0), tensor(call, 1)
    rows = integer(call, 2)
    if rows is None and context.forward is not None:
        rows = tensor(context.forward, 0).shape[0]
    if rows is None:
        msg = "the number of rows is not in the recording, nor is the forward op"
        raise UnknownCostError(msg)
    width = grad.shape[-1]
    out = fresh((rows, width), grad.dtype)
    params = f"rows={numel(indices.shape)},width={width},table={rows}"
    flops = numel(grad.shape)
    return tally(flops, read=[grad, indices], written=[out], dtype=grad.dtype, params=params)


@cost_of(
    "aten::_embedding_bag", "aten::_embedding_bag_forward_only", "aten::embedding_bag",
    category="embedding",
)  # fmt: skip
def embedding_bag(call: OpCall) -> Cost:
    """Weight (v, d), indices (n), offsets (b) or bags (b, n/b), …, weights (n) -> (b, d).

    flops: n·d additions, and as many products with weights. bytes: a row for each index, indices,
    offsets, weights, the result; and for each index and bag 8 bytes kept for backward.
    """
    weight, indices, offsets = (tensor(call, at) for at in range(3))
    scales = maybe_tensor(call, 6)
    count, width = numel(indices.shape), weight.shape[1]
    bags = numel(offsets.shape) - (value(call, 7) is True)
    out = fresh((bags, width), weight.dtype)
    flops = count * width * (1 if scales is None else 2)
    cost = _gathered(count, weight, width, indices, out, flops)
    return _with(cost, [offsets, scales], [fresh((count + bags,), "i64")])


def _with(cost: Cost, read: list[Tensor | None], written: list[Tensor]) -> Cost:
    """Return the cost with more tensors read and written, in the bounds too."""
    more, out = total(read), total(written)
    if more is None or out is None or cost.bytes_read is None or cost.bytes_written is None:
        return replace(cost, bytes_read=None, bytes_written=None, bytes_lo=None, bytes_hi=None)
    return replace(
        cost,
        bytes_read=cost.bytes_read + more,
        bytes_written=cost.bytes_written + out,
        bytes_lo=None if cost.bytes_lo is None else cost.bytes_lo + more + out,
        bytes_hi=None if cost.bytes_hi is None else cost.bytes_hi + more + out,
    )


@cost_of("aten::_embedding_bag_dense_backward", category="embedding")
def embedding_bag_backward(call: OpCall) -> Cost:
    """Grad (b, d), indices (n), bag of each (n), sizes, maxima, number of rows v -> (v, d).

    flops: n·d additions, products with weights as many. bytes: grad once, indices and bags, the
    whole gradient written.
    """
    grad, indices, bags = (tensor(call, at) for at in range(3))
    rows = integer(call, 5)
    if rows is None:
        msg = "the number of rows is not in the recording"
        raise UnknownCostError(msg)
    scales = maybe_tensor(call, 8)
    width = grad.shape[-1]
    flops = numel(indices.shape) * width * (1 if scales is None else 2)
    out = fresh((rows, width), grad.dtype)
    return tally(flops, read=[grad, indices, bags, scales], written=[out], dtype=grad.dtype)


@cost_of("aten::one_hot", category="index")
def one_hot(call: OpCall) -> Cost:
    """Indices, classes -> (…, classes) of i64: indices read, the result written."""
    indices, classes = tensor(call, 0), integer(call, 1)
    if classes is None or classes < 0:
        msg = "the number of classes is data, or not in the recording"
        raise UnknownCostError(msg)
    out = fresh((*indices.shape, classes), "i64")
    return tally(0, read=[indices], written=[out], params=_count(out))


@cost_of(
    "_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::reshape_and_cache", category="copy"
)
def reshape_and_cache(call: OpCall) -> Cost:
    """Key, value, their caches, slots: both read, both written in the caches' types."""
    key, value_, keys, values, slots = (tensor(call, at) for at in range(5))
    written = [like(key, keys.dtype), like(value_, values.dtype)]
    return tally(0, read=[key, value_, slots], written=written, params=_count(key))


@cost_of("sglang::store_cache", "sgl_kernel::store_kv_cache", category="copy")
def store_cache(call: OpCall) -> Cost:
    """Key and value rows with their slots, and the caches: both read, both written.

    The caches come before or after; the rows are the smaller pair.
    """
    items = [item for item in call.inputs if isinstance(item, Tensor)]
    wide = sorted((item for item in items if len(item.shape) > 1), key=lambda t: numel(t.shape))
    slots = next((item for item in items if item.dtype and kind(item.dtype) == 1), None)
    rows = wide[:2]
    return tally(0, read=[*rows, slots], written=[like(row) for row in rows])


@cost_of(
    "torch.distributed.ddp.reducer::copy_bucket_to_grad", "torch::distributed::reducer::mul_out",
    category="copy",
)  # fmt: skip
def bucket(call: OpCall) -> Cost:
    """One tensor between a bucket and a gradient: read and written; scaling it is N products."""
    x = tensor(call, 0)
    flops = numel(x.shape) if call.op.endswith("mul_out") else 0
    return tally(flops, read=[x], written=[like(x)], dtype=x.dtype, params=_count(x))
