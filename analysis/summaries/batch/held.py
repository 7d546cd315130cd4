"""Memory by category at a batch size: what each takes of the bytes that the model says.

Each category is fitted with a slope of its own over what memory is fitted over, as Skyline did for
activations alone; what the fits say are shares of the whole, so that they add up to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.summaries.batch.fits import fit_curve
from pyprof2.analysis.summaries.batch.model import MEMORY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyprof2.analysis.summaries.batch.fits import Curve
    from pyprof2.analysis.summaries.batch.model import Model

_OFF: Final = 0.001
"""By how much the categories of a recording may miss its peak, which may be at another moment."""
_FAR: Final = 0.05
"""By how much the sum of the fits may miss what is predicted before nothing is said."""


@dataclass(frozen=True)
class Held:
    """Categories of memory, over the batch.

    Attributes:
        model: of the whole.
        recorded: by batch size bytes of each category.
        curves: of each category.
    """

    model: Model
    recorded: Mapping[int, Mapping[str, int]]
    curves: Mapping[str, Curve]

    def at(self, batch: int, given: Mapping[str, int]) -> dict[str, float] | None:
        """Return the bytes of each category, which add up to what is predicted.

        None: the fits are too far from that.
        """
        value = self.model.answer(MEMORY, batch, given).value
        if value is None:
            return None
        at = self.model.recording_of(batch, given)
        if at is not None:
            own = self.recorded[self.model.recordings[at].batch]
            found = {name: float(own.get(name, 0)) for name in self.curves}
        else:
            scale = self.model.scale(self.model.nearest(batch, given), batch, given)
            found = {name: curve.value(scale) for name, curve in self.curves.items()}
        whole = sum(found.values())
        if not math.isclose(whole, value, rel_tol=_FAR):
            return None
        return {name: value * share / whole for name, share in found.items()}


def held_of(model: Model, recorded: Mapping[int, Mapping[str, int]]) -> Held | None:
    """Return the categories of a model's recordings; None: they do not add up to its peaks.

    Args:
        model: of the recordings.
        recorded: by batch size bytes of each category, at the peak.
    """
    if not model.memory:
        return None
    for each in model.recordings:
        peak = max(each.memory.peaks.values()) if each.memory else 0
        if not math.isclose(sum(recorded.get(each.batch, {}).values()), peak, rel_tol=_OFF):
            return None
    scales = np.array([model.scale(at, each.batch, {}) for at, each in enumerate(model.recordings)])
    names = dict.fromkeys(name for own in recorded.values() for name in own)
    return Held(model, recorded, {
        name: fit_curve(scales, _values(model, recorded, name), math.inf) for name in names
    })  # fmt: skip


def _values(
    model: Model, recorded: Mapping[int, Mapping[str, int]], name: str
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array([recorded[each.batch].get(name, 0) for each in model.recordings], np.float64)
