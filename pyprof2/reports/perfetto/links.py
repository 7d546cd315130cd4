"""Rows that name a row of another table, and their values: looked up without reading it all."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.recording import int_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.reports.perfetto.wire import Ints
    from pyprof2.store.parts import TableParts

_KEPT: Final = 8
"""So many parts of a table are kept in memory: rows that belong together are near in time."""
_NONE: Final = -1


class _KeptParts:
    """Columns of whole numbers of a table's parts; those that were read last are kept."""

    def __init__(self, table: TableParts, columns: Sequence[str]) -> None:
        self._table = table
        self._columns = columns
        self._kept: OrderedDict[int, list[Ints]] = OrderedDict()

    def columns(self, part: int) -> list[Ints]:
        """Return the columns of a part, -1 for null."""
        if part not in self._kept:
            rows = self._table.read(part, self._columns)
            self._kept[part] = [int_column(rows, name, _NONE) for name in self._columns]
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(part)
        return self._kept[part]


class NamedBy:
    """Finds the rows that name a row of another table."""

    def __init__(self, table: TableParts, key: str, number: str) -> None:
        """Look for rows.

        Args:
            table: where they are.
            key: the column by which they name a row.
            number: the column that numbers them.
        """
        self._least, self._greatest = table.bounds(key)
        self._parts = _KeptParts(table, (key, number))

    def rows(self, first: int, last: int) -> tuple[Ints, Ints]:
        """Return those that name one of the rows `first` to `last`: the named row, their number.

        Both columns are in the order of what is named.
        """
        keys, numbers = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for part in np.flatnonzero((self._least <= last) & (self._greatest >= first)).tolist():
            key, number = self._parts.columns(part)
            named = (key >= max(0, first)) & (key <= last)
            keys.append(key[named])
            numbers.append(number[named])
        key, number = np.concatenate(keys), np.concatenate(numbers)
        order = np.argsort(key, kind="stable")
        return key[order], number[order]


class Lookup:
    """Gives values of rows by their number, which counts them from 0."""

    def __init__(self, table: TableParts, columns: Sequence[str]) -> None:
        self._offsets = table.offsets
        self._parts = _KeptParts(table, columns)
        self._count = len(columns)

    def values(self, number: Ints) -> list[Ints]:
        """Return the columns of the rows of these numbers; -1 for a row of number -1."""
        found = [np.full(len(number), _NONE) for _ in range(self._count)]
        part = np.searchsorted(self._offsets, number, "right") - 1
        for each in np.unique(part[number >= 0]).tolist():
            rows = np.flatnonzero((part == each) & (number >= 0))
            for column, values in zip(found, self._parts.columns(each), strict=True):
                column[rows] = values[number[rows] - self._offsets[each]]
        return found
