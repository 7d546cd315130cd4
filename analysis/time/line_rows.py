"""Rows of the ledgers of lines: what they are of, and how they are added up part by part."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from pyprof2.columns import combine_keys, groups_of, narrow, short
from pyprof2.recording import TextCodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.time.line_ops import LineOps

NumberColumns: TypeAlias = "dict[str, NDArray[Any]]"
"""Columns of numbers or of yes and no, by name."""

COUNTS: Final = ("flops", "bytes")
_SUMS: Final = (
    "calls", "count", "time_ns", "costed_ns", *COUNTS, *(f"{name}_known" for name in COUNTS),
)  # fmt: skip
OF_DEVICES: Final = ("tensor_core_ns", "tensor_core_known_ns", "overlap_ns", "idle_caused_ns")
LEDGERS: Final = {"device": (*_SUMS, *OF_DEVICES), "host": _SUMS, "threads": _SUMS}
"""The ledgers, and what is added up in each."""
NOWHERE: Final = 0
"""The number of what has no op."""
_FEW: Final = 1 << 14
"""So many rows are held at least until they are added up with those before them."""


class Rows(NamedTuple):
    """Rows to be summed by what they are of.

    Attributes:
        step: position in the steps, -1 outside of them.
        thread: number of the thread, -1 on the device.
        place: number of what its op is at a line, see `Places`.
        source: of what has no op, as a code; -1 for none.
        sums: the columns to add up, by name; what is not there is 0.
    """

    step: Int
    thread: Int
    place: Int
    source: Int
    sums: NumberColumns

    def at(self, rows: Int) -> Rows:
        """Return some of them."""
        step, thread, place, source = (key[rows] for key in self[:4])
        sums = {name: values[rows] for name, values in self.sums.items()}
        return Rows(step, thread, place, source, sums)


class Places:
    """Numbers for what ops are at their lines: one for each stack, call, layer and phase.

    Attributes:
        calls, layers: the texts that calls and layers are codes of.
    """

    def __init__(self) -> None:
        self._numbers = TextCodes({(-1, -1, -1, -1): NOWHERE})
        self.calls: Sequence[str | None] = ()
        self.layers: Sequence[str | None] = ()

    def add(self, lines: LineOps) -> Int:
        """Return the number of what each op is."""
        self.calls, self.layers = lines.call[1], lines.layer[1]
        keys = lines.stack, lines.call[0], lines.layer[0], lines.phase
        first, group = groups_of(_key(keys))
        distinct = zip(*(key[first].tolist() for key in keys), strict=True)
        return short(np.array([self._numbers[each] for each in distinct], np.int64))[group]

    def columns(self, place: Int) -> Sequence[Int]:
        """Return stack, call, layer and phase of each place, as they are in `LineOps`."""
        known = np.array(list(self._numbers), np.int64)
        return [column[place] for column in known.T]


class Sums:
    """Adds up the rows of a ledger, which come in parts; what it holds grows with what they are of.

    Equal ones of a part are added up at once, and parts when there are twice as many rows.
    """

    def __init__(self, names: Sequence[str]) -> None:
        """Add up the columns of these names."""
        self._names = names
        self._parts: list[Rows] = []
        self._waiting, self._most = 0, _FEW

    def add(self, rows: Rows) -> None:
        """Take up rows."""
        self._parts.append(_summed(rows))
        self._waiting += len(self._parts[-1].step)
        if self._waiting > self._most:
            self.rows()

    def rows(self) -> Rows:
        """Return the sums so far, one row for each step, thread, place and source."""
        found = _summed(_stacked(self._parts, self._names))
        self._parts, self._waiting = [found], len(found.step)
        self._most = max(_FEW, 2 * self._waiting)
        return found


def _summed(rows: Rows) -> Rows:
    first, group = groups_of(_key(rows[:4]))
    step, thread, place, source = (key[first] for key in rows[:4])
    # Most are small, and there are many columns.
    sums = {n: narrow(_added(values, group, len(first))) for n, values in rows.sums.items()}
    return Rows(step, thread, place, source, sums)


def _stacked(parts: Sequence[Rows], names: Sequence[str]) -> Rows:
    """Return the rows of several; what one does not add is 0."""
    nothing = np.empty(0, np.int32)
    # Each column is let go once it is in the whole: there are many, and they are long.
    sums = {
        name: np.concatenate(
            [nothing, *(part.sums.pop(name, np.zeros(len(part.step), np.int8)) for part in parts)]
        )
        for name in names
    }
    keys = zip(*(part[:4] for part in parts), strict=True)
    step, thread, place, source = (
        np.concatenate([nothing, *map(short, each)]) for each in ([*keys] or [()] * 4)
    )
    return Rows(step, thread, place, source, sums)


def _key(columns: Sequence[Int]) -> Int:
    """Return one integer per row that is equal where all columns are."""
    sizes = [int(column.max(initial=-1)) + 2 for column in columns]
    if math.prod(sizes) >= 1 << 62:
        return combine_keys(*columns)
    key = np.zeros(len(columns[0]), np.int64)
    for column, size in zip(columns, sizes, strict=True):
        key = key * size + column + 1
    return key


def _added(values: Int, group: Int, count: int) -> Int:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, group, values.astype(np.int64, copy=False))  # other types take a slow way
    return sums
