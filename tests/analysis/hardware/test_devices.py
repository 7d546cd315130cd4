"""The device table: what it holds fits the chips, and a name finds its own device only."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import sqlite3
from typing import TYPE_CHECKING

import pytest

from pyprof2.analysis.hardware import devices
from pyprof2.analysis.hardware.devices import (
    DEVICES,
    capacity_bytes,
    device_named,
    find_device,
    load_device,
)
from pyprof2.analysis.hardware.verdict import find_peaks
from pyprof2.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.analysis.hardware.devices import Device

BY_NAME = {device.name: device for device in DEVICES}
GEFORCE = [
    "RTX 2070", "RTX 2070 SUPER", "RTX 2080", "RTX 2080 SUPER", "RTX 2080 Ti", "RTX 3060 Ti",
    "RTX 3070", "RTX 3070 Ti", "RTX 3080 10GB", "RTX 3080 12GB", "RTX 3080 Ti", "RTX 3090",
    "RTX 3090 Ti", "RTX 4070", "RTX 4070 SUPER", "RTX 4070 Ti", "RTX 4070 Ti SUPER", "RTX 4080",
    "RTX 4080 SUPER", "RTX 4090", "RTX 5090",
    "RTX 2060 SUPER", "RTX 2060 6GB", "RTX 2060 12GB", "RTX 3060 12GB", "RTX 3060 8GB",
    "RTX 3050 8GB", "RTX 3050 6GB", "RTX 3050 Laptop", "RTX 3060 Laptop", "RTX 3070 Laptop",
    "RTX 3070 Ti Laptop", "RTX 3080 Laptop", "RTX 4060", "RTX 4060 Ti", "RTX 4090 D",
    "RTX 4050 Laptop", "RTX 4060 Laptop", "RTX 4070 Laptop", "RTX 4080 Laptop", "RTX 4090 Laptop",
    "RTX 5060", "RTX 5060 Ti", "RTX 5070", "RTX 5070 Ti", "RTX 5080",
]  # fmt: skip
GIB = 1 << 30

# Multiply-adds per clock and multiprocessor, from the vendors' architecture papers.
VECTOR_F32 = {
    "6.0": 64, "6.1": 128, "7.0": 64, "7.5": 64, "8.0": 64, "8.6": 128, "8.9": 128, "9.0": 128,
    "10.0": 128, "10.3": 128, "12.0": 128,
}  # fmt: skip
MATRIX_F16 = {
    "7.0": 512, "7.5": 512, "8.0": 1024, "8.6": 512, "8.9": 512, "9.0": 2048, "10.0": 4096,
    "10.3": 4096, "12.0": 512,
}  # fmt: skip
HALF_RATE = {*GEFORCE, "A10G", "L40"}
"""16-bit products with float32 accumulation at half of the chip's rate."""

# Multiprocessors, and the clocks in GHz that the vendor's numbers stand for: vector, matrix.
CLOCKS = {
    "GP100": (56, 1.442, 1.442), "P100 PCIe": (56, 1.303, 1.303),
    "P100 SXM2": (56, 1.480, 1.480), "P4": (20, 1.063, 1.063), "P4000": (14, 1.480, 1.480),
    "Quadro RTX 4000": (36, 1.545, 1.545), "V100 SXM2": (80, 1.530, 1.530),
    "V100 PCIe": (80, 1.370, 1.370), "V100S PCIe": (80, 1.597, 1.597), "T4": (40, 1.590, 1.590),
    "A100 SXM 40GB": (108, 1.410, 1.410), "A100 SXM 80GB": (108, 1.410, 1.410),
    "A100 PCIe 40GB": (108, 1.410, 1.410), "A100 PCIe 80GB": (108, 1.410, 1.410),
    "A30": (56, 1.440, 1.440), "A10": (72, 1.695, 1.695), "A10G": (80, 1.710, 1.710),
    "A16": (10, 1.755, 1.755), "A2": (10, 1.770, 1.770), "A40": (84, 1.740, 1.740),
    "RTX A6000": (84, 1.800, 1.800), "RTX A4000": (48, 1.560, 1.560),
    "RTX 3090": (82, 1.695, 1.695), "RTX 3080 10GB": (68, 1.710, 1.710),
    "RTX 3080 12GB": (70, 1.710, 1.710), "L4": (58, 2.040, 2.040), "L40": (142, 2.490, 2.490),
    "L40S": (142, 2.520, 2.490), "RTX 6000 Ada": (142, 2.505, 2.505),
    "RTX 4090": (128, 2.520, 2.520), "RTX 4080": (76, 2.505, 2.505),
    "RTX 5090": (170, 2.407, 2.407), "H100 SXM": (132, 1.980, 1.830),
    "H100 PCIe": (114, 1.755, 1.620), "H100 NVL": (132, 1.785, 1.545),
    "H200 SXM": (132, 1.980, 1.830), "H200 NVL": (132, 1.785, 1.545),
    "B200": (148, 1.980, 1.856), "B300 SXM": (148, 1.980, 1.856),
    "RTX 2070": (36, 1.620, 1.620), "RTX 2070 SUPER": (40, 1.770, 1.770),
    "RTX 2080": (46, 1.710, 1.710), "RTX 2080 SUPER": (48, 1.815, 1.815),
    "RTX 2080 Ti": (68, 1.545, 1.545), "RTX 3060 Ti": (38, 1.665, 1.665),
    "RTX 3070": (46, 1.725, 1.725), "RTX 3070 Ti": (48, 1.770, 1.770),
    "RTX 3080 Ti": (80, 1.665, 1.665), "RTX 3090 Ti": (84, 1.860, 1.860),
    "RTX 4070": (46, 2.475, 2.475), "RTX 4070 SUPER": (56, 2.475, 2.475),
    "RTX 4070 Ti": (60, 2.610, 2.610), "RTX 4070 Ti SUPER": (66, 2.610, 2.610),
    "RTX 4080 SUPER": (80, 2.550, 2.550), "RTX A5000": (64, 1.695, 1.695),
    "RTX 5000 Ada": (100, 2.550, 2.550), "RTX PRO 6000 Workstation": (188, 2.617, 2.617),
    "RTX PRO 6000 Max-Q": (188, 2.288, 2.288), "A800 SXM 80GB": (108, 1.410, 1.410),
    "A800 PCIe 80GB": (108, 1.410, 1.410), "A800 PCIe 40GB": (108, 1.410, 1.410),
    "A800 40GB Active": (108, 1.410, 1.410), "GH200 96GB": (132, 1.980, 1.830),
    "GH200 144GB": (132, 1.980, 1.830), "H800 SXM": (132, 1.980, 1.830),
    "H800 PCIe": (114, 1.755, 1.620),
    "RTX 2060 SUPER": (34, 1.650, 1.650), "RTX 2060 6GB": (30, 1.680, 1.680),
    "RTX 2060 12GB": (34, 1.650, 1.650), "TITAN RTX": (72, 1.770, 1.770),
    "Quadro RTX 5000": (48, 1.815, 1.815), "Quadro RTX 6000": (72, 1.770, 1.770),
    "Quadro RTX 8000": (72, 1.770, 1.770), "RTX 3060 12GB": (28, 1.777, 1.777),
    "RTX 3060 8GB": (28, 1.777, 1.777), "RTX 3050 8GB": (20, 1.777, 1.777),
    "RTX 3050 6GB": (18, 1.470, 1.470), "RTX 3050 Laptop": (16, 1.740, 1.740),
    "RTX 3060 Laptop": (30, 1.703, 1.703), "RTX 3070 Laptop": (40, 1.620, 1.620),
    "RTX 3070 Ti Laptop": (46, 1.485, 1.485), "RTX 3080 Laptop": (48, 1.710, 1.710),
    "RTX 5000 Ada Laptop": (76, 2.190, 2.190), "RTX A4500": (56, 1.650, 1.650),
    "RTX A5500": (80, 1.665, 1.665),
    "RTX A2000": (26, 1.200, 1.200), "RTX 4060": (24, 2.460, 2.460),
    "RTX 4060 Ti": (34, 2.535, 2.535), "RTX 4090 D": (114, 2.520, 2.520),
    "RTX 4050 Laptop": (20, 2.370, 2.370), "RTX 4060 Laptop": (24, 2.370, 2.370),
    "RTX 4070 Laptop": (36, 2.175, 2.175), "RTX 4080 Laptop": (58, 2.280, 2.280),
    "RTX 4090 Laptop": (76, 2.040, 2.040), "RTX 4500 Ada": (60, 2.580, 2.580),
    "RTX 4000 SFF Ada": (48, 1.560, 1.560), "RTX 2000 Ada": (22, 2.130, 2.130),
    "RTX 5060": (30, 2.497, 2.497), "RTX 5060 Ti": (36, 2.572, 2.572),
    "RTX 5070": (48, 2.512, 2.512), "RTX 5070 Ti": (70, 2.452, 2.452),
    "RTX 5080": (84, 2.617, 2.617), "TITAN V": (80, 1.455, 1.343),
}  # fmt: skip

# AMD: FLOPs per clock and compute unit: vector f32, matrix f16.
CDNA = {
    "MI100": (120, 1.502, 128, 1024),
    "MI210": (104, 1.7, 128, 1024), "MI250": (104, 1.7, 128, 1024),
    "MI250X": (110, 1.7, 128, 1024), "MI300X": (304, 2.1, 256, 2048),
    "MI325X": (304, 2.1, 256, 2048), "MI355X": (256, 2.4, 256, 4096),
    "MI300A": (228, 2.1, 256, 2048), "MI350X": (256, 2.2, 256, 4096),
}  # fmt: skip


def matrix(device: Device, dtype: str) -> float:
    return device.matrix_flop_per_s.get(dtype, 0) / 1e12


def vector(device: Device, dtype: str) -> float:
    return device.vector_flop_per_s.get(dtype, 0) / 1e12


def test_devices_have_names_of_their_own() -> None:
    assert len(BY_NAME) == len(DEVICES) >= 40


@pytest.mark.parametrize("name", CLOCKS)
def test_peaks_are_multiprocessors_times_operations_times_clock(name: str) -> None:
    device = BY_NAME[name]
    count, vector_ghz, matrix_ghz = CLOCKS[name]
    capability = device.compute_capability or ""
    lanes = VECTOR_F32[capability] * 2 * count * vector_ghz / 1e3
    units = MATRIX_F16.get(capability, 0) * 2 * count * matrix_ghz / 1e3

    assert vector(device, "f32") == pytest.approx(lanes, rel=0.015)
    assert matrix(device, "f16") == pytest.approx(
        units / 2 if name in HALF_RATE else units, rel=0.015
    )


@pytest.mark.parametrize("name", CDNA)
def test_peaks_of_amd_are_units_times_operations_times_clock(name: str) -> None:
    device = BY_NAME[name]
    count, ghz, lanes, units = CDNA[name]

    assert vector(device, "f32") == pytest.approx(count * ghz * lanes / 1e3, rel=0.015)
    assert matrix(device, "f16") == pytest.approx(count * ghz * units / 1e3, rel=0.015)


def test_h20_multiplies_at_a_quarter_of_the_chips_rate() -> None:
    # 78 multiprocessors at the clock that NVIDIA states Hopper's 16-bit peaks for.
    quarter = MATRIX_F16["9.0"] / 4 * 2 * 78 * 1.83 / 1e3

    assert matrix(BY_NAME["H20"], "f16") == pytest.approx(quarter, rel=0.015)
    assert "f32" not in BY_NAME["H20"].vector_flop_per_s


def test_every_device_but_five_is_checked_against_its_clock() -> None:
    # How many multiprocessors of GB200's chips are on, and the clocks of the RTX PRO 6000 for
    # servers, are in no data sheet; H20 has a test of its own.
    left = {"GB200", "RTX PRO 6000 Server", "H20", "MI308X", "RTX 500 Ada Laptop"}

    assert set(BY_NAME) - set(CLOCKS) - set(CDNA) == left


def test_memory_that_a_name_leaves_open_has_the_recorded_bandwidth_or_none() -> None:
    row = {"name": "NVIDIA GeForce RTX 3060 Ti", "memory_bytes_per_s": 608e9}

    found, unknown = find_peaks(row), find_peaks(row | {"memory_bytes_per_s": None})

    assert found is not None
    assert unknown is not None
    assert (found.memory_bytes_per_s, unknown.memory_bytes_per_s) == (608e9, None)
    assert found.source.endswith("bandwidth as recorded")


def test_what_a_data_sheet_states_is_not_overruled_by_the_recording() -> None:
    found = find_peaks({"name": "NVIDIA GeForce RTX 3090", "memory_bytes_per_s": 1e9})

    assert found == BY_NAME["RTX 3090"]


@pytest.mark.parametrize("name", BY_NAME)
def test_peaks_are_dense_and_in_the_ratios_of_the_architecture(name: str) -> None:
    device = BY_NAME[name]
    half = matrix(device, "f16")
    capability = device.compute_capability

    assert matrix(device, "bf16") in {0, half / 2 if name == "MI100" else half}
    assert matrix(device, "bf16") or not half or capability in {"7.0", "7.5"}
    if matrix(device, "tf32"):
        assert matrix(device, "tf32") == pytest.approx(half / 2, rel=0.02)
    if matrix(device, "f8"):
        assert matrix(device, "f8") == pytest.approx(half * 2, rel=0.02)
    if matrix(device, "f4"):
        blocks = 8 if name.startswith("RTX 50") else 4  # f4 accumulates at full rate there
        assert matrix(device, "f4") == pytest.approx(half * blocks, rel=0.02)
    if matrix(device, "i8"):
        ratio = 4 if name in GEFORCE else 1 if device.vendor == "amd" and half < 200 else 2
        assert matrix(device, "i8") == pytest.approx(half * ratio, rel=0.02)


@pytest.mark.parametrize("name", BY_NAME)
def test_double_precision_is_a_fixed_share_of_single(name: str) -> None:
    device = BY_NAME[name]
    share = {
        "6.1": 1 / 32, "7.5": 1 / 32, "8.6": 1 / 64, "8.9": 1 / 64, "12.0": 1 / 64, "10.3": 1 / 60,
    }.get(device.compute_capability or "", 0.5)  # fmt: skip
    if name in {"MI210", "MI250", "MI250X"}:
        share = 1
    if name in {"H800 SXM", "H800 PCIe", "H20"}:
        assert matrix(device, "f64") == vector(device, "f64") <= 1
        return

    assert vector(device, "f64") == pytest.approx(vector(device, "f32") * share, rel=0.03)


@pytest.mark.parametrize("name", BY_NAME)
def test_units_are_flop_and_bytes_per_second(name: str) -> None:
    device = BY_NAME[name]

    has_f32 = name not in {"H20", "MI308X"}
    assert not has_f32 or 1e12 < device.vector_flop_per_s["f32"] < 2e14
    assert all(5e11 < peak < 2e16 for peak in device.matrix_flop_per_s.values())
    assert device.memory_bytes_per_s is None or 1e11 < device.memory_bytes_per_s <= 8e12
    assert device.l2_bytes is None or 1 << 20 <= device.l2_bytes <= 1 << 28
    assert "dense" in device.source
    # The makers of laptops set the power; one card of a name may draw more than another.
    is_open = "Laptop" in name or name in {"RTX 4060 Ti", "MI308X"}
    assert device.watts is None if is_open else 60 <= (device.watts or 0) <= 1400


@pytest.mark.parametrize(
    ("name", "multiprocessors", "memory_bytes", "found"),
    [
        # As 26 real recordings name their devices, with the facts beside the name.
        pytest.param("Tesla V100-DGXS-32GB", 80, 34084028416, "V100 SXM2", id="DGX Station"),
        pytest.param("Tesla V100-SXM2-32GB", 80, 34079899648, "V100 SXM2", id="V100"),
        pytest.param("NVIDIA A100-PG509-200", 108, 42297524224, "A100 SXM 40GB", id="PG509"),
        pytest.param("Quadro GP100", 56, 17069309952, "GP100", id="GP100"),
        pytest.param("AMD Radeon Graphics", 104, 68702699520, None, id="no model in the name"),
        pytest.param("NVIDIA H100 80GB HBM3", 132, 85018279936, "H100 SXM", id="H100 SXM"),
        pytest.param("AMD Instinct MI300X", 304, 206141652992, "MI300X", id="MI300X"),
        pytest.param("AMD Instinct MI300X VF", 304, 205571227648, "MI300X", id="MI300X VF"),
        pytest.param("AMD Instinct MI210", 104, 68702699520, "MI210", id="MI210"),
        pytest.param("", 304, 206141652992, None, id="empty name"),
        pytest.param("NVIDIA B300 SXM6 AC", 148, 287431131136, "B300 SXM", id="B300"),
        pytest.param("NVIDIA A100-SXM4-80GB", 108, 84990623744, "A100 SXM 80GB", id="A100 80GB"),
        pytest.param("NVIDIA A100-SXM4-40GB", 108, 42297524224, "A100 SXM 40GB", id="A100 40GB"),
        pytest.param("NVIDIA GeForce RTX 3080", 68, 10736893952, "RTX 3080 10GB", id="3080"),
        # Variants.
        pytest.param("NVIDIA GeForce RTX 3080", 70, 12 * GIB, "RTX 3080 12GB", id="3080 12GB"),
        pytest.param("NVIDIA GeForce RTX 3080", None, None, None, id="3080, which?"),
        pytest.param("NVIDIA A100-PG509-200", 108, None, None, id="PG509, which memory?"),
        pytest.param("NVIDIA A100-PG509-200", 108, 84990623744, "A100 SXM 80GB", id="PG509 80GB"),
        pytest.param("NVIDIA A100 80GB PCIe", None, None, "A100 PCIe 80GB", id="A100 PCIe"),
        pytest.param("NVIDIA A100-PCIE-40GB", None, None, "A100 PCIe 40GB", id="A100 PCIe 40GB"),
        pytest.param("NVIDIA H100 PCIe", None, None, "H100 PCIe", id="H100 PCIe"),
        pytest.param("NVIDIA H100 NVL", None, None, "H100 NVL", id="H100 NVL"),
        pytest.param("NVIDIA H200", None, None, "H200 SXM", id="H200"),
        pytest.param("NVIDIA H200 NVL", None, None, "H200 NVL", id="H200 NVL"),
        pytest.param("NVIDIA GB200", 152, None, "GB200", id="GB200"),
        pytest.param("Tesla T4", 40, None, "T4", id="T4"),
        pytest.param("Tesla P100-PCIE-16GB", 56, None, "P100 PCIe", id="P100"),
        pytest.param("Tesla P100-SXM2-16GB", 56, None, "P100 SXM2", id="P100 SXM2"),
        pytest.param("Tesla P4", 20, None, "P4", id="P4"),
        pytest.param("Quadro P4000", 14, None, "P4000", id="P4000"),
        pytest.param("Quadro RTX 4000", 36, None, "Quadro RTX 4000", id="Turing's RTX 4000"),
        pytest.param("NVIDIA RTX 4000 Ada Generation", 48, None, None, id="Ada's RTX 4000"),
        pytest.param("AMD Instinct MI100", 120, None, "MI100", id="MI100"),
        pytest.param("NVIDIA L40S", 142, None, "L40S", id="L40S is no L40"),
        pytest.param("NVIDIA A10G", 80, None, "A10G", id="A10G is no A10"),
        pytest.param("NVIDIA RTX A6000", 84, None, "RTX A6000", id="A6000"),
        pytest.param("NVIDIA RTX 6000 Ada Generation", 142, None, "RTX 6000 Ada", id="Ada"),
        pytest.param("AMD Instinct MI250X / MI250", 104, None, "MI250", id="MI250 by its units"),
        pytest.param("AMD Instinct MI250X / MI250", 110, None, "MI250X", id="MI250X by its units"),
        pytest.param("NVIDIA GeForce RTX 2070", 36, None, "RTX 2070", id="2070"),
        pytest.param("GeForce RTX 2070 SUPER", 40, None, "RTX 2070 SUPER", id="2070 SUPER"),
        pytest.param("NVIDIA GeForce RTX 2080", 46, None, "RTX 2080", id="2080"),
        pytest.param("NVIDIA GeForce RTX 2080 SUPER", 48, None, "RTX 2080 SUPER", id="2080 SUPER"),
        pytest.param("GeForce RTX 2080 Ti", 68, None, "RTX 2080 Ti", id="2080 Ti"),
        pytest.param("NVIDIA GeForce RTX 3060 Ti", 38, None, "RTX 3060 Ti", id="3060 Ti"),
        pytest.param("NVIDIA GeForce RTX 3070", 46, None, "RTX 3070", id="3070"),
        pytest.param("NVIDIA GeForce RTX 3070 Ti", 48, None, "RTX 3070 Ti", id="3070 Ti"),
        pytest.param("NVIDIA GeForce RTX 3080 Ti", 80, None, "RTX 3080 Ti", id="3080 Ti"),
        pytest.param("NVIDIA GeForce RTX 3090 Ti", 84, None, "RTX 3090 Ti", id="3090 Ti"),
        pytest.param("NVIDIA GeForce RTX 4070", 46, None, "RTX 4070", id="4070"),
        pytest.param("NVIDIA GeForce RTX 4070 SUPER", 56, None, "RTX 4070 SUPER", id="4070 SUPER"),
        pytest.param("NVIDIA GeForce RTX 4070 Ti", 60, None, "RTX 4070 Ti", id="4070 Ti"),
        pytest.param(
            "NVIDIA GeForce RTX 4070 Ti SUPER", 66, None, "RTX 4070 Ti SUPER", id="4070 Ti SUPER"
        ),
        pytest.param("NVIDIA GeForce RTX 4080 SUPER", 80, None, "RTX 4080 SUPER", id="4080 SUPER"),
        pytest.param("NVIDIA RTX A5000", 64, None, "RTX A5000", id="A5000"),
        pytest.param("NVIDIA RTX 5000 Ada Generation", 100, None, "RTX 5000 Ada", id="5000 Ada"),
        pytest.param(
            "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            188,
            None,
            "RTX PRO 6000 Workstation",
            id="RTX PRO 6000",
        ),
        pytest.param(
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            188,
            None,
            "RTX PRO 6000 Max-Q",
            id="RTX PRO 6000 Max-Q",
        ),
        pytest.param(
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            188,
            None,
            "RTX PRO 6000 Server",
            id="RTX PRO 6000 for servers",
        ),
        pytest.param("NVIDIA A800-SXM4-80GB", 108, None, "A800 SXM 80GB", id="A800 is no A100"),
        pytest.param("NVIDIA A800 80GB PCIe", 108, None, "A800 PCIe 80GB", id="A800 PCIe"),
        pytest.param("NVIDIA A800 40GB Active", 108, None, "A800 40GB Active", id="A800 Active"),
        pytest.param("NVIDIA H20", 78, 102625181696, "H20", id="H20 is no H200"),
        pytest.param("NVIDIA H800", 132, None, "H800 SXM", id="H800"),
        pytest.param("NVIDIA H800 PCIe", 114, None, "H800 PCIe", id="H800 PCIe"),
        pytest.param("NVIDIA GH200 480GB", 132, 102005473280, "GH200 96GB", id="480 GB of the CPU"),
        pytest.param("NVIDIA GH200 144G HBM3e", 132, None, "GH200 144GB", id="GH200 with HBM3e"),
        pytest.param("AMD Instinct MI325X", 304, None, "MI325X", id="MI325X"),
        pytest.param("AMD Instinct MI355X", 256, None, "MI355X", id="MI355X"),
        pytest.param("h100 sxm", None, None, "H100 SXM", id="our own name"),
        # What only looks like a device of the table.
        pytest.param("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16, None, None, id="slice, by name"),
        pytest.param("NVIDIA H100 80GB HBM3", 16, None, None, id="slice, by its size"),
        pytest.param("AMD Instinct MI300X", 38, None, None, id="partition"),
        pytest.param(
            "NVIDIA GeForce RTX 4090 Laptop GPU", 76, None, "RTX 4090 Laptop", id="laptop"
        ),
        pytest.param("NVIDIA GeForce RTX 4090 D", 114, None, "RTX 4090 D", id="4090 D"),
        pytest.param(
            "NVIDIA GeForce RTX 3080 Laptop GPU", 48, None, "RTX 3080 Laptop", id="3080 laptop"
        ),
        pytest.param("NVIDIA GeForce RTX 3080 Ti Laptop GPU", 58, None, None, id="3080 Ti laptop"),
        pytest.param(
            "NVIDIA GeForce RTX 4070 Laptop GPU", 36, None, "RTX 4070 Laptop", id="4070 laptop"
        ),
        pytest.param("GeForce RTX 2080 with Max-Q Design", 46, None, None, id="2080 Max-Q"),
        pytest.param("GeForce RTX 2080 Super with Max-Q Design", 48, None, None, id="2080S Max-Q"),
        pytest.param("Quadro RTX 5000", 48, None, "Quadro RTX 5000", id="Turing's RTX 5000"),
        pytest.param("Quadro RTX 6000", 72, None, "Quadro RTX 6000", id="Turing's RTX 6000"),
        pytest.param("NVIDIA RTX A5500", 80, None, "RTX A5500", id="A5500 is no A5000"),
        pytest.param("NVIDIA RTX A5000 Laptop GPU", 48, None, None, id="A5000 laptop"),
        pytest.param(
            "NVIDIA RTX 5000 Ada Generation Laptop GPU",
            76,
            None,
            "RTX 5000 Ada Laptop",
            id="Ada laptop",
        ),
        pytest.param("NVIDIA H20-3e", 78, None, None, id="H20 with other memory"),
        pytest.param("NVIDIA H20", 78, 151 * 10**9, None, id="H20 with 141 GB"),
        pytest.param("NVIDIA H800 NVL", 132, None, None, id="H800 NVL"),
        pytest.param("NVIDIA GH200", 132, None, None, id="GH200, which memory?"),
        pytest.param("NVIDIA RTX PRO 6000", 188, None, None, id="RTX PRO 6000, which edition?"),
        pytest.param("NVIDIA RTX PRO 5000 Blackwell", 110, None, None, id="RTX PRO 5000"),
        pytest.param("AMD Instinct MI325X", 38, None, None, id="partition of an MI325X"),
    ],
)
def test_a_name_finds_its_own_device_only(
    name: str, multiprocessors: int | None, memory_bytes: int | None, found: str | None
) -> None:
    device = find_device(name, multiprocessors, memory_bytes=memory_bytes)

    assert (device and device.name) == found


def test_no_name_finds_two_devices_of_the_table() -> None:
    assert [find_device(device.name) for device in DEVICES] == list(DEVICES)


def test_a_lower_recorded_clock_lowers_the_peaks() -> None:
    full = BY_NAME["H100 SXM"]
    low = find_device("NVIDIA H100 80GB HBM3", clock_hz=0.99e9)

    assert low is not None
    assert low.vector_flop_per_s["f32"] == pytest.approx(66.9e12 / 2)
    assert low.matrix_flop_per_s["bf16"] == pytest.approx(989.4e12 * 0.99 / 1.83)
    assert low.memory_bytes_per_s == full.memory_bytes_per_s
    assert "0.99 GHz" in low.source


def test_between_its_two_clocks_only_the_vector_peak_is_lower() -> None:
    device = find_device("NVIDIA H100 80GB HBM3", clock_hz=1.83e9)

    assert device is not None
    assert device.matrix_flop_per_s["bf16"] == 989.4e12
    assert device.vector_flop_per_s["f32"] == pytest.approx(66.9e12 * 1.83 / 1.98)


@pytest.mark.parametrize("clock_hz", [1.98e9, 2.4e9, None, 0])
def test_a_higher_or_unknown_clock_changes_nothing(clock_hz: float | None) -> None:
    assert find_device("NVIDIA H100 80GB HBM3", clock_hz=clock_hz) == BY_NAME["H100 SXM"]


# --------------------------------------------------------------------------- a user's file

FILE = {
    "name": "My GPU",
    "memory_gb_per_s": 3350,
    "vector_tflops": {"f32": 66.9},
    "matrix_tflops": {"bf16": 989.4, "tf32": 494.7},
    "l2_mib": 50,
    "vendor": "nvidia",
    "compute_capability": "9.0",
    "source": "measured",
}


def test_a_file_describes_a_device(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(FILE), encoding="utf-8")

    device = load_device(path)

    assert device.memory_bytes_per_s == 3350e9
    assert device.vector_flop_per_s == {"f32": 66.9e12}
    assert device.matrix_flop_per_s == {"bf16": 989.4e12, "tf32": 494.7e12}
    assert device.l2_bytes == 50 * 1024 * 1024
    assert (device.name, device.vendor, device.source) == ("My GPU", "nvidia", "measured")


def test_a_file_says_what_long_kernels_reach(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    more = {"watts": 70, "eta": {"f32": 0.5, "mem": 0.8}, "eta_source": "my benchmark"}
    path.write_text(json.dumps(FILE | more), encoding="utf-8")

    device = load_device(path)

    assert (device.watts, device.eta) == (70, {"f32": 0.5, "mem": 0.8})
    assert device.eta_source == "my benchmark"
    path.write_text(json.dumps(FILE | {"eta": {"f64": 0.5}}), encoding="utf-8")
    with pytest.raises(UsageError, match="f64"):
        load_device(path)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("h100-sxm", "H100 SXM"),
        ("A100-SXM-80", "A100 SXM 80GB"),
        ("P4", "P4"),
        ("RTX 4000", "Quadro RTX 4000"),
        ("MI100", "MI100"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("L4", "L4"),
    ],
)
def test_a_short_name_is_of_one_device(text: str, name: str) -> None:
    assert device_named(text).name == name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A100-80", "which of A100 SXM 80GB, A100 PCIe 80GB"),
        ("P100", "which of P100 PCIe, P100 SXM2"),
        ("H100", "which of H100 SXM, H100 PCIe, H100 NVL"),
        ("H10 SXM", "no such device; did you mean H100 SXM"),
        ("", "no such device"),
    ],
)
def test_an_ambiguous_or_unknown_name_is_refused_with_a_list(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        device_named(text)


def test_three_keys_are_enough(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({key: FILE[key] for key in list(FILE)[:3]}), encoding="utf-8")

    device = load_device(path)

    assert (device.matrix_flop_per_s, device.l2_bytes) == ({}, None)
    assert device.source == str(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(None, "No such file", id="no file"),
        pytest.param("{", "truncated", id="not JSON"),
        pytest.param("[]", "Expected `object`", id="not an object"),
        pytest.param("{}", "required field `name`", id="empty"),
        pytest.param(json.dumps(FILE | {"tflops": 1}), "unknown field `tflops`", id="extra key"),
        pytest.param(json.dumps(FILE | {"l2_mib": -1}), "$.l2_mib", id="negative"),
        pytest.param(json.dumps(FILE | {"l2_mib": "50"}), "$.l2_mib", id="text for a number"),
        pytest.param(
            json.dumps(FILE | {"matrix_tflops": {"fp16": 1}}), "no such dtype: fp16", id="dtype"
        ),
        pytest.param("\xff\xfe", "not a description", id="binary"),
    ],
)
def test_a_bad_file_gets_one_line_that_says_what_is_wrong(
    tmp_path: Path, content: str | None, says: str
) -> None:
    path = tmp_path / "mine.json"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))

    with pytest.raises(UsageError) as caught:
        load_device(path)

    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert says in message
    assert "\n" not in message


@pytest.mark.parametrize(("name", "is_used"), [("a CPU", True), ("NVIDIA H100 80GB HBM3", False)])
def test_peaks_from_a_marker_are_of_no_device_that_is_known(name: str, is_used: bool) -> None:  # noqa: FBT001
    row = {
        "device_type": "cpu",
        "name": name,
        "flop_per_s": '{"f32": 1e11}',
        "cache_bytes": 1 << 20,
    }
    row |= {"multiprocessors": 8}

    assert (find_peaks(row | {"memory_bytes_per_s": 1e10}) is not None) == is_used


@pytest.mark.parametrize(
    ("text", "gib"),
    [
        ("A100-80", 79.1),
        ("a100-80gb", 79.1),
        ("A100-40", 39.4),
        ("V100-32", 31.7),
        ("H100 SXM", 79.1),
        ("NVIDIA H100 80GB HBM3", 79.1),
        ("RTX 4090", 23.6),
        ("MI300X", 191.9),
    ],
)
def test_a_device_is_found_by_its_name_and_size(text: str, gib: float) -> None:
    assert capacity_bytes(text) == round(gib * 2**30)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A100", "which of A100 SXM 40GB 40"),
        ("H100", "H100 NVL 94"),
        ("toaster", "no device of known memory"),
        ("A100-13", "no device of known memory"),
        ("80", "no device of known memory"),
        ("", "no device of known memory"),
    ],
)
def test_what_is_not_one_device_says_what_to_give(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        capacity_bytes(text)


def test_the_driver_reports_no_more_than_is_on_the_card() -> None:
    sizes = [(d.name, *size) for d, _, row in devices._ENTRIES for size in row.memory]

    assert len(sizes) > 40
    assert [n for n, card, seen in sizes if seen and not 0.9 * card < seen <= card] == []


def test_a_size_that_tells_devices_apart_is_the_only_one() -> None:
    assert [r.name for *_, r in devices._ENTRIES if r.by_memory and len(r.memory) != 1] == []


@pytest.mark.parametrize(
    "name",
    ["NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 4060", "NVIDIA TITAN RTX", "NVIDIA TITAN V",
     "Quadro RTX 6000", "NVIDIA RTX A4500", "NVIDIA RTX 500 Ada Generation Laptop GPU",
     "NVIDIA GeForce RTX 5070", "NVIDIA GeForce RTX 3050 Laptop GPU", "AMD Instinct MI308X",
     "NVIDIA GeForce RTX 4060 Laptop GPU", "NVIDIA GeForce RTX 5070 Ti",
     "NVIDIA GeForce RTX 2060 SUPER", "AMD Instinct MI350X"],
)  # fmt: skip
def test_cards_sold_since_2018_have_peaks(name: str) -> None:
    bandwidth = (find_peaks({"name": name, "memory_bytes": 12 << 30}) or BY_NAME["T4"]).name
    assert bandwidth.split()[0] in name or bandwidth.split()[-1] in name


UNNAMED = {"AMD Radeon Graphics", "Intel(R) Iris(R) Xe Graphics", "Microsoft Basic Render Driver"}
"""What a driver says of any card that it does not know, and displays."""


def test_every_device_of_the_real_traces_has_peaks(shared: Path) -> None:
    found: dict[str, int | None] = {}
    for path in sorted((shared / "traces").glob("**/kineto/*.json.gz")):
        with gzip.open(path, "rt", errors="replace") as file:
            head = file.read(1 << 16)
        listed = r'"name": "((?:NVIDIA|Tesla|Quadro|AMD|GeForce) [^"]+)", "totalGlobalMem": (\d+)'
        found |= {name: int(size) for name, size in re.findall(listed, head)}
    for path in sorted((shared / "traces").glob("**/nsight/*.sqlite")):
        with (
            contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db,
            contextlib.suppress(sqlite3.Error),
        ):
            found |= dict(db.execute("SELECT name, totalMemory FROM TARGET_INFO_GPU"))
    assert len(found) >= 8
    rows = [{"name": name, "memory_bytes": size} for name, size in found.items()]
    assert {str(row["name"]) for row in rows if find_peaks(row) is None} <= UNNAMED
