"""The result and the indices of an op, found in the views that are made of them.

Recordings have the inputs of ops, not their results, and nothing of a list of indices. But ops
make views of their results and of their indices, and the inputs of those views are recorded: at
the calls inside the op, and at the one right after it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyprof2.analysis.costs.operands import fresh, integers, maybe_tensor, numel
from pyprof2.analysis.costs.registry import NO_EVIDENCE, Evidence
from pyprof2.signatures import OpCall, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

_INDEXING: Final = frozenset({"aten::index", "aten::_unsafe_index", "aten::_index_put_impl_"})
REDUCING_OPS: Final = frozenset(
    {
        "aten::sum", "aten::mean", "aten::prod", "aten::nansum", "aten::amax", "aten::amin",
        "aten::any", "aten::all", "aten::var", "aten::std", "aten::argmax", "aten::argmin",
        "aten::linalg_vector_norm", "aten::norm", "aten::max", "aten::min",
    }
)  # fmt: skip
"""The ops whose result may be viewed by the call after them."""
_PACKED: Final = frozenset({"quantized::linear_dynamic", "quantized::linear_relu_dynamic"})
"""The ops with packed weights, which have no shape: the result that they allocate has one."""
VIEWED_OPS: Final = _INDEXING | REDUCING_OPS | _PACKED
"""The ops whose result or indices are viewed by the calls inside them."""

_VIEWS: Final = frozenset({"aten::view", "aten::reshape", "aten::_reshape_alias"})
_MASKS: Final = frozenset({"bool", "u8"})
_NARROW: Final = frozenset({"i8", "i16", "i32"})
_SORTING: Final = frozenset({"aten::remainder", "aten::sort", "aten::divide_", "aten::arange"})
"""The ops that sort the places where an op adds up values in an order that is always the same."""


def seen_in_views(call: OpCall, inside: Sequence[OpCall], after: OpCall | None = None) -> Evidence:
    """Return result and indices of `call` as far as other calls view them.

    Args:
        call: the op.
        inside: the calls directly inside it, in order.
        after: the call that follows it inside the same op.
    """
    x = next((item for item in call.inputs if isinstance(item, Tensor)), None)
    if x is None:
        return NO_EVIDENCE
    if call.op in _INDEXING:
        return Evidence(output=_indexed(x, inside), indices=_indices(inside))
    if call.op in _PACKED:
        # The first tensor that is allocated inside, if it can be rows of the input's.
        sizes = (integers(other, 0) for other in inside if other.op == "aten::empty")
        found = next((size for size in sizes if size and len(size) == len(x.shape)), None)
        fits = found and found[:-1] == x.shape[:-1]
        return Evidence(output=fresh(found, x.dtype) if found and fits else None)
    if call.op in REDUCING_OPS:
        return Evidence(output=_reduced(x, inside) or _kept(x, after))
    return NO_EVIDENCE


def _indexed(x: Tensor, inside: Sequence[OpCall]) -> Tensor | None:
    """Indexing gives its input the shape of what is indexed first: `as_strided`, size by value."""
    for other in inside:
        seen, size = maybe_tensor(other, 0), integers(other, 1)
        if other.op == "aten::as_strided" and seen and seen.shape == x.shape:
            return None if size is None else Tensor(size, x.dtype)
    return None


def _reduced(x: Tensor, inside: Sequence[OpCall]) -> Tensor | None:
    """A reduction gives its result, first of its input's rank, the rank it shall have."""
    for other in inside:
        seen = maybe_tensor(other, 0)
        if other.op == "aten::as_strided" and seen and len(seen.shape) < len(x.shape):
            return seen if numel(seen.shape) <= numel(x.shape) else None
    return None


def _kept(x: Tensor, after: OpCall | None) -> Tensor | None:
    """A result that keeps its dimensions is viewed without them next: `sum` to a bias' shape."""
    seen = None if after is None or after.op not in _VIEWS else maybe_tensor(after, 0)
    if seen is None or seen.dtype != x.dtype or len(seen.shape) != len(x.shape):
        return None
    fits = all(new in (1, old) for new, old in zip(seen.shape, x.shape, strict=True))
    return fresh(seen.shape, None) if fits and (seen.shape != x.shape or 1 in x.shape) else None


def _indices(inside: Sequence[OpCall]) -> tuple[Tensor, ...]:
    """Return the index tensors as they were given; none where that is not certain.

    Each is expanded, which its strides show, and reshaped; where places may be named twice and
    are sorted, each is wrapped by `remainder` before all are made one. A mask is made into one
    index for each of its dimensions; it is the mask that was given. Other types become i64 first.
    """
    seen = [(other.op, item) for other in inside if (item := maybe_tensor(other, 0))]
    filled = [maybe_tensor(other, 1) for other in inside if other.op == "aten::masked_fill_"]
    masks = [item for op, item in seen if op == "aten::nonzero" and item.dtype in _MASKS]
    masks += [item for item in filled if item and item.dtype in _MASKS]
    sorted_ = any(op in _SORTING for op, _ in seen)
    name = "aten::remainder" if sorted_ else "aten::reshape"
    found = [item for op, item in seen if op == name and item.dtype == "i64" and item.shape]
    if masks:
        alone = sum(len(item.shape) for item in masks) == len(found) or not found
        return tuple(masks) if alone else ()
    was_expanded = any(op == "aten::expand" and item.dtype == "i64" for op, item in seen)
    if was_expanded and any(item.strides is None for item in found):
        return ()
    narrow = [item for op, item in seen if op == "aten::to" and item.dtype in _NARROW]
    for item in narrow:
        same = (at for at, other in enumerate(found) if other == replace(item, dtype="i64"))
        at = next(same, None)
        if at is not None:
            found[at] = item
    return tuple(found)
