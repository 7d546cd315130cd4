"""Optimizers: the fused ones, and the `foreach` ops from which the others are made.

P is the number of parameters. FLOPs: counted by hand per parameter. Bytes: parameters, gradients
and state read once, what changes written once; in f32 unless recorded, since recordings have the
shapes in a list but not its element types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyprof2.analysis.costs.operands import (
    FLOATS,
    like,
    maybe_tensor,
    maybe_tensors,
    numel,
    over_dtypes,
    tally,
    tensors,
    typed,
    value,
)
from pyprof2.analysis.costs.pointwise import FLOPS_PER_ELEMENT
from pyprof2.analysis.costs.registry import Cost, cost_of
from pyprof2.analysis.costs.sizes import Size

if TYPE_CHECKING:
    from pyprof2.signatures import OpCall, Tensor


def _parameters(items: tuple[Tensor, ...], name: str = "P") -> Size:
    return Size(sum(numel(item.shape) for item in items), name)


@cost_of(
    "aten::_fused_adam_", "aten::_fused_adam", "aten::_fused_adamw_", "aten::_fused_adamw",
    category="optimizer",
)  # fmt: skip
def fused_adam(call: OpCall) -> Cost:
    """Parameters, gradients, two averages, maxima, steps, …: flops 14P, with maxima 15P.

    Decay 2, first average 3, second 4, root and epsilon 2, quotient 1, step 2. bytes: four lists
    read and three written, 7P; the maxima of `amsgrad` read and written, 9P; with a scale to
    undo the gradients are written too.
    """
    lists = [tensors(call, at) for at in range(4)]
    return _fused(call, lists, maybe_tensors(call, 4), 14)


def _fused(
    call: OpCall, lists: list[tuple[Tensor, ...]], maxima: tuple[Tensor, ...], flops: int
) -> Cost:
    """Return the cost of reading all lists and writing all but the second, the gradients."""
    count = _parameters(lists[0])
    scaled = maybe_tensor(call, len(call.inputs) - 2) is not None

    def make(dtype: str) -> Cost:
        known = [typed(items, dtype) for items in (*lists, maxima)]
        written = [items for at, items in enumerate(known) if at != 1 or scaled]
        return tally(
            (flops + bool(maxima)) * count,
            read=[item for items in known for item in items],
            written=[item for items in written for item in items],
            dtype=known[0][0].dtype,
            params=f"P={count},tensors={len(lists[0])}",
        )

    return over_dtypes([item for items in lists for item in items], make, FLOATS)


@cost_of("aten::_fused_sgd_", "aten::_fused_sgd", category="optimizer")
def fused_sgd(call: OpCall) -> Cost:
    """Parameters, gradients, momenta, decay, …: flops 4P, without momentum 2P, decay 2P more.

    bytes: parameters, gradients and momenta read, parameters and momenta written, 5P; without
    momentum 3P.
    """
    lists = [tensors(call, 0), tensors(call, 1)]
    momenta = maybe_tensors(call, 2)
    if momenta and value(call, 4) != 0:
        lists.append(momenta)
    flops = (4 if len(lists) == 3 else 2) + (2 if value(call, 3) else 0)
    return _fused(call, lists, (), flops)


@cost_of("aten::_fused_adagrad_", "aten::_fused_adagrad", category="optimizer")
def fused_adagrad(call: OpCall) -> Cost:
    """Parameters, gradients, sums of squares, …: flops 6P; bytes: three read, two written, 5P.

    Square and add 2, root 1, epsilon 1, quotient 1, step 1.
    """
    return _fused(call, [tensors(call, at) for at in range(3)], (), 6)


class _Foreach(NamedTuple):
    """Operations per element, and how many lists of operands an op has at most."""

    flops: int
    lists: int


_LISTS: Final = {"addcmul": 3, "addcdiv": 3, "lerp": 3}
_BINARY: Final = (
    "add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max", "pow",
)  # fmt: skip
_UNARY: Final = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor",
    "frac", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt",
    "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
_FOREACH: Final = {
    f"aten::_foreach_{name}{end}": _Foreach(FLOPS_PER_ELEMENT[name], lists)
    for names, lists in ((_UNARY, 1), (_BINARY, 2), (_LISTS, 3))
    for name in names
    for end in ("", "_")
}


@cost_of(*_FOREACH, category="optimizer")
def foreach(call: OpCall) -> Cost:
    """Lists of tensors, or numbers -> a list: as the pointwise op on each; in place or new.

    flops: per element as the pointwise op. bytes: each list read, one written.
    """
    row = _FOREACH[call.op]
    # `_foreach_pow` may have the exponents as its list; the first list sets the sizes.
    lists = [maybe_tensors(call, at) for at in range(row.lists)]
    given = [items for items in lists if items] or [tensors(call, 0)]
    return _each(row.flops, given)


def _each(flops: int, lists: list[tuple[Tensor, ...]]) -> Cost:
    count = _parameters(lists[0], "N")

    def make(dtype: str) -> Cost:
        known = [typed(items, dtype) for items in lists]
        return tally(
            flops * count,
            read=[item for items in known for item in items],
            written=[like(item) for item in known[0]],
            dtype=known[0][0].dtype,
            params=f"N={count},tensors={len(lists[0])}",
        )

    return over_dtypes([item for items in lists for item in items], make, FLOATS)


@cost_of("aten::_foreach_copy_", "aten::_foreach_copy", category="copy")
def foreach_copy(call: OpCall) -> Cost:
    """Targets, sources: the sources read, the targets written; no FLOPs."""
    targets, sources = tensors(call, 0), tensors(call, 1)

    def make(dtype: str) -> Cost:
        return tally(
            read=typed(sources, dtype),
            written=typed(targets, dtype),
            params=f"N={_parameters(targets)},tensors={len(targets)}",
        )

    return over_dtypes((*targets, *sources), make, ("i8", "f32", "c128"))


@cost_of("aten::_foreach_zero_", "aten::_foreach_zero", category="optimizer")
def foreach_zero(call: OpCall) -> Cost:
    """A list: written, nothing read; no FLOPs."""
    items = tensors(call, 0)

    def make(dtype: str) -> Cost:
        return tally(written=typed(items, dtype), params=f"N={_parameters(items)}")

    return over_dtypes(items, make, FLOATS)


@cost_of("aten::_foreach_norm", "aten::_foreach_max", "aten::_foreach_powsum",
         category="optimizer")  # fmt: skip
def foreach_norm(call: OpCall) -> Cost:
    """A list -> one number for each tensor: flops 2P, square and add (maximum: P comparisons).

    bytes: the list read; the numbers themselves, one for each tensor, are left out.
    """
    items = tensors(call, 0)
    count = _parameters(items, "N")
    each = 1 if call.op.endswith("max") else 2

    def make(dtype: str) -> Cost:
        known = typed(items, dtype)
        params = f"N={count},tensors={len(items)}"
        return tally(each * count, read=known, dtype=known[0].dtype, params=params)

    return over_dtypes(items, make, FLOATS)


@cost_of("aten::_amp_foreach_non_finite_check_and_unscale_", category="optimizer")
def unscale(call: OpCall) -> Cost:
    """Gradients, flag, scale: checked and scaled in place: flops 2P; bytes: read and written."""
    return _each(2, [tensors(call, 0)])


@cost_of("aten::_amp_update_scale_", category="optimizer")
def update_scale(call: OpCall) -> Cost:
    """Scale, growth, flag: three numbers; flops 1."""
    numbers = [maybe_tensor(call, at) for at in range(3)]
    return tally(1, read=numbers, written=numbers[:2], dtype=None)
