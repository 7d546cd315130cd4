"""Kineto's inputs of ops as canonical inputs, and what it says of a collective."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pyprof2.parsers._json import DECODE_ERRORS
from pyprof2.parsers._kineto_columns import COLLECTIVE
from pyprof2.parsers._kineto_values import first_of, to_int
from pyprof2.recording import Signature
from pyprof2.signatures import (
    Input,
    OpCall,
    Scalar,
    Tensor,
    format_inputs,
    format_signature,
    has_shape,
)

if TYPE_CHECKING:
    from pyprof2.parsers._kineto_columns import Call

_DTYPES: Final = {
    "double": "f64", "float": "f32", "c10::Half": "f16", "c10::BFloat16": "bf16",
    "c10::Float8_e4m3fn": "f8e4m3", "c10::Float8_e5m2": "f8e5m2",
    "c10::Float8_e4m3fnuz": "f8e4m3fnuz", "c10::Float8_e5m2fnuz": "f8e5m2fnuz",
    "c10::Float8_e8m0fnu": "f8e8m0", "c10::Float4_e2m1fn_x2": "f4e2m1x2",
    "long": "i64", "long int": "i64", "long long": "i64", "int": "i32", "short": "i16",
    "short int": "i16", "signed char": "i8", "unsigned char": "u8", "bool": "bool",
    "unsigned short": "u16", "unsigned int": "u32", "unsigned long": "u64",
    "c10::complex<float>": "c64", "c10::complex<double>": "c128", "c10::complex<c10::Half>": "c32",
    "c10::qint8": "qi8", "c10::quint8": "qu8", "c10::qint32": "qi32",
}  # fmt: skip
"""C++ type names of tensors' elements. `Int`, `Bool` and `Double` of 2021 are scalars."""
_SCALAR_TYPES: Final = {
    "",
    "Scalar",
    "ScalarList",
    "Int",
    "Bool",
    "Double",
    "String",
    "None",
    "Device",
}
_COUNT: Final = re.compile(r"-?\d{1,18}")


def signature_of(recorded: Call) -> Signature:
    """Return the signature that a recorded call has."""
    dims = _list(recorded.dims)
    more = (_padded(_list(raw), len(dims)) for raw in recorded[2:5])
    inputs = [_input(*parts) for parts in zip(dims, *more, strict=True)]
    text = format_signature(OpCall(recorded.op, tuple(inputs)))
    has_shapes = any(map(has_shape, inputs))
    if recorded.comm:
        inputs.append(Scalar(collective_of(recorded.comm)))
    return Signature(recorded.op, text, format_inputs(tuple(inputs)), has_shapes)


def _list(raw: bytes) -> list[Any]:
    try:
        value = msgspec.json.decode(raw) if raw else []
    except DECODE_ERRORS:
        return []
    return value if isinstance(value, list) else []


def _padded(values: list[Any], length: int) -> list[Any]:
    return (values + [None] * length)[:length]


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in value)


def _input(dim: Any, kind: Any, strides: Any, value: Any) -> Input:
    dtype = _DTYPES.get(kind) if isinstance(kind, str) else None
    if isinstance(dim, list) and dim and all(isinstance(part, list) for part in dim):
        kinds = kind if isinstance(kind, list) else [kind] * len(dim)
        steps = strides if isinstance(strides, list) else []
        parts = zip(dim, _padded(kinds, len(dim)), _padded(steps, len(dim)), strict=True)
        return tuple(
            _tensor(sizes, _DTYPES.get(part) if isinstance(part, str) else None, step)
            for sizes, part, step in parts
            if _is_shape(sizes)
        )
    if not _is_shape(dim):
        return None
    if dtype is not None or (dim and isinstance(kind, str) and kind not in _SCALAR_TYPES):
        return _tensor(dim, dtype, strides)
    if dim:
        return Tensor(tuple(dim))
    return _scalar(value)


def _tensor(dim: list[int], dtype: str | None, strides: Any) -> Tensor:
    # A sparse tensor has none: the recorder writes an empty list.
    fits = _is_shape(strides) and len(strides) in (0, len(dim))
    return Tensor(tuple(dim), dtype, tuple(strides) if fits and dim else None)


def _scalar(text: Any) -> Input:
    if not isinstance(text, str) or text == "":
        return None
    return Scalar(_scalar_value(text))


def _scalar_value(text: str) -> Any:
    """Return the number, bool or list that a concrete input spells, else the text itself."""
    if text in ("True", "False"):
        return text == "True"
    if _COUNT.fullmatch(text):
        return int(text)
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1].strip()
        if "[" in inner:
            return _list(text.encode()) or text
        return [_scalar_value(part.strip()) for part in inner.split(",")] if inner else []
    try:
        number = float(text)
    except ValueError:
        return text
    return number if abs(number) < float("inf") else text


_COLLECTIVE_DTYPES: Final = {
    "Float": "f32", "Double": "f64", "Half": "f16", "BFloat16": "bf16", "Long": "i64", "Int": "i32",
    "Short": "i16", "Char": "i8", "Byte": "u8", "Bool": "bool", "Float8_e4m3fn": "f8e4m3",
    "Float8_e5m2": "f8e5m2",
}  # fmt: skip
_SENDS: Final = ("send", "recv")
_ROOTED: Final = ("broadcast", "reduce", "gather", "scatter")
_FLAGS: Final[dict[Any, bool]] = {b"true": True, b"false": False}
_RANKS_MAX: Final = 1 << 20
"""No job has more processes."""


def collective_of(recorded: tuple[Any, ...]) -> dict[str, Any]:
    """Return what is known of a collective, as it stands among the inputs of its op.

    `collective`, `in_count`, `out_count`, `dtype` and `group_size` are always there, null where
    they were not recorded; the others only where they are known.

    Args:
        recorded: what `COLLECTIVE` names; a shorter one lacks the rest.
    """
    values = dict(zip(COLLECTIVE, recorded, strict=False))
    name, dtype = values["collective"], values.get("comm_dtype")
    found = {
        "collective": name,
        "in_count": _count(values.get("in_count")),
        "out_count": _count(values.get("out_count")),
        "dtype": _COLLECTIVE_DTYPES.get(dtype) if isinstance(dtype, str) else None,
        "group_size": _count(values.get("group_size")),
    }
    ranks = _ranks(values, found["group_size"])
    more = {
        "group_name": _text(first_of(values.get("group_name"), values.get("group_id"))),
        "group_desc": values.get("group_desc"),
        "group_ranks": ranks,
        "in_split": _numbers(values.get("in_split")),
        "out_split": _numbers(values.get("out_split")),
        "asynchronous": _FLAGS.get(values.get("is_async")),
        **_other(str(name), values, ranks),
    }
    return found | {key: value for key, value in more.items() if value is not None}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _numbers(text: Any) -> list[int] | None:
    """Return the list in a text as `[0, 1, 2]`; None if it is cut, or no list of counts."""
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text, type=list[int])
    except (msgspec.ValidationError, *DECODE_ERRORS):
        return None


def _ranks(values: dict[str, Any], size: int | None) -> list[int] | None:
    """Return the ranks of the group, in its own order: listed, else counted with a stride.

    PyTorch cuts the list after 30, and writes the first rank and the stride, where there is one.
    """
    listed = _numbers(values.get("group_ranks"))
    if listed is not None and len(listed) == (size or len(listed)):
        return listed or None
    first, stride = to_int(values.get("first_rank")), to_int(values.get("rank_stride"))
    if size is None or first is None or stride is None:
        return None
    if not (0 < size <= _RANKS_MAX and 0 <= first < _RANKS_MAX and 0 < stride < _RANKS_MAX):
        return None
    return list(range(first, first + size * stride, stride))


def _other(name: str, values: dict[str, Any], ranks: list[int] | None) -> dict[str, int]:
    """Return the rank that a collective starts from or ends at: its root, or the peer.

    PyTorch writes it as a number in the group.
    """
    plain = name.replace("_", "").lower()
    if plain.startswith(_SENDS):
        own = "target_rank" if plain.startswith("send") else "source_rank"
        key, number = "peer", to_int(first_of(values.get(own), values.get("other_rank")))
    elif plain.startswith(_ROOTED) and not plain.startswith("reducescatter"):
        key, number = "root", to_int(values.get("other_rank"))
    else:
        return {}
    if number is None or number < 0:
        return {}
    if ranks is None:
        return {}
    return {key: ranks[number]} if number < len(ranks) else {}
