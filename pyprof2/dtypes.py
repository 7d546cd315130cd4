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


def nbytes(count: int, dtype: str | None) -> int | None:
    """Return the bytes of `count` elements, rounded up; None where the dtype is not known."""
    bits = DTYPE_BITS.get(dtype or "")
    return None if bits is None else (count * bits + 7) // 8
