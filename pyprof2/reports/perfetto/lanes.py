"""Further lanes for slices that a track cannot show one inside another.

Perfetto closes the innermost slice of a track, whichever was meant, so the slices of a track must
not cross. Slices of a thread are nested, but for recorders that round; those of a stream come one
after another, but for graphs and kernels that begin early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pyprof2.reports.perfetto.wire import Bools, Ints

_GENTLE_ROUNDS: Final = 8
"""So often only the later one of two that cross gives way, then both."""


class SliceEdges(NamedTuple):
    """The begins, or the ends, of slices.

    Attributes:
        time: in ns.
        number: of the slice, in the order of start, longer ones first.
        is_instant: whether the slice takes no time.
    """

    time: Ints
    number: Ints
    is_instant: Bools


def event_order(begins: SliceEdges, ends: SliceEdges) -> Ints:
    """Return the order in which slices begin and end, so that slices that may be nested are.

    At one instant what ends comes first, the innermost before the others; then what begins, the
    longest first; then what takes no time, each by itself.

    Returns:
        Positions in `begins`; from their number on, in `ends`.
    """
    kind = np.concatenate((np.where(begins.is_instant, 2, 1), np.where(ends.is_instant, 2, 0)))
    within = (
        np.where(begins.is_instant, 2 * begins.number, begins.number),
        np.where(ends.is_instant, 2 * ends.number + 1, -ends.number),
    )
    return np.lexsort((np.concatenate(within), kind, np.concatenate((begins.time, ends.time))))


def _events(start: Ints, end: Ints) -> Ints:
    number, is_instant = np.arange(len(start)), start == end
    return event_order(SliceEdges(start, number, is_instant), SliceEdges(end, number, is_instant))


class Lanes:
    """Gives each slice a lane in its group, part after part, in order of start.

    In a lane slices are apart, or, where `nested` is set, in lane 0 one inside another.
    """

    def __init__(self, *, nested: bool) -> None:
        self._nested = nested
        self._open = np.empty((4, 0), np.int64)  # group, start, end, lane

    def assign(self, group: Ints, start: Ints, end: Ints) -> Ints:
        """Return the lanes of slices that start no earlier than all before them.

        Args:
            group: of each slice, a number.
            start: ascending; of equal ones the longer first.
            end: not before the start.
        """
        lane = np.zeros(len(start), np.int64)
        if not len(start):
            return lane
        before = self._open[:, self._open[2] > start[0]]
        for each in np.unique(group).tolist():
            rows, carried = np.flatnonzero(group == each), before[:, before[0] == each]
            whole = np.concatenate((carried[1:], np.stack((start[rows], end[rows], lane[rows]))), 1)
            place, fixed = _nested if self._nested else _apart, carried.shape[1]
            lane[rows] = place(whole[0], whole[1], whole[2], fixed)[fixed:]
        found = np.concatenate((before, np.stack((group, start, end, lane))), axis=1)
        self._open = found[:, found[2] > start[-1]]
        return lane


def _nested(start: Ints, end: Ints, lane: Ints, fixed: int) -> Ints:
    """Return lane 0 for all that can be nested, and further ones for the rest.

    Args:
        start: of each slice.
        end: of each.
        lane: of the first ones, which have theirs.
        fixed: how many those are.
    """
    in_first = np.r_[lane[:fixed] == 0, np.ones(len(lane) - fixed, bool)]
    free = np.arange(len(lane)) >= fixed
    for turn in range(len(lane)):
        rows = np.flatnonzero(in_first)
        outer, inner = _crossing(start[rows], end[rows])
        gives_way = inner[(inner > outer) | (turn >= _GENTLE_ROUNDS)]
        gives_way = rows[gives_way][free[rows[gives_way]]]
        if not len(gives_way):
            break
        in_first[gives_way] = False
    rest = np.flatnonzero(~in_first)
    lane = np.where(in_first, 0, lane)
    lane[rest] = 1 + _apart(start[rest], end[rest], lane[rest] - 1, int((rest < fixed).sum()))
    return lane


def _crossing(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return, for each level that a wrong slice would end, its slice and the one that ends."""
    count = len(start)
    at = _events(start, end)
    begins = at < count
    level = np.cumsum(np.where(begins, 1, -1)) + ~begins
    at = at[np.argsort(level, kind="stable")]
    outer, inner = at[0::2], at[1::2] - count
    wrong = outer != inner
    return outer[wrong], inner[wrong]


def _apart(start: Ints, end: Ints, lane: Ints, fixed: int) -> Ints:
    """Return lanes in which slices are apart; those of the first `fixed` ones stay.

    A slice that begins while no other lasts is in lane 0; each that follows takes the lane that
    has been free for longest.
    """
    count = len(start)
    if not fixed and (start[1:] >= np.maximum.accumulate(end)[:-1]).all():
        return np.zeros(count, np.int64)
    at = _events(start, end)
    begins = at < count
    lasting = np.cumsum(np.where(begins, 1, -1))
    cluster = np.cumsum(np.r_[0, lasting[:-1] == 0]) if count else lasting
    most = np.zeros(count + 1, np.int64)
    np.maximum.at(most, cluster, lasting)
    if fixed:
        most[0] = max(most[0], lane[:fixed].max() + 1)
    ended = np.flatnonzero(~begins)
    begun = np.flatnonzero(begins)
    # How many events of its kind, begin or end, come before each event in its cluster.
    rank = np.empty(len(begins), np.int64)
    for rows in (begun, ended):
        own = cluster[rows]
        rank[rows] = np.arange(len(rows)) - np.searchsorted(own, own)
    # The end that frees a lane: of the same cluster, as many before it as there are lanes.
    frees = rank[begun] - most[cluster[begun]]
    first_end = np.searchsorted(cluster[ended], cluster[begun])
    freed = np.where(frees >= 0, at[ended][(first_end + frees) * (frees >= 0)] - count, -1)
    source = np.empty(count, np.int64)
    source[at[begun]] = freed
    given = np.empty(count, np.int64)
    given[at[begun]] = rank[begun]
    if fixed:
        # In the first cluster lanes are given without those that are taken.
        others = np.setdiff1d(np.arange(int(given.max()) + fixed + 1), lane[:fixed])
        order = np.concatenate((lane[:fixed], others))
        given = np.where(cluster[begun][np.argsort(at[begun])] == 0, order[given], given)
    return _follow(source, given)


def _follow(source: Ints, given: Ints) -> Ints:
    """Return the lane at the end of each chain of slices that take over one another's lane."""
    root = np.where(source >= 0, source, np.arange(len(source)))
    while (root[root] != root).any():
        root = root[root]
    return given[root]
