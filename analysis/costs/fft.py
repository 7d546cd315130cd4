"""Fourier transforms.

FLOPs 5·N·log2 n, where N is the number of elements and n the length that is transformed (the
product of the lengths of all dimensions); half of it between real and complex numbers. Bytes:
input and result.

Source: the count that FFTW's benchmarks use.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pyprof2.analysis.costs.operands import (
    flag,
    fresh,
    integer,
    integers,
    kind,
    like,
    needed,
    numel,
    tally,
    tensor,
)
from pyprof2.analysis.costs.registry import Cost, cost_of

if TYPE_CHECKING:
    from pyprof2.signatures import OpCall, Tensor

_COMPLEX: Final = {"f16": "c32", "f32": "c64", "f64": "c128"}
_REAL: Final = {complex_: real for real, complex_ in _COMPLEX.items()}


def _flops(shape: tuple[int, ...], dims: tuple[int, ...]) -> int:
    length = math.prod(shape[dim] for dim in dims)
    return round(5 * numel(shape) * math.log2(length)) if length > 1 else 0


def _dims(call: OpCall, index: int) -> tuple[int, ...]:
    return needed(integers(call, index) or None, "the dimensions are not in the recording")


@cost_of("aten::_fft_c2c", category="fft")
def c2c(call: OpCall) -> Cost:
    """x, dims -> as many complex numbers: flops 5·N·log2 n."""
    x = tensor(call, 0)
    return _transform(x, like(x), _flops(x.shape, _dims(call, 1)))


def _transform(x: Tensor, out: Tensor, flops: int) -> Cost:
    params = f"N={numel(x.shape)}"
    return tally(flops, read=[x], written=[out], params=params)


@cost_of("aten::_fft_r2c", category="fft")
def r2c(call: OpCall) -> Cost:
    """Real x, dims, norm, onesided -> n/2 + 1 complex numbers in the last dimension, or all n.

    flops 5·N·log2 n / 2.
    """
    x, dims = tensor(call, 0), _dims(call, 1)
    shape = list(x.shape)
    if flag(call, 3) is not False:
        shape[dims[-1]] = shape[dims[-1]] // 2 + 1
    out = fresh(shape, _COMPLEX.get(x.dtype or ""))
    return _transform(x, out, _flops(x.shape, dims) // 2)


@cost_of("aten::_fft_c2r", category="fft")
def c2r(call: OpCall) -> Cost:
    """Complex x, dims, norm, length of the last dimension -> real numbers: flops 5·N·log2 n / 2."""
    x, dims = tensor(call, 0), _dims(call, 1)
    length = needed(integer(call, 3), "the length of the result is not in the recording")
    shape = list(x.shape)
    shape[dims[-1]] = length
    out = fresh(shape, _REAL.get(x.dtype or ""))
    return _transform(x, out, _flops(out.shape, dims) // 2)


_ONE: Final = ("aten::fft_fft", "aten::fft_ifft", "aten::fft_rfft", "aten::fft_irfft")
_MANY: Final = ("aten::fft_fft2", "aten::fft_ifft2", "aten::fft_fftn", "aten::fft_ifftn",
                "aten::fft_rfft2", "aten::fft_rfftn", "aten::fft_irfft2",
                "aten::fft_irfftn")  # fmt: skip


@cost_of(*_ONE, *_MANY, category="fft")
def transform(call: OpCall) -> Cost:
    """x, length, dims: as the op inside, `_fft_c2c`, `_fft_r2c` or `_fft_c2r`.

    Without dims: the last one, the last two for `2`, all for `n`. x is cut or padded to the
    length first.
    """
    x = tensor(call, 0)
    one = call.op in _ONE
    wanted = integers(call, 2)
    every = tuple(range(len(x.shape)))
    dims = wanted or (every[-1:] if one else every[-2:] if call.op.endswith("2") else every)
    lengths = integers(call, 1) or tuple(x.shape[dim] for dim in dims)
    backwards = "irfft" in call.op
    real = "rfft" in call.op or (x.dtype is not None and kind(x.dtype) < 3)
    shape = list(x.shape)
    for dim, length in zip(dims, lengths, strict=True):
        shape[dim] = length
    if backwards and integers(call, 1) is None:
        shape[dims[-1]] = 2 * (x.shape[dims[-1]] - 1)
    flops = _flops(tuple(shape), dims) // (2 if real else 1)
    dtype = _REAL.get(x.dtype or "") if backwards else _COMPLEX.get(x.dtype or "", x.dtype)
    if "rfft" in call.op and not backwards:
        shape[dims[-1]] = shape[dims[-1]] // 2 + 1
    return _transform(x, fresh(shape, dtype), flops)
