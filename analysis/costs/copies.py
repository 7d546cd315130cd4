"""Moving data: copies, casts, fills, concatenation, padding.

No FLOPs but where elements are added up. Bytes: what is read, and what is written, at its own
size and type; an op that fills only writes.
"""

from __future__ import annotations

import math
from typing import Final

from pyprof2.analysis.costs.operands import (
    ANY_DTYPE,
    bounded,
    count_text,
    counted,
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
    needed,
    numel,
    over_dtypes,
    refuse,
    result,
    scalars_recorded,
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
)
from pyprof2.signatures import OpCall, Tensor


@cost_of("aten::copy_", "aten::copy", "aten::_copy_from", category="copy")
def copy(call: OpCall) -> Cost:
    """Target, source: the source read at its own size and type, the target written."""
    target, source = tensor(call, 0), tensor(call, 1)
    return tally(read=[source], written=[target], params=count_text(target))


@cost_with_evidence("aten::_to_copy", category="copy")
def to_copy(call: OpCall, evidence: Evidence) -> Cost:
    """x, dtype, … -> x as that type: x read, the result written.

    Where the type is not recorded but others are, it stays; else between 1 and 16 bytes each.
    """
    x = tensor(call, 0)
    wanted = dtype_at(call, 1)
    if wanted is None and evidence.output is not None:
        wanted = evidence.output.dtype
    if wanted is not None or scalars_recorded(call):
        return tally(read=[x], written=[like(x, wanted)], params=count_text(x))
    least, most = (tally(read=[x], written=[like(x, dtype)]).bytes for dtype in ("i8", "c128"))
    same = tally(read=[x], written=[like(x)], params=count_text(x))
    note = "the element type of the result is not recorded: taken as before"
    return bounded(same, note, traffic=(least, most))


@cost_of("aten::to", "aten::type_as", category="copy")
def to(call: OpCall) -> Cost:
    """x, dtype or device and dtype or another tensor -> x as that type.

    bytes: x read and the result written where the type changes; else nothing moves: a copy to
    another device is an op inside.
    """
    x, other = tensor(call, 0), maybe_tensor(call, 1)
    wanted = other.dtype if other else dtype_at(call, 1) or dtype_at(call, 2)
    if wanted in (None, x.dtype):
        return tally(params=count_text(x))
    return tally(read=[x], written=[like(x, wanted)], params=count_text(x))


@cost_of("aten::contiguous", category="copy")
def contiguous(call: OpCall) -> Cost:
    """x -> x with its elements in order: read and written where they are not, else nothing.

    Without strides nothing moves either: then the copy would be an op inside.
    """
    x = tensor(call, 0)
    if x.strides is None or len(x.strides) != len(x.shape) or _in_order(x.shape, x.strides):
        return tally(params=count_text(x))
    return tally(read=[x], written=[like(x)], params=count_text(x))


def _in_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    step = 1
    for dim, stride in zip(reversed(shape), reversed(strides), strict=True):
        if dim != 1 and stride != step:
            return 0 in shape
        step *= dim
    return True


@cost_of(
    "aten::clone", "aten::flip", "aten::roll", "aten::rot90",
    "aten::_reshape_copy", "aten::view_copy", "aten::permute_copy", "aten::transpose_copy",
    "aten::t_copy", "aten::alias_copy", "aten::detach_copy", "aten::unsqueeze_copy",
    "aten::squeeze_copy", "aten::_pin_memory", "aten::pin_memory", "aten::lift_fresh_copy",
    "aten::channel_shuffle", "aten::native_channel_shuffle", "aten::pixel_shuffle",
    "aten::pixel_unshuffle", "aten::_conj_copy", "aten::_neg_view_copy",
    "aten::_local_scalar_dense", "aten::item",
    "aten::split_with_sizes_copy", "aten::split_copy", "aten::unbind_copy", "aten::fliplr",
    "aten::flipud", category="copy",
)  # fmt: skip
def clone(call: OpCall) -> Cost:
    """x -> x elsewhere, or in another order: x read, and as much written."""
    x = first_tensor(call)
    return tally(read=[x], written=[like(x)], params=count_text(x))


@cost_of(
    "aten::reshape", "aten::flatten", "aten::ravel", "aten::resolve_conj", "aten::resolve_neg",
    "aten::lift", category="copy",
)  # fmt: skip
def reshape(call: OpCall) -> Cost:
    """A view, or a copy by the ops inside; without ops inside it is a view: nothing moves."""
    return tally(params=count_text(first_tensor(call)))


@cost_of("aten::repeat", "aten::tile", category="copy")
def repeat(call: OpCall) -> Cost:
    """x, repeats -> x so many times: x read, the result written."""
    x = tensor(call, 0)
    times = needed(integers(call, 1), "the repeats are not in the recording")
    out = fresh((numel(x.shape) * numel(times),), x.dtype)
    return tally(read=[x], written=[out], params=count_text(out))


@cost_with_evidence("aten::repeat_interleave", category="copy")
def repeat_interleave(call: OpCall, evidence: Evidence) -> Cost:
    """x, repeats -> each element of x so often, which data decides.

    Known from the result, or from a repeat that is one number.
    """
    x = tensor(call, 0)
    times = integer(call, 1)
    out = result(evidence, x.dtype)
    if out is None and times is not None:
        out = fresh((numel(x.shape) * times,), x.dtype)
    if out is None:
        refuse("how often is data: the size of the result is not in the recording")
    return tally(read=[x, maybe_tensor(call, 1)], written=[out], params=count_text(out))


@cost_of("aten::fill_", "aten::zero_", "aten::fill", "aten::fill_diagonal_", category="copy")
def fill(call: OpCall) -> Cost:
    """x, number: x written, not read."""
    x = tensor(call, 0)
    if call.op == "aten::fill_diagonal_":
        x = fresh((min(x.shape),), x.dtype)
    return tally(written=[x], params=count_text(x))


_LIKE: Final = (
    "aten::zeros_like", "aten::ones_like", "aten::full_like", "aten::new_zeros",
    "aten::new_ones", "aten::new_full",
)  # fmt: skip
_MADE: Final = ("aten::zeros", "aten::ones", "aten::full")


@cost_with_evidence(*_LIKE, *_MADE, category="copy")
def filled(call: OpCall, evidence: Evidence) -> Cost:
    """Shape, or a tensor of it, dtype -> a new tensor: written, nothing read."""
    places = {"aten::full_like": 2, "aten::full": 2, "aten::new_full": 3, "aten::new_zeros": 2,
              "aten::new_ones": 2}  # fmt: skip
    x = maybe_tensor(call, 0)
    dtype = dtype_at(call, places.get(call.op, 1)) or (x.dtype if x else None)
    shape = integers(call, 1 if "new_" in call.op else 0)
    if call.op.endswith("_like"):
        shape = tensor(call, 0).shape
    if evidence.output is not None:
        shape, dtype = evidence.output.shape, evidence.output.dtype or dtype
    if shape is None:
        refuse("the shape is not in the recording")
    out = fresh(shape, dtype or "f32")
    return tally(written=[out], params=count_text(out))


@cost_of("aten::scalar_tensor", category="copy")
def scalar_tensor(call: OpCall) -> Cost:
    """A number, dtype -> a tensor of no dimensions: written."""
    return tally(written=[fresh((), dtype_at(call, 1) or "f32")])


@cost_with_evidence("aten::arange", "aten::range", "aten::linspace", category="copy")
def arange(call: OpCall, evidence: Evidence) -> Cost:
    """Start, end, step -> the numbers between: written, 8 bytes each for whole numbers, else 4."""
    if evidence.output is not None:
        out = fresh(evidence.output.shape, evidence.output.dtype or "i64")
        return tally(written=[out], params=count_text(out))
    numbers = [value(call, at) for at in range(_limits(call))]
    if not numbers or not all(isinstance(number, int | float) for number in numbers):
        refuse("the range is not in the recording")
    whole = call.op != "aten::linspace" and all(isinstance(number, int) for number in numbers)
    dtype = dtype_at(call, len(numbers)) or ("i64" if whole else "f32")
    if call.op == "aten::linspace":
        length = int(numbers[2])
    else:
        start, end, step = (0, *numbers, 1) if len(numbers) == 1 else (*numbers, 1)[:3]
        length = max(0, math.ceil((end - start) / step) + (call.op == "aten::range"))
    out = fresh((length,), dtype)
    return tally(written=[out], params=count_text(out))


def _limits(call: OpCall) -> int:
    """Return how many numbers the overload starts with; four inputs describe the result.

    Overloads with `out` have only the output after their numbers.
    """
    return len(call.inputs) - (4 if len(call.inputs) > 4 else 1)


@cost_with_evidence(
    "aten::cat", "aten::_cat", "aten::concat", "aten::concatenate", "aten::stack", "aten::_stack",
    "aten::hstack", "aten::vstack", "aten::column_stack", "aten::dstack", "aten::_chunk_cat",
    category="cat",
)  # fmt: skip
def cat(call: OpCall, evidence: Evidence) -> Cost:
    """Tensors -> one: all read, as much written, no FLOPs.

    Recordings have the shapes in a list, not its element types: those of the result where known,
    else f32 is assumed.
    """
    if not maybe_tensors(call, 0) and evidence.output is not None:
        out = fresh(evidence.output.shape, evidence.output.dtype)
        return tally(read=[out], written=[out], params=count_text(out))
    parts = tensors(call, 0)
    if evidence.output is not None and evidence.output.dtype is not None:
        parts = typed(parts, evidence.output.dtype)

    def make(dtype: str) -> Cost:
        known = typed(parts, dtype)
        out = fresh((sum(numel(part.shape) for part in known),), known[0].dtype)
        return tally(read=known, written=[out], params=count_text(out))

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
    x = tensor(call, 0)
    pads = needed(integers(call, 1), "the padding is not in the recording")
    shape = list(x.shape)
    kept = list(x.shape)
    for at in range(len(pads) // 2):
        before, after = pads[2 * at : 2 * at + 2]
        shape[-1 - at] += before + after
        kept[-1 - at] += min(before, 0) + min(after, 0)
    out = fresh(shape, x.dtype)
    source = x if reads_more else fresh((min(elements(x), numel(kept)),), x.dtype)
    return tally(read=[source], written=[out], params=count_text(out))


@cost_of(
    "aten::reflection_pad1d_backward", "aten::reflection_pad2d_backward",
    "aten::reflection_pad3d_backward", "aten::replication_pad1d_backward",
    "aten::replication_pad2d_backward", "aten::replication_pad3d_backward", category="copy",
)  # fmt: skip
def mirror_pad_backward(call: OpCall) -> Cost:
    """Grad, x -> gradient of x: each element of grad added to one: |grad| additions."""
    grad, x = tensor(call, 0), tensor(call, 1)
    return tally(counted(grad), read=[grad], written=[like(x)])


@cost_of("aten::tril", "aten::triu", "aten::tril_", "aten::triu_", category="copy")
def triangle(call: OpCall) -> Cost:
    """x -> one side of the diagonal, zeros on the other: x read, the result written."""
    x = tensor(call, 0)
    return tally(read=[x], written=[like(x)], params=count_text(x))


@cost_of("aten::slice_backward", "aten::select_backward", "aten::diagonal_backward",
         category="copy")  # fmt: skip
def slice_backward(call: OpCall) -> Cost:
    """Grad, sizes of the input -> zeros with grad in them: zeros and grad written, grad read.

    The sizes are recorded by value. Where they are not, the zeros are left out of the count.
    """
    grad = tensor(call, 0)
    sizes = needed(integers(call, 1), "the size of the input is not in the recording")
    out = fresh(sizes, grad.dtype)
    return tally(read=[grad], written=[out], params=count_text(out))


@cost_of("aten::unfold_backward", category="copy")
def unfold_backward(call: OpCall) -> Cost:
    """Grad (windows), sizes of the input -> gradient: each element of grad added to one."""
    grad = tensor(call, 0)
    sizes = needed(integers(call, 1), "the size of the input is not in the recording")
    return tally(counted(grad), read=[grad], written=[fresh(sizes, grad.dtype)])


@cost_of(
    "aten::slice_scatter", "aten::select_scatter", "aten::diagonal_scatter",
    "aten::as_strided_scatter", category="copy",
)  # fmt: skip
def slice_scatter(call: OpCall) -> Cost:
    """x, part -> x with the part in it: the rest of x and the part read, all written."""
    x, part = tensor(call, 0), tensor(call, 1)
    rest = fresh((max(numel(x.shape) - numel(part.shape), 0),), x.dtype)
    return tally(read=[rest, part], written=[like(x)], params=count_text(x))


@cost_of(
    "_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::reshape_and_cache", category="copy"
)
def reshape_and_cache(call: OpCall) -> Cost:
    """Key, value, their caches, slots: both read, both written in the caches' types."""
    key, value_, keys, values, slots = (tensor(call, at) for at in range(5))
    written = [like(key, keys.dtype), like(value_, values.dtype)]
    return tally(read=[key, value_, slots], written=written, params=count_text(key))


@cost_of("sglang::store_cache", "sgl_kernel::store_kv_cache", category="copy")
def store_cache(call: OpCall) -> Cost:
    """Key and value rows with their slots, and the caches: both read, both written.

    The caches come before or after; the rows are the smaller pair.
    """
    items = [item for item in call.inputs if isinstance(item, Tensor)]
    wide = sorted((item for item in items if len(item.shape) > 1), key=lambda t: numel(t.shape))
    slots = next((item for item in items if item.dtype and kind(item.dtype) == 1), None)
    rows = wide[:2]
    return tally(read=[*rows, slots], written=[like(row) for row in rows])


@cost_of(
    "torch.distributed.ddp.reducer::copy_bucket_to_grad", "torch::distributed::reducer::mul_out",
    category="copy",
)  # fmt: skip
def bucket(call: OpCall) -> Cost:
    """One tensor between a bucket and a gradient: read and written; scaling it is N products."""
    x = tensor(call, 0)
    flops = counted(x) if call.op.endswith("mul_out") else 0
    return tally(flops, read=[x], written=[like(x)], params=count_text(x))
