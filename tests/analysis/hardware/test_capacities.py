"""How much memory a device has, by the names that people use."""

from __future__ import annotations

import pytest

from pyprof2.analysis.hardware.devices import CAPACITIES_GIB, DEVICES, capacity_bytes
from pyprof2.errors import UsageError


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


def test_every_device_with_a_capacity_is_a_device() -> None:
    assert set(CAPACITIES_GIB) <= {device.name for device in DEVICES}


def test_the_driver_reports_no_more_than_is_on_the_card() -> None:
    for name, sizes in CAPACITIES_GIB.items():
        for card, seen in sizes.items():
            assert 0.9 * card < seen <= card, name
