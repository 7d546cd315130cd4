"""Gathering and scattering elements and rows.

No FLOPs but where elements are added up. Bytes: an op that gathers reads the indices and only
the rows that they name, each time they name one; rows that are named twice may come from the
cache, so the lower bound is one of them. In place, only what changes is written.
"""

from __future__ import annotations

from typing import Final

from pyprof2.analysis.costs.operands import (
    bounded,
    broadcast,
    count_text,
    counted,
    elements,
    first_tensor,
    flag,
    fresh,
    integer,
    integers,
    like,
    maybe_tensors,
    numel,
    refuse,
    scalars_recorded,
    spanning,
    tally,
    tensor,
    typed,
    with_more,
)
from pyprof2.analysis.costs.pointwise import masked_fill
from pyprof2.analysis.costs.registry import (
    Cost,
    Evidence,
    cost_of,
    cost_with_evidence,
)
from pyprof2.signatures import OpCall, Tensor


def gathered(
    rows: int, source: Tensor, row: int, index: Tensor | None, out: Tensor, flops: int = 0
) -> Cost:
    """Read `rows` rows of `row` elements, with their indices, and write the result.

    Assumed: no row is named twice, but that the source has no more. The bounds are one row, and
    each anew.
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
    return bounded(cost, AS_FEW, traffic=(least.bytes, most.bytes))


AS_FEW: Final = "what is named more than once is not recorded: taken to be as little as can be"


@cost_with_evidence("aten::index_select", category="index")
def index_select(call: OpCall, evidence: Evidence) -> Cost:
    """x, dim, index (n) -> the rows of x at the indices: bytes: index, those rows, result."""
    x, index = tensor(call, 0), tensor(call, 2)
    dim, count = integer(call, 1), numel(index.shape)
    if len(x.shape) < 2:
        width: int | None = 1
    elif dim is not None:
        width = numel(x.shape) // max(x.shape[dim], 1)
    else:
        known = evidence.output
        width = numel(known.shape) // max(count, 1) if known else None
    if width is None:
        refuse("the dimension is not in the recording")
    return gathered(count, x, width, index, fresh((count, width), x.dtype))


@cost_of("aten::gather", "aten::take", "aten::take_along_dim", category="index")
def gather(call: OpCall) -> Cost:
    """x, dim, index -> the elements at the indices: bytes: the index, those elements, the result.

    Only the elements of x that the index names count. `take` has no dimension.
    """
    x = tensor(call, 0)
    index = first_tensor(OpCall(call.op, call.inputs[1:]))
    return gathered(numel(index.shape), x, 1, index, fresh(index.shape, x.dtype))


@cost_of("fb::fast_gather", category="index")
def fast_gather(call: OpCall) -> Cost:
    """x, index -> the elements at the indices: as `gather`."""
    return gather(call)


@cost_with_evidence("aten::index", "aten::_unsafe_index", category="index")
def index(call: OpCall, evidence: Evidence) -> Cost:
    """x, list of indices -> the elements they name: bytes: those elements, the indices, the result.

    Kineto records nothing of the list: the ops inside show the result and the indices.
    """
    x = tensor(call, 0)
    given = list(maybe_tensors(call, 1))
    if given and evidence.output is None and len(given) <= len(x.shape):
        return _indexed(x, given)
    if evidence.output is None:
        refuse("the indices are not in the recording, nor is the size of the result")
    out = fresh(evidence.output.shape, x.dtype)
    count = counted(out)
    cost = gathered(count, x, 1, None, out)
    indices = given or evidence.indices
    if indices and all(item.dtype in _MASKS for item in indices):  # which name nothing twice
        cost = tally(0, read=[out], written=[out], dtype=x.dtype, params=cost.params)
    if indices and all(item.dtype for item in indices):
        return with_more(cost, list(indices), [])
    most = None if cost.bytes_hi is None else cost.bytes_hi + 8 * count * len(x.shape)
    return bounded(cost, _NO_INDICES, traffic=(cost.bytes_lo, most))


_MASKS: Final = ("bool", "u8")
_NO_INDICES: Final = "the indices are not recorded: their own bytes are left out"


def _indexed(x: Tensor, given: list[Tensor]) -> Cost:
    """Return the cost where one index tensor after another replaces the first dimensions."""
    shape = broadcast(*(item.shape for item in given))
    masks = [item for item in given if item.dtype in _MASKS]
    if masks or any(item.dtype is None for item in given):
        given = list(typed(given, "i64"))
    if masks:
        refuse("a mask picks the elements: how many is data")
    width = numel(x.shape[len(given) :])
    out = fresh((*shape, width), x.dtype)
    cost = gathered(numel(shape), x, width, None, out)
    return with_more(cost, list(given), [])


@cost_with_evidence(
    "aten::index_put_", "aten::index_put", "aten::_index_put_impl_", "aten::_unsafe_index_put",
    category="index",
)  # fmt: skip
def index_put(call: OpCall, evidence: Evidence) -> Cost:
    """x, list of indices, values, accumulate: the values written to the places in x.

    flops: one addition each where it accumulates. bytes: the values and indices read, n elements
    of x written, and read where it accumulates; n is how many places there are, but no more than
    x has. Out of place x is read and written besides. Kineto records nothing of the indices: the
    ops inside may show them, and n; else n is as many as the values, at least, and each index
    from none to an i64 per place.
    """
    x, values = tensor(call, 0), tensor(call, 2)
    indices = maybe_tensors(call, 1) or evidence.indices
    if not all(item.dtype for item in indices):
        indices = ()
    count = counted(values)
    if count == 1 and [item.dtype for item in indices] == ["bool"]:
        return masked_fill(OpCall("aten::masked_fill_", (x, indices[0], values)))
    adds, may_add = flag(call, 3) is True, flag(call, 3) is None and not scalars_recorded(call)
    is_known = evidence.output is not None
    named = counted(evidence.output) if evidence.output is not None else count
    most = named if is_known else max(named, numel(x.shape))

    def made(places: int, *, adds: bool) -> Cost:
        read, written = _placed(call.op, x, places, adds=adds)
        return tally(
            named if adds else 0,
            read=[values, *read, *indices],
            written=written,
            dtype=x.dtype,
            params=f"N={named}",
        )

    least, highest = made(min(named, 1), adds=adds), made(most, adds=adds or may_add)
    notes = (
        "" if is_known or count >= numel(x.shape) else _NO_COUNT,
        _NO_FLAG if may_add else "",
        "" if indices else _NO_INDICES,
    )
    hidden = 0 if indices else 8 * most * max(len(x.shape), 1)
    return bounded(
        made(min(named, numel(x.shape)), adds=adds),
        "; ".join(filter(None, notes)) or AS_FEW,
        flops=(named if adds else 0, most if adds or may_add else 0),
        traffic=(least.bytes, None if highest.bytes is None else highest.bytes + hidden),
    )


_NO_COUNT: Final = "whether values are repeated is not recorded: taken not to be"
_NO_FLAG: Final = "whether it adds is not recorded: taken not to"


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
    of x written, and read where they add up, but no more than x has; out of place also x read and
    written. Assumed: no place is named twice, but that x has no more. The bounds are the places
    of one index, and each anew.
    """
    x = tensor(call, 0)
    items = [item for item in call.inputs[1:] if isinstance(item, Tensor)]
    if not items:
        refuse("the index has no shape in the recording")
    index_ = items[0]
    source = items[1] if len(items) > 1 and items[1].shape else None  # else it is a number
    name = call.op.removeprefix("aten::").rstrip("_")
    adds = name in ("scatter_add", "scatter_reduce", "index_add", "index_reduce")
    count = counted(source) if source is not None else _filled(call, x, index_)
    if name.startswith("scatter"):
        count = counted(index_)
    taken = None if source is None else fresh((min(count, elements(source)),), source.dtype)

    def made(places: int) -> Cost:
        read, written = _placed(call.op, x, places, adds=adds)
        return tally(
            count if adds else 0,
            read=[index_, taken, *read],
            written=written,
            dtype=x.dtype,
            params=f"N={count}",
        )

    one = 1 if name.startswith(("scatter", "put")) else count // max(numel(index_.shape), 1)
    few = min(count, numel(x.shape))
    # Out of place more places are less to read: the fewest are not always the lower bound.
    return spanning(made(few), made(one), made(count), assumed=AS_FEW)


def _filled(call: OpCall, x: Tensor, index_: Tensor) -> int:
    """Return how many elements `index_fill` writes."""
    dim = integer(call, 1)
    if len(x.shape) < 2:
        return numel(index_.shape)
    if dim is None:
        refuse("the dimension is not in the recording")
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
        refuse("the size of the input is not in the recording")
    out = fresh(shape, grad.dtype)
    return tally(counted(grad), read=[grad, index_], written=[out], dtype=grad.dtype)


@cost_with_evidence("aten::nonzero", "aten::argwhere", category="index")
def nonzero(call: OpCall, evidence: Evidence) -> Cost:
    """x -> the places of elements that are not zero: how many is data.

    bytes: x, and 8 for each dimension of each found; none is assumed, all are the upper bound.
    """
    x = tensor(call, 0)
    shapes = [(0,), (numel(x.shape), len(x.shape))]
    if evidence.output is not None:
        out = fresh(evidence.output.shape, "i64")
        return tally(counted(x), read=[x], written=[out], params=count_text(x))
    least, most = (
        tally(counted(x), read=[x], written=[fresh(shape, "i64")], params=count_text(x))
        for shape in shapes
    )
    return spanning(least, most, assumed="how many is data: taken as none")


@cost_with_evidence("aten::masked_select", category="index")
def masked_select(call: OpCall, evidence: Evidence) -> Cost:
    """x, mask -> the elements under the mask: how many is data.

    bytes: mask, those elements read and written; all are assumed unless the result is known.
    """
    x, mask = tensor(call, 0), tensor(call, 1)
    known = evidence.output
    count = numel(known.shape) if known else numel(x.shape)
    picked = fresh((count,), x.dtype)
    cost = tally(0, read=[picked, mask], written=[picked], params=count_text(x))
    if known:
        return cost
    return spanning(cost, tally(0, read=[mask]), assumed="how many is data: taken as all")


@cost_of("aten::masked_scatter", "aten::masked_scatter_", category="index")
def masked_scatter(call: OpCall) -> Cost:
    """x, mask, source: the source's elements written where the mask is set; how many is data.

    bytes: mask, source, x read where it stays, all of x written; a source longer than x is not
    needed whole.
    """
    x, mask, source = (tensor(call, at) for at in range(3))
    used = fresh((min(numel(source.shape), numel(x.shape)),), source.dtype)
    cost = tally(0, read=[mask, used], written=[x], params=count_text(x))
    least = tally(0, read=[mask])
    more = tally(0, read=[mask, used, x], written=[x])
    return spanning(cost, least, more, assumed="how many is data: taken as all")


@cost_of("aten::one_hot", category="index")
def one_hot(call: OpCall) -> Cost:
    """Indices, classes -> (…, classes) of i64: indices read, the result written."""
    indices, classes = tensor(call, 0), integer(call, 1)
    if classes is None or classes < 0:
        refuse("the number of classes is data, or not in the recording")
    out = fresh((*indices.shape, classes), "i64")
    return tally(0, read=[indices], written=[out], params=count_text(out))
