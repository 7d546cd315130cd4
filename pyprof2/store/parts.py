"""A table of a store, part by part: what is too long to be read at once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyprof2.errors import StoreError, is_shortage, shortage
from pyprof2.tables import Column, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


_FAR: Final = 1 << 62


class TableParts:
    """The rows of one rank of a table, in parts of which each can be read by itself.

    Attributes:
        table: which one.
        offsets: the number of rows before each part, at least one, and at the end that of all.
        parquet: the open file.
        others: the columns that are of another file with the same parts, and what writes it.
    """

    def __init__(
        self, file: Path, table: Table, row_count: Callable[[str], int] | None = None
    ) -> None:
        """Open a file that `pyprof2.store.folder` has looked at.

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
        self.parquet = pq.ParquetFile(file, pre_buffer=False)
        self.others: tuple[Collection[str], Callable[[], Path]] = (), lambda: file
        groups = range(self.parquet.metadata.num_row_groups)
        # A table without rows has one part, too: it says which columns there are.
        counts = [self.parquet.metadata.row_group(group).num_rows for group in groups] or [0]
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
            others = [name for name in columns if name in self.others[0]]
            names = [name for name in columns if name not in self.others[0]]
            found = self.parquet.read_row_group(part, columns=names, use_threads=False)
            if others:
                of_others = self._others.read_row_group(part, columns=others, use_threads=False)
                for name in others:
                    found = found.append_column(name, of_others[name])
        except (OSError, pa.ArrowException) as error:
            if is_shortage(error):
                raise shortage(error, self._file) from error
            raise self._damaged(type(error).__name__) from error
        if self._row_count is not None:
            what = find_fault(self.table, found, self._row_count, int(self.offsets[part]))
            if what is not None:
                raise self._damaged(what)
        return self.table.conform(found, columns)

    @cached_property
    def _others(self) -> pq.ParquetFile:
        return pq.ParquetFile(self.others[1](), pre_buffer=False)

    def empty(self, columns: Sequence[str]) -> pa.Table:
        """Return columns without rows, in the order of the table."""
        return self.table.schema(columns).empty_table()

    def bounds(self, column: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the least and the greatest value of a column of whole numbers, of each part.

        Of a part without values, the least is above the greatest; where the file does not say
        what it holds, it may be anything.
        """
        at = self.parquet.schema_arrow.get_field_index(column)
        least, greatest = np.full(len(self), -_FAR), np.full(len(self), _FAR)
        if not self.row_count:
            return greatest, least
        for part in range(self.parquet.metadata.num_row_groups):
            chunk = self.parquet.metadata.row_group(part).column(at)
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


def spooled(file: Path, schema: pa.Schema, parts: Iterable[pa.Table]) -> TableParts:
    """Return parts of a table of numbers without null, written once into a file that is ours.

    Args:
        file: to be written; it does not exist yet.
        schema: of the parts.
        parts: each of which may be made when it is asked for.
    """
    with pq.ParquetWriter(file, schema, compression="none", use_dictionary=False) as writer:
        for part in parts:
            if part.num_rows:
                writer.write_table(part, part.num_rows)
    columns = tuple(Column(each.name, each.type, "", nullable=False) for each in schema)
    return TableParts(file, Table(file.stem, "", columns))


ROW_KEYS: Final = {
    "ops": "op_id", "launches": "launch_id", "signatures": "signature_id", "stacks": "stack_id",
    "ranges": "range_id", "stalls": "stall_id", "estimates": "estimate_id",
    "graph_nodes": "graph_node",
}  # fmt: skip
"""The tables whose rows are numbered from 0 in the order in which they stand."""
JOINS: Final = {
    "op_id": "ops", "parent_op_id": "ops", "forward_op_id": "ops", "cost_op_id": "ops",
    "signature_id": "signatures", "launch_id": "launches", "stack_id": "stacks",
    "caller_id": "stacks", "estimate_id": "estimates", "shapes_op_id": "ops",
    "graph_node": "graph_nodes", "call_node": "graph_nodes", "cost_call_node": "graph_nodes",
}  # fmt: skip
"""The columns that hold a row key of another table, or of their own."""
_ACTIVITIES: Final = ("kernels", "copies")
_OF_ACTIVITIES: Final = ("kernel_id", "call_id", "cost_call_id")
"""The columns that hold a `kernel_id`, by which kernels and copies are numbered together."""
_POINT_BACK: Final = {"parent_op_id": "ops", "caller_id": "stacks"}
"""The columns whose chains end, because each row points to one before it."""
_TIMES: Final = ("start_ns", "launch_ns", "time_ns", "end_ns")
_LENGTHS: Final = ("dur_ns", "self_ns", "op_time_ns", "kernel_count", "depth")
"""Times and lengths stay below it, so that their sums fit into 64 bits."""


def find_fault(
    table: Table, rows: pa.Table, row_count: Callable[[str], int], first: int = 0
) -> str | None:
    """Return what is wrong with the rows of one rank, in words; None if nothing is.

    Args:
        table: a table of a store.
        rows: all or some of its columns.
        row_count: gives the number of rows that another table has of this rank.
        first: how many rows of the table stand before these.
    """
    for column in table.schema(rows.column_names):
        values = rows[column.name]
        if not column.nullable and values.null_count:
            return f"column {column.name} has nulls"
        if column.name == ROW_KEYS.get(table.name):
            if not np.array_equal(values.to_numpy(), first + np.arange(rows.num_rows)):
                return f"column {column.name} does not number the rows"
        elif column.name in (*JOINS, *_OF_ACTIVITIES):
            own = JOINS.get(column.name)
            # Without a GPU the rows with these ids are those of op calls.
            numbered = _ACTIVITIES if any(map(row_count, _ACTIVITIES)) else ("ops",)
            others = numbered if own is None else (own,)
            if not _is_within(values, 0, sum(map(row_count, others)) - 1):
                return f"column {column.name} names rows that do not exist"
            if (
                _POINT_BACK.get(column.name) == table.name
                and not (values.fill_null(-1).to_numpy() < first + np.arange(rows.num_rows)).all()
            ):
                return f"column {column.name} goes round in circles"
        elif column.name in (*_TIMES, *_LENGTHS) and not _is_within(
            values, 0 if column.name in _LENGTHS else -_FAR, _FAR
        ):
            return f"column {column.name} has values that are none"
    return None


def _is_within(values: pa.ChunkedArray, least: int, most: int) -> bool:
    bounds = pc.min_max(values).as_py()
    return bounds["min"] is None or bool(least <= bounds["min"] and bounds["max"] <= most)
