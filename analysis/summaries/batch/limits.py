"""Limits of larger batches: of throughput, where it is near, and of memory; and sizes tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyprof2.analysis.summaries.batch.model import (
    KERNELS,
    MEASURES,
    MEMORY,
    NOT_A_STEP,
    NOT_RECORDED,
    STEP,
    Answer,
    seen,
    throughput,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyprof2.analysis.summaries.batch.model import Model
    from pyprof2.analysis.summaries.batch.recorded import Recorded

ENOUGH: Final = 0.9
"""A batch with this part of the throughput that can be had is large enough."""
MARGIN: Final = 0.02
"""The share that should stay free: a device full to the last byte allocates slowly."""
_FAR: Final = 1 << 20
_MOST: Final = 1 << 40
_SAME: Final = 1e-6
_UNIT_NS: Final = 1e9


@dataclass(frozen=True)
class Limits:
    """Limits; None: not known, or there is no such size.

    Attributes:
        measure: what throughput is made of: `step_time_ns`, or `kernel_time_ns` without steps.
        asymptote: samples per second that no batch size reaches.
        knee: the batch size from which on a step takes longer than its shortest time.
        enough: the smallest batch size with 90 % of what can be had: of the throughput at
            `largest`, or of `asymptote` where that is not known.
        expected: the largest batch size that fits `capacity`, as far as is known.
        largest: the largest that is sure to, by the upper end of the interval.
        most: the largest that may fit, by its lower end; far from all recordings none is known.
        largest_status: of `largest`, where there is none of `expected`: measured, interpolated,
            extrapolated; or why neither is known.
        reserved_ratio: bytes that the allocator holds for each that is allocated, as seen in the
            recording with most memory.
    """

    measure: str
    asymptote: float | None
    knee: int | None
    enough: int | None
    expected: int | None
    largest: int | None
    most: int | None
    largest_status: str
    reserved_ratio: float


def limits(model: Model, capacity: int | None, given: Mapping[str, int] | None = None) -> Limits:
    """Return what can be had with `capacity` bytes; other dimensions are those of the largest."""
    given = given or {}
    measure = STEP if model.has_steps else KERNELS
    fitting, status = _fitting(model, capacity, given)
    expected, largest, most = fitting
    rate = _rate(model, measure, given)
    far = _FAR * int(model.batches[-1])
    like = model.nearest(far, given)
    near_ns, far_ns = (model.modelled(measure, like, batch, given) for batch in (far, 2 * far))
    asymptote = far * _UNIT_NS / (far_ns - near_ns) if far_ns > near_ns else None
    had = asymptote if largest is None else rate(largest)
    enough = None
    if had is not None and had > 0:
        enough = _first(lambda batch: rate(batch) >= ENOUGH * had)
    bend = model.step[0].bend if model.step else None
    knee = None if bend is None else _first(lambda batch: model.step_scale(batch, given) >= bend)
    return Limits(
        measure, asymptote, knee, enough, expected, largest, most, status,
        _ratio(model),
    )  # fmt: skip


def _rate(model: Model, measure: str, given: Mapping[str, int]) -> Callable[[int], float]:
    """Return samples per second by batch size, all else as in the largest recorded."""
    like = model.nearest(_FAR * int(model.batches[-1]), given)

    def rate(batch: int) -> float:
        time = model.modelled(measure, like, batch, given)
        return batch * _UNIT_NS / time if time else 0.0

    return rate


def _fitting(
    model: Model, capacity: int | None, given: Mapping[str, int]
) -> tuple[tuple[int | None, int | None, int | None], str]:
    """Return the largest batch size that fits as expected, for sure, and at most.

    And how sure the second is, or why there is none.
    """
    nothing = None, None, None
    if not model.memory:
        return nothing, "memory is not recorded in all phases of all recordings"
    if any(each.memory is None or each.memory.over_base for each in model.recordings):
        return nothing, "what was allocated before the recording is not known"
    if capacity is None:
        return nothing, "no capacity is given or recorded: --memory 80GB or --device A100-80"
    usable, ratio = capacity * (1 - MARGIN), _ratio(model)

    def last(end: str) -> int | None:
        """Return the last size of which an end of the interval fits; None: all do."""

        def is_too_large(batch: float) -> bool:
            return (getattr(model.answer(MEMORY, int(batch), given), end) or 0.0) * ratio > usable

        over = _first(is_too_large)
        # A recorded size is known better than a smaller one that was not.
        seen = [int(batch) for batch in model.batches if not is_too_large(batch)]
        return None if over is None else max(over - 1, *seen, 0)

    expected, largest, most = (last(end) for end in ("value", "hi", "lo"))
    if expected == 0:
        return nothing, "not even a batch of 1 fits"
    # A wider interval alone is no growth.
    like, final = model.nearest(_FAR, given), float(model.batches[-1])
    near, far = (model.modelled(MEMORY, like, batch, given) for batch in (final, _FAR * final))
    if expected is None or largest is None or far <= near * (1 + _SAME):
        return nothing, "memory does not grow with the batch"
    expected = max(expected, largest)
    status = model.answer(MEMORY, largest or expected, given).status
    return (expected, largest or None, most and max(most, expected)), status


def _ratio(model: Model) -> float:
    memories = [each.memory for each in model.recordings if each.memory]
    most = max(memories, key=lambda each: max(each.peaks.values(), default=0), default=None)
    return max(1.0, most.reserved_ratio) if most else 1.0


def _first(holds: Callable[[int], bool]) -> int | None:
    """Return the first number for which something holds that then holds for all; None: none."""
    high = 1
    while not holds(high):
        high *= 2
        if high > _MOST:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


VERIFIED: Final = "verified"
OUT_OF_MEMORY: Final = "out of memory"
FAILED: Final = "failed"


@dataclass(frozen=True)
class Tried:
    """The outcome of a batch size that was run.

    Attributes:
        batch: samples in a step.
        recorded: what the run says; None: it failed.
        failure: why, in words; None: it did not fail.
        out_of_memory: whether it was for lack of memory.
    """

    batch: int
    recorded: Recorded | None = None
    failure: str | None = None
    out_of_memory: bool = False

    @property
    def status(self) -> str:
        """The basis of an answer of this batch size."""
        if self.recorded is not None:
            return VERIFIED
        return OUT_OF_MEMORY if self.out_of_memory else FAILED

    def answers(self) -> list[Answer]:
        """Return what the run says: one answer for each of `MEASURES`."""
        if self.recorded is None:
            return [Answer(measure, None, None, None, self.status) for measure in MEASURES]
        step = self._answer(STEP)
        return [step, self._answer(KERNELS), throughput(step, self.batch), self._answer(MEMORY)]

    def _answer(self, measure: str) -> Answer:
        recorded = self.recorded
        is_there = recorded is not None and {
            STEP: bool(recorded.step_ns), KERNELS: recorded.is_gpu,
            MEMORY: bool(recorded.memory and recorded.memory.peaks),
        }[measure]  # fmt: skip
        if recorded is None or not is_there:
            status = NOT_A_STEP if measure == STEP else NOT_RECORDED
            return Answer(measure, None, None, None, status)
        return Answer(measure, *seen(recorded, measure), VERIFIED)


def suggested(found: Limits) -> int | None:
    """Return the batch size to try: the largest that fits, else one with 90 % of the throughput."""
    return found.enough if found.largest is None else found.largest


class Elsewhere(NamedTuple):
    """How much longer a step takes on another device; None: not known, and `why` says it.

    Where no steps were recorded it is of kernels.
    """

    value: float | None
    lo: float | None
    hi: float | None
    why: str | None


def rows_elsewhere(
    model: Model,
    batches: Sequence[int],
    given: Mapping[str, int],
    devices: Mapping[str, Mapping[int, Elsewhere]],
) -> Iterator[dict[str, object]]:
    """Yield the rows of steps and throughput on other devices, with `device` and `why`.

    A step is that of the model, times what the nearest recording takes longer there; without steps
    it is the kernels.

    Args:
        model: of the recorded device.
        batches: sizes to answer for.
        given: by name, dimensions that have a value.
        devices: by device and recorded batch size.
    """
    for device, recorded in devices.items():
        for batch in batches:
            here = model.answer(STEP if model.has_steps else KERNELS, batch, given)
            near = int(model.batches[model.nearest(batch, given)])
            factor = recorded[near]
            value, lo, hi = (
                None if one is None or other is None else one * other
                for one, other in zip((here.value, here.lo, here.hi), factor[:3], strict=True)
            )
            status = f"predicted from batch {near}: {here.status}"
            step = Answer(here.measure, value, lo, hi, status)
            for answer in [step, throughput(step, batch)] if model.has_steps else [step]:
                yield {"device": device, "batch_size": batch} | vars(answer) | {"why": factor.why}


def rows(
    model: Model,
    batches: Sequence[int],
    given: Mapping[str, int] | None = None,
    tried: Mapping[int, Tried] | None = None,
) -> Iterator[dict[str, object]]:
    """Yield a row for each batch size and measure: what `pyprof2 batch --format json` has.

    The rows of a batch size that was tried have what was found, not what was predicted.
    """
    tried = tried or {}
    for batch in [*batches, *(batch for batch in tried if batch not in batches)]:
        found = tried.get(batch)
        for answer in model.answers(batch, given) if found is None else found.answers():
            yield {"batch_size": batch} | vars(answer)
