"""Pieces of intervals: cut where something changes, joined where nothing does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Bool, Int


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
