"""How near the roof: rates, arithmetic intensity, and the least time over the time it took.

An op needs at least the time that its FLOPs take at the peak rate, and at least the time that
its bytes take at the memory's bandwidth. The roof is the longer of the two; `roofline_pct` is
the roof over the measured time. Unknown numbers are NaN in, and NaN out.

Two things that the clock refutes are not shown as percentages above the roof. Bytes that fit in
the last cache, and came faster than the memory can move them, came out of the cache: its
bandwidth is the roof then, and where that is not known the result is NaN. A count that is an
estimate, and cannot have been done in the time while its lower bound can, gives NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from pyprof2.analysis.hardware.devices import Device

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]

COMPUTE: Final = "compute"
MEMORY: Final = "memory"
LATENCY: Final = "latency"

LATENCY_PCT: Final = 1.0
LATENCY_NS: Final = 10_000.0
"""A kernel that is shorter than 10 µs and below 1 % of its roof waited for launch and latency."""

FLAG_PCT: Final = 105.0
"""Above this a flag says why: clocks and data sheets agree to a few percent."""

FLAG_L2: Final = "l2: its bytes fit in the L2 cache, whose bandwidth is its roof"
FLAG_REUSE: Final = "bytes: more than the memory can move; caches served a part of them"
FLAG_SAVING: Final = "algorithm"
"""How the flag of a convolution begins whose algorithm multiplies less than its FLOPs say."""
FLAG_COMPUTE: Final = "flops: more than the peak; fewer were done, or a faster unit did them"


@dataclass(frozen=True)
class Roofline:
    """One value per row; NaN or None where it is not known.

    Attributes:
        tflops: FLOPs over time, in TFLOP/s.
        gbps: bytes over time, in GB/s.
        intensity: FLOPs per byte.
        roofline_pct: least possible time over time, in percent.
        bound: `compute` or `memory`, by which roof is lower; `latency`.
        flag: why a value above its roof may be right.
    """

    tflops: Floats
    gbps: Floats
    intensity: Floats
    roofline_pct: Floats
    bound: Texts
    flag: Texts


def roofline(  # noqa: PLR0913 -- the columns that it works on
    flops: npt.ArrayLike,
    nbytes: npt.ArrayLike,
    time_ns: npt.ArrayLike,
    peak_flops: npt.ArrayLike,
    memory_bytes_per_s: npt.ArrayLike,
    *,
    l2_bytes: npt.ArrayLike = np.nan,
    l2_bytes_per_s: npt.ArrayLike = np.nan,
    peak_flops_low: npt.ArrayLike = np.nan,
    flops_lo: npt.ArrayLike = np.nan,
    bytes_lo: npt.ArrayLike = np.nan,
) -> Roofline:
    """Place ops under their roofs. All arguments broadcast; NaN in them stands for unknown.

    Without FLOPs (`flops` is 0) the compute peak does not matter. Where the peak is not known,
    but is at least `peak_flops_low`, and even with that one the memory takes longer, the memory
    is the roof whatever the peak is, and the result is exact. Otherwise it is NaN.

    Args:
        flops: algorithmic count.
        nbytes: algorithmic count.
        time_ns: the time that the op's kernels took together; 0 gives NaN.
        peak_flops: FLOP/s of the unit that did it, for its dtype.
        memory_bytes_per_s: bandwidth of the memory.
        l2_bytes: size of the last cache.
        l2_bytes_per_s: its bandwidth.
        peak_flops_low: lower bound of the peak; see `peak_for`.
        flops_lo: lower bound of the FLOPs; NaN: the same as `flops`.
        bytes_lo: lower bound of the bytes; NaN: the same as `nbytes`.
    """
    given = _RooflineInput(
        *(np.atleast_1d(array).astype(np.float64) for array in np.broadcast_arrays(
            flops, nbytes, time_ns, peak_flops, memory_bytes_per_s, l2_bytes, l2_bytes_per_s,
            peak_flops_low, flops_lo, bytes_lo,
        ))
    )  # fmt: skip
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = np.where(given.time_ns > 0, given.time_ns / 1e9, np.nan)
        roofs = _least_times(given, FLAG_PCT / 100 * seconds)
        pct = 100 * roofs.least_s / seconds
        return Roofline(
            tflops=given.flops / seconds / 1e12,
            gbps=given.bytes / seconds / 1e9,
            intensity=np.where(given.bytes > 0, given.flops / given.bytes, np.nan),
            roofline_pct=pct,
            bound=_bound(roofs.compute_s, roofs.memory_s, pct, given.time_ns),
            flag=_flag(roofs.compute_s, pct, seconds, roofs.cached),
        )


class _RooflineInput(NamedTuple):
    """The arguments of `roofline`, all of one shape."""

    flops: Floats
    bytes: Floats
    time_ns: Floats
    peak_flops: Floats
    bandwidth: Floats
    cache: Floats
    cache_bandwidth: Floats
    peak_low: Floats
    flops_lo: Floats
    bytes_lo: Floats


class _LeastTimes(NamedTuple):
    """The shortest times: of the arithmetic, of the traffic, of both, and whether it is cached."""

    compute_s: Floats
    memory_s: Floats
    least_s: Floats
    cached: Bools


def _least_times(given: _RooflineInput, most: Floats) -> _LeastTimes:
    """Return what the roofs allow; `most`: the seconds above which an estimate is refuted."""
    work, traffic = given.flops, given.bytes
    memory_s = _time(traffic, given.bandwidth)
    cached = (memory_s > most) & (traffic <= given.cache)
    speed = np.where(cached, given.cache_bandwidth, given.bandwidth)
    memory_s = _time(traffic, speed)
    compute_s, longest_s = _time(work, given.peak_flops), work / given.peak_low
    # An unknown compute time does not matter where even the longest possible one is hidden.
    compute_s = np.where(np.isnan(compute_s) & (longest_s <= memory_s), longest_s, compute_s)
    # Too many FLOPs are too many, however fast the cache is.
    too_many = cached & (compute_s > most)
    least_s = np.where(too_many, np.fmax(compute_s, memory_s), np.maximum(compute_s, memory_s))
    peak_at_least = np.where(np.isnan(given.peak_flops), given.peak_low, given.peak_flops)
    at_least_s = np.maximum(
        _time(np.fmin(work, given.flops_lo), peak_at_least),
        _time(np.fmin(traffic, given.bytes_lo), speed),
    )
    least_s[np.maximum(work, traffic) == 0] = np.nan  # it did nothing: there is no roof
    least_s[(least_s > most) & (at_least_s <= most)] = np.nan  # the estimate is refuted
    return _LeastTimes(compute_s, memory_s, least_s, cached)


def _time(count: Floats, per_s: Floats) -> Floats:
    """Return the seconds that a count takes; a count of 0 takes none, however slow."""
    return np.where(count == 0, 0.0, count / per_s)


def _bound(compute_s: Floats, memory_s: Floats, pct: Floats, time_ns: Floats) -> Texts:
    bound = np.where(compute_s > memory_s, COMPUTE, MEMORY).astype(object)
    bound[(pct < LATENCY_PCT) & (time_ns < LATENCY_NS)] = LATENCY
    bound[np.isnan(pct)] = None
    return bound


def _flag(compute_s: Floats, pct: Floats, seconds: Floats, cached: Bools) -> Texts:
    """Say why the roof is exceeded; too many FLOPs count before too many bytes."""
    flag = np.full(seconds.shape, None, dtype=object)
    over = pct > FLAG_PCT
    flag[cached & ~np.isnan(compute_s)] = FLAG_L2
    flag[over] = FLAG_REUSE
    flag[over & (compute_s > FLAG_PCT / 100 * seconds)] = FLAG_COMPUTE
    return flag


# --------------------------------------------------------------------------- choosing a peak


class ComputePeak(NamedTuple):
    """A compute roof in FLOP/s: its value if it is known, and a lower bound."""

    flops: float | None
    low: float | None


_UNKNOWN: Final = ComputePeak(None, None)

_REAL: Final = {"c64": "f32", "c128": "f64"}
"""Complex numbers are computed in parts, whose FLOPs are what is counted."""


def peak_for(
    device: Device | None,
    dtype: str | None,
    tensor_core: str | None,
    tf32: bool | None = None,  # noqa: FBT001 -- one more fact that a caller has
) -> ComputePeak:
    """Choose the compute roof of an op that computes in `dtype`.

    - Tensor Cores did it (`yes`): the matrix peak of the dtype. float32 on NVIDIA's Tensor
      Cores is TF32, whatever was asked for; on AMD's matrix cores it is full float32, or TF32
      where `tf32` is true.
    - They did not (`no`): the vector peak. Integers and bool take that of f32 as a roof that
      they cannot exceed. A 16-bit rate that the table lacks is not below that of f32.
    - `unknown`: the peak where both are equal, or there is only one. Else the roof is one of two
      and stays unknown, but is not below the lower one.

    A null roof gives a null percentage; `roofline` still settles ops whose memory roof is the
    lower one in any case.
    """
    if device is None or not dtype:
        return _UNKNOWN
    kind = _REAL.get(dtype, dtype)
    matrix = _matrix(device, kind, tf32=tf32)
    if tensor_core == "yes":
        return ComputePeak(matrix, matrix)
    vector = _vector(device, kind)
    if tensor_core == "no" or matrix in {None, vector.flops}:
        return vector
    return ComputePeak(None, None if vector.low is None else min(vector.low, matrix))


def _matrix(device: Device, kind: str, *, tf32: bool | None) -> float | None:
    peaks = device.matrix_flop_per_s
    if kind == "f32" and "tf32" in peaks and (tf32 or "f32" not in peaks):
        return peaks["tf32"]
    width = kind.removeprefix("q").replace("u", "i")[:2]  # f8e4m3: f8; u8, qi8: i8
    return peaks.get(kind, peaks.get(width))


def vector_peak(device: Device | None, dtype: str | None) -> float | None:
    """Return what the vector lanes can do at most, where matrix units exist that can do more.

    A rate above it proves that the matrix units worked. None where one of the two is not known.
    """
    if device is None or not dtype:
        return None
    kind = _REAL.get(dtype, dtype)
    peak, matrix = device.vector_flop_per_s.get(kind), _matrix(device, kind, tf32=None)
    return peak if peak and matrix and matrix > peak else None


def highest_peak(device: Device | None, dtype: str | None) -> tuple[float, str] | None:
    """Return the highest rate that the device allows for a dtype, and on which units.

    float32 counts as TF32 where the device has that. None: not known.
    """
    if device is None or not dtype:
        return None
    kind = _REAL.get(dtype, dtype)
    matrix, vector = _matrix(device, kind, tf32=True), _vector(device, kind).flops
    if matrix is not None and matrix >= (vector or 0):
        tf32 = kind == "f32" and matrix == device.matrix_flop_per_s.get("tf32")
        return matrix, f"{'TF32' if tf32 else dtype} on matrix units"
    return None if vector is None else (vector, f"{dtype} on vector lanes")


def _vector(device: Device, kind: str) -> ComputePeak:
    peaks = device.vector_flop_per_s
    f32 = peaks.get("f32")
    if kind in peaks:
        return ComputePeak(peaks[kind], peaks[kind])
    if kind in {"f16", "bf16"}:
        return ComputePeak(None, f32)
    if kind[0] in "iuqb":
        return ComputePeak(f32, f32)
    return _UNKNOWN
