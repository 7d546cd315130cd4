"""The threads of a recording, as small numbers that columns of ids are found by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.compute as pc

from pyprof2.columns import lookup
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
