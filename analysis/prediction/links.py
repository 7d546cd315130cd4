"""The time of an all-reduce among n devices, by the link between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.prediction.parameters import LinkFit
from pyprof2.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.hardware.roofline import Floats
    from pyprof2.analysis.prediction.parameters import Parameters, System

_NVLINK: Final = "nvlink"


@dataclass(frozen=True)
class Link:
    """A link between devices.

    Attributes:
        name: as asked for.
        gb_per_s: of one direction, 10⁹ bytes.
        fits: latency and share of the link's rate, by the number of devices.
        source: what they rest on.
    """

    name: str
    gb_per_s: float
    fits: dict[int, LinkFit]
    source: str

    def all_reduce(self, devices: int, nbytes: Floats) -> Floats:
        """Return the ns of all-reduces of so many bytes each among so many devices.

        Between the numbers of devices that were measured latency and share are interpolated, and
        beyond them taken as at the nearest.
        """
        if devices == 1:
            return np.zeros(len(nbytes))
        known = sorted(self.fits)
        counts = np.unique(np.r_[[n for n in known if n < devices], devices])
        of, at = np.log2(known), np.log2(counts)
        a_us = np.interp(at, of, [self.fits[n].a_us for n in known])
        share = np.interp(at, of, [self.fits[n].f for n in known])
        # Measurements of few devices may scatter above those of more: more are never faster.
        per_byte = (2 * (counts - 1) / counts / (share * self.gb_per_s)).max()
        return np.where(nbytes > 0, 1e3 * float(a_us.max()) + per_byte * nbytes, 0.0)


def link_named(text: str, parameters: Parameters) -> Link:
    """Return the link that a text names: `nvlink4`, `pcie4`, or GB/s of one direction.

    A link of which only the rate is given behaves as the NVLinks that were measured, on average.

    Raises:
        UsageError: it is neither.
    """
    system = parameters.systems.get(text.lower())
    if system is not None:
        fits = {int(count): fit for count, fit in system.fits.items()}
        return Link(text.lower(), system.gb_per_s, fits, system.source)
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        msg = (
            f"{text!r} is no link: name one of {', '.join(sorted(parameters.systems))}, or its "
            "GB/s in one direction"
        )
        raise UsageError(msg)
    measured = [s for name, s in parameters.systems.items() if name.startswith(_NVLINK)]
    return Link(f"{rate:g} GB/s", rate, mean_fit(measured), "the mean of measured NVLinks")


def mean_fit(systems: Sequence[System]) -> dict[int, LinkFit]:
    """Return latency and share of the mean of several systems, by the number of devices."""
    by_count: dict[int, list[LinkFit]] = {}
    for system in systems:
        for count, fit in system.fits.items():
            by_count.setdefault(int(count), []).append(fit)
    return {
        count: LinkFit(
            *(float(np.exp(np.mean(np.log(values)))) for values in zip(*fits, strict=True))
        )
        for count, fits in by_count.items()
    }
