"""How much memory devices have, as the driver reports it: for `pyprof2 memory --fits`.

What it reports is less than what is printed on the card, by what error correction and the driver
keep. Devices that are not listed, or whose editions differ, need the size itself.
"""

from __future__ import annotations

import re
from typing import Final

from pyprof2.analysis.hardware.devices import DEVICES, find_device
from pyprof2.errors import UsageError

CAPACITIES_GIB: Final[dict[str, dict[float, float]]] = {
    "V100 SXM2": {16: 15.7, 32: 31.7},
    "V100 PCIe": {16: 15.7, 32: 31.7},
    "V100S PCIe": {32: 31.7},
    "T4": {16: 14.7},
    "A100 SXM 40GB": {40: 39.4},
    "A100 SXM 80GB": {80: 79.1},
    "A100 PCIe 40GB": {40: 39.4},
    "A100 PCIe 80GB": {80: 79.1},
    "A800 SXM 80GB": {80: 79.1},
    "A800 PCIe 80GB": {80: 79.1},
    "A800 PCIe 40GB": {40: 39.4},
    "A30": {24: 23.5},
    "A10": {24: 22.0},
    "A10G": {24: 22.0},
    "A40": {48: 44.3},
    "RTX A6000": {48: 47.5},
    "RTX 3090": {24: 23.6},
    "RTX 4090": {24: 23.6},
    "RTX 5090": {32: 31.3},
    "L4": {24: 22.0},
    "L40": {48: 44.3},
    "L40S": {48: 44.3},
    "H100 SXM": {80: 79.1},
    "H100 PCIe": {80: 79.1},
    "H100 NVL": {94: 93.1},
    "H200 SXM": {141: 139.8},
    "H200 NVL": {141: 139.8},
    "H800 SXM": {80: 79.1},
    "H800 PCIe": {80: 79.1},
    "H20": {96: 95.0},
    "B200": {180: 178.3},
    "MI210": {64: 63.9},
    "MI250": {64: 63.9},
    "MI250X": {64: 63.9},
    "MI300X": {192: 191.9},
    "MI325X": {256: 255.9},
}
"""By the name of a device and the GB on the card: the GiB that PyTorch sees of it."""

_GIB: Final = 1 << 30
_SIZE: Final = re.compile(r"(\d+)(?:g|gb|gib)?", re.IGNORECASE)


def capacity_bytes(text: str) -> int:
    """Return the memory of a device that is named as in `A100-80`, `H100 SXM` or `RTX 4090`.

    Raises:
        UsageError: no device is so named, or several with different memory are.
    """
    found = _capacities(text)
    sizes = {gib for each in found.values() for gib in each.values()}
    if len(sizes) == 1:
        return round(sizes.pop() * _GIB)
    if not found:
        msg = f"{text!r}: no device of known memory; give its size, as in --memory 80GB"
        raise UsageError(msg)
    there = ", ".join(f"{name} {size:g}" for name, each in found.items() for size in each)
    msg = f"{text!r}: which of {there}? Name one, or give the size, as in --memory 80GB"
    raise UsageError(msg)


def _capacities(text: str) -> dict[str, dict[float, float]]:
    """Return the devices that a text names, with those of their sizes that it names."""
    exact = find_device(text)
    if exact is not None and exact.name in CAPACITIES_GIB:
        return {exact.name: CAPACITIES_GIB[exact.name]}
    words = [word for word in re.split(r"[-_\s]+", text.strip().lower()) if word]
    last = _SIZE.fullmatch(words[-1]) if len(words) > 1 else None
    size, names = (float(last[1]), words[:-1]) if last else (None, words)
    found = {}
    for device in DEVICES:
        sizes = CAPACITIES_GIB.get(device.name, {})
        kept = {card: gib for card, gib in sizes.items() if size in (None, card)}
        if names and kept and set(names) <= set(device.name.lower().split()):
            found[device.name] = kept
    return found
