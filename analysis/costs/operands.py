"""Shared by formulas: reading a call's inputs, counting elements and bytes, adding up.

Every accessor raises `UnknownCostError` with the reason where the recording lacks something.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from pyprof2.analysis.costs.registry import Cost, Evidence, UnknownCostError
from pyprof2.analysis.costs.sizes import Size, plain
from pyprof2.signatures import DTYPE_NUMBERS, TORCH_DTYPES, OpCall, Scalar, Tensor, nbytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_Found = TypeVar("_Found")


def refuse(reason: str) -> NoReturn:
    """Raise because the recording lacks something, or is beyond the formula.

    Raises:
        UnknownCostError: always.
    """
    raise UnknownCostError(reason)


def needed(found: _Found | None, reason: str) -> _Found:
    """Return what was found; give up with a reason where it is None."""
    if found is None:
        refuse(reason)
    return found


def tensor(call: OpCall, index: int) -> Tensor:
    """Return input `index`, a tensor."""
    return needed(maybe_tensor(call, index), f"input {index} has no shape in the recording")


def maybe_tensor(call: OpCall, index: int) -> Tensor | None:
    """Return input `index` if it is a tensor."""
    found = call.inputs[index] if 0 <= index < len(call.inputs) else None
    return found if isinstance(found, Tensor) else None


def first_tensor(call: OpCall) -> Tensor:
    """Return the first input that is a tensor."""
    found = next((item for item in call.inputs if isinstance(item, Tensor)), None)
    return needed(found, "no input has a shape in the recording")


def tensors(call: OpCall, index: int) -> tuple[Tensor, ...]:
    """Return input `index`, a list of tensors that is not empty."""
    found = maybe_tensors(call, index) or None
    return needed(found, f"the shapes of list {index} are not in the recording")


def maybe_tensors(call: OpCall, index: int) -> tuple[Tensor, ...]:
    """Return input `index` if it is a list of tensors, else an empty one."""
    found = call.inputs[index] if 0 <= index < len(call.inputs) else None
    return found if isinstance(found, tuple) else ()


def value(call: OpCall, index: int) -> Any:
    """Return the scalar, text or list at input `index` by value; None if not recorded."""
    found = call.inputs[index] if 0 <= index < len(call.inputs) else None
    return found.value if isinstance(found, Scalar) else None


def integer(call: OpCall, index: int) -> int | None:
    """Return the whole number at input `index`; None if not recorded."""
    found = value(call, index)
    return None if found is None or isinstance(found, bool) else int(found)


def flag(call: OpCall, index: int) -> bool | None:
    """Return the bool at input `index`; None if not recorded.

    The text `"False"` is false.
    """
    found = value(call, index)
    if isinstance(found, str):
        return {"true": True, "false": False}.get(found.lower())
    return None if found is None else bool(found)


def integers(call: OpCall, index: int) -> tuple[int, ...] | None:
    """Return the list of whole numbers at input `index`, one number as a list; None if unknown."""
    found = _listed(call, index)
    try:
        return None if found is None else tuple(int(item) for item in found)
    except (ValueError, TypeError, OverflowError):
        return None


def each_dimension(call: OpCall, index: int | None, count: int) -> tuple[int, ...] | None:
    """Return one number for each of `count` dimensions; None where they are not recorded."""
    found = integers(call, index) if index is not None else None
    if not found:
        return None
    return found * count if len(found) == 1 else found


def flags(call: OpCall, index: int) -> tuple[bool, ...] | None:
    """Return the list of bools at input `index`; None if not recorded."""
    found = _listed(call, index)
    if found is None:
        return None
    return tuple(item in (True, "True", "true") for item in found)


def _listed(call: OpCall, index: int) -> Sequence[Any] | None:
    found = value(call, index)
    if isinstance(found, str) and found.startswith("["):
        try:
            found = json.loads(found.replace("True", "true").replace("False", "false"))
        except (ValueError, RecursionError):
            return None
    if found is None or isinstance(found, str):
        return None
    return found if isinstance(found, list | tuple) else [found]


def scalars_recorded(call: OpCall) -> bool:
    """Whether the recording has scalar arguments by value, so that a missing one is a None."""
    return any(isinstance(item, Scalar) for item in call.inputs)


_BY_NUMBER: Final = {number: dtype for dtype, number in DTYPE_NUMBERS.items()}


def dtype_at(call: OpCall, index: int) -> str | None:
    """Return the element type named at input `index`, by number or name; None if there is none."""
    found = value(call, index)
    if isinstance(found, str):
        name = found.removeprefix("torch.")
        return _BY_NUMBER.get(int(name)) if name.isdigit() else TORCH_DTYPES.get(name, name)
    return None if found is None or isinstance(found, bool) else _BY_NUMBER.get(int(found))


def numel(shape: Iterable[int]) -> int:
    """Return the number of elements of a shape."""
    dims = tuple(shape)
    if any(dim < 0 for dim in dims):
        refuse("a dimension is negative")
    return math.prod(dims)


def counted(item: Tensor, name: str = "N") -> Size:
    """Return the number of elements of a tensor, under the name that formulas give it."""
    return Size(numel(item.shape), name)


def elements(item: Tensor) -> int:
    """Return how many elements in memory the tensor has.

    A dimension of stride 0 repeats the same ones, so it counts once; and windows that overlap
    have no more than the span of memory from their first to their last element.
    """
    count = numel(item.shape)
    if count == 0 or item.strides is None or len(item.strides) != len(item.shape):
        return count
    pairs = list(zip(item.shape, item.strides, strict=True))
    span = 1 + sum((dim - 1) * abs(stride) for dim, stride in pairs)
    return min(span, math.prod(dim for dim, stride in pairs if stride))


def size(item: Tensor) -> int | None:
    """Return the bytes of the tensor in memory; None where its element type is not known."""
    return nbytes(elements(item), item.dtype)


def total(items: Iterable[Tensor | None]) -> int | None:
    """Return the bytes of the tensors together; None where one is not known."""
    sizes = [size(item) for item in items if item is not None]
    return None if None in sizes else plain(sum(filter(None, sizes)))


def tally(
    flops: int | None = None,
    *,
    read: Sequence[Tensor | None] = (),
    written: Iterable[Tensor | None] = (),
    dtype: str | None = "",
    params: str = "",
) -> Cost:
    """Return the cost of reading and writing these tensors once; None stands for no tensor.

    FLOPs that are computed from a `Size` come with their formula. What has FLOPs computes in the
    type of the first tensor that it reads, if no other is given.
    """
    if dtype == "":
        types = [] if flops is None else [item.dtype for item in read if item is not None]
        dtype = next(iter(types), None)
    cost = Cost(plain(flops or 0), total(read), total(written), dtype, params)
    if not flops or not isinstance(flops, Size):
        return cost
    return replace(cost, flops_formula=flops.formula, flops_numbers=flops.numbers)


def bounded(
    cost: Cost,
    assumed: str = "",
    flops: tuple[int, int] | None = None,
    traffic: tuple[int | None, int | None] | None = None,
    note: str = "",
) -> Cost:
    """Return `cost` with an assumption in words and the bounds of its counts.

    Empty tensors can turn bounds round; then the value is both. Where bounds leave nothing open,
    nothing is assumed. Bounds of what is exact by definition have a `note` instead.
    """
    is_exact = flops is not None or traffic is not None
    if flops is not None:
        low, high = plain(min(flops[0], cost.flops)), plain(max(flops[1], cost.flops))
        is_exact = low == high
        cost = replace(cost, flops_lo=low, flops_hi=high)
    least, most = traffic or (None, None)
    if cost.bytes is not None and least is not None and most is not None:
        low, high = plain(min(least, cost.bytes)), plain(max(most, cost.bytes))
        is_exact = is_exact and low == high
        cost = replace(cost, bytes_lo=low, bytes_hi=high)
    elif traffic is not None:
        is_exact = False
        if cost.bytes is not None and least is not None:
            cost = replace(cost, bytes_lo=plain(min(least, cost.bytes)))
    notes = [note for note in (cost.assumed, "" if is_exact else assumed) if note]
    return replace(cost, assumed="; ".join(notes), note="" if is_exact else note)


def spanning(cost: Cost, *others: Cost, assumed: str) -> Cost:
    """Return `cost` with the least and the most bytes of it and of others as bounds."""
    sizes = [each.bytes for each in (cost, *others) if each.bytes is not None]
    traffic = (min(sizes, default=None), max(sizes, default=None))
    return bounded(cost, assumed, traffic=traffic)


def with_more(cost: Cost, read: list[Tensor | None], written: list[Tensor]) -> Cost:
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


def count_text(item: Tensor) -> str:
    """Return the number of elements as the number that matters."""
    return f"N={numel(item.shape)}"


FLOATS: Final = ("f16", "f32", "f64")
"""Least, likely and most for a list of floating point tensors of unknown element type."""
ANY_DTYPE: Final = ("i8", "f32", "c128")
"""Least, likely and most for a list of tensors of unknown element type."""


def over_dtypes(
    listed: Iterable[Tensor], make: Callable[[str], Cost], among: tuple[str, str, str]
) -> Cost:
    """Return `make(dtype)`, where `dtype` stands in for the types that a list lacks.

    Recordings have the shapes of lists of tensors, but not their element types.

    Args:
        listed: the tensors of the lists.
        make: from an element type to the cost.
        among: the types of least, likely and most bytes.
    """
    least, likely, most = among
    if all(item.dtype is not None for item in listed):
        return make(likely)
    words = f"element type of the list not recorded: taken as {likely}"
    return spanning(make(likely), make(least), make(most), assumed=words)


def typed(items: Iterable[Tensor], dtype: str) -> tuple[Tensor, ...]:
    """Return the tensors, those of unknown element type with `dtype`."""
    return tuple(item if item.dtype else replace(item, dtype=dtype) for item in items)


def fresh(shape: Iterable[int], dtype: str | None) -> Tensor:
    """Return a newly made, contiguous tensor."""
    return Tensor(tuple(shape), dtype)


def like(item: Tensor, dtype: str | None = None) -> Tensor:
    """Return a newly made tensor of the shape of `item`, and of its element type or `dtype`."""
    return Tensor(item.shape, dtype or item.dtype)


def result(evidence: Evidence, dtype: str | None) -> Tensor | None:
    """Return the known result of the call; its element type, if that is missing, is `dtype`."""
    if evidence.output is None:
        return None
    return fresh(evidence.output.shape, evidence.output.dtype or dtype)


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape to which `shapes` broadcast.

    Raises:
        UnknownCostError: they do not.
    """
    out: list[int] = []
    for position in range(1, max(map(len, shapes), default=0) + 1):
        dims = {shape[-position] for shape in shapes if len(shape) >= position} - {1}
        if len(dims) > 1:
            refuse("the shapes do not broadcast")
        out.append(dims.pop() if dims else 1)
    return tuple(reversed(out))


_KINDS: Final = {"u": 1, "i": 1, "q": 1, "f": 2, "b": 2, "c": 3}
_COMPLEX: Final = {"f16": "c32", "f32": "c64", "f64": "c128"}


def kind(dtype: str) -> int:
    """Return 0 for bool, 1 for whole numbers, 2 for floating point, 3 for complex."""
    return 0 if dtype == "bool" else _KINDS.get(dtype[0], 2)


def promote(*items: Tensor | Scalar | None) -> str | None:
    """Return the element type in which these operands meet; None where one is not known.

    Tensors with dimensions go before tensors without, and both before numbers: the later ones
    only count if they are of a higher kind. Source: torch.result_type.
    """
    groups: tuple[list[str], ...] = ([], [], [])
    for item in items:
        if isinstance(item, Tensor):
            if item.dtype is None:
                return None
            groups[0 if item.shape else 1].append(item.dtype)
        elif isinstance(item, Scalar):
            order = ((bool, "bool"), (int, "i64"), (float, "f32"), (complex, "c64"))
            kinds = (dtype for types, dtype in order if isinstance(item.value, types))
            groups[2].append(next(kinds, "bool"))
    found: str | None = None
    for group in groups:
        if group:
            found = _beside(found, reduce(_meet, group))
    return found


def _beside(first: str | None, second: str) -> str:
    """Return the type of operands of type `first` with others, that rank lower, of `second`."""
    if first is None:
        return second
    kinds = kind(first), kind(second)
    if kinds == (2, 3):
        return _COMPLEX.get(first, "c64")
    return _meet(first, second) if first == "bool" or (kinds[0] == 1 and kinds[1] > 1) else first


def _meet(one: str, other: str) -> str:
    """Return the narrowest type that holds both."""
    low, high = sorted((one, other), key=_order)
    if kind(low) == 2 and kind(high) == 3:
        return max(_COMPLEX.get(low, "c64"), high, key=_order)
    if {low, high} == {"f16", "bf16"}:
        return "f32"
    if kind(low) == kind(high) == 1 and low[0] != high[0]:
        unsigned, signed = (low, high) if low[0] == "u" else (high, low)
        wider = {"u8": "i16", "u16": "i32"}.get(unsigned, "i64")
        return max(wider, signed, key=_order)
    return high


def _order(dtype: str) -> tuple[int, int]:
    return kind(dtype), nbytes(8, dtype) or 0
