"""A table of a store, part by part: what is too long to be read at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq

from pyprof2.errors import StoreError, is_shortage, shortage
from pyprof2.store_checks import find_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pyprof2.tables import Table

_FAR = 1 << 62


class TableParts:
    """The rows of one rank of a table, in parts of which each can be read by itself.

    Attributes:
        table: which one.
        offsets: the number of rows before each part, at least one, and at the end that of all.
    """

    def __init__(
        self, file: Path, table: Table, row_count: Callable[[str], int] | None = None
    ) -> None:
        """Open a file that `pyprof2.store` has looked at.

        Args:
            file: of one rank.
            table: which one it is of.
            row_count: gives the number of rows that another table has of this rank; None: we have
                just written the file, and the keys in it are not looked at.
        """
        self.table = table
        self._file = file
        self._row_count = row_count
        # Nothing is read ahead, nor by threads of Arrow's, each of which keeps memory of its own.
        self._parquet = pq.ParquetFile(file, pre_buffer=False)
        groups = range(self._parquet.metadata.num_row_groups)
        # Of no rows there is one part, too: it says which columns there are.
        counts = [self._parquet.metadata.row_group(group).num_rows for group in groups] or [0]
        self.offsets: NDArray[np.int64] = np.cumsum([0, *counts])

    def __len__(self) -> int:
        """Return the number of parts."""
        return len(self.offsets) - 1

    @property
    def row_count(self) -> int:
        """The number of rows in all parts."""
        return int(self.offsets[-1])

    def read(self, part: int, columns: Sequence[str]) -> pa.Table:
        """Return columns of a part, in the order of the table.

        Raises:
            StoreError: it is damaged, or its keys are of rows that do not exist.
        """
        if not self.row_count:
            return self.table.schema(columns).empty_table()
        try:
            found = self._parquet.read_row_group(part, columns=list(columns), use_threads=False)
        except (OSError, pa.ArrowException) as error:
            if is_shortage(error):
                raise shortage(error, self._file) from error
            raise self._damaged(type(error).__name__) from error
        if self._row_count is not None:
            what = find_fault(self.table, found, self._row_count, int(self.offsets[part]))
            if what is not None:
                raise self._damaged(what)
        return self.table.conform(found, columns)

    def empty(self, columns: Sequence[str]) -> pa.Table:
        """Return columns without rows, in the order of the table."""
        return self.table.schema(columns).empty_table()

    def bounds(self, column: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the least and the greatest value of a column of whole numbers, of each part.

        Of a part without values, the least is above the greatest; where the file does not say
        what it holds, it may be anything.
        """
        at = self._parquet.schema_arrow.get_field_index(column)
        least, greatest = np.full(len(self), -_FAR), np.full(len(self), _FAR)
        if not self.row_count:
            return greatest, least
        for part in range(self._parquet.metadata.num_row_groups):
            chunk = self._parquet.metadata.row_group(part).column(at)
            stats = chunk.statistics
            if chunk.path_in_schema != column or stats is None:
                continue
            if stats.has_min_max:
                least[part], greatest[part] = stats.min, stats.max
            elif stats.has_null_count and stats.null_count == chunk.num_values:
                least[part], greatest[part] = _FAR, -_FAR
        return least, greatest

    def _damaged(self, what: str) -> StoreError:
        msg = f"{self._file}: {what}; make the store anew with 'pyprof2 parse --force'"
        return StoreError(msg)


class SpooledParts:
    """Parts of a table of numbers, in a file that is ours: written once, each read by itself."""

    def __init__(self, file: Path, schema: pa.Schema, parts: Iterable[pa.Table]) -> None:
        """Write the parts, each of which may be made when it is asked for.

        Args:
            file: to be written; it does not exist yet.
            schema: columns of whole numbers without null.
            parts: that have these columns.
        """
        self._file, self._schema = file, schema
        counts, self._bounds = [0], []
        with pa.ipc.new_file(file, schema) as writer:
            for part in parts:
                if not part.num_rows:
                    continue
                writer.write_batch(part.combine_chunks().to_batches()[0])
                counts.append(part.num_rows)
                self._bounds.append(
                    {n: tuple(pc.min_max(part[n]).as_py().values()) for n in schema.names}
                )
        self.offsets: NDArray[np.int64] = np.cumsum(counts)

    @property
    def row_count(self) -> int:
        """The number of rows in all parts."""
        return int(self.offsets[-1])

    def __len__(self) -> int:
        """Return the number of parts."""
        return len(self._bounds)

    def read(self, part: int, columns: Sequence[str]) -> pa.Table:
        """Return columns of a part."""
        # Not mapped: what is read once would stay in memory until the file is closed.
        with pa.OSFile(str(self._file)) as source:
            batch = pa.ipc.open_file(source).get_batch(part)
        return pa.Table.from_batches([batch]).select(columns)

    def empty(self, columns: Sequence[str]) -> pa.Table:
        """Return columns without rows."""
        return self._schema.empty_table().select(columns)

    def bounds(self, column: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the least and the greatest value of a column, of each part."""
        found = [each[column] for each in self._bounds]
        least, greatest = np.array(found, np.int64).reshape(-1, 2).T
        return least, greatest
