"""A rank of a run in the trace: its tables, its clock, and the tracks that others are below.

Rows that name a row of another table, and their values, are looked up without reading it all.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.recording import int_column
from pyprof2.reports.perfetto.slices import END, SliceStream, order_of, slices_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from pyprof2.columns import TextColumn
    from pyprof2.reports.perfetto.packets import Ints, Writer
    from pyprof2.store.parts import TableParts
    from pyprof2.store.rank_tables import RankTables


NULL: Final = -(1 << 62)
"""The mark for null where a number may be negative."""
TIMES: Final = ("start_ns", "dur_ns")

FINDINGS, JOB, DEVICES, PROCESSES, MEMORY = range(5)
"""The places of the tracks below a rank."""
_FLOWS: Final = 1 << 40
"""The flows of one kind in one rank have numbers below it."""


class Rank:
    """The tables, clock and tracks of a rank.

    Attributes:
        tables: its tables.
        writer: of packets.
        shift: what to add to its times.
        root: the track that all others of it are below.
        launch_flow, pair_flow: the first numbers of its flows from launches and to backward ops.
    """

    def __init__(self, tables: RankTables, writer: Writer, at: int, shift: int) -> None:
        """Describe its track.

        Args:
            tables: its tables.
            writer: of packets.
            at: which one of the ranks of the run it is, from 0.
            shift: what to add to its times.
        """
        self.tables = tables
        self.writer = writer
        self.shift = shift
        self.launch_flow = 2 * at * _FLOWS + 1
        self.pair_flow = self.launch_flow + _FLOWS
        sources = tables.read("trace", ["source"])["source"].to_pylist()
        names = ", ".join(dict.fromkeys(source for source in sources if source))
        self.root = writer.track(f"rank {tables.rank}: {names}", place=at)

    def parts(self, name: str) -> TableParts:
        """Return a table whose rows are read part by part."""
        return self.tables.parts(name)

    @cached_property
    def _device_names(self) -> dict[int, str]:
        return {row["device"]: row["name"] or "" for row in self.tables.devices()}

    def device(self, device: int) -> int:
        """Return the track of a device."""
        name = "a device" if device == NULL else f"device {device}"
        words = [name, self._device_names.get(device, "")]
        text = " · ".join(word for word in words if word)
        return self.writer.track(text, self.root, place=DEVICES)

    def write_slices(
        self,
        found: pa.Table,
        name: TextColumn,
        group: Ints,
        track: Callable[[int, int], int],
        shown: Sequence[str] = (),
    ) -> None:
        """Write the slices of a table that is short.

        Args:
            found: its rows, with `start_ns` and `dur_ns`, in any order.
            name: of each.
            group: of each; see `SliceStream`.
            track: gives the track of a group and a lane.
            shown: the columns that are arguments.
        """
        order = order_of(found)
        found, named = found.take(order), (name[0][order], name[1])
        slices = slices_of(self.writer, found, named, named, shown, self.shift)
        SliceStream(self.writer, track).add(group[order], slices, END)


def lane_name(name: str, lane: int) -> str:
    """Return the name of a track for its lane; the first one has that of the track."""
    return name if lane == 0 else f"{name} ({lane + 1})"


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
