"""The steps that lines are told by: where each is on the host, and which rows are of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.intervals import Nest, last_not_after
from pyprof2.analysis.linking.link import step_number
from pyprof2.analysis.time.step_windows import step_ranges
from pyprof2.columns import row_of, short
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    import pyarrow as pa

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.linking.link import Threads

NONE: Final = -(1 << 62)
"""Stands for null."""


class Steps(NamedTuple):
    """The steps of a rank in order of time; without any, each recording is one.

    Attributes:
        number: of each; `NONE` for a whole recording.
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
        return bool((self.number == NONE).all())

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


def find_steps(ranges: pa.Table, threads: Threads, busiest: int, trace: pa.Table) -> Steps:
    """Return the steps of a rank.

    Args:
        ranges: columns `start_ns`, `dur_ns`, `pid`, `tid`, `name`, `kind` of its step ranges.
        threads: the numbers of threads.
        busiest: the thread that a recording without steps is told by.
        trace: columns `start_ns`, `end_ns` of its table `trace`.
    """
    windows = step_ranges(ranges)
    if not len(windows.step):
        start, end = (np.sort(int_column(trace, name, 0)) for name in ("start_ns", "end_ns"))
        alike = np.ones_like(start)
        return Steps(NONE * alike, start, end, busiest * alike)
    code, names = code_column(ranges, "name")
    numbers = [NONE if (found := step_number(text)) is None else found for text in names]
    number = np.array([*numbers, NONE])[code]
    start, length = (int_column(ranges, name, 0) for name in ("start_ns", "dur_ns"))
    # Of the ranges that begin with a step the longest is the last one here.
    order = np.lexsort((length, start, number))
    keys = zip(number[order].tolist(), start[order].tolist(), strict=True)
    longest = dict(zip(keys, threads.number(ranges)[order].tolist(), strict=True))
    begins = zip(windows.step.tolist(), windows.start.tolist(), strict=True)
    return Steps(*windows, np.array([longest[key] for key in begins], np.int64))


class HostTime(NamedTuple):
    """The ops that are the innermost ones at some time of a step, on the step's thread.

    Attributes:
        op: position of each; one that reaches over several steps comes again.
        step: position in `Steps`.
        time: how long.
        between: by step, the time in which no op ran.
    """

    op: Int
    step: Int
    time: Int
    between: Int


def host_time(steps: Steps, thread: Int, start: Int, end: Int, self_ns: Int) -> HostTime:
    """Return what each op takes of the steps, to the ns: with `between` it is all of each step.

    Args:
        steps: the steps.
        thread: of each op.
        start: of each op, in ascending order.
        end: of each op.
        self_ns: how long each op is the innermost one of its thread.
    """
    own = {
        each: _Thread.of(thread == each, start, end) for each in np.unique(steps.thread).tolist()
    }
    parts: list[tuple[Int, Int, Int]] = []
    for at, (begin, finish, of) in enumerate(zip(*(c.tolist() for c in steps[1:]), strict=True)):
        rows, is_cut = own[of].within(begin, finish)
        time = self_ns[rows]
        if is_cut:
            time = _innermost_within(start[rows], end[rows], begin, finish)
        parts.append((short(rows), np.full(len(rows), at, np.int32), time))
    op, step, time = (np.concatenate(each) for each in zip(*parts, strict=True))
    between = steps.end - steps.start
    np.subtract.at(between, step, time)
    return HostTime(op, step, time, between)


class _Thread(NamedTuple):
    """The ops of a thread in order of start: where they are, and the latest end up to each."""

    rows: Int
    start: Int
    end: Int
    latest: Int

    @classmethod
    def of(cls, is_own: Bool, start: Int, end: Int) -> _Thread:
        """Choose the ops of a thread from those of all, which are in order of start."""
        rows = np.flatnonzero(is_own)
        return cls(rows, start[rows], end[rows], np.maximum.accumulate(end[rows]))

    def within(self, begin: int, finish: int) -> tuple[Int, bool]:
        """Return the ops that run in `[begin, finish)`, and whether any reaches out of it."""
        first, last = np.searchsorted(self.start, (begin, finish)).tolist()
        reaches_in = first > 0 and bool(self.latest[first - 1] > begin)
        earlier = np.flatnonzero(self.end[: first if reaches_in else 0] > begin)
        reaches_out = bool((self.end[first:last] > finish).any())
        rows = self.rows[np.concatenate((earlier, np.arange(first, last)))]
        return rows, reaches_in or reaches_out


def _innermost_within(start: Int, end: Int, begin: int, finish: int) -> Int:
    """Return how long each op of a thread is the innermost one of it in `[begin, finish)`."""
    # Doubled times leave room for a point strictly inside of every piece between two bounds.
    nest = Nest.of(np.zeros_like(start), 2 * start, 2 * end)
    bounds = np.unique(np.clip(np.concatenate((start, end, [begin, finish])), begin, finish))
    owner = nest.innermost(np.zeros(len(bounds) - 1, np.int64), 2 * bounds[:-1] + 1)
    own = np.zeros(len(start), np.int64)
    np.add.at(own, owner[owner >= 0], np.diff(bounds)[owner >= 0])
    return own
