"""Tables that are read in chunks, as they may be too large to be held at once.

A chunk ("part") is read at once; a stretch is as many consecutive parts as need one another.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.columns import lookup, narrow, short
from pyprof2.recording import TextCodes, code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Int

ENDLESS: Final = 1 << 62
"""Later than any time, and as a negative number before it."""
_LONG: Final = ("start_ns", "dur_ns", "time_ns")


class ChunkedTable(Protocol):
    """A table that is read in parts, at least one: see `pyprof2.store.parts.TableParts`."""

    @property
    def offsets(self) -> Int:
        """The number of rows before each part, and at the end that of all."""

    @property
    def row_count(self) -> int:
        """The number of rows in all parts."""

    def __len__(self) -> int:
        """Return the number of parts."""

    def read(self, part: int, columns: Sequence[str]) -> pa.Table:
        """Return columns of a part, in the order of the table, whatever order is asked for."""

    def empty(self, columns: Sequence[str]) -> pa.Table:
        """Return the columns without rows."""

    def bounds(self, column: str) -> tuple[Int, Int]:
        """Return the least and the greatest value of each part; of none the least is above it."""


class InMemory:
    """A table that is in memory already, as if it were read in parts.

    Attributes:
        offsets: the number of rows before each part, and at the end that of all.
    """

    def __init__(self, *parts: pa.Table) -> None:
        """Take the parts, at least one."""
        self._parts = parts
        self.offsets: Int = np.cumsum([0, *(part.num_rows for part in parts)])

    @classmethod
    def cut(cls, table: pa.Table, size: int) -> Self:
        """Cut a table into parts of so many rows."""
        return cls(*(table.slice(at, size) for at in range(0, max(1, table.num_rows), size)))

    @property
    def row_count(self) -> int:
        """The number of rows in all parts."""
        return int(self.offsets[-1])

    def __len__(self) -> int:
        return len(self._parts)

    def read(self, part: int, columns: Sequence[str]) -> pa.Table:
        """Return columns of a part, in the order of the table."""
        rows = self._parts[part]
        return rows.select([name for name in rows.column_names if name in columns])

    def empty(self, columns: Sequence[str]) -> pa.Table:
        """Return the columns without rows."""
        return self.read(0, columns).slice(0, 0)

    def bounds(self, column: str) -> tuple[Int, Int]:
        """Return the least and the greatest value of each part; of none the least is above it."""
        found = [pc.min_max(part[column]).as_py() for part in self._parts]
        pairs = [(each["min"], each["max"]) for each in found]
        known = [(ENDLESS, -ENDLESS) if least is None else (least, most) for least, most in pairs]
        least, most = np.array(known, np.int64).reshape(-1, 2).T
        return least, most


def whole(table: ChunkedTable, columns: Sequence[str]) -> pa.Table:
    """Return columns of a table of few rows at once."""
    return pa.concat_tables(chunks_of(table, columns))


def chunks_of(table: ChunkedTable, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the parts of a table one by one."""
    for part in range(len(table)):
        yield table.read(part, columns)


class Stretch(NamedTuple):
    """Consecutive parts of a table.

    Attributes:
        rows: of them.
        first: the number of rows before them.
        since, until: every row of them starts in this time, those before not later, and those
            after not earlier.
    """

    rows: pa.Table
    first: int
    since: int
    until: int


def stretches(
    table: ChunkedTable, columns: Sequence[str], refers_to: str | None = None
) -> Iterator[Stretch]:
    """Yield a table in as many stretches as there can be, in order of time.

    Where the rows of two parts are not in order of time, both are in one stretch.

    Args:
        table: rows in order of `start_ns`, as a rule.
        columns: to be read.
        refers_to: a column of row numbers; no row refers to one of a later stretch.
    """
    least, most = table.bounds("start_ns")
    later = np.r_[np.minimum.accumulate(least[::-1])[::-1][1:], ENDLESS]
    is_end = np.maximum.accumulate(most) <= later
    if refers_to is not None:
        is_end &= np.maximum.accumulate(table.bounds(refers_to)[1]) < table.offsets[1:]
    # A part that only parts without rows follow is the end, too.
    is_end &= later < ENDLESS
    is_end[-1] = True
    since = -ENDLESS
    for first, end in pairwise([0, *(np.flatnonzero(is_end) + 1).tolist()]):
        rows = pa.concat_tables([table.read(part, columns) for part in range(first, end)])
        until = int(later[end - 1])
        yield Stretch(rows, int(table.offsets[first]), since, until)
        since = until


def in_time_order(
    tables: Sequence[ChunkedTable], columns: Sequence[Sequence[str]]
) -> Iterator[tuple[list[pa.Table], int]]:
    """Yield the rows of several tables that start in the same time, and the end of this time.

    Within a table rows stay in their order. All rows that start at one time are yielded together,
    none after one that starts later; so they are one after another what all rows at once are.

    Args:
        tables: rows in order of `start_ns`, as a rule.
        columns: to be read of each, `start_ns` among them.
    """
    readers = [stretches(table, names) for table, names in zip(tables, columns, strict=True)]
    held = [next(reader) for reader in readers]
    while True:
        # Rows that start before this are all there; later ones of each table may follow.
        until = min(each.until for each in held)
        cut = [_cut(each.rows, until) for each in held]
        yield [before for before, _ in cut], until
        if until == ENDLESS:
            return
        rest = [each._replace(rows=after) for each, (_, after) in zip(held, cut, strict=True)]
        del cut
        held = [_more(each, reader, until) for each, reader in zip(rest, readers, strict=True)]


def least_from(table: ChunkedTable, columns: Sequence[str]) -> Callable[[int], int]:
    """Return what gives the least row that those from a part on name, of each row that it begins.

    Args:
        table: of which rows name others.
        columns: their numbers.
    """
    least = np.minimum.reduce([table.bounds(name)[0] for name in columns])
    named = np.r_[np.minimum.accumulate(least[::-1])[::-1], ENDLESS]
    return lambda row: min(row, int(named[np.searchsorted(table.offsets, row)]))


def _cut(rows: pa.Table, until: int) -> tuple[pa.Table, pa.Table]:
    """Return the rows that start before a time, and the others."""
    before = int_column(rows, "start_ns", 0) < until
    count = int(before.sum())
    if before[:count].all():
        return rows.slice(0, count), rows.slice(count)
    return rows.filter(pa.array(before)), rows.filter(pa.array(~before))


def _more(held: Stretch, reader: Iterator[Stretch], until: int) -> Stretch:
    """Return what is held of a table, with the next stretch where it is all there is until then."""
    if held.until > until:
        return held
    found = next(reader)
    return found._replace(rows=pa.concat_tables([held.rows, found.rows]))


class RunningCodes:
    """Codes of a text column that is read in parts: those of all parts at once."""

    def __init__(self) -> None:
        self._codes = TextCodes()

    def add(self, part: pa.Table, name: str) -> Int:
        """Return the codes of a part, -1 for null; texts are numbered as they come first."""
        code, texts = code_column(part, name)
        known = [self._codes[text] for text in texts]
        found: Int = np.array([*known, -1], np.int32)[code]
        return found

    @property
    def texts(self) -> list[str]:
        """The text of each code."""
        return list(self._codes)


def frame_of_parts(
    parts: Iterable[pa.Table],
    names: Sequence[str],
    kept: Callable[[str, Int], Int] = lambda n, v: v if n in _LONG else narrow(v),
    count: int = 0,
    *,
    by: Sequence[str] = (),
    never_null: Collection[str] | None = None,
) -> pd.DataFrame:
    """Return columns of parts, at least one, as a DataFrame that takes little memory.

    Text is categorical, and whole numbers and truth values stay such if some are null.

    Args:
        parts: which have these columns.
        names: of the columns.
        kept: returns the whole numbers of a column by its name in the type in which they are held.
        count: how many rows there are, if that is known: columns need not grow then.
        by: columns of whole numbers without null that say the order of the rows; as they come.
        never_null: the columns of a type without null; by default those that have none.
    """
    import pandas as pd

    codes: defaultdict[str, RunningCodes] = defaultdict(RunningCodes)
    held = {name: (_Growing(count), _Growing(count)) for name in dict.fromkeys((*names, *by))}
    for part in parts:
        for name, (values, nulls) in held.items():
            column = part[name]
            if pa.types.is_dictionary(column.type):
                values.add(narrow(codes[name].add(part, name)))
            elif pa.types.is_floating(column.type):
                values.add(column.to_numpy())
            else:
                missing = np.zeros(len(column), bool)
                if column.null_count:
                    missing = column.is_null().to_numpy()
                    column = column.fill_null(pa.scalar(0).cast(column.type))
                known = column.to_numpy()
                values.add(kept(name, known) if pa.types.is_integer(column.type) else known)
                nulls.add(missing)
    found: dict[str, Any] = {}
    order: Any = np.lexsort([held[n][0].whole() for n in by[::-1]]) if by else slice(None)
    for name in names:
        column, missing = (each.whole() for each in held.pop(name))
        column, missing = column[order], missing[order if len(missing) else slice(None)]
        if name in codes:
            texts: Any = codes[name].texts
            found[name] = pd.Categorical.from_codes(column, texts, validate=False)
        elif column.dtype.kind != "f" and (
            missing.any() if never_null is None else name not in never_null
        ):
            of = pd.arrays.BooleanArray if column.dtype == bool else pd.arrays.IntegerArray
            found[name] = of(column, missing)
        else:
            found[name] = column
    return pd.DataFrame(found, copy=False)


class _Growing:
    """A column that comes in parts, and is there once: a million rows count twice otherwise."""

    def __init__(self, room: int) -> None:
        self._held: NDArray[Any] = np.empty(0, bool)
        self._room, self._end = room, 0

    def add(self, more: NDArray[Any]) -> None:
        """Add the next rows, of any type that holds them."""
        kind = more.dtype if not self._end else np.promote_types(self._held.dtype, more.dtype)
        end = self._end + len(more)
        if kind != self._held.dtype or end > len(self._held):
            self._room = max(self._room, end, 3 * self._end // 2)
            before, self._held = self._held, np.empty(self._room, kind)
            self._held[: self._end] = before[: self._end]
        self._held[self._end : end] = more
        self._end = end

    def whole(self) -> NDArray[Any]:
        """Return all rows; nothing is added after that."""
        self._held.resize(self._end, refcheck=False)
        return self._held


class Tail:
    """A column by row number, of which the beginning is forgotten when nobody asks for it."""

    def __init__(self) -> None:
        self._first = 0
        self._values: NDArray[Any] = np.empty(0, np.int32)

    @property
    def end(self) -> int:
        """The number of rows so far."""
        return self._first + len(self._values)

    def extend(self, values: Int) -> None:
        """Add the next rows."""
        self._values = np.concatenate((self._values, short(values)))

    def at(self, rows: Int) -> Int:
        """Return the values of rows; -1 for none, which is -1."""
        return lookup(self._values, np.where(rows >= 0, rows - self._first, -1), -1)

    def forget(self, before: int) -> None:
        """Let go of the rows before this one."""
        if before > self._first:
            self._values = self._values[before - self._first :].copy()
            self._first = before
