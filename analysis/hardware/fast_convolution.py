"""Convolutions that multiply less than their FLOPs say: by Winograd's or Fourier's transform.

The FLOPs of a convolution are those of the direct algorithm. Two families of algorithms need
fewer multiplications, so an op that ran one of them may exceed the peak rate: its roof is
higher by the factor that the algorithm saves. The transforms themselves are not counted, so the
factor is an upper limit.

Winograd: a tile of m outputs of a filter of r taps needs m + r - 1 products instead of m·r, in
each dimension. F(2×2, 3×3) saves 2.25 times, F(4×4, 3×3) 4 times. Source: A. Lavin, S. Gray,
"Fast Algorithms for Convolutional Neural Networks", CVPR 2016 (arXiv:1509.09308).

Fourier: a tile of T×T reals has T·(T/2 + 1) complex frequencies, each with one complex
multiply-add of 8 FLOPs, and gives (T - r + 1)² outputs of 2·r² FLOPs each. Source: M. Mathieu,
M. Henaff, Y. LeCun, "Fast Training of Convolutional Networks through FFTs", ICLR 2014
(arXiv:1312.5851).
"""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

from pyprof2.patterns import bounded

_WINDOW: Final = re.compile(r"(?:^|,)window=(\d{1,4}(?:x\d{1,4})*)(?:,|$)")
_FOURIER: Final = re.compile(r"fft2d_(?:r2c|c2r)_(\d{1,4})x\1")
_WINOGRAD: Final = re.compile(r"(?i)winograd|sp3AsmConv")
_MIOPEN_TILE: Final = re.compile(r"_f([2-6])x([2-6])_")
_CUDNN_TILE: Final = bounded(r"inograd\w*?(?P<size>[2-9])x(?P=size)(?:_(?P<taps>\d)x(?P=taps))?")

_LARGEST_TILE: Final = 4
"""Outputs of a Winograd tile whose size the name does not tell: larger ones lose precision."""
_USUAL_TAPS: Final = (3, 3)


class Saving(NamedTuple):
    """How many times fewer multiplications, and what tells it."""

    factor: float
    evidence: str


def fast_convolution(kernel: str, params: str | None) -> Saving | None:
    """Return what the algorithm of a kernel saves; None if it is not known to save anything.

    Args:
        kernel: the demangled name.
        params: of the op, with the filter's size as `window=3x3`.
    """
    window = _WINDOW.search(params or "")
    taps = tuple(int(size) for size in window[1].split("x")) if window else _USUAL_TAPS
    if tile := _FOURIER.search(kernel):
        saving = _fourier(int(tile[1]), taps)
    elif _WINOGRAD.search(kernel):
        saving = _winograd(kernel, taps)
    else:
        return None
    return saving if saving.factor > 1 else None


def _fourier(size: int, taps: tuple[int, ...]) -> Saving:
    outputs = math.prod(max(0, size - r + 1) for r in taps[-2:])
    direct = 2 * math.prod(taps[-2:]) * outputs
    factor = direct / (8 * size * (size // 2 + 1))
    return Saving(factor, f"a Fourier transform of {size}×{size} tiles")


def _winograd(kernel: str, taps: tuple[int, ...]) -> Saving:
    size, own_taps, is_named = _tile(kernel)
    taps = taps if own_taps is None else (own_taps,) * len(taps)
    factor = math.prod(size * r / (size + r - 1) for r in taps)
    outputs, window = "×".join([str(size)] * len(taps)), "×".join(map(str, taps))
    unsure = "" if is_named else ", the largest in use: the name does not tell the tile"
    return Saving(factor, f"Winograd's F({outputs}, {window}){unsure}")


def _tile(kernel: str) -> tuple[int, int | None, bool]:
    """Return m of F(m×m, r×r), r where the name tells it, and whether it tells m.

    MIOpen writes `f2x3`: m and r. cuDNN writes `4x4`, the outputs, for filters of 3×3 (there
    are 36 products, as the grids of the kernels between the transforms show), and `9x9_5x5`,
    the inputs of a tile and the filter, for others.
    """
    if named := _MIOPEN_TILE.search(kernel):
        return int(named[1]), int(named[2]), True
    if named := _CUDNN_TILE.search(kernel):
        size, r = int(named["size"]), named["taps"]
        return (size - int(r) + 1, int(r), True) if r else (size, None, True)
    return _LARGEST_TILE, None, False
