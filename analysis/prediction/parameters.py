"""The fitted numbers of predictions: shares of peaks, what residuals keep, errors, links.

`benchmarks/prediction.py` fits them from published measurements and writes the file that ships.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from math import sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyprof2.analysis.hardware.devices import Device

FULL, HALF, MEMORY = "f32", "16", "mem"
"""The subjects of a share: work in 32 bits and more, in 16 and fewer or TF32, and bytes."""
LOW_WATTS: Final = 80.0
"""Cards that may draw no more do not hold their clocks under load."""
NORMAL, LOW = "normal", "low"


class LinkFit(NamedTuple):
    """The time of an all-reduce of n devices: `a_us + 2 (n - 1) / n * bytes / (f * link)`."""

    a_us: float
    f: float


class System(msgspec.Struct, frozen=True):
    """A measured link.

    Attributes:
        gb_per_s: of one direction, as the data sheet says.
        fits: by the number of devices.
        source: whose measurements.
    """

    gb_per_s: float
    fits: dict[str, LinkFit]
    source: str


class Sigmas(msgspec.Struct, frozen=True):
    """Standard deviations of the logarithm of predicted over true time, by what is predicted."""

    compute: float
    measured: float
    low: float
    memory: float
    extrapolated: float
    kept: float
    base: float
    vendor: float
    base_low: float


class HeldSteps(msgspec.Struct, frozen=True):
    """How often intervals of 80 % held the true time of steps, with devices left out in turn.

    Attributes:
        steps: how many were predicted.
        percent: the share of them that the intervals held.
        mean: the same by device, on average over devices.
        least: that of the device with the smallest, of those with five steps or more.
    """

    steps: int
    percent: int
    mean: int
    least: int


class Parameters(msgspec.Struct, frozen=True):
    """All fitted numbers.

    Attributes:
        floor_ns: what any kernel takes.
        clip: of a residual's logarithm, how much counts as noise.
        classes: shares of devices that nobody measured: `normal`, `low` (of few watts), and by
            vendor.
        devices: shares that were measured, by device, of which some may be missing.
        keep: how much of a residual's noise is kept on another chip, by kind of work.
        sigma: see `Sigmas`.
        systems: see `System`.
        held: see `HeldSteps`; `low` where a device of few watts takes part, else `normal`.
        sources: whose measurements the numbers were fitted to, by device.
        fitted_to: the data, each with its licence.
    """

    floor_ns: float
    clip: float
    classes: dict[str, dict[str, float]]
    devices: dict[str, dict[str, float]]
    keep: dict[str, float]
    sigma: Sigmas
    systems: dict[str, System]
    held: dict[str, HeldSteps]
    sources: dict[str, str]
    fitted_to: list[str]


@cache
def shipped() -> Parameters:
    """Return the parameters that come with the package."""
    content = files("pyprof2").joinpath("data/prediction.json").read_bytes()
    return msgspec.json.decode(content, type=Parameters)


class Eta(NamedTuple):
    """A share of a peak, and what it rests on: `measured`, `class` or `file`."""

    value: float
    source: str


def is_low(device: Device) -> bool:
    """Return whether a card may draw so little that it cannot hold its clocks."""
    return device.watts is not None and device.watts <= LOW_WATTS


def class_of(device: Device, classes: Mapping[str, object]) -> str:
    """Return the class of a device that nobody measured."""
    if is_low(device):
        return LOW
    return device.vendor if device.vendor in classes else NORMAL


def eta_of(parameters: Parameters, device: Device, what: str) -> Eta:
    """Return the share of a device's peak that long kernels reach.

    Where it was measured, half of the way from that of the class: the same card measured again
    differs.
    """
    if what in device.eta:
        return Eta(device.eta[what], "file")
    usual = parameters.classes[NORMAL] | parameters.classes[class_of(device, parameters.classes)]
    own = parameters.devices.get(device.name, {}).get(what)
    if own is None:
        return Eta(usual[what], "class")
    return Eta(sqrt(own * usual[what]), "measured")
