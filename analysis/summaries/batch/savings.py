"""What would make a batch work that does not fit: how many bytes that frees, as predicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyprof2.analysis.summaries.batch.limits import MARGIN
from pyprof2.analysis.summaries.batch.model import MEMORY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyprof2.analysis.summaries.batch.limits import Limits
    from pyprof2.analysis.summaries.batch.model import Model

_HALF: Final = 0.5


@dataclass(frozen=True)
class Shortage:
    """A batch that does not fit; bytes are predictions, of what is allocated.

    Attributes:
        batch: samples in a step.
        over: bytes more than fit, by the upper end of the interval.
        parts: steps over which gradients are accumulated, so that each part fits.
        micro: samples in the largest part.
        accumulation: bytes that this frees: what the batch takes less what a part takes.
        grows: bytes that grow with the batch, in the phase with most.
        half: of them half: the most that bf16 frees, where all of them are fp32.
        status: how sure that is, see `Answer.status`.
    """

    batch: int
    over: int
    parts: int
    micro: int
    accumulation: int
    grows: int
    half: int
    status: str


def wanted(largest: int | None, asked: Sequence[int], enough: int | None) -> int | None:
    """Return the batch that is wanted and does not fit; None: memory does not bind.

    Args:
        largest: that fits; None: not known.
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
    parts = -(-batch // found.largest)
    micro = -(-batch // parts)
    part = model.answer(MEMORY, micro, given).value or 0.0
    grows = answer.value - fixed_memory(model, batch, given)
    return Shortage(
        batch, round(answer.hi - usable), parts, micro, round(answer.value - part),
        round(grows), round(_HALF * grows), answer.status,
    )  # fmt: skip


def fixed_memory(model: Model, batch: int, given: Mapping[str, int]) -> float:
    """Return the bytes that do not grow with the batch, in the phase that has most at it."""
    like = model.nearest(batch, given)
    over = model.scale(like, batch, given)
    curve = max(model.memory.values(), key=lambda each: each.value(over))
    line = max(curve.lines, key=lambda each: each.fixed + each.slope * over)
    return line.fixed
