"""The threads and processes of a recording, as small numbers, and which process launched what.

Recorders may not say which process launched a GPU activity. Correlation ids count within a process:
in a file that several were merged into, a launch of the right id may be another process's. What
separates them: the recorder's own id of the op, which the launch has too; that an id occurs in
one of the processes only, or that only one launched before the activity began; else that all other
work of the device is of one process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.compute as pc

from pyprof2.analysis.intervals import Bool, Int, last_not_after
from pyprof2.columns import lookup, order_of
from pyprof2.recording import int_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from pyprof2.analysis.intervals import Int

NO_ID: Final = -(1 << 62)
"""Stands for null in int64 columns."""


def _distinct(table: pa.Table, names: Sequence[str]) -> list[Int]:
    return [
        pc.unique(table[name]).fill_null(NO_ID).to_numpy(zero_copy_only=False) for name in names
    ]


@dataclass(frozen=True)
class Threads:
    """Gives each (process, thread) of a recording a small number."""

    pids: Int
    tids: Int

    @classmethod
    def of(cls, tables: Iterable[pa.Table]) -> Threads:
        """Number the threads that occur in the tables' `pid` and `tid`."""
        pids, tids = zip(*(_distinct(table, ("pid", "tid")) for table in tables), strict=True)
        return cls(np.unique(np.concatenate(pids)), np.unique(np.concatenate(tids)))

    def number(self, table: pa.Table) -> Int:
        """Return the number of each row's thread."""
        pid = np.searchsorted(self.pids, int_column(table, "pid", NO_ID))
        tid = np.searchsorted(self.tids, int_column(table, "tid", NO_ID))
        return pid * len(self.tids) + tid

    def process(self, thread: Int) -> Int:
        """Return the number of the process of each thread."""
        return thread // max(1, len(self.tids))

    def pid(self, thread: Int) -> Int:
        """Return the process id of each thread; `NO_ID` for null."""
        return lookup(self.pids, self.process(thread), NO_ID)

    def tid(self, thread: Int) -> Int:
        """Return the thread id of each thread; `NO_ID` for null."""
        return lookup(self.tids, thread % max(1, len(self.tids)), NO_ID)


def choose_processes(possible: Bool, named: Bool, device: Int) -> Int:
    """Return the process of each activity as a position, -1 where it cannot be known.

    Args:
        possible: by process and activity, whether the process may have launched it.
        named: the same, whether the recorder's own id says so.
        device: of each activity.
    """
    choice = np.where(possible.sum(axis=0) == 1, possible.argmax(axis=0), -1)
    choice = np.where(named.sum(axis=0) == 1, named.argmax(axis=0), choice)
    _, place = np.unique(device, return_inverse=True)
    used = np.zeros((place.max(initial=-1) + 1, len(possible)), bool)
    used[place[choice >= 0], choice[choice >= 0]] = True
    only = np.where(used.sum(axis=1) == 1, used.argmax(axis=1), -1)[place]
    may_be = (only >= 0) & possible[only, np.arange(len(only))]
    return np.where((choice < 0) & may_be, only, choice)


def candidates(key: Int, start: Int, wanted: Int, time: Int) -> tuple[Int, Bool]:
    """Return for each activity the last launch of its id that starts not after it, by position.

    Args:
        key: the correlation id of each launch, in any order.
        start: the start of each launch.
        wanted: the correlation id of each activity.
        time: the start of each activity.

    Returns:
        Positions among the launches; where all launches of the id are later, the first of them; -1
        where there is none. And whether it starts not after the activity.
    """
    order = order_of(key, start)
    found, is_before = among_sorted(key[order], start[order], wanted, time)
    return lookup(order, found, -1), is_before


def among_sorted(key: Int, start: Int, wanted: Int, time: Int) -> tuple[Int, Bool]:
    """Return what `candidates` does, of launches that are sorted by id and start."""
    if not len(key):
        return np.full(len(wanted), -1, np.int64), np.zeros(len(wanted), bool)
    found = last_not_after(key, start, wanted, time)
    is_before = found >= 0
    # A clock that drifts can put the kernel before its launch.
    first = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    late = ~is_before & (key[first] == wanted)
    found[late] = first[late]
    return found, is_before
