"""Names and sizes of element types, in pyprof2's short spelling."""

from __future__ import annotations

from typing import Final

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


def nbytes(count: int, dtype: str | None) -> int | None:
    """Return the bytes of `count` elements, rounded up; None where the dtype is not known."""
    bits = DTYPE_BITS.get(dtype or "")
    return None if bits is None else (count * bits + 7) // 8
