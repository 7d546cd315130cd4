"""Times on another device: by hand, and the laws that hold for all."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.hardware.devices import DEVICES, Device
from pyprof2.analysis.prediction.model import (
    EXTRAPOLATED,
    KEPT,
    KINDS,
    Work,
    WorkUnit,
    half_width,
    is_same_chip,
    predict,
    reached,
    shares_of_groups,
)
from pyprof2.analysis.prediction.parameters import eta_of, shipped

BY_NAME = {device.name: device for device in DEVICES}
PARAMETERS = msgspec.structs.replace(
    shipped(),
    classes={"normal": {"f32": 0.8, "16": 0.75, "mem": 0.8}, "low": {"f32": 0.5}},
    devices={},
    keep={"linear": 0.25, "batched": 0.4, "softmax": 0.4, "norm": 0.3, "elementwise": 0.9},
)
V100, A100, H100 = (BY_NAME[name] for name in ("V100 PCIe", "A100 PCIe 80GB", "H100 SXM"))
T4, P100, MI300X, MI210 = (BY_NAME[name] for name in ("T4", "P100 PCIe", "MI300X", "MI210"))
UNITS = [
    WorkUnit("f32", "no"),
    WorkUnit("f16", "yes"),
    WorkUnit("f32", "yes"),
    WorkUnit("bf16", "yes"),
]


def work(**columns: object) -> Work:
    """Return kernels; what is not given is one product in float32."""
    count = len(columns.get("time", [1e6]))  # type: ignore[arg-type]
    usual = {
        "time": np.full(count, 1e6), "flops": np.full(count, 1e9), "bytes": np.full(count, 1e6),
        "kind": np.zeros(count, np.int64), "unit": np.zeros(count, np.int64), "units": UNITS,
        "is_kept": np.zeros(count, bool),
    }  # fmt: skip
    given = {n: v if n == "units" else np.asarray(v) for n, v in columns.items()}
    return Work(**(usual | given))  # type: ignore[arg-type]


def time_of(found: Work, source: Device, target: Device) -> float:
    return float(predict(found, source, target, PARAMETERS).time[0])


def test_a_product_is_predicted_as_by_hand() -> None:
    one = work(time=[10e6], flops=[50e9], bytes=[10e6])
    # 50 GFLOP at 0.8 of 14 and of 19.5 TFLOP/s; 10 MB at 0.8 of 900 and of 1935 GB/s.
    here = ((50e9 / 11.2e12) ** 4 + (10e6 / 720e9) ** 4) ** 0.25 * 1e9 + 3000
    there = ((50e9 / 15.6e12) ** 4 + (10e6 / 1548e9) ** 4) ** 0.25 * 1e9 + 3000
    r = math.log(10e6 / here)
    assert r > 0.7
    kept = 0.25 * 0.7 + (r - 0.7)

    assert time_of(one, V100, A100) == pytest.approx(there * math.exp(kept), rel=1e-9)


def test_what_is_beyond_noise_carries_over_whole() -> None:
    usual, slow = (work(time=[t], flops=[50e9]) for t in (5e6, 50e6))
    factor = time_of(slow, V100, A100) / time_of(usual, V100, A100)
    residual = math.log(50e6 / 5e6)

    assert 10**0.25 < factor < 10
    assert math.log(factor) < residual


def test_the_same_chip_keeps_all_of_the_residual() -> None:
    one = work(time=[5e6], flops=[0.0], bytes=[1e9], kind=[KINDS.index("softmax")])
    other = replace(A100, name="half", memory_bytes_per_s=A100.memory_bytes_per_s / 2)  # type: ignore[operator]
    floor = PARAMETERS.floor_ns
    here = 1e9 / (0.8 * 1935)

    ratio = (2 * here + floor) / (here + floor)
    assert time_of(one, A100, other) == pytest.approx(5e6 * ratio, rel=1e-9)
    assert is_same_chip(A100, BY_NAME["A100 SXM 40GB"])
    assert not is_same_chip(BY_NAME["MI100"], MI210)
    assert not is_same_chip(H100, BY_NAME["MI250"])
    assert not is_same_chip(Device("a", "", None, 1, {}, {}, None, ""), V100)


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_the_device_itself_takes_what_was_recorded(device: Device) -> None:
    many = work(
        time=[1, 3000, 12345, 10**9], flops=[0, 1e9, math.nan, 1e12], bytes=[8, 1e6, 1e3, 1e9],
        kind=[4, 0, -1, 1], unit=[0, 2, 0, 1],
    )  # fmt: skip

    # Of some the bandwidth is not known, which is only right for the device itself.
    again = replace(device, source="copied") if device.memory_bytes_per_s else device

    found = predict(many, device, again, PARAMETERS)

    assert np.rint(found.time).astype(int).tolist() == [1, 3000, 12345, 10**9]


_POSITIVE = st.floats(1e3, 1e13)
_KINDS = st.integers(0, len(KINDS) - 1)


@given(_POSITIVE, _POSITIVE, st.floats(1e3, 1e9), _KINDS, st.integers(0, 2))
def test_twice_the_peaks_and_the_bandwidth_halve_all_but_the_floor(
    flops: float, nbytes: float, time: float, kind: int, unit: int
) -> None:
    one = work(time=[time], flops=[flops], bytes=[nbytes], kind=[kind], unit=[unit])
    twice = replace(
        A100, name="twice", memory_bytes_per_s=2 * A100.memory_bytes_per_s,  # type: ignore[operator]
        matrix_flop_per_s={n: 2 * p for n, p in A100.matrix_flop_per_s.items()},
        vector_flop_per_s={n: 2 * p for n, p in A100.vector_flop_per_s.items()},
    )  # fmt: skip
    once, doubled = (predict(one, V100, target, PARAMETERS) for target in (A100, twice))
    own = np.exp(once.kept_residual)
    floor = PARAMETERS.floor_ns

    assert doubled.kept_residual == pytest.approx(once.kept_residual)
    assert doubled.time / own - floor == pytest.approx((once.time / own - floor) / 2, rel=1e-6)


@given(_POSITIVE, _POSITIVE, st.floats(1e3, 1e9), _KINDS, st.floats(1, 10), st.booleans())
def test_more_peak_or_bandwidth_never_takes_longer(
    flops: float,
    nbytes: float,
    time: float,
    kind: int,
    factor: float,
    of_memory: bool,  # noqa: FBT001
) -> None:
    one = work(time=[time], flops=[flops], bytes=[nbytes], kind=[kind])
    more = (
        replace(A100, memory_bytes_per_s=factor * A100.memory_bytes_per_s)  # type: ignore[operator]
        if of_memory
        else replace(A100, vector_flop_per_s={"f32": factor * A100.vector_flop_per_s["f32"]})
    )

    assert time_of(one, V100, more) <= time_of(one, V100, A100) * (1 + 1e-12)


def test_without_counts_or_kind_the_bandwidths_decide() -> None:
    many = work(
        time=[900.0, 900.0, 900.0, 900.0], flops=[math.nan, 1e9, 0.0, 1e9],
        bytes=[1e6, 1e6, 0.0, 1e6], kind=[0, -1, 0, 0], is_kept=[False, False, False, True],
    )  # fmt: skip

    found = predict(many, V100, A100, PARAMETERS)

    assert found.group.tolist() == [EXTRAPOLATED, EXTRAPOLATED, EXTRAPOLATED, KEPT]
    assert found.time == pytest.approx([900 * 900 / 1935] * 3 + [900])
    assert shares_of_groups(found).sum() == pytest.approx(1)


def test_tf32_is_used_where_the_source_used_it_and_the_target_has_it() -> None:
    tf32, plain = (WorkUnit("f32", matrix) for matrix in ("yes", "no"))

    assert tf32.peak(H100, A100) == H100.matrix_flop_per_s["tf32"]
    assert tf32.peak(V100, A100) == V100.vector_flop_per_s["f32"]
    assert plain.peak(H100, V100) == H100.vector_flop_per_s["f32"]
    # AMD's matrix cores multiply plain float32, which NVIDIA's do not.
    assert tf32.peak(A100, MI300X) == A100.vector_flop_per_s["f32"]
    assert tf32.peak(MI210, MI300X) == MI210.matrix_flop_per_s["f32"]
    assert (tf32.share_of(H100, A100), tf32.share_of(V100, A100)) == ("16", "f32")


def test_matrix_units_without_a_stated_peak_are_not_taken_for_vector_lanes() -> None:
    f16 = WorkUnit("f16", "yes")

    assert math.isnan(f16.peak(BY_NAME["RTX PRO 6000 Server"], A100))
    assert f16.peak(P100, A100) == P100.vector_flop_per_s["f16"]
    assert f16.peak(V100, A100) == V100.matrix_flop_per_s["f16"]


def test_a_dtype_that_a_device_lacks_is_said() -> None:
    bf16, f16, f8 = (WorkUnit(dtype, "yes") for dtype in ("bf16", "f16", "f8e4m3"))

    assert [bf16.is_lacking(each) for each in (V100, T4, A100, MI300X)] == [
        True,
        True,
        False,
        False,
    ]
    assert [f8.is_lacking(each) for each in (A100, BY_NAME["L4"], H100)] == [True, False, False]
    assert not any(f16.is_lacking(each) for each in (P100, V100))
    assert not WorkUnit("f32", "no").is_lacking(P100)
    assert not WorkUnit(None, None).is_lacking(P100)
    assert math.isnan(bf16.peak(V100, A100))


def test_an_undecided_unit_counts_only_where_it_does_not_matter() -> None:
    units = [WorkUnit("f16", "unknown")]
    many = work(flops=[1e6, 1e12], bytes=[1e9, 1e6], time=[2e6, 20e6], units=units, unit=[0, 0])

    assert (predict(many, V100, A100, PARAMETERS).group == EXTRAPOLATED).tolist() == [False, True]


def test_what_was_measured_is_halfway_between_it_and_its_class() -> None:
    parameters = msgspec.structs.replace(PARAMETERS, devices={"T4": {"f32": 0.4}})

    found = eta_of(parameters, T4, "f32")
    assert found.value == pytest.approx(math.sqrt(0.4 * 0.5))
    assert found.source == "measured"
    assert eta_of(parameters, T4, "16") == (0.75, "class")
    assert eta_of(parameters, V100, "f32") == (0.8, "class")
    assert eta_of(parameters, replace(T4, eta={"f32": 0.9}), "f32") == (0.9, "file")


def test_intervals_are_wider_for_other_vendors_and_cards_of_few_watts() -> None:
    shares = np.array([1.0, 0, 0, 0])
    sigma = PARAMETERS.sigma

    usual = half_width(shares, V100, A100, PARAMETERS, 0.8)
    assert usual == pytest.approx(1.2816 * math.hypot(sigma.compute, sigma.base), rel=1e-3)
    assert half_width(shares, V100, T4, PARAMETERS, 0.8) > usual
    assert half_width(shares, T4, V100, PARAMETERS, 0.8) > usual
    assert half_width(shares, V100, MI300X, PARAMETERS, 0.8) > 1.2816 * sigma.vendor
    assert half_width(shares, V100, A100, PARAMETERS, 0.9) > usual


def test_long_kernels_show_what_is_reached() -> None:
    half = 0.5 * V100.vector_flop_per_s["f32"] / 1e9
    stream = 0.9 * V100.memory_bytes_per_s / 1e9  # type: ignore[operator]
    time = np.array([1e6, 1e6, 1e6, 1e3, 1e6])
    many = work(
        time=time, flops=[half * 1e6, half * 1e6, 0, 1e3, 1], kind=[0, 0, 4, 0, 2],
        bytes=[1, 1, stream * 1e6, 1, 1e9],
    )  # fmt: skip

    assert reached(many, V100) == pytest.approx({"f32": 0.5, "mem": 0.9})
    assert reached(work(time=[10.0]), V100) == {}
