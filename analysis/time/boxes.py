"""Activities as boxes on a time line, those that nobody could tell apart merged into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Int

FINEST: Final = 2000
"""Into how many pieces a window is cut: what is shorter than one of these may be merged."""


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
