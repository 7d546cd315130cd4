"""What an op was called with: the canonical form that parsers write and cost formulas read.

A signature is an op's name and its inputs in the order of the op's schema. An input is a tensor,
a list of tensors, a scalar value (number, bool, text, or a list of them), or None: not given or
not recorded. The JSON form, in column `signatures.inputs`, is a list of::

    {"shape": [512, 768], "dtype": "f32", "strides": [768, 1]}     a tensor; strides if recorded
    [{"shape": …}, …]                                              a list of tensors
    {"value": 0.5}                                                 a scalar or a list of scalars
    null
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

DIMENSIONS_MAX: Final = 64
SIZE_MAX: Final = 1 << 40
ELEMENTS_MAX: Final = 1 << 62
"""No tensor has more dimensions, a longer one, or more elements."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Shape and strides in elements, dtype in pyprof2's spelling; None where not known.

    A tensor with dimensions but no strides, `()`, is laid out another way: it is sparse.
    """

    shape: tuple[int, ...]
    dtype: str | None = None
    strides: tuple[int, ...] | None = None

    @property
    def is_sparse(self) -> bool:
        """Whether it is known to be."""
        return self.strides == () and self.shape != ()


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number, bool, text, or list of them, by value."""

    value: Any


def is_possible(shape: Sequence[int]) -> bool:
    """Whether a tensor may have this shape, which somebody claims."""
    return (
        len(shape) <= DIMENSIONS_MAX
        and all(0 <= size <= SIZE_MAX for size in shape)
        and math.prod(max(1, size) for size in shape) <= ELEMENTS_MAX
    )


Input: TypeAlias = Tensor | tuple[Tensor, ...] | Scalar | None


@dataclass(frozen=True, slots=True)
class OpCall:
    """One call of an op: its name and its inputs in the order of the op's schema."""

    op: str
    inputs: tuple[Input, ...]


_decoder = msgspec.json.Decoder()


def parse_inputs(text: str) -> tuple[Input, ...]:
    """Return the inputs that `text`, the JSON form, describes."""
    return tuple(_parse_input(item) for item in _decoder.decode(text))


def _parse_input(item: Any) -> Input:
    if isinstance(item, list):
        return tuple(_parse_tensor(part) for part in item)
    if item is None:
        return None
    return Scalar(item["value"]) if "value" in item else _parse_tensor(item)


def _parse_tensor(item: dict[str, Any]) -> Tensor:
    strides = item.get("strides")
    return Tensor(
        tuple(item["shape"]), item.get("dtype"), None if strides is None else tuple(strides)
    )


def format_inputs(inputs: tuple[Input, ...]) -> str:
    """Return the JSON form of `inputs`."""
    return msgspec.json.encode([_format_input(item) for item in inputs]).decode()


def _format_input(item: Input) -> Any:
    match item:
        case None:
            return None
        case Scalar():
            return {"value": item.value}
        case Tensor():
            out: dict[str, Any] = {"shape": item.shape}
            if item.dtype is not None:
                out["dtype"] = item.dtype
            if item.strides is not None:
                out["strides"] = item.strides
            return out
        case _:
            return [_format_input(part) for part in item]


def format_signature(call: OpCall) -> str:
    """Return the call as a person reads it: `aten::addmm([1024] f32, [512,768] f32)`.

    Trailing inputs that are None are left out.
    """
    items = list(call.inputs)
    while items and items[-1] is None:
        items.pop()
    return f"{call.op}({', '.join(format_text(item) for item in items)})"


def format_text(item: Input) -> str:
    """Return one input as a person reads it: `[512,768] f32`."""
    match item:
        case None:
            return "-"
        case Scalar():
            return str(item.value).replace(" ", "")
        case Tensor():
            shape = f"[{','.join(map(str, item.shape))}]"
            return f"{shape} {item.dtype}" if item.dtype else shape
        case _:
            return f"({', '.join(format_text(part) for part in item)})"
