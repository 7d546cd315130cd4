"""GPU work that is more than its device can do, as findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pyprof2.analysis.hardware.roofs import floats, known, op_numbers, sums_of_op
from pyprof2.analysis.hardware.verdict import devices_of
from pyprof2.analysis.summaries.findings import Finding
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.analysis.hardware.roofline import Floats

_MARGIN: Final = 1.05
"""Clocks and data sheets agree to a few percent."""
_SPARSITY: Final = 2
"""Peaks are dense, and structured sparsity doubles them."""
_CACHES_SERVE: Final = 20
"""Caches move more than the memory: at most some ten times as much."""
_EXEMPT: Final = ("conv", "comm")
_TOO_MUCH: Final = "kernels with more FLOPs or bytes than their device can do in their time"
_NOT_DONE: Final = (
    "their shapes, formulas, times or the device are wrong: pyprof2 explain kernel:N says which "
    "were used"
)
COUNTED: Final = (
    "device",
    "category",
    "compute_dtype",
    "cost_op_id",
    "op_time_ns",
    "flops_lo",
    "bytes_lo",
)
"""What says which counts a kernel has, and what its device is."""


def find_impossible_work(
    kernels: pa.Table,
    devices: Sequence[Mapping[str, Any]],
    rank: int,
    override: Path | str | None = None,
) -> Iterator[Finding]:
    """Yield how many kernels of a rank have counts beyond what their device can do in their time.

    Args:
        kernels: columns `COUNTED` of the rank's `kernels`.
        devices: rows of the canonical table `devices`.
        rank: its number.
        override: a device's name, or a file that describes one, to use instead of the recorded.
    """
    place, found = devices_of(kernels, devices, override)
    limits = np.array([_limits(device) for _, device in found])[place]
    category, words = code_column(kernels, "category")
    dtype, dtypes = code_column(kernels, "compute_dtype")
    # A convolution may multiply less than its FLOPs say, and links bound a collective; not every
    # peak of 4-bit types is known.
    is_exempt = np.array([*(word in _EXEMPT for word in words), False])[category]
    is_exempt |= np.array([*((kind or "").startswith("f4") for kind in dtypes), False])[dtype]
    rates = _least_rates(kernels)
    too_many = (rates > limits).any(axis=1) & ~is_exempt
    if (count := int(too_many.sum())) > 0:
        yield Finding("problem", _TOO_MUCH, count, 100 * count / len(too_many), _NOT_DONE, rank)


def _limits(device: Device | None) -> tuple[float, float]:
    """Return what no FLOP/s and no bytes per second of a device exceed; infinite if unknown."""
    if device is None or not device.memory_bytes_per_s:
        return np.inf, np.inf
    peaks = [*device.matrix_flop_per_s.values(), *device.vector_flop_per_s.values()]
    cache = device.l2_bytes_per_s or 0.0
    bandwidth = max(_CACHES_SERVE * device.memory_bytes_per_s, cache)
    return _MARGIN * _SPARSITY * max(peaks, default=np.inf), _MARGIN * bandwidth


def _least_rates(kernels: pa.Table) -> Floats:
    """Return FLOP/s and bytes per second that each kernel's op had at least; NaN: not known."""
    op = op_numbers(kernels)
    seconds = known(int_column(kernels, "op_time_ns", -1)) / 1e9
    counts = [floats(kernels, name) for name in ("flops_lo", "bytes_lo")]
    counted = [np.where(op >= 0, sums_of_op(op, column), np.nan) for column in counts]
    return np.stack(counted, axis=1) / seconds[:, None]
