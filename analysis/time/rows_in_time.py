"""Rows of a table in order of time, of which only those are in memory that are still needed.

A table comes in parts, as it is stored: what begins early stands in an early part. Nothing rests on
the order of rows within a part; where parts are not in order, more of them are read at once.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.chunked import ENDLESS
from pyprof2.columns import row_of, values_of
from pyprof2.recording import int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyprof2.analysis.chunked import ChunkedTable
    from pyprof2.analysis.intervals import Bool, Int

_RECENT: Final = 2
"""How many parts are kept: rows that are looked up by key stand in those that were just read."""


class RowsInTime:
    """The rows of a table that begin before a time, without those that were dropped.

    Attributes:
        rows: what is held, in the order of the table.
    """

    def __init__(self, parts: ChunkedTable, columns: Sequence[str]) -> None:
        self._parts, self._columns = parts, columns
        least, _ = parts.bounds("start_ns")
        self._begin = np.minimum.accumulate(least[::-1])[::-1]
        self._next = 0
        self._recent: deque[tuple[int, pa.Table]] = deque(maxlen=_RECENT)
        self.rows = parts.empty(columns)

    def read_until(self, time: int, wanted: Callable[[pa.Table], Bool] | None = None) -> pa.Table:
        """Return what is held, once all rows that begin before the time are.

        Args:
            time: in ns.
            wanted: which rows of a part to hold at all, where not all; asked for those that are
                read now.
        """
        held = [self.rows]
        while self._next < len(self._parts) and self._begin[self._next] < time:
            part = self._part(self._next)
            held.append(part if wanted is None else part.filter(pa.array(wanted(part))))
            self._next += 1
        self.rows = pa.concat_tables([part for part in held if part.num_rows] or held[:1])
        return self.rows

    def keep(self, wanted: Bool) -> None:
        """Drop the held rows that are not wanted any more."""
        if not wanted.all():
            self.rows = self.rows.filter(pa.array(wanted))

    def take_until(self, time: int) -> pa.Table:
        """Return the held rows that begin before the time, which are held no longer."""
        rows = self.read_until(time)
        early = int_column(rows, "start_ns", 0) < time
        self.keep(~early)
        return rows.filter(pa.array(early))

    def with_keys(self, key: str, wanted: Int) -> pa.Table:
        """Return the rows of these keys, in order of the keys; held or not, dropped or not.

        Args:
            key: a column whose values ascend. Where there are several parts it is the number of
                the row in the table.
            wanted: values in any order; those that there are not have no row.
        """
        wanted = values_of(wanted)
        place = np.searchsorted(self._parts.offsets, wanted, "right") - 1
        place = np.clip(place, 0, max(0, len(self._parts) - 1))
        found = [self._parts.empty(self._columns)]
        for number in np.unique(place).tolist() if len(self._parts) else ():
            part = self._part(number)
            if all(at != number for at, _ in self._recent):
                self._recent.append((number, part))
            at = row_of(int_column(part, key, -ENDLESS), wanted[place == number])
            found.append(part.take(pa.array(at[at >= 0])))
        return pa.concat_tables(found)

    def _part(self, number: int) -> pa.Table:
        known = next((table for at, table in self._recent if at == number), None)
        return self._parts.read(number, self._columns) if known is None else known


def united(rows: pa.Table, others: pa.Table, key: str) -> pa.Table:
    """Return the rows that are in either table, once and in order of the key."""
    known = np.sort(int_column(rows, key, -ENDLESS))
    new = row_of(known, int_column(others, key, -ENDLESS)) < 0
    both = pa.concat_tables([rows, others.filter(pa.array(new))]).unify_dictionaries()
    ids = int_column(both, key, -ENDLESS)
    if (ids[1:] > ids[:-1]).all():
        return both
    return both.combine_chunks().take(pa.array(np.argsort(ids, kind="stable")))


def cuts(tables: Sequence[ChunkedTable], size: int) -> list[int]:
    """Return times that cut tables into windows in which about `size` rows of each begin.

    The last one is later than all rows; rows that begin together are in one window.
    """
    times = [np.empty(0, np.int64)]
    for parts in tables:
        for part in range(len(parts)):
            start = np.sort(int_column(parts.read(part, ["start_ns"]), "start_ns", 0))
            times.append(start[::size][1:])
            times.append(start[:1])
    return [*np.unique(np.concatenate(times)).tolist(), ENDLESS]
