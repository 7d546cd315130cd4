"""Intervals cut where something changes, joined where nothing does, or merged where too short."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Bool, Int
FINEST: Final = 2000
"""Into how many pieces a window is cut: what is shorter than one of these may be merged."""


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


class Pieces:
    """Half-open pieces `[start, end)` of intervals, none of them empty.

    Attributes:
        of: the interval that each is a piece of.
        start, end: its bounds.
    """

    def __init__(self, of: Int, start: Int, end: Int) -> None:
        keep = end > start
        self.of, self.start, self.end = of[keep], start[keep], end[keep]

    def __len__(self) -> int:
        return len(self.of)

    def where(self, keep: Bool) -> Pieces:
        """Return the pieces that `keep` marks."""
        return Pieces(self.of[keep], self.start[keep], self.end[keep])

    @classmethod
    def joined(cls, parts: list[Pieces]) -> Self:
        """Return all pieces of several."""
        return cls(
            np.concatenate([part.of for part in parts]),
            np.concatenate([part.start for part in parts]),
            np.concatenate([part.end for part in parts]),
        )

    def cut_once(self, time: Int) -> Pieces:
        """Return the pieces, each cut at a time of its own, if that is inside."""
        middle = np.clip(time, self.start, self.end)
        return Pieces(
            np.concatenate((self.of, self.of)),
            np.concatenate((self.start, middle)),
            np.concatenate((middle, self.end)),
        )

    def cut(self, bounds: Bounds, key: Int) -> Pieces:
        """Return the pieces, each cut at the times of its key that are inside."""
        parts = [_cut_at(self.where(key == each), bounds.of(each)) for each in _distinct(key)]
        return Pieces.joined([*parts, self.where(np.zeros(len(self), bool))])


def _cut_at(pieces: Pieces, times: Int) -> Pieces:
    first = np.searchsorted(times, pieces.start, "right")
    last = np.searchsorted(times, pieces.end, "left")
    count = last - first + 1
    whole = np.repeat(np.arange(len(pieces)), count)
    nth = np.arange(len(whole)) - np.repeat(np.cumsum(count) - count, count)
    at = first[whole] + nth
    padded = np.r_[0, times, 0]
    start = np.where(nth == 0, pieces.start[whole], padded[at])
    end = np.where(nth == count[whole] - 1, pieces.end[whole], padded[at + 1])
    return Pieces(pieces.of[whole], start, end)


def _distinct(key: Int) -> list[int]:
    """Return the different ones of small numbers, the smallest -1."""
    found: list[int] = (np.flatnonzero(np.bincount(key + 1)) - 1).tolist()
    return found


class Boxes(NamedTuple):
    """Boxes, in order of track and time.

    Attributes:
        track: of each.
        start, end: of the first activity in it, and the last to end.
        longest: the position of its longest activity in the caller's columns.
        merged: how many activities are in it.
        busy_ns: their times, added up.
    """

    track: Int
    start: Int
    end: Int
    longest: Int
    merged: Int
    busy_ns: Int


def boxes(track: Int, start: Int, end: Int, begin: int, finish: int, most: int) -> Boxes:
    """Return the boxes of the activities in a window, at most about `most` of them.

    Activities of a track that begin in one piece of the window are one box, if none of them is
    as long as a piece. Pieces are 1/`FINEST` of the window, and longer where that gives too many
    boxes.

    Args:
        track: of each activity, a small number.
        start: in ns.
        end: in ns.
        begin: of the window; what reaches over it is cut.
        finish: its end.
        most: how many boxes; one for each track is the least.
    """
    rows = np.flatnonzero((start < finish) & (end > begin))
    rows = rows[np.lexsort((start[rows], track[rows]))]
    of, first, last = track[rows], np.maximum(start[rows], begin), np.minimum(end[rows], finish)
    pieces = FINEST
    found = _merged(of, first, last, begin, max(1, (finish - begin) // pieces))
    while len(found.track) > most and pieces > 1:
        pieces //= 2
        found = _merged(of, first, last, begin, max(1, -(-(finish - begin) // pieces)))
    return found._replace(longest=rows[found.longest])


def _merged(track: Int, start: Int, end: Int, begin: int, size: int) -> Boxes:
    if not len(track):
        return Boxes(*(track for _ in Boxes._fields))
    length = end - start
    piece = (start - begin) // size
    apart = length >= size
    same = (track[1:] == track[:-1]) & (piece[1:] == piece[:-1]) & ~apart[1:] & ~apart[:-1]
    first = np.flatnonzero(np.r_[True, ~same])
    group = np.cumsum(np.r_[True, ~same]) - 1
    by_length = np.lexsort((-length, group))
    last, total = np.maximum.reduceat(end, first), np.add.reduceat(length, first)
    count = np.diff(np.r_[first, len(track)])
    return Boxes(track[first], start[first], last, by_length[first], count, total)
