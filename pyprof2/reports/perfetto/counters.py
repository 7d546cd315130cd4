"""Counters that are sums over what lasts: rates of running kernels, and what is queued."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pyprof2.reports.perfetto.wire import Ints


class Changes(NamedTuple):
    """New values of sums, in order of time for each key.

    Attributes:
        time: from when on.
        key: of which sum.
        value: the sum.
    """

    time: Ints
    key: Ints
    value: Ints


class RunningSums:
    """Sums, one for each key, of whole numbers that are added and taken away as time goes on."""

    def __init__(self) -> None:
        self._pending = np.empty((3, 0), np.int64)  # time, key, change
        self._sums = np.zeros(0, np.int64)

    def add(self, start: Ints, end: Ints, key: Ints, value: Ints) -> None:
        """Have `value` count from `start` to `end` in the sum of `key`, a number of 0 or more."""
        counts = end > start
        both = [np.concatenate((each[counts], each[counts])) for each in (key, value)]
        time = np.concatenate((start[counts], end[counts]))
        both[1][len(time) // 2 :] *= -1
        self._pending = np.concatenate((self._pending, np.stack((time, *both))), axis=1)

    def until(self, time: int) -> Changes:
        """Return how the sums change before `time`; nothing is added that starts earlier."""
        is_due = self._pending[0] < time
        due, self._pending = self._pending[:, is_due], self._pending[:, ~is_due]
        when, key, change = due[:, np.lexsort((due[0], due[1]))]
        if not len(key):
            return Changes(when, key, change)
        self._sums = np.r_[self._sums, np.zeros(max(0, key[-1] + 1 - len(self._sums)), np.int64)]
        is_first = np.r_[True, key[1:] != key[:-1]]
        first = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
        total = np.cumsum(change)
        value = total - (total - change)[first] + self._sums[key]
        last = np.r_[(when[1:] != when[:-1]) | is_first[1:], True]
        when, key, value = when[last], key[last], value[last]
        # What comes and goes at one instant changes nothing.
        starts = np.r_[True, key[1:] != key[:-1]]
        before = np.where(starts, self._sums[key], np.r_[0, value[:-1]])
        self._sums[key] = value  # the last one of each key stays
        changed = value != before
        return Changes(when[changed], key[changed], value[changed])
