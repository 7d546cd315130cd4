"""When a step is: from its beginning on the host to the end of the work that it launched.

The host runs ahead of the GPU, so what a step launches may run while the host is in the next one
already. The window of a step ends with the later of its range on the host and the last activity
launched in it, and begins where the one before it ended, at the earliest with its own range. So
windows do not overlap, and each holds the GPU work of its step. Where the step before was not
recorded, but its work runs into the range of this one, the window begins with the step's own work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.chunked import ENDLESS, in_time_order
from pyprof2.analysis.intervals import Covered, Int, merged, time_within
from pyprof2.analysis.time.gaps import NEVER
from pyprof2.columns import order_of, sum_at
from pyprof2.recording import code_column, has_text, int_column, step_epoch, step_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyprof2.analysis.chunked import ChunkedTable

OF_WINDOWS: Final = ("device", "step", "start_ns", "dur_ns")
"""The columns of table `steps` that `StepWindows.of` takes."""
_BUSY: Final = ("device", "start_ns", "dur_ns")


class StepWindows(NamedTuple):
    """The windows of one rank, in order of time; a number comes again in another recording."""

    step: Int
    start: Int
    end: Int

    @classmethod
    def of(cls, steps: pa.Table) -> StepWindows:
        """Return the windows that a rank's table `steps` holds, once for each device."""
        device = int_column(steps, "device", NEVER)
        step, start, length = (
            int_column(steps, name, 0)[device == device[:1]]
            for name in ("step", "start_ns", "dur_ns")
        )
        return cls(step, start, start + length)

    def time_by_step(self) -> dict[int, int]:
        """Return the length of the windows of each step, in order of the numbers."""
        return _summed(self.step, self.end - self.start)

    def busy_by_step(self, activities: Sequence[ChunkedTable]) -> dict[int, int]:
        """Return the time in which devices worked in the windows of each step.

        The times of several devices are added up; work that overlaps on one counts once.

        Args:
            activities: columns `device`, `start_ns`, `dur_ns`.
        """
        busy, covered = np.zeros(len(self.step), np.int64), Covered()
        for parts, _ in in_time_order(activities, [_BUSY] * len(activities)):
            both = pa.concat_tables([part.select(_BUSY) for part in parts])
            device = int_column(both, "device", NEVER)
            start = int_column(both, "start_ns", 0)
            end = start + int_column(both, "dur_ns", 0)
            alone = covered.add(device, start, end)
            for each in np.unique(device).tolist():
                own = device == each
                busy += time_within(alone[own], end[own], self.start, self.end)
        return _summed(self.step, busy)


def step_windows(ranges: pa.Table, activities: Iterable[pa.Table]) -> StepWindows:
    """Return the windows of the steps of one rank.

    Args:
        ranges: columns `start_ns`, `dur_ns`, `name`, `kind` of the canonical table `ranges`.
        activities: columns `launch_ns`, `start_ns`, `dur_ns` of `kernels` and `copies`, whole or
            in parts.
    """
    step, start, end = step_ranges(ranges)
    last, before = end.copy(), _WorkBefore(step, start)
    for table in activities:
        launch = int_column(table, "launch_ns", NEVER)
        place = np.searchsorted(start, launch, "right") - 1
        inside = (place >= 0) & (launch < end[place]) if len(start) else np.zeros(0, bool)
        begins = int_column(table, "start_ns", 0)
        ends = begins + int_column(table, "dur_ns", 0)
        if len(start):
            np.maximum.at(last, place[inside], ends[inside])
            before.add(np.where(inside, place, -1), begins, ends)
    last = np.maximum.accumulate(last) if len(last) else last
    begin = np.maximum(before.begins(), np.r_[NEVER, last[:-1]]) if len(last) else start
    return StepWindows(step, np.minimum(begin, last), last)


class _WorkBefore:
    """Finds where the work of steps begins that were not recorded right after another one.

    Work that no step launched was launched before: what of it runs into such a step is another's.
    """

    def __init__(self, step: Int, start: Int) -> None:
        self._start = start
        self._opens = np.flatnonzero(np.r_[True, step[1:] != step[:-1] + 1][: len(step)])
        self._own, self._others = (np.full(len(step), ENDLESS) for _ in range(2))

    def add(self, place: Int, begins: Int, ends: Int) -> None:
        """Take activities: the step that launched each by position, -1 for none; and its time."""
        own = place >= 0
        np.minimum.at(self._own, place[own], begins[own])
        opened = np.searchsorted(self._start[self._opens], ends, "left") - 1
        others = ~own & (opened >= 0)
        np.minimum.at(self._others, self._opens[opened[others]], begins[others])

    def begins(self) -> Int:
        """Return from when on each step is not another's: its range's start, or its first work."""
        runs_in = (self._others < self._own) & (self._own < ENDLESS)
        return np.where(runs_in, self._own, self._start)


def step_ranges(ranges: pa.Table) -> StepWindows:
    """Return the steps of one rank on the host, in the order of their windows.

    Ranges of one number that overlap, on several threads, are one.

    Args:
        ranges: columns `start_ns`, `dur_ns`, `name`, `kind` of the canonical table `ranges`.
    """
    steps = only_steps(ranges)
    name, names = code_column(steps, "name")
    numbers = [step_number(text) for text in names]
    number = np.array([*(NEVER if n is None else n for n in numbers), NEVER], np.int64)[name]
    start = int_column(steps, "start_ns", 0)
    end = start + int_column(steps, "dur_ns", 0)
    known = np.flatnonzero(number != NEVER)
    numbers_there, which = np.unique(number[known], return_inverse=True)
    # By their places among all times, those of each number behind those of the one before.
    times, place = np.unique(np.r_[start[known], end[known]], return_inverse=True)
    first, last = np.split(place, 2)
    begins, ends = merged(which * len(times) + first, which * len(times) + last)
    step = numbers_there[begins // max(1, len(times))]
    start, end = times[begins % max(1, len(times))], times[ends % max(1, len(times))]
    order = order_of(start, end)
    return StepWindows(step[order], start[order], end[order])


def step_epochs(ranges: pa.Table) -> dict[int, int]:
    """Return how often the numbers of steps had begun again, of those steps that are numbered on.

    Args:
        ranges: columns `name`, `kind` of the canonical table `ranges`.
    """
    names = only_steps(ranges)["name"].unique().to_pylist()
    found = {step_number(name): step_epoch(name) for name in names}
    return {step: epoch for step, epoch in found.items() if step is not None and epoch is not None}


def only_steps(ranges: pa.Table) -> pa.Table:
    """Return the ranges that are steps."""
    is_step = has_text(ranges, "kind", ("step",))
    return ranges.filter(pa.array(is_step)) if is_step.any() else ranges.schema.empty_table()


def _summed(step: Int, values: Int) -> dict[int, int]:
    steps, place = np.unique(step, return_inverse=True)
    sums = sum_at(place, values, len(steps))
    return dict(zip(steps.tolist(), sums.tolist(), strict=True))
