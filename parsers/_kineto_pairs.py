"""Events of phases B and E: a pair of one thread is one event, as long as what is between them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pyprof2.columns import combine_keys
from pyprof2.parsers._columns import Meaning
from pyprof2.parsers._kineto_columns import BEGIN, END
from pyprof2.problems import UNPAIRED_END
from pyprof2.recording import TextCodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pyprof2.parsers._columns import Int
    from pyprof2.parsers._kineto_columns import EventColumns
    from pyprof2.parsers._kineto_values import TableContext

_NO_ID: Final = -(1 << 62)


class _Half(NamedTuple):
    """The beginning or the end of an event: its position, time and name; -1: it has no name."""

    at: int
    time: int
    name: int
    ends: bool


@dataclass
class PairedEvents:
    """Holds beginnings and ends until the file is read, and joins them.

    They nest in each thread: an end closes what began last, unless its name says otherwise.
    """

    shared: TableContext
    _held: list[EventColumns] = field(default_factory=list)
    _threads: list[tuple[Any, Any]] = field(default_factory=list)
    _names: TextCodes = field(default_factory=TextCodes)

    def add(self, events: EventColumns) -> None:
        """Hold beginnings of one group, or ends."""
        self._count_lost(int((~events.timed).sum()))
        self._held.append(events.where(events.timed))

    def joined(self) -> Iterator[EventColumns]:
        """Yield the pairs as events of the groups of their beginnings, and count what has none."""
        held = [events for events in self._held if len(events)]
        if not held:
            return
        code = Meaning(lambda name: self._names[name] if name else None)
        names = np.concatenate([code.codes(events.name) for events in held])
        ends = np.concatenate([np.full(len(e), e.group == END) for e in held])
        time = np.concatenate([events.start_ns for events in held])
        end_of = _ends(self._thread(held), time, names, ends)
        self._count_lost(len(end_of) - 2 * int((end_of >= 0).sum()))
        done = 0
        for events in held:
            own = end_of[done : done + len(events)]
            done += len(events)
            if events.group != END and (own >= 0).any():
                dur = np.where(own >= 0, time[own] - events.start_ns, 0)
                group = events.group.removeprefix(BEGIN)
                yield replace(events, group=group, dur_ns=dur).where(own >= 0)

    def _count_lost(self, count: int) -> None:
        if count:
            self.shared.problems[UNPAIRED_END] += count

    def _thread(self, held: Sequence[EventColumns]) -> Int:
        parts = [self.shared.thread(events) for events in held]
        return combine_keys(
            *(np.concatenate([_numbers(part[name]) for part in parts]) for name in ("pid", "tid"))
        )


def _numbers(ids: pa.Array) -> Int:
    found: Int = ids.fill_null(_NO_ID).to_numpy(zero_copy_only=False)
    return found


def _ends(thread: Int, time: Int, name: Int, ends: Any) -> Int:
    """Return for each beginning the position of its end; -1: it has none, or is an end.

    In threads whose depths and names agree, each is the next of its depth; others are walked.
    """
    order = np.lexsort((np.arange(len(time)), ~ends, time, thread))
    thread, is_end, named = thread[order], ends[order], name[order]
    first = np.flatnonzero(np.r_[True, thread[1:] != thread[:-1]])
    of = np.cumsum(np.r_[True, thread[1:] != thread[:-1]]) - 1
    depth = np.cumsum(np.where(is_end, -1, 1))
    depth -= np.r_[0, depth][first][of]
    level = depth + is_end  # equal for a beginning and its end
    by = np.lexsort((np.arange(len(order)), level, of))
    begin, end = by[:-1], by[1:]
    pairs = ~is_end[begin] & is_end[end] & (of[begin] == of[end]) & (level[begin] == level[end])
    begin, end = begin[pairs], end[pairs]
    differ = (named[end] >= 0) & (named[begin] >= 0) & (named[begin] != named[end])
    odd = np.zeros(len(first), bool)
    odd[of[level < 1]] = True
    odd[of[begin[differ]]] = True
    odd[np.bincount(of) != 2 * np.bincount(of[begin], minlength=len(first))] = True
    found = np.full(len(order), -1, np.int64)
    good = ~odd[of[begin]]
    found[order[begin[good]]] = order[end[good]]
    for number in np.flatnonzero(odd).tolist():
        own = order[of == number]
        columns = (own, time[own], name[own], ends[own])
        halves = map(_Half, *(column.tolist() for column in columns))
        for begins, closes in _walked(halves):
            found[begins] = closes
    return found


def _walked(halves: Iterator[_Half]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of a thread in which something is missing, or crosses."""
    open_: list[_Half] = []
    for _, together in groupby(halves, key=lambda half: half.time):
        here = list(together)
        ends = [half for half in here if half.ends]
        # An event that ends at a time began before it, if any open event has its name.
        yield from _closed(open_, ends)
        open_ += [half for half in here if not half.ends]
        yield from _closed(open_, ends)


def _closed(open_: list[_Half], ends: list[_Half]) -> Iterator[tuple[int, int]]:
    """Yield what ends of one time close, and take both away.

    Each closes the last that began and has its name, those first that close what began last of
    all. Events that began after it have lost their end, unless they began at the same time.
    """
    lost: list[_Half] = []
    while open_ and ends:
        last = next((each for each in ends if _fit(open_[-1], each)), ends[0])
        ends.remove(last)
        places = (at for at in reversed(range(len(open_))) if _fit(open_[at], last))
        at = next(places, None)
        if at is None:
            lost.append(last)
            continue
        begun = open_[at]
        open_[at:] = [each for each in open_[at + 1 :] if each.time == begun.time]
        yield begun.at, last.at
    ends += lost


def _fit(begun: _Half, end: _Half) -> bool:
    return -1 in (begun.name, end.name) or begun.name == end.name
