"""The threads and processes of a recording, as small numbers, and which process launched what.

Recorders may not say which process launched a GPU activity. Correlation ids count within a process:
in a file that several were merged into, a launch of the right id may be another process's, above
all where the right one was not recorded. What proves a process: that the file writes the same label
before the ids of both, or that the recorder's own id of the op is the launch's too. Where all of
that is of one process for a device, its other work is of that process as well. Without proof, a
launch and work of an id that neither another process nor another device has belong together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

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


class ProcessEvidence(NamedTuple):
    """Evidence for each process, by process and activity.

    Attributes:
        has_call: whether it has a launch of the id, against which nothing speaks.
        is_possible: of these, those that start not after the activity, if any does.
        named: whether the recorder's own id says so.
        labelled: whether it has the label of the activity, or either has none.
    """

    has_call: Bool
    is_possible: Bool
    named: Bool
    labelled: Bool


def choose_processes(evidence: ProcessEvidence, device: Int, correlation: Int) -> tuple[Int, Bool]:
    """Return the process of each activity as a position, -1 for none, and where it is not known.

    A process that is known may have no launch of the activity in the recording: that is -1, too.

    Args:
        evidence: of the processes.
        device: of each activity.
        correlation: of each activity.
    """
    possible = evidence.is_possible & evidence.labelled
    named = evidence.named & evidence.labelled
    choice = np.where(evidence.labelled.sum(axis=0) == 1, evidence.labelled.argmax(axis=0), -1)
    choice = np.where((choice < 0) & (named.sum(axis=0) == 1), named.argmax(axis=0), choice)
    # Where a device has one process that is proven, all its work is of that.
    choice = _of_device(choice, device, len(possible))
    pairs = np.unique(np.stack((correlation, device)), axis=1)
    ids, count = np.unique(pairs[0], return_counts=True)
    is_alone = count[np.searchsorted(ids, correlation)] == 1
    alone = is_alone & (possible.sum(axis=0) == 1) & (choice < 0)
    choice = np.where(alone, possible.argmax(axis=0), choice)
    choice = _of_device(choice, device, len(possible))
    unsure = (choice < 0) & possible.any(axis=0)
    is_there = evidence.has_call[choice, np.arange(len(choice))]
    return np.where((choice >= 0) & is_there, choice, -1), unsure


def _of_device(choice: Int, device: Int, count: int) -> Int:
    """Give activities without a process that of all others of their device, if that is one."""
    _, place = np.unique(device, return_inverse=True)
    used = np.zeros((place.max(initial=-1) + 1, count), bool)
    used[place[choice >= 0], choice[choice >= 0]] = True
    only = np.where(used.sum(axis=1) == 1, used.argmax(axis=1), -1)[place]
    return np.where(choice < 0, only, choice)


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
