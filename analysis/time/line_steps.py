"""The steps that lines are divided by: where each is on the host, and which rows are of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyprof2.analysis.chunked import ENDLESS
from pyprof2.analysis.intervals import Nest, last_not_after
from pyprof2.analysis.time.gaps import NEVER
from pyprof2.analysis.time.step_windows import step_ranges
from pyprof2.columns import row_of, short, sum_at
from pyprof2.recording import code_column, int_column, step_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.linking.threads import Threads


class HostSteps(NamedTuple):
    """The steps of a rank in order of time; without any, each recording is one.

    Attributes:
        number: of each; `NEVER` for a whole recording.
        start, end: on the host.
        thread: of the host that it is on, by the caller's numbers.
    """

    number: Int
    start: Int
    end: Int
    thread: Int

    @property
    def are_recordings(self) -> bool:
        """Whether there is no step, so that whole recordings stand for steps."""
        return bool((self.number == NEVER).all())

    def find(self, number: Int, time: Int) -> Int:
        """Return the position of the step with this number that a time is in, or after; or -1.

        A number may come again in another recording.
        """
        if self.are_recordings:
            return np.maximum(np.searchsorted(self.start, time, "right") - 1, 0)
        order = np.lexsort((self.start, self.number))
        numbers = self.number[order]
        if (numbers[1:] > numbers[:-1]).all():
            found = row_of(numbers, number)
        else:
            found = last_not_after(numbers, self.start[order], number, time)
        return np.where(found >= 0, order[found], -1)


def find_steps(ranges: pa.Table, threads: Threads, busiest: int, trace: pa.Table) -> HostSteps:
    """Return the steps of a rank.

    Args:
        ranges: columns `start_ns`, `dur_ns`, `pid`, `tid`, `name`, `kind` of its step ranges.
        threads: the numbers of threads.
        busiest: the thread that stands for a recording without steps.
        trace: columns `start_ns`, `end_ns` of its table `trace`.
    """
    windows = step_ranges(ranges)
    if not len(windows.step):
        start, end = (np.sort(int_column(trace, name, 0)) for name in ("start_ns", "end_ns"))
        alike = np.ones_like(start)
        return HostSteps(NEVER * alike, start, end, busiest * alike)
    code, names = code_column(ranges, "name")
    numbers = [NEVER if (found := step_number(text)) is None else found for text in names]
    number = np.array([*numbers, NEVER])[code]
    start, length = (int_column(ranges, name, 0) for name in ("start_ns", "dur_ns"))
    # Where several ranges begin with a step, the longest is the last one here.
    order = np.lexsort((length, start, number))
    keys = zip(number[order].tolist(), start[order].tolist(), strict=True)
    longest = dict(zip(keys, threads.number(ranges)[order].tolist(), strict=True))
    begins = zip(windows.step.tolist(), windows.start.tolist(), strict=True)
    return HostSteps(*windows, np.array([longest[key] for key in begins], np.int64))


def cut_steps(steps: HostSteps, ops: Iterable[tuple[Int, Int, Int]]) -> Bool:
    """Return which steps any op of their thread reaches into, or out of.

    Args:
        steps: the steps.
        ops: thread, start and end of all ops, in parts.
    """
    is_cut = np.zeros(len(steps.start), bool)
    for thread, start, end in ops:
        for each in np.unique(steps.thread).tolist():
            rows = np.flatnonzero(thread == each)
            own = np.flatnonzero((steps.thread == each) & ~is_cut)
            begin, finish = steps.start[own], steps.end[own]
            latest = np.maximum.accumulate(np.r_[-ENDLESS, end[rows]])
            first, last = (np.searchsorted(start[rows], time) for time in (begin, finish))
            longest = np.full(len(own), -ENDLESS)
            some = np.flatnonzero(last > first)
            if len(some):
                # The greatest end in every second slice: what lies between two steps is no step's.
                bounds = np.stack((first[some], last[some]), axis=1).ravel()
                longest[some] = np.maximum.reduceat(np.r_[end[rows], -ENDLESS], bounds)[::2]
            is_cut[own] = (latest[first] > begin) | (longest > finish)
    return is_cut


class StepOps(NamedTuple):
    """Ops in order of start: those of a stretch, after those that go on from before it.

    Attributes:
        thread, start, end: of each.
        self_ns: how long each is the innermost one of its thread.
        is_new: whether it begins in this stretch.
    """

    thread: Int
    start: Int
    end: Int
    self_ns: Int
    is_new: Bool


class HostTimes:
    """Finds what ops take of the steps, from one stretch of time to the next.

    Attributes:
        between: by step, the time in which no op ran; of all of it once all ops are added.
    """

    def __init__(self, steps: HostSteps, is_cut: Bool) -> None:
        self._steps, self._is_cut = steps, is_cut
        self._threads = np.unique(steps.thread).tolist()
        self.between = steps.end - steps.start

    def add(self, ops: StepOps, since: int, until: int) -> tuple[Int, Int, Int]:
        """Return which ops run in which steps, and how long each is the innermost one there.

        One that runs in a step in several stretches comes in each.

        Args:
            ops: all that run in the stretch.
            since: its beginning.
            until: its end: later ones begin not before it.
        """
        own = {each: _ThreadOps.of(ops, each) for each in self._threads}
        near = (self._steps.start <= until) & (self._steps.end >= since)
        nothing: Int = np.empty(0, np.int64)
        parts = [(short(nothing), short(nothing), nothing)]
        for at in np.flatnonzero(near).tolist():
            begin, finish, of = (int(column[at]) for column in self._steps[1:])
            if self._is_cut[at]:
                rows, time = own[of].within(begin, finish, since, until)
            else:
                rows = own[of].beginning_in(begin, finish)
                time = ops.self_ns[rows]
            self.between[at] -= time.sum()
            parts.append((short(rows), short(np.full(len(rows), at)), time))
        op, step, time = (np.concatenate(each) for each in zip(*parts, strict=True))
        return op, step, time


class _ThreadOps(NamedTuple):
    """The ops of a thread in order of start, and where those begin that are new."""

    rows: Int
    start: Int
    end: Int
    new: int

    @classmethod
    def of(cls, ops: StepOps, thread: int) -> _ThreadOps:
        """Choose the ops of a thread from those of all, which are in order of start."""
        rows = np.flatnonzero(ops.thread == thread)
        new = len(rows) - int(ops.is_new[rows].sum())
        return cls(rows, ops.start[rows], ops.end[rows], new)

    def beginning_in(self, begin: int, finish: int) -> Int:
        """Return the new ops that begin in `[begin, finish)`."""
        first, last = np.searchsorted(self.start[self.new :], (begin, finish)).tolist()
        return self.rows[self.new + first : self.new + last]

    def within(self, begin: int, finish: int, since: int, until: int) -> tuple[Int, Int]:
        """Return the ops that run in `[begin, finish)`, and their innermost time in the stretch.

        Steps that have ended when the stretch begins are left out.
        """
        first, last = np.searchsorted(self.start, (begin, finish)).tolist()
        begin, finish = max(begin, since), min(finish, until)
        earlier = np.flatnonzero(self.end[:first] > begin)
        at = np.concatenate((earlier, np.arange(first, last)))
        if begin >= finish:
            return self.rows[at], np.zeros(len(at), np.int64)
        start, end = self.start[at], self.end[at]
        # Doubled times leave room for a point strictly inside of the time between two bounds.
        nest = Nest.of(np.zeros_like(start), 2 * start, 2 * end)
        bounds = np.unique(np.clip(np.concatenate((start, end, [begin, finish])), begin, finish))
        owner = nest.innermost(np.zeros(len(bounds) - 1, np.int64), 2 * bounds[:-1] + 1)
        return self.rows[at], sum_at(owner, np.diff(bounds), len(at))
