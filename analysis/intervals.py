"""The algebra of intervals on threads, in whole columns.

Intervals are half-open, `[start, end)`, int64 ns, and belong to a thread, a small integer: what
begins as another ends is not inside of it, and what has no length holds nothing. They may nest,
touch, tie and overlap in any way. `Nest` sorts them once by thread, start and then longest first,
so that what encloses an interval stands before it.

Where `_nest.c` is built it finds what is around each of them, in one pass; what is here in NumPy
gives the same.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyprof2 import is_pure
from pyprof2.columns import order_of, sum_at, values_of

_nest: Any = None
with contextlib.suppress(ImportError):  # it was not built
    from pyprof2.analysis import _nest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Int: TypeAlias = NDArray[np.int64]
Bool: TypeAlias = NDArray[np.bool_]


_WIDEST: Final = 1 << 62
_MICROSECOND: Final = 1000


def compiled(result: Int, function: str, *columns: Int, narrow: int = 0) -> bool:
    """Have a function of `_nest.c` fill a result; return whether it is there and wanted.

    The first columns, as many as are `narrow`, are positions of 32 bits.
    """
    if _nest is None or is_pure():
        return False
    kinds = [np.int32] * narrow + [np.int64] * (len(columns) - narrow)
    getattr(_nest, function)(*map(np.ascontiguousarray, columns, kinds), result)
    return True


@dataclass(frozen=True)
class Nest:
    """Intervals in sorted order.

    Attributes:
        order: position in the caller's columns of each sorted interval.
        thread, start, end: the sorted columns.
        outer: for each sorted interval the nearest one before it on its thread that ends later
            than it does, or -1. Only these can hold the interval's end, or a time after it.
    """

    order: Int
    thread: Int
    start: Int
    end: Int
    outer: Int

    @classmethod
    def of(cls, thread: Int, start: Int, end: Int, rank: Int | None = None) -> Nest:
        """Sort intervals; of equal ones the one with the smaller `rank` is the outer one."""
        if rank is None and _is_in_order(thread, start, -end):
            order = np.arange(len(start))  # the columns are what they would be, and not copied
        else:
            ties = () if rank is None else (rank,)
            packing = _Packing.of(thread, start) if len(start) else None
            if packing is None:
                order = np.lexsort((*ties, -end, start, thread))
            else:
                order = order_of(packing.pack(thread, start), -end, *ties)
            thread, start, end = thread[order], start[order], end[order]
        return cls(order, thread, start, end, _nearest_later_end(thread, end))

    def parents(self) -> Int:
        """Return for each of the caller's intervals the one directly around it, or -1.

        Around it: holds its start, ends not earlier, and stands before it in sorted order. Where
        all times are of whole microseconds, start and duration were each cut off, so that what is
        around an interval may seem to end one microsecond earlier than it.
        """
        cut = _MICROSECOND if _are_whole(self.start) and _are_whole(self.end) else 0
        reach = np.maximum(self.end - cut, self.start + 1)
        parent = np.arange(-1, len(self.order) - 1)
        if compiled(parent, "enclosing", self.thread, self.end, reach, self.outer):
            return self._to_caller(parent)
        parent[~self._same_thread(parent)] = -1
        # The nearest one before that ends not before it must: itself or one that ends later.
        todo = np.flatnonzero(parent >= 0)
        while len(todo):
            todo = todo[self.end[parent[todo]] < reach[todo]]
            parent[todo] = self.outer[parent[todo]]
            todo = todo[parent[todo] >= 0]
        return self._to_caller(parent)

    def innermost(self, thread: Int, time: Int) -> Int:
        """Return for each thread and time the innermost interval that holds it, or -1.

        Innermost: starts last; of these the shortest; of equal ones the last in sorted order.
        """
        found = self._holder(last_not_after(self.thread, self.start, thread, time), time)
        return self._at(found)

    def holders(self, thread: Int, time: Int) -> Iterator[Int]:
        """Yield for each thread and time the intervals that hold it, innermost first, then -1.

        They need not hold each other. It ends with the outermost one of the deepest place.
        """
        found = last_not_after(self.thread, self.start, thread, time)
        found = self._holder(found, time)
        while (found >= 0).any():
            yield self._at(found)
            before = np.where(found >= 0, found - 1, -1)
            same = (before >= 0) & (self.thread[before] == thread)
            found = self._holder(np.where(same, before, -1), time)

    def _holder(self, found: Int, time: Int) -> Int:
        """Return the last one that holds each time, not after the position `found`, or -1."""
        if compiled(found, "holder", self.end, self.outer, time):
            return found
        todo = np.flatnonzero(found >= 0)
        while len(todo):
            todo = todo[self.end[found[todo]] <= time[todo]]
            found[todo] = self.outer[found[todo]]
            todo = todo[found[todo] >= 0]
        return found

    def _at(self, found: Int) -> Int:
        """Return the caller's positions of sorted ones; -1 stays."""
        return np.where(found >= 0, self.order[found], -1) if len(self.order) else found

    def overlaps(self) -> bool:
        """Whether any interval begins inside of another of its thread and ends outside of it."""
        first = np.empty(1, np.int64)
        if compiled(first, "first_overlap", self.thread, self.start, self.end, self.outer):
            return bool(first[0] >= 0)
        before = np.arange(-1, len(self.order) - 1)
        before[~self._same_thread(before)] = -1
        todo = np.flatnonzero(before >= 0)
        while len(todo):
            # The ones on the way out end latest of those that end earlier.
            todo = todo[self.end[before[todo]] < self.end[todo]]
            if (self.end[before[todo]] > self.start[todo]).any():
                return True
            before[todo] = self.outer[before[todo]]
            todo = todo[before[todo] >= 0]
        return False

    def holds(self, thread: Int, time: Int) -> Bool:
        """Return whether any interval of the thread holds the time."""
        held: Bool = self.innermost(thread, time) >= 0
        return held

    def _same_thread(self, other: Int) -> Bool:
        same: Bool = (other >= 0) & (self.thread[other] == self.thread)
        return same

    def _to_caller(self, positions: Int) -> Int:
        result = np.full(len(self.order), -1, np.int64)
        known = positions >= 0
        result[self.order[known]] = self.order[positions[known]]
        return result


def _are_whole(times: Int) -> bool:
    """Whether all times are of whole microseconds; the first ones decide for most recordings."""
    return not (times[:64] % _MICROSECOND).any() and not (times % _MICROSECOND).any()


def _is_in_order(*keys: Int) -> bool:
    """Whether rows are sorted by the first key, rows of equal ones by the next, and so on."""
    first, *others = keys
    if (first[1:] < first[:-1]).any():
        return False
    equal = np.flatnonzero(first[1:] == first[:-1])
    for key in others:
        before, after = key[equal], key[equal + 1]
        if (after < before).any():
            return False
        equal = equal[after == before]
    return True


def _nearest_later_end(thread: Int, end: Int) -> Int:
    """Return for each sorted interval the nearest one before it that ends later, or -1.

    Each points at its neighbour first, and then jumps along the pointers of those that end no
    later than itself: the jumps double in length, so wide flat lists take few rounds.
    """
    outer = np.arange(-1, len(end) - 1)
    if compiled(outer, "nearest_later_end", thread, end):
        return outer
    if len(end):
        outer[np.r_[True, thread[1:] != thread[:-1]]] = -1
    todo = np.flatnonzero(outer >= 0)
    while len(todo):
        todo = todo[end[outer[todo]] <= end[todo]]
        outer[todo] = outer[outer[todo]]
        todo = todo[outer[todo] >= 0]
    return outer


def last_not_after(key: Int, start: Int, query_key: Int, time: Int) -> Int:
    """Return for each query the position of the last row of its key that starts not after `time`.

    Args:
        key: of the rows, which are sorted by key and then start.
        start: of the rows.
        query_key: of the queries, in any order.
        time: of the queries.

    Returns:
        Positions among the rows, the last of equal ones; -1 where there is none.
    """
    if not len(key):
        return np.full(len(time), -1, np.int64)
    found = np.empty(len(time), np.int64)
    if compiled(found, "last_not_after", key, start, query_key, time):
        return found
    packing = _Packing.of(key, start)
    if packing is None:
        found = _last_by_sorting(key, start, query_key, time)
    else:
        rows, queries = packing.pack(key, start), packing.pack(query_key, time)
        found = np.searchsorted(rows, queries, "right") - 1
    known = np.flatnonzero(found >= 0)
    found[known[key[found[known]] != query_key[known]]] = -1
    return found


def _last_by_sorting(key: Int, start: Int, query_key: Int, time: Int) -> Int:
    """Return for each query the position of the last row whose key and start are not after its."""
    count = len(key)
    merged = np.lexsort(
        (
            np.repeat(np.array([0, 1], np.int8), (count, len(time))),
            np.concatenate((start, time)),
            np.concatenate((key, query_key)),
        )
    )
    # The sort is stable, so the rows keep their order, and a count of them gives the position.
    seen = np.cumsum(merged < count) - 1
    found = np.empty(len(time), np.int64)
    is_query = merged >= count
    found[merged[is_query] - count] = seen[is_query]
    return found


class _Packing(NamedTuple):
    """How keys and times become one number each, which sorts as both do.

    Attributes:
        key, time: the least of the rows.
        keys, span: how many of each there may be, with one beyond on either side of the keys, and
            one before the times.
    """

    key: int
    time: int
    keys: int
    span: int

    @classmethod
    def of(cls, key: Int, time: Int) -> _Packing | None:
        """Find it for rows, of which there are some; None if the numbers would not fit."""
        first, least = int(time.min()), int(key.min())
        keys, span = int(key.max()) - least + 3, int(time.max()) - first + 2
        fits = keys * span < _WIDEST and min(first, least) > -_WIDEST
        return cls(least, first, keys, span) if fits else None

    def pack(self, key: Int, time: Int) -> Int:
        """Return the numbers; what is before or after all rows is put just beyond them."""
        place = np.clip(key, self.key - 1, self.key + self.keys - 2) - (self.key - 1)
        place *= self.span
        place += np.clip(time, self.time - 1, self.time + self.span - 2) - (self.time - 1)
        return place


def merged(start: Int, end: Int) -> tuple[Int, Int]:
    """Return the union of the intervals as starts and ends; intervals that touch are one."""
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    latest = np.maximum.accumulate(end) if len(end) else end
    first = np.r_[True, start[1:] > latest[:-1]][: len(start)]
    last = np.r_[first[1:], True][: len(start)]
    return start[first], latest[last]


def union_length(start: Int, end: Int) -> int:
    """Return the time that at least one of the intervals covers."""
    if not len(start):
        return 0
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    covered = np.maximum.accumulate(np.concatenate((start[:1], end[:-1])))
    np.maximum(start, covered, out=covered)
    return int(np.maximum(0, end - covered).sum())


class Covered:
    """The time that intervals cover and none before them did, by key: a device, or a thread.

    They may come in parts, in order of time.
    """

    def __init__(self) -> None:
        self._until: dict[int, int] = {}

    def add(self, key: Int, start: Int, end: Int) -> Int:
        """Return from when on each is the only one of those of its key that began before it.

        It is so until its end, and the longest comes first where several begin together: so these
        intervals are disjoint, and together they are the union.

        Args:
            key: of each interval.
            start: of each, not before the latest one of the part before.
            end: of each.
        """
        found = end.copy()
        for each in values_of(key).tolist():
            rows = np.flatnonzero(key == each)
            rows = rows[order_of(start[rows], -end[rows])]
            begin, finish = start[rows], end[rows]
            latest = np.maximum.accumulate(np.r_[self._until.get(each, begin[0]), finish])
            found[rows] = np.minimum(finish, np.maximum(begin, latest[:-1]))
            self._until[each] = int(latest[-1])
        return found


def time_within(start: Int, end: Int, begin: Int, finish: Int) -> Int:
    """Return for each span `[begin, finish]` the time in it that any of the intervals covers."""
    start, end = merged(start, end)
    if not len(start):
        return np.zeros(len(begin), np.int64)
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(end - start)))

    def until(time: Int) -> Int:
        place = np.searchsorted(start, time, "right")
        late = np.maximum(0, end[place - 1] - time)
        return np.where(place > 0, before[place] - late, 0)

    return until(finish) - until(begin)


def innermost_time(thread: Int, start: Int, end: Int, rank: Int | None = None) -> Int:
    """Return for each interval the time in which it is the innermost one of its thread.

    The times add up to the union of the intervals, whatever way they overlap.
    """
    # Doubled times leave room for a point strictly inside of every slice between two bounds.
    nest = Nest.of(thread, 2 * start, 2 * end, rank)
    threads, bounds = np.concatenate((thread, thread)), np.concatenate((start, end))
    order = np.lexsort((bounds, threads))
    threads, bounds = threads[order], bounds[order]
    whole = np.flatnonzero((threads[1:] == threads[:-1]) & (bounds[1:] > bounds[:-1]))
    owner = nest.innermost(threads[whole], 2 * bounds[whole] + 1)
    length = bounds[whole + 1] - bounds[whole]
    return sum_at(owner, length, len(start))


def time_without_children(parent: Int, length: Int) -> Int:
    """Return the length of each interval less that of those directly inside.

    Where none overlap, this is their `innermost_time`, and much faster.
    """
    own = length.copy()
    inside = parent >= 0
    np.subtract.at(own, parent[inside], length[inside])
    return own


def depths(parent: Int) -> Int:
    """Return the number of ancestors of each row, given the row of its parent or -1."""
    depth = (parent >= 0).astype(np.int64)
    # The ancestors up to `above` are counted; with each round the jumps double in length.
    above = parent.copy()
    todo = np.flatnonzero(above >= 0)
    while len(todo):
        depth[todo] += depth[above[todo]]
        above[todo] = above[above[todo]]
        todo = todo[above[todo] >= 0]
    return depth


def levels_of(parent: Int) -> list[Int]:
    """Return the rows at each depth of a forest, from the innermost to those below the roots."""
    depth = depths(parent)
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(1, int(depth.max(initial=0)) + 2))
    return [order[first:end] for first, end in pairwise(bounds)][::-1]


def add_to_parents(values: Int, parent: Int, levels: Sequence[Int]) -> None:
    """Add to the values of each row those of all rows below it."""
    for rows in levels:
        np.add.at(values, parent[rows], values[rows])


def same_again(name: Int, parent: Int) -> Bool:
    """Return which rows are the only one directly below a row of the same name."""
    children = np.bincount(parent[parent >= 0], minlength=len(parent))
    same: Bool = parent >= 0
    if same.any():
        same &= (name[parent] == name) & (children[parent] == 1)
    return same


def nearest_marked(parent: Int, marked: Bool) -> Int:
    """Return for each row itself if it is marked, else its nearest marked ancestor, or -1."""
    found = np.where(marked, np.arange(len(parent)), -2)
    if compiled(found, "nearest_marked", parent):
        return found
    found = np.where(marked, np.arange(len(parent)), parent)
    todo = np.flatnonzero((found >= 0) & ~marked)
    while len(todo):
        todo = todo[~marked[found[todo]]]
        # The jumps double in length: an unmarked ancestor passes on what it has found so far.
        found[todo] = found[found[todo]]
        todo = todo[found[todo] >= 0]
    return found


def holds_marked(parent: Int, marked: Bool) -> Bool:
    """Return which rows are an ancestor of a marked one."""
    found, above = np.zeros(len(parent), bool), parent.copy()
    todo = np.flatnonzero(above >= 0)
    while len(todo):
        # All that is known so far is below by less than a jump; jumps double each round.
        found[above[todo[(found | marked)[todo]]]] = True
        above[todo] = above[above[todo]]
        todo = todo[above[todo] >= 0]
    return found
