"""The roof of each row: what its device, its units and its algorithm allow.

The kernels that do an op's work share its rates, so they share its roof too: that of the units
they ran on, and of the algorithm that they carried out. Helper kernels have neither.

Convolutions may multiply less than their FLOPs say, by Winograd's or Fourier's transform. The FLOPs
of a convolution are those of the direct algorithm. Two families of algorithms need fewer
multiplications, so an op that ran one of them may exceed the peak rate: its roof is higher by the
factor that the algorithm saves. The transforms themselves are not counted, so the factor is an
upper limit.

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
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.hardware.kernel_names import bounded
from pyprof2.analysis.hardware.roofline import (
    FLAG_SAVING,
    Floats,
    peak_for,
    roofline,
)
from pyprof2.columns import combine_keys, distinct
from pyprof2.recording import code_column, has_text, int_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.analysis.intervals import Int

    Found = Sequence[tuple[Mapping[str, Any], Device | None]]


ANSWERS: Final = ["unknown", "no", "yes"]
"""In rising order: one kernel of an op that used Tensor Cores decides for all."""


@dataclass(frozen=True)
class Roofs:
    """The inputs of the roof of each row; NaN where one is not known.

    Attributes:
        peak: FLOP/s of the units that worked, for the dtype, times what the algorithm saves.
        low: a lower bound of the peak.
        bandwidth: of the memory, in bytes per second.
        cache, cache_bandwidth: bytes that the last cache holds, and how fast it gives them.
        saving: for each row the position in `savings`, -1 for none.
        savings: algorithms that multiply less than their op's FLOPs say.
        flops_lo, bytes_lo: lower bounds of the op's counts.
    """

    peak: Floats
    low: Floats
    bandwidth: Floats
    cache: Floats
    cache_bandwidth: Floats
    saving: Int
    savings: list[Saving]
    flops_lo: Floats
    bytes_lo: Floats


def op_numbers(kernels: pa.Table, op_count: int | None = None) -> Int:
    """Return the op whose counts each row shares, -1 for none.

    Each replay of a graph calls its ops anew: these calls are numbered after the ops.

    Args:
        kernels: rows of `kernels` or `copies`.
        op_count: how many ops there are; by default as many as these rows name.
    """
    op: Int = int_column(kernels, "cost_op_id", -1)
    if "cost_call_id" not in kernels.column_names:
        return op
    call = int_column(kernels, "cost_call_id", -1)
    first = int(op.max(initial=-1)) + 1 if op_count is None else op_count
    return np.where(call >= 0, first + call, op)


def roofs_of(
    kernels: pa.Table,
    op: Int,
    place: Int,
    found: Found,
    answer: Int,
) -> Roofs:
    """Return the inputs of the roof of each row; copies have none.

    Args:
        kernels: rows of the canonical tables `kernels` or `copies`.
        op: number of the op whose counts each row shares; see `op_numbers`.
        place: of each row its device's position in `found`.
        found: the recorded rows of the devices, each with its peaks.
        answer: of each row whether Tensor Cores did the work, as a code into `ANSWERS`.
    """
    dtype, dtypes = code_column(kernels, "compute_dtype")
    of_op = _best_of_op(op, np.maximum(answer, 0))
    # The links between devices bound a collective, not what either device can do.
    place = np.where(has_text(kernels, "category", ("comm",)), -1, place)
    key = combine_keys(place, dtype, of_op)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    limits: list[Sequence[float]] = [
        _limits(
            found[place[at]][1] if place[at] >= 0 else None,
            dtypes[dtype[at]] if dtype[at] >= 0 else None,
            ANSWERS[of_op[at]],
        )
        for at in first.tolist()
    ]
    peak, low, bandwidth, cache, speed = np.array(limits or [[np.nan] * 5], float)[inverse].T
    saving, savings = savings_of(kernels, op)
    factor = np.array([*(s.factor for s in savings), 1.0])[saving]
    lower = (sums_of_op(op, floats(kernels, name)) for name in ("flops_lo", "bytes_lo"))
    return Roofs(peak * factor, low * factor, bandwidth, cache, speed, saving, savings, *lower)


def percentages(kernels: pa.Table, op: Int, roofs: Roofs) -> dict[str, pa.Array]:
    """Return columns `roofline_pct`, `bound` and `roofline_flag`."""
    base = np.where(op >= 0, known(int_column(kernels, "op_time_ns", -1)), np.nan)
    roof = roofline(
        floats(kernels, "tflops") * base * 1e3,
        floats(kernels, "gbps") * base,
        base,
        roofs.peak,
        roofs.bandwidth,
        l2_bytes=roofs.cache,
        l2_bytes_per_s=roofs.cache_bandwidth,
        peak_flops_low=roofs.low,
        flops_lo=roofs.flops_lo,
        bytes_lo=roofs.bytes_lo,
    )
    pct = roof.roofline_pct
    # The flag also says why a value may be above the plain peak.
    flag = roof.flag.copy()
    for number, saving in enumerate(roofs.savings):
        above = (roofs.saving == number) & (roof.tflops * 1e12 > roofs.peak / saving.factor)
        words = f"{FLAG_SAVING}: {saving.evidence}, up to {saving.factor:.3g} times fewer flops"
        flag[above] = [words if old is None else f"{words}; {old}" for old in flag[above]]
    return {
        "roofline_pct": pa.array(pct, mask=np.isnan(pct)),
        "bound": pa.array(roof.bound, pa.string()).dictionary_encode(),
        "roofline_flag": pa.array(flag, pa.string()).dictionary_encode(),
    }


def _best_of_op(op: Int, answer: Int) -> Int:
    """Return for each row the highest code among the kernels of its op."""
    ops, group = np.unique(op, return_inverse=True)
    best = np.full(len(ops), -1, np.int64)
    np.maximum.at(best, group, answer)
    return np.where(op >= 0, best[group], answer)


def sums_of_op(op: Int, values: Floats) -> Floats:
    """Return for each row the sum over the kernels of its op; NaN if one is not known."""
    ops, group = distinct(op)
    sums: Floats = np.bincount(group, values, len(ops)).astype(np.float64)
    return sums[group]


def savings_of(kernels: pa.Table, op: Int) -> tuple[Int, list[Saving]]:
    """Return the saving algorithm of each row's op, by the names of its kernels."""
    kernel, names = code_column(kernels, "kernel")
    params, texts = code_column(kernels, "params")
    may = np.array([*(fast_convolution(name, None) is not None for name in names), False])[kernel]
    rows = np.flatnonzero(may & (op >= 0))
    pairs, which = np.unique(combine_keys(kernel[rows], params[rows]), return_inverse=True)
    found: list[Saving | None] = [None] * len(pairs)
    for row, pair in zip(rows.tolist(), which.tolist(), strict=True):
        if found[pair] is None:
            text = texts[params[row]] if params[row] >= 0 else None
            found[pair] = fast_convolution(names[kernel[row]], text)
    savings = sorted({saving for saving in found if saving})
    own = np.full(len(op), -1, np.int64)
    numbers = [savings.index(saving) if saving else -1 for saving in found]
    own[rows] = np.array(numbers, np.int64)[which]
    return _best_of_op(op, own), savings


def _limits(device: Device | None, dtype: str | None, answer: str) -> tuple[float, ...]:
    """Return peak, its lower bound, memory bandwidth, cache and its bandwidth; NaN: unknown."""
    if device is None:
        return (np.nan,) * 5
    peak = peak_for(device, dtype, answer)
    memory, cache = device.memory_bytes_per_s, device.l2_bytes
    values = (peak.flops, peak.low, memory, cache, device.l2_bytes_per_s)
    return tuple(np.nan if value is None else float(value) for value in values)


def known(values: Int) -> Floats:
    """Return the numbers as floats, and NaN for those that are not positive."""
    return np.where(values > 0, values, np.nan)


def floats(kernels: pa.Table, name: str) -> Floats:
    """Return a column as floats; null is NaN."""
    values: Floats = kernels[name].cast(pa.float64(), safe=False).to_numpy()
    return values


_WINDOW: Final = re.compile(r"(?:^|,)window=(\d{1,4}(?:x\d{1,4})*)(?:,|$)")
_FOURIER: Final = re.compile(r"fft2d_(?:r2c|c2r)_(\d{1,4})x\1")
_WINOGRAD: Final = re.compile(r"(?i)winograd|sp3AsmConv")
_MIOPEN_TILE: Final = re.compile(r"_f([2-6])x([2-6])_")
_CUDNN_TILE: Final = bounded(r"inograd\w*?(?P<size>[2-9])x(?P=size)(?:_(?P<taps>\d)x(?P=taps))?")

_LARGEST_TILE: Final = 4
"""Outputs of a Winograd tile whose size is not in the name: larger ones lose precision."""
_USUAL_TAPS: Final = (3, 3)


class Saving(NamedTuple):
    """How many times fewer multiplications, and the evidence."""

    factor: float
    evidence: str


@lru_cache(maxsize=1 << 14)
def fast_convolution(kernel: str, params: str | None) -> Saving | None:
    """Return the multiplications that a kernel's algorithm saves; None if none are known.

    Args:
        kernel: the demangled name.
        params: of the op, with the filter's size as `window=3x3`.
    """
    window = _WINDOW.search(params or "")
    taps = tuple(int(size) for size in window[1].split("x")) if window else _USUAL_TAPS
    if tile := _FOURIER.search(kernel):
        size = int(tile[1])
        outputs = math.prod(max(0, size - r + 1) for r in taps[-2:])
        direct = 2 * math.prod(taps[-2:]) * outputs
        factor = direct / (8 * size * (size // 2 + 1))
        saving = Saving(factor, f"a Fourier transform of {size}×{size} tiles")
    elif _WINOGRAD.search(kernel):
        # m of F(m×m, r×r), and r where it is in the name. MIOpen writes `f2x3`: m and r. cuDNN
        # writes `4x4`, the outputs, for filters of 3×3 (there are 36 products, as the grids of the
        # kernels between the transforms show), and `9x9_5x5`, the inputs of a tile and the filter,
        # for others.
        size, is_named = _LARGEST_TILE, False
        if named := _MIOPEN_TILE.search(kernel):
            size, is_named, taps = int(named[1]), True, (int(named[2]),) * len(taps)
        elif named := _CUDNN_TILE.search(kernel):
            size, is_named = int(named["size"]), True
            if own := named["taps"]:
                size, taps = size - int(own) + 1, (int(own),) * len(taps)
        factor = math.prod(size * r / (size + r - 1) for r in taps)
        sizes, filters = "×".join([str(size)] * len(taps)), "×".join(map(str, taps))
        unsure = "" if is_named else ", the largest in use: the name does not tell the tile"
        saving = Saving(factor, f"Winograd's F({sizes}, {filters}){unsure}")
    else:
        return None
    return saving if saving.factor > 1 else None
