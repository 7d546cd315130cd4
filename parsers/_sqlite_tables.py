"""Tables of SQLite files, read from the pages of their rows.

SQLite runs a program for each row, and a driver asks it for each value; a table of an export is
mostly plain, and then `_sqlite_pages.c` takes a tenth of that time. What is not plain is left to
SQLite. The format: https://www.sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import contextlib
import os
from array import array
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa

from pyprof2 import is_pure

_sqlite_pages: Any = None
with contextlib.suppress(ImportError):  # it was not built
    from pyprof2.parsers import _sqlite_pages

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence
    from io import FileIO

_HEAD_BYTES: Final = 100
_MAGIC: Final = b"SQLite format 3\0"
_PAGE_SIZE, _ENCODING = slice(16, 18), slice(56, 60)
_RESERVED: Final = 20
_UTF_8: Final = 1
_INNER: Final = b"\x05"
_DEEPEST: Final = 20
_BATCH_BYTES: Final = 6 << 20
"""So many bytes of pages are a batch: some 65,000 rows."""
_PLACE: Final = "SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?"
_COLUMNS: Final = "SELECT cid, name, pk FROM pragma_table_info(?)"


class TablePages:
    """The pages that have the rows of a table.

    Attributes:
        are_read: whether `batches` has come to their end.
    """

    def __init__(self, file: FileIO, page_size: int, usable: int) -> None:
        """Use `of`."""
        self.are_read = False
        self._file, self._page_size, self._usable = file, page_size, usable
        self._page_count = os.fstat(file.fileno()).st_size // page_size
        self._leaves: Sequence[int] = ()
        self._columns: list[tuple[int, bool, str]] = []

    @classmethod
    def of(
        cls, file: FileIO, connection: sqlite3.Connection, table: str, texts: Mapping[str, bool]
    ) -> Self | None:
        """Look for the pages; return None where they are not plain, or cannot be read here.

        Args:
            file: the file, not buffered.
            connection: to it; it holds a lock from now on.
            table: its name.
            texts: the wanted columns, and whether each is text.
        """
        if _sqlite_pages is None or is_pure():
            return None
        connection.execute("BEGIN")
        place = connection.execute(_PLACE, (table,)).fetchone()
        columns = connection.execute(_COLUMNS, (table,)).fetchall()
        head = _bytes_at(file, 0, _HEAD_BYTES)
        page_size = int.from_bytes(head[_PAGE_SIZE])
        page_size = 1 << 16 if page_size == 1 else page_size
        is_known = head.startswith(_MAGIC) and page_size.bit_count() == 1
        # A key may be the number of its row, which is no value in it.
        numbers = [
            (cid, texts[name], name) for cid, name, key in columns if name in texts and not key
        ]
        is_text_known = int.from_bytes(head[_ENCODING]) == _UTF_8 or not any(texts.values())
        if not (is_known and place and is_text_known and len(numbers) == len(texts)):
            return None
        found = cls(file, page_size, page_size - head[_RESERVED])
        found._columns = sorted(numbers)
        leaves = found._find_leaves(place[0])
        found._leaves = leaves or ()
        return None if leaves is None else found

    def _find_leaves(self, root: int) -> list[int] | None:
        """Return the numbers of the pages that have rows, in order of these."""
        level = [root]
        for _ in range(_DEEPEST):
            if not all(1 < number <= self._page_count for number in level):
                return None
            if self._read(level[:1])[:1] != _INNER:
                return level
            below: list[int] = []
            for number in level:
                found = _sqlite_pages.children(self._read([number])[: self._usable])
                # Pages that lead to others many times have more rows than anyone can count.
                if found is None or len(below) + len(found) > self._page_count:
                    return None
                below += found
            level = below
        return None

    def _read(self, numbers: Sequence[int]) -> bytes:
        """Return pages, each run of consecutive ones read at once."""
        at = np.array(numbers)
        bounds = np.flatnonzero(np.r_[True, np.diff(at) != 1, True]).tolist()
        size = self._page_size
        return b"".join(
            _bytes_at(self._file, (numbers[first] - 1) * size, (end - first) * size)
            for first, end in pairwise(bounds)
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, up to the first pages that are not plain."""
        codes = array("q", [2 * number + is_text for number, is_text, _ in self._columns])
        per_batch = max(1, _BATCH_BYTES // self._page_size)
        for at in range(0, len(self._leaves), per_batch):
            numbers = self._leaves[at : at + per_batch]
            data = self._read(numbers)
            if len(data) != len(numbers) * self._page_size:
                return
            found = _sqlite_pages.rows(data, self._page_size, self._usable, codes.tobytes())
            if found is None:
                return
            count, columns = found
            arrays = [
                _array(is_text, count, column)
                for (_, is_text, _), column in zip(self._columns, columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, [name for _, _, name in self._columns])
        self.are_read = True


def _bytes_at(file: FileIO, place: int, count: int) -> bytes:
    file.seek(place)
    return file.read(count)


def _array(is_text: bool, count: int, column: tuple[int, bytes, bytes]) -> pa.Array:  # noqa: FBT001
    unknown, *buffers = column[0], pa.py_buffer(column[1]), pa.py_buffer(column[2])
    if is_text:
        return pa.StringArray.from_buffers(count, *buffers)
    numbers, known = buffers
    return pa.Array.from_buffers(pa.int64(), count, [known if unknown else None, numbers], unknown)
