"""The batch model: what a step takes in time and memory at a batch size, and how sure that is.

The time of each part of a step (a phase and a kind of kernel) is fitted against the work that it
does, and their sum against what a step takes; the memory of each phase is fitted, and the greatest
counts. An answer between two recordings is as good as their work per sample is alike, so the
interval spans what was seen of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.summaries.batch.fits import Curve, bounds, fit_curve, fit_line
from pyprof2.analysis.summaries.batch.work import ELEMENTS, FLOPS, SAME_WORK, BatchWork, work_of
from pyprof2.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyprof2.analysis.summaries.batch.fits import FittedLine, Floats
    from pyprof2.analysis.summaries.batch.recorded import Recorded

STEP, KERNELS, THROUGHPUT, MEMORY = "step_time_ns", "kernel_time_ns", "throughput", "memory_bytes"
MEASURES: Final = (STEP, KERNELS, THROUGHPUT, MEMORY)
NOT_A_STEP: Final = "not a step"
NOT_RECORDED: Final = "not recorded"
MEASURED: Final = "measured"
SAMPLES: Final = "samples"

FEWEST: Final = 3
"""Two points fit every line, so nothing would say whether it is one."""
LEAST_WIDTH: Final = 0.05
"""An interval is at least 5 % wide on each side of what was seen."""
_POOR: Final = 0.1
"""By how much work may miss the time of a part before the batch alone is tried."""
_BEND_TIME, _BEND_MEMORY = 0.03, 0.001
"""By how much a line may miss before a bend is tried: times scatter, bytes do not."""
_UNIT_NS: Final = 1e9
_HALF: Final = 0.5


@dataclass(frozen=True)
class PartFit:
    """The time of one part of a step, `line` over its work.

    Attributes:
        phase, group: the part.
        measure: `elements`, `flops`, or `samples` where shapes are not recorded.
        line: ns, and ns per unit of work.
        residual: the largest relative error at a recording.
    """

    phase: str
    group: str
    measure: str
    line: FittedLine
    residual: float


@dataclass(frozen=True)
class Answer:
    """One number of a batch size; None: not known, and `status` says why."""

    measure: str
    value: float | None
    lo: float | None
    hi: float | None
    status: str


@dataclass(frozen=True)
class Model:
    """Time and memory by batch size.

    Attributes:
        recordings: in order of their batch sizes.
        work: of them.
    """

    recordings: Sequence[Recorded]
    work: BatchWork

    @property
    def batches(self) -> Floats:
        """The recorded batch sizes, ascending."""
        return self.work.batches

    @property
    def has_steps(self) -> bool:
        """Whether every recording has steps."""
        return all(each.step_ns for each in self.recordings)

    @property
    def clock(self) -> str | None:
        """The clock of a step's time, where processes were timed; None: it is recorded."""
        return self.recordings[0].clock

    @property
    def is_gpu(self) -> bool:
        """Whether parts are kernels."""
        return all(each.is_gpu for each in self.recordings)

    @cached_property
    def parts(self) -> list[PartFit]:
        """The fits of the parts of a step, in the order of `work.parts`."""
        return [self._part(at) for at in range(len(self.work.parts))]

    def _part(self, at: int) -> PartFit:
        """Return the fit of a part against its elements, else FLOPs, else the batch size.

        Where shapes say nothing of the time, as where none follows the batch, the batch may.
        """
        pair = self.work.parts[at]
        times = np.array([float(each.parts.get(pair, 0.0)) for each in self.recordings])
        fits = [
            PartFit(*pair, measure, curve.lines[0], curve.residual)
            for measure in (ELEMENTS, FLOPS, SAMPLES)
            if (curve := self._fit(measure, at, times)) is not None
        ]
        best, by_batch = fits[0], fits[-1]
        if best.residual > _POOR and by_batch.residual < best.residual / 2:
            return by_batch
        return best

    def _fit(self, measure: str, part: int, times: Floats) -> Curve | None:
        """Return the line over a measure of work; None: it is not known where time is taken."""
        if measure == SAMPLES:
            return fit_curve(self.batches, times, math.inf)
        if not (self.work.recorded(measure)[part][times > 0] > 0).all():
            return None
        own = [self.work.at(measure, i, b, {})[part] for i, b in enumerate(self.batches)]
        return fit_curve(np.array(own), times, math.inf)

    @cached_property
    def total(self) -> Curve | None:
        """The sum over parts as one line over all elements; None where those are not known."""
        elements = self.work.recorded(ELEMENTS).sum(axis=0)
        if not (elements > 0).all():
            return None
        return fit_curve(elements, self._work_ns, math.inf)

    @cached_property
    def _work_ns(self) -> Floats:
        return np.array([float(np.median(each.work_ns)) for each in self.recordings])

    def work_ns(
        self, like: int, batch: float, given: Mapping[str, float], stretch: float = 1
    ) -> float:
        """Return the time of all parts, as at a recording but for the batch; see `BatchWork.at`."""
        return sum(self.part_times(like, batch, given, stretch))

    def part_times(
        self, like: int, batch: float, given: Mapping[str, float], stretch: float = 1
    ) -> list[float]:
        """Return the time of each of `parts`, as at a recording but for the batch, ns."""
        amounts = {
            name: self.work.at(name, like, batch, given, stretch) for name in (ELEMENTS, FLOPS)
        }
        return [
            fit.line.fixed
            + fit.line.slope
            * (batch * stretch if fit.measure == SAMPLES else float(amounts[fit.measure][at]))
            for at, fit in enumerate(self.parts)
        ]

    @cached_property
    def residual(self) -> float:
        """The largest relative error of the parts' sum at a recording."""
        fitted = [self.work_ns(i, b, {}) for i, b in enumerate(self.batches)]
        return float(np.max(np.abs(np.array(fitted) / self._work_ns - 1)))

    @cached_property
    def step(self) -> tuple[Curve, bool] | None:
        """The time of a step, and whether over the parts' time; else over the batch's work."""
        if not self.has_steps:
            return None
        times = np.array([each.step_time_ns for each in self.recordings])
        found = [(fit_curve(self._recorded(over), times, _BEND_TIME), by_work)
                 for over, by_work in ((self.work_ns, True), (self._grown, False))]  # fmt: skip
        return min(found, key=lambda each: each[0].residual)

    @cached_property
    def _concurrency(self) -> float:
        """How many kernels may run at a time, on average, by the recordings."""
        return max(each.concurrency for each in self.recordings)

    def _recorded(self, over: Callable[..., float]) -> Floats:
        """Return what time or memory is fitted over, of each recording."""
        return np.array([over(i, batch, {}) for i, batch in enumerate(self.batches)])

    def _grown(
        self, like: int, batch: float, given: Mapping[str, float], stretch: float = 1
    ) -> float:
        """Return the batch, or its elements where recordings differ in more than the batch."""
        if not self.work.differs:
            return batch
        return self.work.grown(like, batch, given, stretch)

    def scale(self, like: int, batch: int, given: Mapping[str, int]) -> float:
        """Return what memory is fitted over, as at a recording but for the batch."""
        return self._held(like, batch, given)

    def step_scale(self, batch: int, given: Mapping[str, int]) -> float:
        """Return what the time of a step is fitted over, at a batch size."""
        over = self.work_ns if self.step is not None and self.step[1] else self._grown
        return over(self.nearest(batch, given), batch, given)

    @cached_property
    def memory(self) -> dict[str, Curve]:
        """Bytes of each phase that all recordings have, over the batch or its elements.

        Empty: a phase that others lack has the peak of a recording, so nothing is known.
        """
        x = self._recorded(self._held)
        return {phase: fit_curve(x, y, _BEND_MEMORY) for phase, y in self._peaks.items()}

    @cached_property
    def _is_by_batch(self) -> bool:
        """Whether memory follows the batch, even where recordings differ in more."""
        if not self.work.differs:
            return True
        over = (self.batches, self._recorded(self._grown))
        own, by_work = (
            max(fit_curve(x, y, _BEND_MEMORY).residual for y in self._peaks.values()) for x in over
        )
        return own <= min(SAME_WORK, by_work / 2)

    def _held(
        self, like: int, batch: float, given: Mapping[str, float], stretch: float = 1
    ) -> float:
        """Return what memory is fitted over: the batch, or its elements."""
        return batch if self._is_by_batch else self._grown(like, batch, given, stretch)

    @cached_property
    def _peaks(self) -> dict[str, Floats]:
        """The peaks of each phase of `memory`, by recording."""
        peaks = [each.memory.peaks if each.memory else {} for each in self.recordings]
        shared = set.intersection(*(set(own) for own in peaks))
        if not all(own and max(own, key=lambda phase: own[phase]) in shared for own in peaks):
            return {}
        return {phase: np.array([own[phase] for own in peaks], float) for phase in sorted(shared)}

    def answers(self, batch: int, given: Mapping[str, int] | None = None) -> list[Answer]:
        """Return what is known of a batch size: one answer for each of `MEASURES`.

        Args:
            batch: samples in a step, 1 or more.
            given: values of free dimensions, by name.

        Raises:
            UsageError: nothing is known of a dimension, or a number is less than 1.
        """
        given = dict(given or {})
        self._check(batch, given)
        step = self.answer(STEP, batch, given)
        return [
            step,
            self.answer(KERNELS, batch, given),
            throughput(step, batch),
            self.answer(MEMORY, batch, given),
        ]

    def _check(self, batch: int, given: Mapping[str, int]) -> None:
        free = self.work.free
        if unknown := [name for name in given if name not in free]:
            there = ", ".join(free) or "none"
            refuse(
                f"{unknown[0]}: no dimension of this name differs between the recordings beside "
                f"the batch; there is {there}"
            )
        if batch < 1 or any(value < 1 for value in given.values()):
            refuse("a batch size and a dimension are 1 or more")

    def answer(self, measure: str, batch: int, given: Mapping[str, int]) -> Answer:
        """Return one of the numbers of a batch size; not `THROUGHPUT`."""
        missing = self._missing(measure)
        if missing:
            return Answer(measure, None, None, None, missing)
        at = self.recording_of(batch, given)
        if at is not None:
            return Answer(measure, *seen(self.recordings[at], measure), MEASURED)
        value, lo, hi = self._predicted(measure, batch, given)
        width = max(LEAST_WIDTH, self._error(measure)) * self._stretch(batch)
        # From a half on by the ratio, with the same slope there: no time is 0.
        lo, hi = lo * (1 - width if width <= _HALF else _HALF**2 / width), hi * (1 + width)
        if measure == STEP and self.is_gpu:
            # A step holds its kernels: their interval is a part of its own.
            busy = self.answer(KERNELS, batch, given)
            lo = max(lo, (busy.lo or 0) / self._concurrency)
            hi = max(hi, (busy.hi or 0) / self._concurrency)
        return Answer(
            measure, round(value), max(1, math.floor(lo)), math.ceil(hi), self._status(batch)
        )

    def _missing(self, measure: str) -> str | None:
        """Return why a measure has no answers; None: it has."""
        if measure == STEP and not self.has_steps:
            return NOT_A_STEP
        if (measure == KERNELS and not self.is_gpu) or (measure == MEMORY and not self.memory):
            return NOT_RECORDED
        return None

    def recording_of(self, batch: int, given: Mapping[str, int]) -> int | None:
        """Return the recording of exactly this batch size and these dimensions; None: none."""
        for at, each in enumerate(self.recordings):
            free = {name: values[at] for name, values in self.work.free.items()}
            if each.batch == batch and all(free[name] == value for name, value in given.items()):
                return at
        return None

    def _predicted(
        self, measure: str, batch: int, given: Mapping[str, int]
    ) -> tuple[float, float, float]:
        """Return a value, and the least and most over the work per sample that was seen."""
        nearest = self.nearest(batch, given)
        value = self.modelled(measure, nearest, batch, given)
        like = [(nearest, 1.0)]
        if self.work.differs and (not given or set(given) != set(self.work.free)):
            stretch = self._stretch(batch)
            like += [(at, by) for at in self._comparable(batch) for by in (stretch, 1 / stretch)]
        seen = [self.modelled(measure, at, batch, given, by) for at, by in like]
        lo, hi = min(seen), max(seen)
        if measure == MEMORY:
            amounts = [self._held(at, batch, given, by) for at, by in like]
            is_sure = len(like) == 1 or self._is_by_batch
            least = min(amounts) / (1 if is_sure else self._below(batch))
            curves = self.memory.values()
            lo = min(lo, max(curve.value(least) for curve in curves))
            # One number of each recording does not say how much of it is fixed; what is allocated
            # at every moment is.
            x = self._recorded(self._held)
            always = np.array(
                [each.memory.always if each.memory else 0 for each in self.recordings]
            )
            fixed = fit_line(x, always.astype(np.float64)).fixed
            peaks = self._peaks.values()
            lo = min(lo, max(bounds(x, y, least, fixed)[0] for y in peaks))
            hi = max(hi, *(bounds(x, y, max(amounts), fixed)[1] for y in peaks))
        return value, lo, hi

    def _below(self, batch: int) -> float:
        """Return by what factor the work per sample may be less than all that was seen.

        The next number after n drawn alike is below all of them once in n + 1, by about their mean
        distance. A padded length is the greatest of a batch, so those of larger ones say little.
        """
        each = self.work.per_sample
        smaller = max(1, int((self.batches <= batch).sum()))
        return float((each.max() / each.min()) ** (1 / ((len(each) - 1) * smaller)))

    def _stretch(self, batch: int) -> float:
        """Return by how much an interval is wider than what was seen, far from all recordings.

        Up to twice the range nothing; then nothing recorded says how far a dimension goes.
        """
        return max(1.0, self.factor(batch) - 1)

    def _comparable(self, batch: int) -> list[int]:
        """Return the recordings whose work per sample may be that of a batch size.

        Beyond the recorded sizes these are the nearer half: a padded length is the greatest of a
        batch, so a few samples say little of many.
        """
        every = range(len(self.recordings))
        if self.factor(batch) == 1:
            return list(every)
        middle = math.sqrt(self.batches[0] * self.batches[-1])
        above = batch > self.batches[-1]
        return [at for at in every if (self.batches[at] >= middle) == above]

    def nearest(self, batch: int, given: Mapping[str, int]) -> int:
        """Return the recording nearest in the dimensions that are given, then in the batch."""

        def distance(at: int) -> tuple[float, float]:
            free = [abs(math.log(v / self.work.free[name][at])) for name, v in given.items()]
            return sum(free), abs(math.log(batch / self.batches[at]))

        return min(range(len(self.recordings)), key=distance)

    def modelled(
        self, measure: str, like: int, batch: float, given: Mapping[str, float], stretch: float = 1
    ) -> float:
        """Return what the model says of a measure, as at a recording but for the batch."""
        if measure == KERNELS:
            return self.work_ns(like, batch, given, stretch)
        if measure == STEP and self.step is not None:
            curve, by_work = self.step
            over = self.work_ns if by_work else self._grown
            value = curve.value(over(like, batch, given, stretch))
            # However little the host takes, no step is shorter than its device is busy.
            busy = self.work_ns(like, batch, given, stretch) / self._concurrency
            return max(value, busy) if self.is_gpu else value
        x = self._held(like, batch, given, stretch)
        return max(curve.value(x) for curve in self.memory.values())

    def _error(self, measure: str) -> float:
        """Return the largest relative error at a recording, or the scatter of steps if more."""
        if measure == KERNELS:
            return max(self.residual, self._scatter(measure))
        if measure == STEP and self.step is not None:
            return max(self.step[0].residual, self._scatter(measure))
        return max(curve.residual for curve in self.memory.values())

    def _scatter(self, measure: str) -> float:
        """Return the largest half distance of the quartiles of steps, over their median.

        For processes it is by how much they differ.
        """
        if measure == STEP and self.clock is not None:
            return max(each.spread for each in self.recordings)
        found = []
        for each in self.recordings:
            low, middle, high = np.quantile(_values(each, measure), [0.25, 0.5, 0.75])
            found.append((high - low) / (2 * middle) if middle else 0.0)
        return float(max(found))

    def factor(self, batch: float) -> float:
        """Return by what factor a batch size lies outside of those recorded; 1: it does not."""
        return float(max(1.0, batch / self.batches[-1], self.batches[0] / batch))

    def _status(self, batch: int) -> str:
        factor = self.factor(batch)
        return "interpolated" if factor == 1 else f"extrapolated {factor:.3g}x"


def fit_model(recordings: Sequence[Recorded]) -> Model:
    """Return the model of recordings at three or more batch sizes.

    Raises:
        UsageError: there are fewer, or two of one size, some have kernels and others none, or
            one has no work in its steps.
    """
    sizes = sorted(each.batch for each in recordings)
    if len(set(sizes)) != len(sizes):
        twice = next(size for size in sizes if sizes.count(size) > 1)
        refuse(f"batch size {twice} is given twice; a model needs different ones")
    if len(sizes) < FEWEST:
        given = ", ".join(map(str, sizes)) or "none"
        refuse(
            f"a batch model needs recordings at {FEWEST} or more batch sizes, better four that "
            f"double each time; given: {given}"
        )
    if len({each.is_gpu for each in recordings}) > 1:
        refuse("some of the recordings have kernels and others none: they do not belong together")
    if idle := next((each.batch for each in recordings if not sum(each.work_ns)), None):
        refuse(f"batch size {idle}: no kernel and no op is recorded in its steps")
    ordered = sorted(recordings, key=lambda each: each.batch)
    return Model(ordered, work_of(ordered))


def _values(recording: Recorded, measure: str) -> list[int]:
    if measure == STEP:
        return recording.step_ns
    if measure == KERNELS:
        return recording.work_ns
    return [max(recording.memory.peaks.values())] if recording.memory else []


def seen(recording: Recorded, measure: str) -> tuple[float, float, float]:
    """Return the median of the steps, the shortest and the longest; of processes the shortest."""
    values = _values(recording, measure)
    value = recording.step_time_ns if measure == STEP else float(np.median(values))
    return value, float(min(values)), float(max(values))


def throughput(step: Answer, batch: int) -> Answer:
    """Return samples per second: the interval's ends change places."""
    if step.value is None or step.lo is None or step.hi is None:
        return Answer(THROUGHPUT, None, None, None, step.status)
    value, lo, hi = (batch * _UNIT_NS / time for time in (step.value, step.hi, step.lo))
    return Answer(THROUGHPUT, value, lo, hi, step.status)
