"""Runs PyTorch code without data and gives the calls of its ops, as a recording has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pyprof2.signatures import Input, OpCall, Scalar, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

DTYPES: Final = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8",
    torch.uint8: "u8", torch.bool: "bool", torch.complex32: "c32", torch.complex64: "c64",
    torch.complex128: "c128", torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64",
    torch.float8_e4m3fn: "f8e4m3", torch.float8_e5m2: "f8e5m2",
}  # fmt: skip
_SCALAR_TYPES: Final = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4,
    torch.float16: 5, torch.float32: 6, torch.float64: 7, torch.complex32: 8,
    torch.complex64: 9, torch.complex128: 10, torch.bool: 11, torch.bfloat16: 15,
    torch.float8_e5m2: 23, torch.float8_e4m3fn: 24,
}  # fmt: skip


class Recorded(NamedTuple):
    """One op: its call, what it returned, and the tensors that went in."""

    call: OpCall
    results: list[torch.Tensor]
    arguments: list[torch.Tensor]
    name: str


def as_input(value: Any) -> Input:
    """Return a value as an input of an op."""
    match value:
        case torch.Tensor():
            return Tensor(tuple(value.shape), DTYPES[value.dtype], tuple(value.stride()))
        case [torch.Tensor(), *_] | (torch.Tensor(), *_):
            return tuple(_part(item) for item in value)
        case torch.dtype():
            return Scalar(_SCALAR_TYPES[value])
        case None | torch.device() | torch.layout() | torch.memory_format():
            return None
        case list() | tuple():
            return Scalar(list(value))
        case _:
            return Scalar(value)


def _part(item: torch.Tensor) -> Tensor:
    found = as_input(item)
    assert isinstance(found, Tensor)
    return found


def as_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpCall:
    """Return the call of an op with its arguments in the order of the schema."""
    schema = func._schema
    values = []
    for index, argument in enumerate(schema.arguments):
        default = argument.default_value if argument.has_default_value() else None
        given = args[index] if index < len(args) else kwargs.get(argument.name, default)
        values.append(as_input(given))
    return OpCall(schema.name, tuple(values))


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [found for item in value for found in _tensors(item)]
    return []


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[Recorded] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        call = as_call(func, args, kwargs)
        results = func(*args, **kwargs)
        arguments = _tensors(list(args) + list(kwargs.values()))
        self.found.append(Recorded(call, _tensors(results), arguments, str(func)))
        return results


def record(function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Recorded]:
    """Return the ops that `function` calls, those of the backward pass included."""
    recorder = _Recorder()
    with recorder:
        function(*args, **kwargs)
    return recorder.found


def nbytes(item: torch.Tensor) -> int:
    """Return the bytes of a tensor, what is expanded once."""
    count = 1
    for size, stride in zip(item.shape, item.stride(), strict=True):
        count *= size if stride or size == 0 else 1
    return count * item.element_size()
