"""Slices of intervals: cut where something changes, or merged where they are too short to see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Bool, Int
FINEST: Final = 1 << 20
"""Into how many units a window is divided: what is shorter than one of these may be merged."""
_FEWER: Final = 8
"""How many units for each slice that is allowed, where there are too many of them."""
_ROWS: Final = 1 << 16


class Bounds:
    """Times at which something changes, by key; a key is a small number such as a thread's."""

    def __init__(self, key: Int, time: Int) -> None:
        order = np.lexsort((time, key))
        self._time = time[order]
        self._keys, first = np.unique(key[order], return_index=True)
        self._slices = np.r_[first, len(order)]

    def of(self, key: int) -> Int:
        """Return the times of a key in ascending order; some may come more than once."""
        at = int(np.searchsorted(self._keys, key))
        if at == len(self._keys) or self._keys[at] != key:
            return self._time[:0]
        return self._time[self._slices[at] : self._slices[at + 1]]


class IntervalSlices:
    """Half-open slices `[start, end)` of intervals, none of them empty.

    Attributes:
        of: the interval that each is a slice of.
        start, end: its bounds.
    """

    def __init__(self, of: Int, start: Int, end: Int) -> None:
        keep = end > start
        self.of, self.start, self.end = of[keep], start[keep], end[keep]

    def __len__(self) -> int:
        return len(self.of)

    def where(self, keep: Bool) -> IntervalSlices:
        """Return the slices that `keep` marks."""
        return IntervalSlices(self.of[keep], self.start[keep], self.end[keep])

    @classmethod
    def joined(cls, parts: list[IntervalSlices]) -> Self:
        """Return the slices of all parts."""
        return cls(
            np.concatenate([part.of for part in parts]),
            np.concatenate([part.start for part in parts]),
            np.concatenate([part.end for part in parts]),
        )

    def cut_once(self, time: Int) -> IntervalSlices:
        """Return the slices, each cut at a time of its own, if that is inside."""
        middle = np.clip(time, self.start, self.end)
        return IntervalSlices(
            np.concatenate((self.of, self.of)),
            np.concatenate((self.start, middle)),
            np.concatenate((middle, self.end)),
        )

    def cut(self, bounds: Bounds, key: Int) -> IntervalSlices:
        """Return the slices, each cut at the times of its key that are inside; keys are from -1."""
        keys: list[int] = (np.flatnonzero(np.bincount(key + 1)) - 1).tolist()
        parts = [_cut_at(self.where(key == each), bounds.of(each)) for each in keys]
        return IntervalSlices.joined([*parts, self.where(np.zeros(len(self), bool))])


def _cut_at(slices: IntervalSlices, times: Int) -> IntervalSlices:
    first = np.searchsorted(times, slices.start, "right")
    last = np.searchsorted(times, slices.end, "left")
    count = last - first + 1
    whole = np.repeat(np.arange(len(slices)), count)
    nth = np.arange(len(whole)) - np.repeat(np.cumsum(count) - count, count)
    at = first[whole] + nth
    padded = np.r_[0, times, 0]
    start = np.where(nth == 0, slices.start[whole], padded[at])
    end = np.where(nth == count[whole] - 1, slices.end[whole], padded[at + 1])
    return IntervalSlices(slices.of[whole], start, end)


class MergedSlices(NamedTuple):
    """Activities, short ones merged, in order of track and time.

    Attributes:
        track: of each.
        start, end: of the first activity in it, and of the last to end.
        longest: the position of its longest activity in the caller's columns.
        merged: how many activities are in it.
        busy_ns: their times, added up, or what the caller says of each.
    """

    track: Int
    start: Int
    end: Int
    longest: Int
    merged: Int
    busy_ns: Int


def merge_short(
    track: Int, start: Int, end: Int, window: tuple[int, int], most: int, busy: Int | None = None
) -> MergedSlices:
    """Return the activities in a window, the short ones merged: at most about `most` slices.

    Activities of a track that begin in one unit of the window are merged, if none of them is as
    long as a unit. Units are 1/`FINEST` of the window, and longer where that leaves too many.

    Args:
        track: of each activity, a small number.
        start: in ns.
        end: in ns.
        window: its begin and its end; what reaches over it is cut.
        most: how many slices; one for each track is the least.
        busy: how much of each is busy, in ns; None: all that is in the window.
    """
    begin, finish = window
    place = np.flatnonzero((start < finish) & (end > begin))
    if not len(place):
        return MergedSlices(*(place for _ in MergedSlices._fields))
    rows: Any = place
    if ((track[1:] != track[:-1]) | (start[1:] < start[:-1])).any():
        rows = place = place[np.lexsort((start[place], track[place]))]
    elif len(place) == place[-1] + 1 - place[0]:  # columns of millions of rows are not copied
        rows = slice(place[0], place[-1] + 1)
    track, start, end = track[rows], start[rows], end[rows]
    length, units = np.minimum(end, finish), FINEST
    length -= np.maximum(start, begin)
    begins = _begins(track, start, length, begin, max(1, (finish - begin) // units))
    while begins.sum() > most and units > 1:
        units = min(units // 2, _FEWER * most)
        begins = _begins(track, start, length, begin, max(1, -(-(finish - begin) // units)))
    at = np.flatnonzero(begins)
    longest = greatest_of_runs(length, at)
    return MergedSlices(
        track[at],
        np.maximum(start[at], begin),
        np.minimum(np.maximum.reduceat(end, at), finish),
        place[longest],
        np.diff(np.r_[at, len(length)]),
        np.add.reduceat(length if busy is None else busy[rows], at),
    )


def greatest_of_runs(values: Int, at: Int) -> Int:
    """Return where the greatest value of each run is, of equal ones the first.

    Args:
        values: one run after another.
        at: where each begins.
    """
    greatest = np.repeat(np.maximum.reduceat(values, at), np.diff(np.r_[at, len(values)]))
    found = np.flatnonzero(values == greatest)
    return found[np.diff(np.searchsorted(at, found, "right"), prepend=0) > 0]


def _begins(track: Int, start: Int, length: Int, begin: int, size: int) -> Bool:
    """Return which activities are not merged with the one before, some rows at a time."""
    found = np.ones(len(track), bool)
    for at in range(0, len(track), _ROWS):
        rows = slice(at, at + _ROWS + 1)
        of, apart = track[rows], length[rows] >= size
        unit = np.maximum(start[rows] - begin, 0) // size
        same = (of[1:] == of[:-1]) & (unit[1:] == unit[:-1]) & ~apart[1:] & ~apart[:-1]
        found[at + 1 : at + 1 + len(same)] = ~same
    return found
