"""What the ops inside an op tell of its result.

Recordings have the inputs of ops, not their results. Some ops make a view of their result, or of
their input in the result's shape, and the views' inputs are recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyprof2.analysis.costs.operands import integers, maybe_tensor, numel
from pyprof2.signatures import OpCall, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

_INDEXING: Final = frozenset({"aten::index", "aten::_unsafe_index"})
_REDUCING: Final = frozenset(
    {
        "aten::sum", "aten::mean", "aten::prod", "aten::nansum", "aten::amax", "aten::amin",
        "aten::any", "aten::all", "aten::var", "aten::std", "aten::argmax", "aten::argmin",
        "aten::linalg_vector_norm", "aten::norm", "aten::max", "aten::min",
    }
)  # fmt: skip
TELLING_OPS: Final = _INDEXING | _REDUCING
"""The ops of which `result_inside` knows something."""


def result_inside(call: OpCall, inside: Iterable[OpCall]) -> Tensor | None:
    """Return shape and element type of the result of `call`, as the ops inside it tell.

    Indexing gives its input the shape of the result first (`as_strided`, size by value); a
    reduction gives its result the shape of its input (`as_strided`, the result is its input).

    Args:
        call: the op.
        inside: the calls directly inside it, in order.

    Returns:
        None where they tell nothing.
    """
    x = next((item for item in call.inputs if isinstance(item, Tensor)), None)
    for other in inside if x is not None and call.op in TELLING_OPS else ():
        seen = maybe_tensor(other, 0)
        if x is None or other.op != "aten::as_strided" or seen is None:
            continue
        if call.op in _INDEXING and seen.shape == x.shape:
            size = integers(other, 1)
            return None if size is None else Tensor(size, x.dtype)
        if call.op in _REDUCING and len(seen.shape) < len(x.shape):
            return seen if numel(seen.shape) <= numel(x.shape) else None
    return None
