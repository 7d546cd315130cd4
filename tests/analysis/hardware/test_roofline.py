"""Rates and roofs: each number from a hand count."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.hardware.devices import DEVICES, Device
from pyprof2.analysis.hardware.roofline import (
    FLAG_PCT,
    ComputePeak,
    highest_peak,
    peak_for,
    roofline,
    vector_peak,
)

if TYPE_CHECKING:
    from pyprof2.analysis.hardware.roofline import Roofline

BY_NAME = {device.name: device for device in DEVICES}
NAN = float("nan")

# A device that is easy to count with: 100 TFLOP/s, 1 TB/s, 10 MB of cache.
PEAK, BANDWIDTH, CACHE = 100e12, 1e12, 10e6


def place(flops: float, nbytes: float, time_ns: float, **given: float) -> dict[str, Any]:
    """Return the one row that `roofline` makes of these on the device above."""
    facts = {"peak_flops": PEAK, "memory_bytes_per_s": BANDWIDTH, "l2_bytes": CACHE} | given
    row: Roofline = roofline(flops, nbytes, time_ns, **facts)
    return {name: getattr(row, name)[0] for name in row.__dataclass_fields__}


def test_rates_are_counts_over_time() -> None:
    row = place(flops=50e9, nbytes=20e6, time_ns=1e6)

    assert row["tflops"] == pytest.approx(50)
    assert row["gbps"] == pytest.approx(20)
    assert row["intensity"] == 2500


@pytest.mark.parametrize(
    ("flops", "nbytes", "time_ns", "pct", "bound"),
    [
        # 50 GFLOP take 500 µs, 20 MB take 20 µs.
        pytest.param(50e9, 20e6, 1e6, 50, "compute", id="compute"),
        # 1 GFLOP takes 10 µs, 800 MB take 800 µs.
        pytest.param(1e9, 800e6, 1e6, 80, "memory", id="memory"),
        pytest.param(0, 800e6, 1e6, 80, "memory", id="no FLOPs"),
        pytest.param(50e9, 0, 1e6, 50, "compute", id="no bytes"),
        # 100 kFLOP take 1 ns, 10 kB take 10 ns: 0.2 % of 5 µs.
        pytest.param(1e5, 1e4, 5e3, 0.2, "latency", id="short and far below both roofs"),
        pytest.param(1e5, 1e4, 20e3, 0.05, "memory", id="far below, but not short"),
        pytest.param(1e5, 1e5, 5e3, 2, "memory", id="short, but not far below"),
    ],
)
def test_the_longer_of_the_two_least_times_is_the_roof(
    flops: float, nbytes: float, time_ns: float, pct: float, bound: str
) -> None:
    row = place(flops, nbytes, time_ns)

    assert row["roofline_pct"] == pytest.approx(pct)
    assert row["bound"] == bound
    assert row["flag"] is None


@pytest.mark.parametrize(
    ("flops", "nbytes", "time_ns", "flag"),
    [
        pytest.param(0, 8e6, 8e3 / 1.04, None, id="104 % is within the tolerance"),
        pytest.param(0, 80e6, 40e3, "bytes", id="80 MB at 2 TB/s do not"),
        pytest.param(50e9, 0, 250e3, "flops", id="twice the peak"),
        pytest.param(50e9, 8e6, 4e3, "flops", id="both: FLOPs count first"),
    ],
)
def test_a_value_above_its_roof_has_a_reason(
    flops: float, nbytes: float, time_ns: float, flag: str | None
) -> None:
    row = place(flops, nbytes, time_ns)

    assert row["roofline_pct"] > 100
    assert (row["flag"] and row["flag"].split(":")[0]) == flag


@pytest.mark.parametrize(
    ("l2_bytes_per_s", "pct", "flag"),
    [
        # 8 MB in 4 µs are 2 TB/s: twice the memory's bandwidth, and half of this cache's.
        pytest.param(4e12, 50, "l2", id="held against the cache"),
        pytest.param(NAN, NAN, "l2", id="its bandwidth is not known"),
        pytest.param(1.5e12, 400 / 3, "bytes", id="too fast even for the cache"),
    ],
)
def test_bytes_that_come_out_of_the_cache_have_its_bandwidth_as_their_roof(
    l2_bytes_per_s: float, pct: float, flag: str
) -> None:
    row = place(0, 8e6, 4e3, l2_bytes_per_s=l2_bytes_per_s)

    assert row["roofline_pct"] == pytest.approx(pct, nan_ok=True)
    assert row["flag"].split(":")[0] == flag


@pytest.mark.parametrize(
    ("nbytes", "bytes_lo", "pct", "flag"),
    [
        pytest.param(900e6, 100e6, 90, None, id="the estimate is possible"),
        pytest.param(1500e6, 100e6, NAN, None, id="the estimate is refuted, the bound is not"),
        pytest.param(1500e6, 1200e6, 150, "bytes", id="even the bound is too much"),
        pytest.param(1500e6, NAN, 150, "bytes", id="no bound: the count is exact"),
    ],
)
def test_an_estimate_that_the_clock_refutes_has_no_percentage(
    nbytes: float, bytes_lo: float, pct: float, flag: str | None
) -> None:
    row = place(0, nbytes, 1e6, bytes_lo=bytes_lo)

    assert row["roofline_pct"] == pytest.approx(pct, nan_ok=True)
    assert (row["flag"] and row["flag"].split(":")[0]) == flag
    assert (row["bound"] is None) == math.isnan(pct)


def test_flops_have_a_lower_bound_too() -> None:
    # 150 GFLOP in 1 ms are 150 TFLOP/s of 100; half of them, a causal attention's, are possible.
    assert math.isnan(place(150e9, 0, 1e6, flops_lo=75e9)["roofline_pct"])
    assert place(150e9, 0, 1e6, flops_lo=120e9)["roofline_pct"] == pytest.approx(150)


@pytest.mark.parametrize(
    ("change", "unknown"),
    [
        pytest.param({"flops": NAN}, {"tflops", "intensity", "roofline_pct"}, id="flops"),
        pytest.param({"nbytes": NAN}, {"gbps", "intensity", "roofline_pct"}, id="bytes"),
        pytest.param({"time_ns": NAN}, {"tflops", "gbps", "roofline_pct"}, id="time"),
        pytest.param({"time_ns": 0}, {"tflops", "gbps", "roofline_pct"}, id="no time"),
        pytest.param({"peak_flops": NAN}, {"roofline_pct"}, id="peak"),
        pytest.param({"memory_bytes_per_s": NAN}, {"roofline_pct"}, id="bandwidth"),
        pytest.param({"l2_bytes": NAN}, set(), id="cache"),
        pytest.param({"nbytes": 0}, {"intensity"}, id="no bytes"),
        pytest.param(
            {"flops": 0, "nbytes": 0}, {"intensity", "roofline_pct"}, id="an op that does nothing"
        ),
    ],
)
def test_unknown_in_is_unknown_out(change: dict[str, float], unknown: set[str]) -> None:
    row = place(**({"flops": 50e9, "nbytes": 8e6, "time_ns": 1e3} | change))
    numbers = {"tflops", "gbps", "intensity", "roofline_pct"}

    assert {name for name in numbers if math.isnan(row[name])} == unknown
    assert (row["bound"] is None) == ("roofline_pct" in unknown)
    assert (row["flag"] is None) == ("roofline_pct" in unknown)


@pytest.mark.parametrize(
    ("low", "pct"),
    [
        # 1 GFLOP and 800 MB in 1 ms: the memory takes 800 µs.
        pytest.param(10e12, 80, id="at 10 TFLOP/s 100 µs: the memory decides"),
        pytest.param(1e12, NAN, id="at 1 TFLOP/s 1000 µs: it may be the roof"),
        pytest.param(NAN, NAN, id="nothing known"),
    ],
)
def test_an_unknown_peak_matters_only_if_it_can_be_the_roof(low: float, pct: float) -> None:
    row = place(1e9, 800e6, 1e6, peak_flops=NAN, peak_flops_low=low)

    assert row["roofline_pct"] == pytest.approx(pct, nan_ok=True)
    assert row["bound"] == (None if math.isnan(pct) else "memory")


def test_columns_give_columns() -> None:
    result = roofline(
        flops=np.array([50e9, 0, NAN]),
        nbytes=np.array([20e6, 800e6, 1]),
        time_ns=np.array([10**6, 10**6, 10**6]),
        peak_flops=PEAK,
        memory_bytes_per_s=BANDWIDTH,
    )

    assert result.roofline_pct.tolist() == pytest.approx([50, 80, NAN], nan_ok=True)
    assert result.bound.tolist() == ["compute", "memory", None]
    assert result.tflops.dtype == np.float64


def test_no_rows_give_no_rows() -> None:
    empty = np.empty(0)

    assert roofline(empty, empty, empty, empty, empty).roofline_pct.shape == (0,)


@given(st.floats(1, 1e15), st.floats(1, 1e12), st.floats(1, 1e12), st.floats(2, 1e3))
def test_percentage_is_inverse_to_time(
    flops: float, nbytes: float, time_ns: float, factor: float
) -> None:
    short, long = place(flops, nbytes, time_ns), place(flops, nbytes, time_ns * factor)
    expected = long["roofline_pct"] * factor
    # What comes out above its roof is refuted, if a cache may have helped: no percentage at all.
    if expected <= FLAG_PCT or not np.isnan(short["roofline_pct"]):
        assert short["roofline_pct"] == pytest.approx(expected)


# --------------------------------------------------------------------------- choosing a peak


@pytest.mark.parametrize(
    ("device", "dtype", "verdict", "tf32", "peak"),
    [
        pytest.param("H100 SXM", "bf16", "yes", None, (989.4, 989.4), id="Tensor Cores"),
        pytest.param("H100 SXM", "f32", "yes", None, (494.7, 494.7), id="f32 on them is TF32"),
        pytest.param("H100 SXM", "f32", "yes", False, (494.7, 494.7), id="whatever was asked for"),
        pytest.param("H100 SXM", "f32", "no", True, (66.9, 66.9), id="f32 on CUDA cores"),
        pytest.param("H100 SXM", "f64", "yes", None, (66.9, 66.9), id="f64 on Tensor Cores"),
        pytest.param("H100 SXM", "f64", "no", None, (33.45, 33.45), id="f64 on CUDA cores"),
        pytest.param("H100 SXM", "f8e4m3", "yes", None, (1978.9, 1978.9), id="fp8"),
        pytest.param("H100 SXM", "qi8", "yes", None, (1978.9, 1978.9), id="quantised int8"),
        pytest.param("H100 SXM", "u8", "yes", None, (1978.9, 1978.9), id="unsigned int8"),
        pytest.param("H100 SXM", "c64", "yes", None, (494.7, 494.7), id="complex in parts"),
        pytest.param("H100 SXM", "c128", "no", None, (33.45, 33.45), id="complex double"),
        pytest.param("H100 SXM", "f4e2m1", "yes", None, (None, None), id="no fp4 on Hopper"),
        pytest.param("H100 SXM", "i64", "no", None, (66.9, 66.9), id="integers: below f32"),
        pytest.param("H100 SXM", "bool", "no", None, (66.9, 66.9), id="bool"),
        pytest.param("H100 SXM", "i64", "unknown", None, (66.9, 66.9), id="one peak only"),
        pytest.param("H100 SXM", "bf16", "unknown", None, (None, 133.8), id="one of two peaks"),
        pytest.param("RTX 3090", "f32", "unknown", None, (35.6, 35.6), id="both peaks agree"),
        pytest.param("V100 SXM2", "f32", "unknown", None, (15.7, 15.7), id="no TF32 on Volta"),
        pytest.param("V100 SXM2", "bf16", "yes", None, (None, None), id="no bf16 on Volta"),
        pytest.param("V100 SXM2", "i8", "no", None, (62.8, 62.8), id="dp4a"),
        pytest.param("B200", "bf16", "no", None, (None, 75), id="16-bit vectors not in the sheet"),
        pytest.param("MI300X", "f32", "yes", None, (163.4, 163.4), id="AMD: full f32"),
        pytest.param("MI300X", "f32", "yes", True, (653.7, 653.7), id="AMD: TF32 if asked for"),
        pytest.param("MI355X", "f32", "yes", True, (157.3, 157.3), id="MI355X has no TF32"),
        pytest.param("H100 SXM", None, "yes", None, (None, None), id="dtype not known"),
        pytest.param("H100 SXM", "", "yes", None, (None, None), id="empty dtype"),
        pytest.param(None, "f32", "no", None, (None, None), id="device not known"),
    ],
)
def test_peak_is_that_of_the_unit_that_did_it(
    device: str | None,
    dtype: str | None,
    verdict: str,
    tf32: bool | None,  # noqa: FBT001 -- pytest passes it by name
    peak: tuple[float | None, float | None],
) -> None:
    expected = [None if value is None else pytest.approx(value * 1e12) for value in peak]

    assert (
        list(peak_for(BY_NAME[device] if device else None, dtype, verdict, tf32=tf32)) == expected
    )


def test_peak_of_a_device_file_with_little_in_it() -> None:
    device = Device("mine", "", None, 1e12, {}, {"f64": 1e12}, None, "mine")

    assert peak_for(device, "f32", "no") == ComputePeak(None, None)
    assert peak_for(device, "bf16", "unknown") == ComputePeak(None, None)
    assert peak_for(device, "f64", "unknown") == ComputePeak(1e12, 1e12)


@pytest.mark.parametrize(
    ("device", "dtype", "peak", "unit"),
    [
        pytest.param("V100 SXM2", "f32", 15.7e12, "f32 on vector lanes", id="no TF32 on Volta"),
        pytest.param("V100 SXM2", "f16", 125e12, "f16 on matrix units", id="f16 on Volta"),
        pytest.param("A100 SXM 40GB", "f32", 156e12, "TF32 on matrix units", id="TF32"),
        pytest.param("H100 SXM", "bf16", 989.4e12, "bf16 on matrix units", id="bf16"),
        pytest.param("MI210", "f32", 45.3e12, "f32 on matrix units", id="full f32 on AMD"),
        pytest.param("GP100", "f32", 10.3e12, "f32 on vector lanes", id="no matrix units"),
    ],
)
def test_the_highest_peak_is_that_of_the_fastest_unit_for_the_dtype(
    device: str, dtype: str, peak: float, unit: str
) -> None:
    highest = highest_peak(BY_NAME[device], dtype)

    assert highest is not None
    assert highest[0] == pytest.approx(peak)
    assert highest[1] == unit


@pytest.mark.parametrize(
    ("device", "dtype", "peak"),
    [
        pytest.param("A100 SXM 40GB", "f32", 19.5e12, id="f32 beside TF32"),
        pytest.param("A100 SXM 40GB", "f16", 78e12, id="f16 at four times the rate of f32"),
        pytest.param("MI300X", "f32", None, id="matrix units are no faster"),
        pytest.param("MI300X", "bf16", None, id="the vector rate is not stated"),
        pytest.param("V100 SXM2", "f32", None, id="no matrix units for the dtype"),
        pytest.param("H100 SXM", None, None, id="no dtype"),
    ],
)
def test_a_vector_peak_is_known_only_where_matrix_units_exceed_it(
    device: str, dtype: str | None, peak: float | None
) -> None:
    assert vector_peak(BY_NAME[device], dtype) == peak
