"""What would make a batch work that does not fit: how many bytes that frees, as predicted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyprof2.analysis.summaries.batch.limits import MARGIN
from pyprof2.analysis.summaries.batch.model import MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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

    What they keep, and the time of their forward, are in proportion to the batch, or to the
    elements where recordings differ in more than that.
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
