"""How long kernels take on another device, from how long they took on one.

Of each the least time is estimated on both devices, by the shares of the peaks that long kernels
reach; what it took beside that on the one, it takes in part on the other. Without counts of FLOPs
or bytes, the ratio of the memories' bandwidths remains.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.hardware.roofline import Floats, peak_for
from pyprof2.analysis.prediction.parameters import FULL, HALF, MEMORY, Parameters, eta_of, is_low
from pyprof2.signatures import DTYPE_BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.analysis.intervals import Bool, Int

KINDS: Final = ("linear", "batched", "softmax", "norm", "elementwise")
"""Kinds of work, by how much of their residuals other devices show too."""
COMPUTE_BOUND, MEMORY_BOUND, EXTRAPOLATED, KEPT = range(4)
"""The bases of the time of a kernel on the other device."""
GROUPS: Final = ("compute", "memory", "extrapolated", "kept")
_MATRIX_SINCE: Final = 7
"""The first of NVIDIA's compute capabilities with matrix units."""
_SUM_POWER: Final = 4.0
_NS_PER_S: Final = 1e9
_LONG_NS: Final = 100_000.0
"""Kernels that take longer show what share of a peak is reached."""
_CLEARLY: Final = 2.0
"""So many times longer must the one bound be than the other to say which it was."""


class WorkUnit(NamedTuple):
    """The unit that worked: its dtype, and whether it is a matrix unit, as column `tensor_core`."""

    dtype: str | None
    matrix: str | None

    def peak(self, device: Device, source: Device) -> float:
        """Return the peak in FLOP/s on a device of what worked on the source; NaN: not known.

        Where the source used TF32 and the device has none, it is that of plain float32. Float32
        without TF32 stays so: PyTorch does not use it unless asked.
        """
        used, major = self.matrix, (device.compute_capability or "0").partition(".")[0]
        has_units = major.isdecimal() and int(major) >= _MATRIX_SINCE
        if used == "yes" and has_units and not device.matrix_flop_per_s:
            return math.nan  # as its chip says it has them, but their peaks are not stated
        if self.dtype == "f32" and used == "yes":
            is_tf32 = "f32" not in source.matrix_flop_per_s
            names = ("tf32", "f32") if is_tf32 else ("f32",)
            found = [device.matrix_flop_per_s[n] for n in names if n in device.matrix_flop_per_s]
            return found[0] if found else device.vector_flop_per_s.get("f32", math.nan)
        peak = peak_for(device, self.dtype, used)
        if peak.flops is None and used == "yes":
            peak = peak_for(device, self.dtype, "no")
            return math.nan if peak.flops is None else peak.flops
        return (peak.flops or math.nan) if used == "yes" else (peak.flops or peak.low or math.nan)

    def is_sure(self, device: Device) -> bool:
        """Return whether the peak is known, and not only a lower bound of it."""
        return self.matrix != "unknown" or peak_for(device, self.dtype, "unknown").flops is not None

    def is_lacking(self, device: Device) -> bool:
        """Return whether a device has no units for the dtype, which PyTorch then emulates."""
        dtype = self.dtype or ""
        if DTYPE_BITS.get(dtype, 32) > 16 or not dtype.startswith(("bf", "f")):
            return False
        peaks = {*device.matrix_flop_per_s, *device.vector_flop_per_s}
        return not peaks & {dtype, dtype[:2]}

    def share_of(self, device: Device, source: Device) -> str:
        """Return of what the share of the peak is."""
        if self.dtype == "f32" and self.matrix == "yes" and "f32" not in source.matrix_flop_per_s:
            return HALF if "tf32" in device.matrix_flop_per_s else FULL
        return HALF if DTYPE_BITS.get(self.dtype or "f32", 32) <= 16 else FULL


@dataclass(frozen=True)
class Work:
    """The work of kernels and copies; one value each.

    Attributes:
        time: ns that each took.
        flops, bytes: algorithmic counts; NaN where one is not known.
        kind: position in `KINDS`, -1 for none.
        unit: position in `units`.
        units: what worked.
        is_kept: whether another device leaves its time as it is: links and hosts do it.
    """

    time: Floats
    flops: Floats
    bytes: Floats
    kind: Int
    unit: Int
    units: Sequence[WorkUnit]
    is_kept: Bool


class Least(NamedTuple):
    """Terms of the least times on a device, ns; NaN where a peak is not known."""

    compute: Floats
    memory: Floats
    total: Floats


def least(work: Work, device: Device, source: Device, parameters: Parameters) -> Least:
    """Return the least time of each on a device, with what long kernels reach there.

    Args:
        work: as recorded on the source.
        device: where.
        source: which units worked depends on it.
        parameters: the fitted numbers.
    """
    rates = [
        unit.peak(device, source) * eta_of(parameters, device, unit.share_of(device, source)).value
        for unit in work.units
    ]
    rate = np.array([*rates, np.nan])[work.unit]
    speed = device.memory_bytes_per_s or math.nan
    speed *= eta_of(parameters, device, MEMORY).value
    compute = np.where(work.flops == 0, 0.0, work.flops / rate * _NS_PER_S)
    memory = work.bytes / speed * _NS_PER_S
    both = (compute**_SUM_POWER + memory**_SUM_POWER) ** (1 / _SUM_POWER)
    return Least(compute, memory, both + parameters.floor_ns)


@dataclass(frozen=True)
class Predicted:
    """Times of kernels and copies on another device.

    Attributes:
        time: ns of each.
        group: what it rests on: a position in `GROUPS`.
        on_source, on_target: the least times.
        residual: the logarithm of the recorded time over the least one; NaN where extrapolated.
        kept_residual: what of it is taken over.
        keep: the share of its noise that is.
    """

    time: Floats
    group: Int
    on_source: Least
    on_target: Least
    residual: Floats
    kept_residual: Floats
    keep: Floats


def is_same_chip(source: Device, target: Device) -> bool:
    """Return whether the same kernels run on both devices."""
    names = (source.vendor, source.compute_capability)
    return all(names) and names == (target.vendor, target.compute_capability)


def predict(work: Work, source: Device, target: Device, parameters: Parameters) -> Predicted:
    """Return what the recorded kernels take on another device.

    The time is NaN where it would be extrapolated, and the bandwidth of a memory is not known.
    """
    ours, theirs = (least(work, device, source, parameters) for device in (source, target))
    own = np.array([parameters.keep[kind] for kind in KINDS] + [np.nan])[work.kind]
    keep = np.where(is_same_chip(source, target), np.where(np.isnan(own), own, 1.0), own)
    with np.errstate(divide="ignore"):
        residual = np.log(work.time / ours.total)
    noise = np.clip(residual, -parameters.clip, parameters.clip)
    kept_residual = keep * noise + (residual - noise)
    bound = np.where(theirs.compute > theirs.memory, COMPUTE_BOUND, MEMORY_BOUND)
    lacks = np.isnan(ours.total + theirs.total + keep) | ((work.flops == 0) & (work.bytes == 0))
    unsure = [not all(u.is_sure(each) for each in (source, target)) for u in work.units]
    # The lower one of two peaks was taken: that is right where the memory takes longer even so.
    is_unsure = np.array([*unsure, False])[work.unit]
    lacks |= is_unsure & ((ours.compute > ours.memory) | (theirs.compute > theirs.memory))
    group = np.where(work.is_kept, KEPT, np.where(lacks, EXTRAPOLATED, bound))
    # For the source itself the residual is taken over whole, and this is the recorded time.
    time = theirs.total * np.exp(kept_residual)
    ratio = (source.memory_bytes_per_s or math.nan) / (target.memory_bytes_per_s or math.nan)
    time = np.where(group == EXTRAPOLATED, work.time * ratio, time)
    time = np.where((group == KEPT) | (work.time == 0), work.time, time)
    if source == target:
        time = work.time.copy()
    return Predicted(time, group, ours, theirs, residual, kept_residual, keep)


def shares_of_groups(predicted: Predicted) -> Floats:
    """Return the share of each of `GROUPS` in the predicted time."""
    sums = np.bincount(predicted.group, predicted.time, len(GROUPS))
    return sums / max(float(sums.sum()), 1e-9)


def most_used(work: Work, found: Predicted, source: Device, target: Device) -> str:
    """Return of which peak most of the compute-bound time uses the share."""
    time = np.where(found.group == COMPUTE_BOUND, found.time, 0.0)
    sums = {FULL: 0.0, HALF: 0.0}
    for at, unit in enumerate(work.units):
        sums[unit.share_of(target, source)] += float(time[work.unit == at].sum())
    return max(sums, key=lambda what: sums[what])


def half_width(
    shares: Floats, source: Device, target: Device, parameters: Parameters, level: float,
    what: str = FULL,
) -> float:  # fmt: skip
    """Return how far the logarithm of the true time may be off, with the probability `level`.

    Args:
        shares: of `GROUPS` in the predicted time.
        source: where it was recorded.
        target: where it would run.
        parameters: the fitted numbers.
        level: between 0 and 1.
        what: of which peak the share was used most.
    """
    sigma = parameters.sigma
    compute = sigma.compute
    if is_low(source) or is_low(target) or target.watts is None:
        compute = sigma.low
    elif eta_of(parameters, target, what).source != "class":
        compute = sigma.measured
    of_groups = np.array([compute, sigma.memory, sigma.extrapolated, sigma.kept])
    base = sigma.base_low if is_low(source) or is_low(target) else sigma.base
    if not source.vendor or source.vendor != target.vendor:
        base = sigma.vendor
    return NormalDist().inv_cdf((1 + level) / 2) * math.hypot(float(shares @ of_groups), base)


def reached(work: Work, device: Device) -> dict[str, float]:
    """Return the shares of a device's peaks that long kernels reach: their medians.

    Products show those of compute, elementwise work that of the memory; without such there is none.
    """
    peak = np.array([*(unit.peak(device, device) for unit in work.units), np.nan])[work.unit]
    compute = work.flops / peak * _NS_PER_S
    memory = work.bytes / (device.memory_bytes_per_s or math.nan) * _NS_PER_S
    is_long = (work.time > _LONG_NS) & ~work.is_kept
    products = is_long & (work.kind == KINDS.index("linear")) & (compute > _CLEARLY * memory)
    of = np.array([*(unit.share_of(device, device) for unit in work.units), ""])[work.unit]
    streams = is_long & (work.kind == KINDS.index("elementwise")) & (memory > _CLEARLY * compute)
    found = {}
    for what, rows, term in (
        (FULL, products & (of == FULL), compute),
        (HALF, products & (of == HALF), compute),
        (MEMORY, streams, memory),
    ):
        if rows.any():
            found[what] = float(np.median(term[rows] / work.time[rows]))
    return found
