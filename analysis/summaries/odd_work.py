"""GPU work whose record cannot be right, as findings.

It is too long, at time 0, there twice, or more than its device can do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.hardware.roofs import floats, known, op_numbers, sums_of_op
from pyprof2.analysis.hardware.verdict import devices_of
from pyprof2.analysis.summaries.findings import Finding
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.analysis.hardware.roofline import Floats
    from pyprof2.analysis.intervals import Bool

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
_HOUR_NS: Final = 3600 * 10**9
TELLING: Final = (
    "start_ns", "dur_ns", "device", "stream", "correlation_id", "graph_node_id", "kernel",
    "grid", "block", "registers", "shared_bytes", "copy_kind",
)  # fmt: skip
"""What a recorder says of a piece of work, and of no other."""
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
_TIMES_WRONG: Final = "busy time, spans and shares are wrong with it: leave it out, or record again"
_TWICE: Final = "it counts as often as it is there: write the trace again"


def find_odd_work(kernels: pa.Table, copies: pa.Table, rank: int) -> Iterator[Finding]:
    """Yield what is wrong with the GPU work of a rank.

    Work that lasts over an hour; work at time 0 where all other work is over an hour away;
    and work of which all that was recorded is the same, counted without the first of each.

    Args:
        kernels: columns `TELLING` of the rank's `kernels`.
        copies: the same of `copies`.
        rank: its number.
    """
    work = pa.concat_tables([table.select(TELLING) for table in (kernels, copies)])
    start, dur = work["start_ns"].to_numpy(), work["dur_ns"].to_numpy()
    others = np.abs(start[start != 0])
    is_far = bool(len(others)) and int(others.min()) > _HOUR_NS
    at_zero = (start == 0).sum() * is_far
    for what, count, advice in (
        ("GPU work that lasts over an hour", (dur > _HOUR_NS).sum(), _TIMES_WRONG),
        ("GPU work at time 0, hours from all other work", at_zero, _TIMES_WRONG),
        ("GPU work that is in the file more than once", _repeats(work).sum(), _TWICE),
    ):
        if count:
            share = 100 * int(count) / len(start)
            yield Finding("problem", what, int(count), share, advice, rank)


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


def _repeats(work: pa.Table) -> Bool:
    """Return which rows repeat an earlier one in every column."""
    frame: Any = work.select(["start_ns", "dur_ns", "correlation_id"]).to_pandas()
    may_repeat = frame.duplicated(keep=False).to_numpy()
    rows: Any = work.filter(pa.array(may_repeat)).to_pandas()
    repeats: Bool = rows.astype(object).duplicated().to_numpy(dtype=bool)
    return repeats
