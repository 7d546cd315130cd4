"""Memory by category at a batch size, and ways to make a batch fit that does not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.summaries.batch.fits import fit_curve
from pyprof2.analysis.summaries.batch.limits import MARGIN
from pyprof2.analysis.summaries.batch.model import MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyprof2.analysis.summaries.batch.fits import Curve
    from pyprof2.analysis.summaries.batch.limits import Limits
    from pyprof2.analysis.summaries.batch.model import Model

_HALF: Final = 0.5
_PASSES: Final = ("forward", "backward", "recompute")
"""The phases in which what forward keeps for backward is held."""


@dataclass(frozen=True)
class Shortage:
    """A batch that does not fit; bytes are predictions, of what is allocated.

    Attributes:
        batch: samples in a step.
        expected: bytes more than fit, as far as is known.
        over: the same by the upper end of the interval.
        parts: steps over which gradients are accumulated, so that each part fits.
        micro: samples in the largest part.
        accumulation: bytes that this frees: what the batch takes less what a part takes.
        grows: bytes that grow with the batch, in the phase with most.
        half: of them half: the most that bf16 frees, where all of them are fp32.
        status: how sure that is, see `Answer.status`.
    """

    batch: int
    expected: int
    over: int
    parts: int
    micro: int
    accumulation: int
    grows: int
    half: int
    status: str


@dataclass(frozen=True)
class Checkpoint:
    """Layers whose forward may run again in backward; bytes are predictions at a batch.

    Attributes:
        layer: `*` stands for the numbers of several alike.
        layers: how many they are.
        line: `path:line` that allocates most of what they keep; None: not known.
        kept: bytes that are no longer kept from forward to backward.
        again: of them, what comes back while one of the layers runs again.
        less: by how much the most that is allocated falls: no further than to what phases
            outside of forward and backward take.
        time_ns: of the forward that runs again in each step; None: not known.
    """

    layer: str
    layers: int
    line: str | None
    kept: int
    again: int
    less: int
    time_ns: int | None


def checkpoints(model: Model, batch: int, given: Mapping[str, int]) -> Iterator[Checkpoint]:
    """Yield the layers whose checkpoint frees something at a batch, the most first.

    The bytes that they keep, and the time of their forward, are in proportion to the batch, or
    to the elements where recordings differ in more than that.
    """
    like = model.nearest(batch, given)
    held = model.recordings[like].savable()
    if held is None or not model.memory:
        return
    over = model.scale(like, batch, given)
    factor = over / model.scale(like, int(model.batches[like]), {})
    peaks = {phase: curve.value(over) for phase, curve in model.memory.items()}
    outside = max((peak for phase, peak in peaks.items() if phase not in _PASSES), default=0.0)
    room = max(peaks.values()) - outside
    for row in held.checkpoints.astype(object).to_dict("records"):
        kept, again = (factor * int(row[name]) for name in ("frees_bytes", "again_bytes"))
        less = math.floor(min(kept - again, room))
        if less > 0:
            time = row["recompute_ns"]
            yield Checkpoint(
                str(row["layer"]), int(row["layers"]), row["line"], round(kept), round(again), less,
                round(factor * int(time)) if isinstance(time, int) else None,
            )  # fmt: skip


def state_bytes(model: Model) -> int | None:
    """Return the bytes of the optimizer's state in a process; None: not known."""
    known = (held.optimizer for each in model.recordings if (held := each.savable()) is not None)
    return max((size for size in known if size), default=None)


def sharded(state: int, processes: int) -> int:
    """Return the bytes that each of some processes frees that hold a part each, in place of all."""
    return state - -(-state // processes)


def wanted(largest: int | None, asked: Sequence[int], enough: int | None) -> int | None:
    """Return the batch that is wanted and does not fit; None: memory does not bind.

    Args:
        largest: that is expected to fit; None: not known.
        asked: batches that were asked for; the largest counts.
        enough: the smallest with 90 % of the throughput, whatever fits; where none is asked for.
    """
    size = max(asked, default=enough)
    return None if largest is None or size is None or size <= largest else size


def shortage(
    model: Model, found: Limits, batch: int, capacity: int, given: Mapping[str, int]
) -> Shortage | None:
    """Return what a batch lacks of a device with `capacity` bytes; None: not known."""
    answer = model.answer(MEMORY, batch, given)
    if answer.value is None or answer.hi is None or found.largest is None:
        return None
    usable = capacity * (1 - MARGIN) / found.reserved_ratio
    parts = -(-batch // found.largest)  # each of which is sure to fit
    micro = -(-batch // parts)
    part = model.answer(MEMORY, micro, given).value or 0.0
    grows = answer.value - fixed_memory(model, batch, given)
    return Shortage(
        batch, round(answer.value - usable), round(answer.hi - usable), parts, micro,
        round(answer.value - part), round(grows), round(_HALF * grows), answer.status,
    )  # fmt: skip


def fixed_memory(model: Model, batch: int, given: Mapping[str, int]) -> float:
    """Return the bytes that do not grow with the batch, in the phase that has most at it."""
    like = model.nearest(batch, given)
    over = model.scale(like, batch, given)
    curve = max(model.memory.values(), key=lambda each: each.value(over))
    line = max(curve.lines, key=lambda each: each.fixed + each.slope * over)
    return line.fixed


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
