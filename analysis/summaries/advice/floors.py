"""The least time of kernels: their FLOPs and bytes at the peak rates of their device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pandas as pd

from pyprof2.analysis.hardware.roofline import highest_peak, peak_for
from pyprof2.analysis.summaries.advice.facts import ends
from pyprof2.columns import distinct

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.analysis.hardware.roofline import Floats
    from pyprof2.analysis.summaries.advice.facts import RankFacts

    Peak: TypeAlias = Callable[[Device | None, str | None], float | None]


COVERED: Final = 0.5
"""The least share of the time of kernels whose floor is known for a bound to rest on them."""
_ROWS: Final = 1 << 16


def plain_peak(device: Device | None, dtype: str | None) -> float | None:
    """Return the FLOP/s of the vector lanes."""
    return peak_for(device, dtype, "no").flops


def matrix_peak(device: Device | None, dtype: str | None) -> float | None:
    """Return the FLOP/s of the matrix units; of float32 those of TF32."""
    return peak_for(device, dtype, "yes").flops


def best_peak(device: Device | None, dtype: str | None) -> float | None:
    """Return the highest FLOP/s for a dtype."""
    highest = highest_peak(device, dtype)
    return None if highest is None else highest[0]


def half_peak(device: Device | None, dtype: str | None) -> float | None:
    """Return the highest FLOP/s for 16-bit types, whatever the dtype is."""
    del dtype
    peaks = [best_peak(device, each) for each in ("f16", "bf16")]
    return max((peak for peak in peaks if peak), default=None)


def above_floor(facts: RankFacts, rows: pd.DataFrame, peak: Peak, fewer: int = 1) -> Floats:
    """Return the time of each kernel above its floor, in ns; see `floor_ns`."""
    time: Floats = rows["dur_ns"].to_numpy("float64") - floor_ns(facts, rows, peak, fewer)
    return np.maximum(0.0, time)


def floor_ns(facts: RankFacts, rows: pd.DataFrame, peak: Peak, fewer: int = 1) -> Floats:
    """Return what the FLOPs and the bytes of each kernel need, in ns; 0 where they are not known.

    Args:
        facts: of the rank.
        rows: its kernels.
        peak: of a device and a dtype, in FLOP/s.
        fewer: by what the bytes are divided.
    """
    if len(rows) > _ROWS:  # a million at once are a dozen columns of as many numbers
        parts = (rows.iloc[at : at + _ROWS] for at in range(0, len(rows), _ROWS))
        return np.concatenate([floor_ns(facts, part, peak, fewer) for part in parts])
    code, names = pd.factorize(rows["compute_dtype"])
    dtypes = [None, *names]
    keys, which = distinct(rows["place"].to_numpy("int64") * len(dtypes) + code + 1)
    pairs = (divmod(key, len(dtypes)) for key in keys.tolist())
    peaks = [peak(facts.devices[at][1], dtypes[dtype]) for at, dtype in pairs]
    rates: Floats = np.array(peaks, float)[which]
    flops, nbytes = (rows[name].to_numpy("float64", na_value=0.0) for name in ("flops", "bytes"))
    compute = _seconds(flops, rates)
    memory = _seconds(nbytes / fewer, bandwidth(facts, rows))
    return 1e9 * np.maximum(compute, memory)


def known_share(facts: RankFacts, rows: pd.DataFrame, peak: Peak = best_peak) -> float:
    """Return the share of the time of kernels, from 0 to 1, whose floor is known; 1 without any."""
    time = rows["dur_ns"].to_numpy("float64")
    known = floor_ns(facts, rows, peak) > 0
    # Work that is known to be none needs nothing.
    known |= (rows["flops"].notna() & (rows["bytes"] == 0).fillna(value=False)).to_numpy(bool)
    return float(time[known].sum() / time.sum()) if time.sum() else 1.0


def won_ns(facts: RankFacts, rows: pd.DataFrame, saved: Floats) -> int:
    """Return what shorter kernels gain: nothing where what comes next was not launched yet.

    Args:
        facts: of the rank.
        rows: its kernels.
        saved: by how much each gets shorter, in ns.
    """
    shorter_end = ends(rows)[1].astype(float) - saved
    was_queued = facts.followers[rows["kernel_id"].to_numpy(np.int64)] <= shorter_end
    return int(saved[was_queued].sum())


def bandwidth(facts: RankFacts, rows: pd.DataFrame) -> Floats:
    """Return the bandwidth of the memory for each kernel, in bytes per second; NaN: not known."""
    speeds = [None if device is None else device.memory_bytes_per_s for _, device in facts.devices]
    of_devices: Floats = np.array(speeds, float)
    of_rows: Floats = of_devices[rows["place"].to_numpy("int64")]
    return of_rows


def _seconds(count: Floats, rate: Floats) -> Floats:
    """Return how long a count takes; 0 where the rate is not known."""
    is_known = rate > 0
    return np.where(is_known, count / np.where(is_known, rate, 1.0), 0.0)
