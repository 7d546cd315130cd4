"""The arguments of an op: the canonical form that parsers write and cost formulas read.

A signature is an op's name and its inputs in the order of the op's schema. An input is a tensor,
a list of tensors, a scalar value (number, bool, text, or a list of them), or None: not given or
not recorded. The JSON form, in column `signatures.inputs`, is a list of::

    {"shape": [512, 768], "dtype": "f32", "strides": [768, 1]}     a tensor; strides if recorded
    [{"shape": …}, …]                                              a list of tensors
    {"value": 0.5}                                                 a scalar or a list of scalars
    null

Dtypes have short names: `f32`, `bf16`, `i64`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

CATEGORIES: Final = (
    "matmul", "conv", "attention", "norm", "softmax", "elementwise", "reduce", "pool",
    "embedding", "index", "copy", "cat", "optimizer", "loss", "random", "sort", "rnn", "fft",
    "comm", "memcpy", "memset", "other",
)  # fmt: skip
"""The values of column `category`: kinds of work."""
DIRECTIONS: Final = ("forward", "backward", "optimizer", "other")
"""The values of column `direction`."""

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


def parse_inputs(text: str) -> tuple[Input, ...]:
    """Return the inputs that `text`, the JSON form, describes."""
    import msgspec  # a program that is only recorded may lack it

    inputs: list[Input] = []
    for item in msgspec.json.decode(text):
        if isinstance(item, list):
            inputs.append(tuple(_parse_tensor(part) for part in item))
        elif item is None:
            inputs.append(None)
        else:
            inputs.append(Scalar(item["value"]) if "value" in item else _parse_tensor(item))
    return tuple(inputs)


def _parse_tensor(item: dict[str, Any]) -> Tensor:
    strides = item.get("strides")
    return Tensor(
        tuple(item["shape"]), item.get("dtype"), None if strides is None else tuple(strides)
    )


def format_inputs(inputs: tuple[Input, ...]) -> str:
    """Return the JSON form of `inputs`."""
    import msgspec

    return msgspec.json.encode([plain_input(item) for item in inputs]).decode()


def plain_input(item: Input) -> Any:
    """Return an input as JSON has it."""
    match item:
        case None:
            return None
        case Scalar():
            return {"value": _in_json(item.value)}
        case Tensor():
            out: dict[str, Any] = {"shape": item.shape}
            if item.dtype is not None:
                out["dtype"] = item.dtype
            if item.strides is not None:
                out["strides"] = item.strides
            return out
        case _:
            return [plain_input(part) for part in item]


def _in_json(value: Any) -> Any:
    """Return a value as JSON has it: without infinity, which it has no word for."""
    if isinstance(value, (list, tuple)):
        return [_in_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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


_TENSOR: Final = re.compile(r"\[([\d,]*)\] (\w+)")


def tensors_in(signature: str) -> list[Tensor]:
    """Return the tensors of a signature that have a dtype; see `format_signature`."""
    return [
        Tensor(tuple(int(size) for size in shape.split(",") if size), dtype)
        for shape, dtype in _TENSOR.findall(signature)
    ]


DTYPE_BITS: Final = {
    "f64": 64, "f32": 32, "f16": 16, "bf16": 16,
    "f8e4m3": 8, "f8e5m2": 8, "f8e4m3fnuz": 8, "f8e5m2fnuz": 8, "f8e8m0": 8, "f4e2m1": 4,
    "f4e2m1x2": 8,
    "i64": 64, "i32": 32, "i16": 16, "i8": 8, "i4": 4,
    "u64": 64, "u32": 32, "u16": 16, "u8": 8, "u4": 4, "bool": 8,
    "c32": 32, "c64": 64, "c128": 128,
    "qi8": 8, "qu8": 8, "qi32": 32,
    "bits8": 8, "bits16": 16, "bits32": 32, "bits64": 64, "bits128": 128,
}  # fmt: skip
"""Bits per element.

`c64` is a complex number of two f32, `f4e2m1x2` two f4 in one byte, `bits16` what has that size.
"""

TORCH_DTYPES: Final = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2", "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz", "float8_e8m0fnu": "f8e8m0", "float4_e2m1fn_x2": "f4e2m1x2",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "int4": "i4",
    "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8", "uint4": "u4",
    "bool": "bool", "complex32": "c32", "complex64": "c64", "complex128": "c128",
    "qint8": "qi8", "quint8": "qu8", "qint32": "qi32",
    "double": "f64", "float": "f32", "half": "f16", "long": "i64", "int": "i32", "short": "i16",
    "char": "i8", "byte": "u8",
}  # fmt: skip
"""The dtypes of PyTorch by name, without `torch.`; the last ones are aliases."""

DTYPE_NUMBERS: Final = {
    "u8": 0, "i8": 1, "i16": 2, "i32": 3, "i64": 4, "f16": 5, "f32": 6, "f64": 7, "c32": 8,
    "c64": 9, "c128": 10, "bool": 11, "qi8": 12, "qu8": 13, "qi32": 14, "bf16": 15,
    "f8e5m2": 23, "f8e4m3": 24, "f8e5m2fnuz": 25, "f8e4m3fnuz": 26, "u16": 27, "u32": 28,
    "u64": 29, "f8e8m0": 44, "f4e2m1x2": 45,
}  # fmt: skip
"""PyTorch's numbers of its dtypes, as they stand among recorded arguments."""


def has_shape(item: Input) -> bool:
    """Return whether an input is a tensor, or has one, whose shape was recorded."""
    parts = item if isinstance(item, tuple) else (item,)
    # A tensor of one number has no sizes; its type says that it was recorded.
    return any(isinstance(part, Tensor) and bool(part.shape or part.dtype) for part in parts)


def nbytes(count: int, dtype: str | None) -> int | None:
    """Return the bytes of `count` elements, rounded up; None where the dtype is not known."""
    bits = DTYPE_BITS.get(dtype or "")
    return None if bits is None else (count * bits + 7) // 8
